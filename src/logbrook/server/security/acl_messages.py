"""ACLs in the messages of CreateAcls, DescribeAcls and DeleteAcls, and the checks that their handlers share.

Their messages have ACLs and filters with numbers for the names. Without an authorizer all three are refused with
SECURITY_DISABLED: ACLs that nobody enforces would give a false sense of security.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import TypeVar

from logbrook.core.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    InvalidAclError,
    PatternType,
    PermissionType,
    ResourceType,
)
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_acls import AclCreation
from logbrook.protocol.messages.delete_acls import DeleteAclsFilter
from logbrook.protocol.messages.describe_acls import DescribeAclsRequest
from logbrook.server.api import RequestContext
from logbrook.server.errors import RequestRefusedError
from logbrook.server.security.authorizer import NO_AUTHORIZER
from logbrook.server.services import Services

E = TypeVar("E", bound=IntEnum)

# A store takes a bounded number of changes in one transaction: etcd 128 by default.
_CHANGES_MAX = 100


def check_acl_request(services: Services, context: RequestContext, operation: AclOperation) -> None:
    """Raises RequestRefusedError without an authorizer, and for clients without the right on the cluster."""
    if not services.authorizer.is_enabled:
        raise RequestRefusedError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    services.authorizer.check_cluster(context, operation)


async def change_acls(
    services: Services,
    acls: Sequence[AclBinding],
    decide: Callable[[Sequence[AclBinding]], list[tuple[str, bytes | None]]],
) -> None:
    """Write the records that `decide` returns for the ACLs, in several transactions if they are many.

    Raises StorageError or MetadataStoreError.
    """
    for start in range(0, len(acls), _CHANGES_MAX):
        part = acls[start : start + _CHANGES_MAX]
        await services.topics.change_security(partial(decide, part))


def acl_of(creation: AclCreation) -> AclBinding:
    """Raises InvalidAclError."""
    return AclBinding(
        _known(ResourceType, creation.resource_type),
        _known(PatternType, creation.resource_pattern_type),
        creation.resource_name,
        creation.principal,
        creation.host,
        _known(AclOperation, creation.operation),
        _known(PermissionType, creation.permission_type),
    )


def filter_of(wanted: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """Raises InvalidAclError."""
    return AclFilter(
        _known(ResourceType, wanted.resource_type_filter),
        _known(PatternType, wanted.pattern_type_filter),
        wanted.resource_name_filter,
        wanted.principal_filter,
        wanted.host_filter,
        _known(AclOperation, wanted.operation),
        _known(PermissionType, wanted.permission_type),
    )


def _known(names: type[E], number: int) -> E:
    try:
        return names(number)
    except ValueError:
        raise InvalidAclError(f"there is no {names.__name__} with the number {number}") from None
