"""Decides what the client of a request may do, by the ACLs of its principal and host.

Without `security.authorization` everything is allowed. Handlers ask for every request, so that a change of the ACLs
takes effect for the next one. Denials are audited, except where the client did not name the resource: lists leave out
what it may not see, and some rights are only asked for because another one would do as well.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from logbrook.config.security import SecurityConfig
from logbrook.core.acls import CLUSTER_NAME, AclOperation, Acls, ResourceType
from logbrook.model.security import Principal
from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.errors import RequestRefusedError
from logbrook.server.security.audit import AuditLog

if TYPE_CHECKING:
    from logbrook.server.api import RequestContext

# The value of a response whose request did not ask for the operations: the least number of 32 bits, and no bit field.
NOT_REQUESTED = -(2**31)
# The message of Kafka's SECURITY_DISABLED.
NO_AUTHORIZER = "No Authorizer is configured."

DENIED_CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}

# The operations that apply to a type of resource, as Kafka's responses report them (KIP-430).
_APPLICABLE = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


_ALL_BITS = {resource_type: _bits(operations) for resource_type, operations in _APPLICABLE.items()}


class AuthorizationFailedError(RequestRefusedError):
    """The principal may not perform the operation on the resource; `code` is Kafka's for the type of the resource."""

    def __init__(self, principal: Principal, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        super().__init__(
            DENIED_CODES[resource_type],
            f"{principal} is not authorized to {operation.name} {resource_type.name} {name!r}",
        )


class Authorizer:
    """One per broker, on the event loop. Hot paths check `is_enabled` before they call it."""

    __slots__ = ("_acls", "_audit", "is_enabled")

    def __init__(self, config: SecurityConfig, acls: Acls, audit: AuditLog) -> None:
        acls.configure(config.super_principals, allows_without_acl=config.allow_everyone_if_no_acl)
        self._acls = acls
        self._audit = audit
        self.is_enabled = config.authorization

    def allows(
        self,
        context: "RequestContext",
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_audited: bool = True,
    ) -> bool:
        if not self.is_enabled:
            return True
        session = context.session
        if self._acls.authorize(session.principal, session.host, operation, resource_type, name):
            return True
        if is_audited:
            self._audit.denied(context, operation.name, resource_type.name, name)
        return False

    def allows_cluster(self, context: "RequestContext", operation: AclOperation, *, is_audited: bool = True) -> bool:
        return self.allows(context, operation, ResourceType.CLUSTER, CLUSTER_NAME, is_audited=is_audited)

    def allows_any(self, context: "RequestContext", operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return True if there may be a resource of the type on which the operation is allowed. Not audited."""
        session = context.session
        return not self.is_enabled or self._acls.authorize_any(
            session.principal, session.host, operation, resource_type
        )

    def refusal(
        self, context: "RequestContext", operation: AclOperation, resource_type: ResourceType, name: str
    ) -> AuthorizationFailedError | None:
        """Return the error of a client that lacks the right, None if it has it. It is reported, not raised."""
        if self.allows(context, operation, resource_type, name):
            return None
        return AuthorizationFailedError(context.session.principal, operation, resource_type, name)

    def cluster_refusal(self, context: "RequestContext", operation: AclOperation) -> AuthorizationFailedError | None:
        return self.refusal(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def check(self, context: "RequestContext", operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Raises AuthorizationFailedError if the client lacks the right."""
        if not self.allows(context, operation, resource_type, name):
            raise AuthorizationFailedError(context.session.principal, operation, resource_type, name)

    def check_cluster(self, context: "RequestContext", operation: AclOperation) -> None:
        """Raises AuthorizationFailedError if the client lacks the right on the cluster."""
        self.check(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def operations(self, context: "RequestContext", resource_type: ResourceType, name: str) -> int:
        """Return the allowed operations as a bit field: bit N is set for the operation with the number N (KIP-430)."""
        if not self.is_enabled:
            return _ALL_BITS[resource_type]
        return _bits(
            operation
            for operation in _APPLICABLE[resource_type]
            if self.allows(context, operation, resource_type, name, is_audited=False)
        )

    def cluster_operations(self, context: "RequestContext") -> int:
        """Return the allowed operations on the cluster, 0 for a client that may not describe it."""
        if not self.allows_cluster(context, AclOperation.DESCRIBE, is_audited=False):
            return 0
        return self.operations(context, ResourceType.CLUSTER, CLUSTER_NAME)
