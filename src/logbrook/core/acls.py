"""The ACLs of a cluster as a state machine, and the decisions that follow from them, as Kafka's StandardAuthorizer.

    records = acls.create([binding])                    # decides, or raises
    ...                                                 # the records are written to the metadata store
    for key, value in records: acls.replay(key, value)
    acls.authorize(principal, host, AclOperation.READ, ResourceType.TOPIC, "orders")

Only `replay` changes the state. A request is decided by these rules, the first that applies:

    1. Super users may do everything.
    2. A DENY of the operation, or of ALL, that matches resource, principal and host: denied.
    3. An ALLOW of the operation, of ALL, or of one that implies it: allowed. READ, WRITE, DELETE and ALTER imply
       DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS. A DENY implies nothing.
    4. No ACL at all has a pattern that matches the resource: `allows_without_acl` decides.
    5. Denied.

The ACLs that apply to a name are found by its literal name, by `*`, and by its beginnings of every length that a
prefixed pattern has. Decisions are cached until the next change; when the cache is full, it is emptied.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

from logbrook.core.acl_bindings import (
    ACL_PREFIX,
    ANY_PRINCIPAL,
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    InvalidAclError,
    PatternType,
    PermissionType,
    ResourceType,
)
from logbrook.model.security import Principal

__all__ = [
    "ACL_PREFIX",
    "CLUSTER_NAME",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "Acls",
    "InvalidAclError",
    "PatternType",
    "PermissionType",
    "ResourceType",
]

# A key of the metadata store and its new value, None if it is deleted.
_Record: TypeAlias = tuple[str, bytes | None]
_Pattern: TypeAlias = tuple[ResourceType, PatternType, str]
_Decision: TypeAlias = tuple[Principal, str, AclOperation, ResourceType, str | None]

# All that there is to say about an ACL is in its key.
_VALUE = b"{}"
_DECISIONS_MAX = 65_536
# Kafka decides whether a principal has a right on any resource of a type with this name first.
_ANY_NAME = "hardcode"

# The operations of an ALLOW that permit an operation.
_PERMITTED_BY: dict[AclOperation, frozenset[AclOperation]] = {
    operation: frozenset({operation, AclOperation.ALL}) for operation in AclOperation
}
_PERMITTED_BY[AclOperation.DESCRIBE] |= {
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.ALTER,
}
_PERMITTED_BY[AclOperation.DESCRIBE_CONFIGS] |= {AclOperation.ALTER_CONFIGS}


class Acls:
    """One per broker, on the event loop."""

    def __init__(
        self,
        super_users: Iterable[Principal] = (),
        *,
        allows_without_acl: bool = False,
        decisions_max: int = _DECISIONS_MAX,
    ) -> None:
        self._acls: set[AclBinding] = set()
        # By resource pattern, then by principal.
        self._by_pattern: dict[_Pattern, dict[str, set[AclBinding]]] = {}
        # How many patterns of each length are prefixes.
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {kind: Counter() for kind in ResourceType}
        self._by_principal: dict[tuple[ResourceType, str], set[AclBinding]] = {}
        self._decisions: dict[_Decision, bool] = {}
        # Counts the changes of the rules.
        self.version = 0
        self._decisions_max = decisions_max
        self.configure(super_users, allows_without_acl=allows_without_acl)

    def __len__(self) -> int:
        return len(self._acls)

    def configure(self, super_users: Iterable[Principal], *, allows_without_acl: bool) -> None:
        """Set the part of the rules that is not in the metadata store, but in the broker's settings."""
        self._super_users = frozenset(super_users)
        self._allows_without_acl = allows_without_acl
        self._decisions.clear()
        self.version += 1

    def __contains__(self, acl: AclBinding) -> bool:
        return acl in self._acls

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return True if the principal may perform the operation on the resource with this name."""
        request = (principal, host, operation, resource_type, name)
        decision = self._decisions.get(request)
        if decision is None:
            decision = self._keep(request, self._decide(principal, host, operation, resource_type, name))
        return decision

    def authorize_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return True if there may be a resource of this type on which the principal may perform the operation."""
        request = (principal, host, operation, resource_type, None)
        decision = self._decisions.get(request)
        if decision is None:
            decision = self._keep(request, self._decide_any(principal, host, operation, resource_type))
        return decision

    def matching(self, acl_filter: AclFilter) -> list[AclBinding]:
        return sorted(filter(acl_filter.matches, self._acls))

    def create(self, acls: Iterable[AclBinding]) -> list[_Record]:
        """Return the records of the ACLs that do not exist yet. Raises InvalidAclError."""
        new = dict.fromkeys(acls)
        for acl in new:
            acl.check()
        return [(acl.key, _VALUE) for acl in new if acl not in self._acls]

    def delete(self, acls: Iterable[AclBinding]) -> list[_Record]:
        """Return the records that delete those of the ACLs that exist."""
        return [(acl.key, None) for acl in dict.fromkeys(acls) if acl in self._acls]

    def replay(self, key: str, value: bytes | None) -> None:
        """Apply a record. Raises ValueError for a key that is not of an ACL."""
        acl = AclBinding.of_key(key)
        if (value is not None) == (acl in self._acls):
            return
        self._decisions.clear()
        self.version += 1
        if value is None:
            self._remove(acl)
        else:
            self._add(acl)

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls."""
        indexed = [acl for principals in self._by_pattern.values() for acls in principals.values() for acl in acls]
        assert len(indexed) == len(self._acls)
        assert set(indexed) == self._acls
        assert set().union(*self._by_principal.values()) == self._acls
        assert all(self._by_pattern.values())
        assert all(acls for principals in self._by_pattern.values() for acls in principals.values())
        assert all(self._by_principal.values())
        prefixes = [pattern for pattern in self._by_pattern if pattern[1] is PatternType.PREFIXED]
        for resource_type, lengths in self._prefix_lengths.items():
            assert lengths == Counter(len(name) for kind, _, name in prefixes if kind is resource_type)
        assert len(self._decisions) <= self._decisions_max
        for acl in self._acls:
            acl.check()
            assert AclBinding.of_key(acl.key) == acl

    def _add(self, acl: AclBinding) -> None:
        self._acls.add(acl)
        pattern = (acl.resource_type, acl.pattern_type, acl.name)
        if pattern not in self._by_pattern:
            self._by_pattern[pattern] = {}
            if acl.pattern_type is PatternType.PREFIXED:
                self._prefix_lengths[acl.resource_type][len(acl.name)] += 1
        self._by_pattern[pattern].setdefault(acl.principal, set()).add(acl)
        self._by_principal.setdefault((acl.resource_type, acl.principal), set()).add(acl)

    def _remove(self, acl: AclBinding) -> None:
        self._acls.remove(acl)
        pattern, owner = (acl.resource_type, acl.pattern_type, acl.name), (acl.resource_type, acl.principal)
        self._by_principal[owner].remove(acl)
        if not self._by_principal[owner]:
            del self._by_principal[owner]
        principals = self._by_pattern[pattern]
        principals[acl.principal].remove(acl)
        if principals[acl.principal]:
            return
        del principals[acl.principal]
        if principals:
            return
        del self._by_pattern[pattern]
        if acl.pattern_type is PatternType.PREFIXED:
            lengths = self._prefix_lengths[acl.resource_type]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    def _keep(self, request: _Decision, decision: bool) -> bool:
        if len(self._decisions) >= self._decisions_max:
            self._decisions.clear()
        self._decisions[request] = decision
        return decision

    def _decide(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        owners = (str(principal), ANY_PRINCIPAL)
        has_acl = is_allowed = False
        for pattern in self._patterns(resource_type, name):
            principals = self._by_pattern.get(pattern)
            if principals is None:
                continue
            has_acl = True
            for acl in _of(principals, owners):
                if acl.host not in (WILDCARD, host):
                    continue
                if acl.permission is PermissionType.ALLOW:
                    is_allowed = is_allowed or acl.operation in _PERMITTED_BY[operation]
                elif acl.operation in (operation, AclOperation.ALL):
                    return False
        return is_allowed or (self._allows_without_acl and not has_acl)

    def _patterns(self, resource_type: ResourceType, name: str) -> Iterator[_Pattern]:
        """Yield the patterns that match the name, also those that no ACL has."""
        yield resource_type, PatternType.LITERAL, name
        if name != WILDCARD:
            yield resource_type, PatternType.LITERAL, WILDCARD
        yield from self._prefixes(resource_type, name)

    def _prefixes(self, resource_type: ResourceType, name: str) -> Iterator[_Pattern]:
        for length in self._prefix_lengths[resource_type]:
            if length <= len(name):
                yield resource_type, PatternType.PREFIXED, name[:length]

    def _decide_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Kafka's rules: an ALLOW counts unless a DENY covers all names of its pattern. Nothing is implied."""
        if self._decide(principal, host, operation, resource_type, _ANY_NAME):
            return True
        owners = (str(principal), ANY_PRINCIPAL)
        operations = (operation, AclOperation.ALL)

        def is_denied(pattern: _Pattern) -> bool:
            return any(
                acl.permission is PermissionType.DENY and acl.operation in operations and acl.host in (WILDCARD, host)
                for acl in _of(self._by_pattern.get(pattern, {}), owners)
            )

        if is_denied((resource_type, PatternType.LITERAL, WILDCARD)):
            return False
        for owner in owners:
            for acl in self._by_principal.get((resource_type, owner), ()):
                is_match = acl.operation in operations and acl.host in (WILDCARD, host)
                if acl.permission is not PermissionType.ALLOW or not is_match:
                    continue
                is_literal = acl.pattern_type is PatternType.LITERAL
                covering = [*self._prefixes(resource_type, acl.name)]
                if is_literal:
                    covering.append((resource_type, PatternType.LITERAL, acl.name))
                if (is_literal and acl.name == WILDCARD) or not any(map(is_denied, covering)):
                    return True
        return False


def _of(principals: dict[str, set[AclBinding]], owners: Collection[str]) -> Iterator[AclBinding]:
    for owner in owners:
        yield from principals.get(owner, ())
