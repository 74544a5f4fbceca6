"""Administration of ACLs: CreateAcls, DescribeAcls and DeleteAcls.

Resource types, pattern types, operations and permissions are words here, those of Kafka's tools in lower case. A number
that a broker knows and this client does not is shown as `unknown-N`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from logbrook.client.client import Client
from logbrook.client.errors import check_code
from logbrook.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from logbrook.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from logbrook.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

# The name of the only resource of the type cluster.
CLUSTER_NAME = "kafka-cluster"
# A principal, a host or a literal resource name that stands for all.
WILDCARD = "*"

ANY = "any"
LITERAL = "literal"
PREFIXED = "prefixed"
# In a filter: all patterns that apply to the name.
MATCH = "match"
ALLOW = "allow"
DENY = "deny"

# Kafka's numbers. 0 is for what a client does not know, 1 for any in filters.
RESOURCE_TYPES = {
    "topic": 2,
    "group": 3,
    "cluster": 4,
    "transactional-id": 5,
    "delegation-token": 6,
    "user": 7,
}
PATTERN_TYPES = {MATCH: 2, LITERAL: 3, PREFIXED: 4}
OPERATIONS = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster-action": 9,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
    "create-tokens": 13,
    "describe-tokens": 14,
    "two-phase-commit": 15,
}
PERMISSIONS = {DENY: 2, ALLOW: 3}
_ANY_NUMBER = 1
_UNKNOWN = "unknown-"


@dataclass(frozen=True, slots=True, order=True)
class AclEntry:
    """One ACL: `principal` from `host` is allowed or denied `operation` on the resources that the pattern matches."""

    resource_type: str
    name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True)
class AclSelection:
    """Selects ACLs; None and ANY match everything. With the pattern type MATCH, those that apply to the name."""

    resource_type: str = ANY
    name: str | None = None
    pattern_type: str = ANY
    principal: str | None = None
    host: str | None = None
    operation: str = ANY
    permission: str = ANY

    @classmethod
    def exactly(cls, entry: AclEntry) -> "AclSelection":
        return cls(
            entry.resource_type,
            entry.name,
            entry.pattern_type,
            entry.principal,
            entry.host,
            entry.operation,
            entry.permission,
        )


class AclAdmin:
    """Every call may raise ClientError. SECURITY_DISABLED: the cluster has no authorizer."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def select(self, selection: AclSelection | None = None) -> list[AclEntry]:
        """Return the selected ACLs, by resource."""
        wanted = selection or AclSelection()
        request = DescribeAclsRequest(
            resource_type_filter=_number(RESOURCE_TYPES, wanted.resource_type),
            resource_name_filter=wanted.name,
            pattern_type_filter=_number(PATTERN_TYPES, wanted.pattern_type),
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=_number(OPERATIONS, wanted.operation),
            permission_type=_number(PERMISSIONS, wanted.permission),
        )
        response = self._client.request(request, DescribeAclsResponse)
        check_code(response.error_code, "listing ACLs", response.error_message)
        entries = [
            AclEntry(
                _word(RESOURCE_TYPES, resource.resource_type),
                resource.resource_name,
                _word(PATTERN_TYPES, resource.pattern_type),
                acl.principal,
                acl.host,
                _word(OPERATIONS, acl.operation),
                _word(PERMISSIONS, acl.permission_type),
            )
            for resource in response.resources
            for acl in resource.acls
        ]
        return sorted(entries)

    def create(self, entries: Sequence[AclEntry]) -> None:
        """Add ACLs; those that exist are left as they are. The first refusal is raised, others may have been added."""
        creations = [
            AclCreation(
                resource_type=_number(RESOURCE_TYPES, entry.resource_type),
                resource_name=entry.name,
                resource_pattern_type=_number(PATTERN_TYPES, entry.pattern_type),
                principal=entry.principal,
                host=entry.host,
                operation=_number(OPERATIONS, entry.operation),
                permission_type=_number(PERMISSIONS, entry.permission),
            )
            for entry in entries
        ]
        response = self._client.request_controller(CreateAclsRequest(creations=creations), CreateAclsResponse)
        for entry, result in zip(entries, response.results, strict=True):
            operation = f"adding the ACL of {entry.principal} for {entry.resource_type} {entry.name}"
            check_code(result.error_code, operation, result.error_message)

    def delete(self, entries: Sequence[AclEntry]) -> list[AclEntry]:
        """Delete exactly these ACLs. Returns those that existed."""
        filters = [_deletion(AclSelection.exactly(entry)) for entry in entries]
        response = self._client.request_controller(DeleteAclsRequest(filters=filters), DeleteAclsResponse)
        deleted = []
        for entry, result in zip(entries, response.filter_results, strict=True):
            operation = f"removing the ACL of {entry.principal} for {entry.resource_type} {entry.name}"
            check_code(result.error_code, operation, result.error_message)
            for match in result.matching_acls:
                check_code(match.error_code, operation, match.error_message)
                deleted.append(replace(entry, name=match.resource_name))
        return deleted


def _deletion(selection: AclSelection) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=_number(RESOURCE_TYPES, selection.resource_type),
        resource_name_filter=selection.name,
        pattern_type_filter=_number(PATTERN_TYPES, selection.pattern_type),
        principal_filter=selection.principal,
        host_filter=selection.host,
        operation=_number(OPERATIONS, selection.operation),
        permission_type=_number(PERMISSIONS, selection.permission),
    )


def _number(numbers: Mapping[str, int], word: str) -> int:
    if word.startswith(_UNKNOWN):
        return int(word.removeprefix(_UNKNOWN))
    return _ANY_NUMBER if word == ANY else numbers[word]


def _word(numbers: Mapping[str, int], number: int) -> str:
    return next((word for word, value in numbers.items() if value == number), f"{_UNKNOWN}{number}")
