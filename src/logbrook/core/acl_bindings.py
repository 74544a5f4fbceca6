"""ACLs as values: who may, or may not, perform an operation on a resource, from which host (KIP-11, KIP-290).

    ALLOW User:alice from * to READ on TOPIC PREFIXED orders.

A resource pattern is LITERAL, with one name or `*` for all names, or PREFIXED. A filter selects ACLs: None and ANY
match everything, and the pattern type MATCH selects the patterns that apply to a name. The numbers are Kafka's.
"""

from enum import IntEnum
from typing import NamedTuple
from urllib.parse import quote, unquote

from logbrook.model import LogbrookError
from logbrook.model.security import USER, Principal

WILDCARD = "*"
ANY_PRINCIPAL = str(Principal(USER, WILDCARD))
# The only resource of its type.
CLUSTER_NAME = "kafka-cluster"
ACL_PREFIX = "acls/"


class ResourceType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PatternType(IntEnum):
    """ANY and MATCH occur in filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


class InvalidAclError(LogbrookError):
    """The ACL cannot be created, or the filter is not valid."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class AclBinding(NamedTuple):
    """One ACL. Two that are equal are the same ACL."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    host: str
    operation: AclOperation
    permission: PermissionType

    def check(self) -> None:
        """Raises InvalidAclError unless the ACL can be created."""
        if self.resource_type is ResourceType.ANY:
            raise InvalidAclError("an ACL needs a resource type, not ANY")
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise InvalidAclError(f"the pattern type of an ACL is LITERAL or PREFIXED, not {self.pattern_type.name}")
        if self.operation is AclOperation.ANY:
            raise InvalidAclError("an ACL needs an operation, or ALL, not ANY")
        if self.permission is PermissionType.ANY:
            raise InvalidAclError("the permission type of an ACL is ALLOW or DENY, not ANY")
        if not self.name:
            raise InvalidAclError("the resource name is empty")
        if self.resource_type is ResourceType.CLUSTER and self.name != CLUSTER_NAME:
            raise InvalidAclError(f"the only resource of type CLUSTER is {CLUSTER_NAME!r}, not {self.name!r}")
        if not self.host:
            raise InvalidAclError("the host is empty; use * for all hosts")
        try:
            is_exact = str(Principal.parse(self.principal)) == self.principal
        except ValueError as error:
            raise InvalidAclError(str(error)) from error
        if not is_exact:
            raise InvalidAclError(f"the principal {self.principal!r} has space around it")

    @property
    def key(self) -> str:
        """The key of the metadata store: the parts, percent-encoded."""
        parts = (
            self.resource_type.name,
            self.pattern_type.name,
            self.name,
            self.principal,
            self.host,
            self.operation.name,
            self.permission.name,
        )
        return ACL_PREFIX + "/".join(quote(part, safe="", errors="surrogatepass") for part in parts)

    @classmethod
    def of_key(cls, key: str) -> "AclBinding":
        """Raises ValueError for a key that is not of an ACL."""
        parts = [unquote(part, errors="surrogatepass") for part in key.removeprefix(ACL_PREFIX).split("/")]
        try:
            resource_type, pattern_type, name, principal, host, operation, permission = parts
            return cls(
                ResourceType[resource_type],
                PatternType[pattern_type],
                name,
                principal,
                host,
                AclOperation[operation],
                PermissionType[permission],
            )
        except (KeyError, ValueError):
            raise ValueError(
                f"the metadata has an ACL with the unknown key {key!r}; it was written by a newer version"
            ) from None

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.principal} from {self.host} to {self.operation.name} on "
            f"{self.resource_type.name} {self.pattern_type.name} {self.name}"
        )


class AclFilter(NamedTuple):
    """Selects ACLs, as DescribeAcls and DeleteAcls do."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: PermissionType = PermissionType.ANY

    def matches(self, acl: AclBinding) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (PermissionType.ANY, acl.permission)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        if self.pattern_type is not PatternType.MATCH:
            return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.name in (None, acl.name)
        if self.name is None:
            return True
        if acl.pattern_type is PatternType.LITERAL:
            return acl.name in (self.name, WILDCARD)
        return self.name.startswith(acl.name)
