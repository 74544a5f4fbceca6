"""The indexed and cached decisions about ACLs equal those of a reference that looks at every ACL, one by one."""

from collections import Counter
from itertools import product
from random import Random

import pytest

from logbrook.core.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    Acls,
    PatternType,
    PermissionType,
    ResourceType,
)
from logbrook.model.security import Principal

PATTERNS = ("*", "a", "ab", "abc", "h", "hardcode", "*x")
NAMES = ("a", "ab", "abcd", "other", "*x", "*")
USERS = ("alice", "bob", "root", "*")
HOSTS = ("1.1.1.1", "2.2.2.2")
OPERATIONS = (
    AclOperation.READ,
    AclOperation.DESCRIBE,
    AclOperation.CREATE,
    AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
)


class Reference:
    """The rules of Kafka's authorizer, as they are written down."""

    def __init__(self, *, allows_without_acl: bool) -> None:
        self.acls: set[AclBinding] = set()
        self.allows_without_acl = allows_without_acl

    def authorize(self, user: Principal, host: str, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        if user.name == "root":
            return True
        of_resource = [acl for acl in self.acls if acl.resource_type is kind and applies(acl, name)]
        of_client = [acl for acl in of_resource if is_of(acl, user, host)]
        if any(denies(acl, operation) for acl in of_client):
            return False
        if any(allows(acl, operation) for acl in of_client):
            return True
        return self.allows_without_acl and not of_resource

    def authorize_any(self, user: Principal, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        if self.authorize(user, host, operation, kind, "hardcode"):
            return True
        acls = [acl for acl in self.acls if acl.resource_type is kind and is_of(acl, user, host)]
        acls = [acl for acl in acls if acl.operation in (operation, AclOperation.ALL)]
        denied = [acl for acl in acls if acl.permission is PermissionType.DENY]
        allowed = [acl for acl in acls if acl.permission is PermissionType.ALLOW]
        if any(is_wildcard(acl) for acl in denied):
            return False
        return any(is_wildcard(acl) or not any(covers(deny, acl) for deny in denied) for acl in allowed)


def is_wildcard(acl: AclBinding) -> bool:
    return acl.pattern_type is PatternType.LITERAL and acl.name == "*"


def applies(acl: AclBinding, name: str) -> bool:
    return name.startswith(acl.name) if acl.pattern_type is PatternType.PREFIXED else acl.name in (name, "*")


def is_of(acl: AclBinding, user: Principal, host: str) -> bool:
    return acl.principal in (str(user), "User:*") and acl.host in (host, "*")


def covers(deny: AclBinding, allow: AclBinding) -> bool:
    if deny.pattern_type is PatternType.PREFIXED:
        return allow.name.startswith(deny.name)
    return allow.pattern_type is PatternType.LITERAL and deny.name == allow.name


def denies(acl: AclBinding, operation: AclOperation) -> bool:
    return acl.permission is PermissionType.DENY and acl.operation in (operation, AclOperation.ALL)


def allows(acl: AclBinding, operation: AclOperation) -> bool:
    implied: dict[AclOperation, tuple[AclOperation, ...]] = {
        AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
        AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
    }
    permitting = (operation, AclOperation.ALL, *implied.get(operation, ()))
    return acl.permission is PermissionType.ALLOW and acl.operation in permitting


CLIENTS = [(Principal("User", user), host) for user in USERS for host in HOSTS]


@pytest.mark.parametrize("decisions_max", [5, 100_000])
@pytest.mark.parametrize("allows_without_acl", [False, True])
def test_decisions_equal_those_of_the_reference_after_every_change(
    allows_without_acl: bool, decisions_max: int
) -> None:
    random = Random(f"{allows_without_acl} {decisions_max}")
    acls = Acls([Principal("User", "root")], allows_without_acl=allows_without_acl, decisions_max=decisions_max)
    reference = Reference(allows_without_acl=allows_without_acl)
    outcomes: Counter[bool] = Counter()
    for _ in range(60):
        change(acls, reference, random)
        acls.validate()
        assert acls.matching(AclFilter()) == sorted(reference.acls)
        for (user, host), operation in product(CLIENTS, OPERATIONS):
            for name in NAMES:
                request = user, host, operation, ResourceType.TOPIC, name
                expected = reference.authorize(*request)
                outcomes[expected] += 1
                assert acls.authorize(*request) == expected, (request, reference.acls)
            expected = reference.authorize_any(user, host, operation, ResourceType.TOPIC)
            assert acls.authorize_any(user, host, operation, ResourceType.TOPIC) == expected, reference.acls
    assert min(outcomes[True], outcomes[False]) > 500


def change(acls: Acls, reference: Reference, random: Random) -> None:
    """Create one ACL, or delete one, or those that a filter matches. There are about ten at a time."""
    if random.random() < 0.6 or not reference.acls:
        acl = random_acl(random)
        records = acls.create([acl])
        reference.acls.add(acl)
    elif random.random() < 0.8:
        acl = random.choice(sorted(reference.acls))
        records = acls.delete([acl])
        reference.acls.remove(acl)
    else:
        acl = random.choice(sorted(reference.acls))
        chosen = AclFilter(
            pattern_type=random.choice(list(PatternType)),
            name=random.choice([None, *NAMES]),
            principal=random.choice([None, acl.principal]),
            host=random.choice([None, acl.host]),
            operation=random.choice([AclOperation.ANY, acl.operation]),
            permission=random.choice([PermissionType.ANY, acl.permission]),
        )
        records = acls.delete(acls.matching(chosen))
        reference.acls -= {acl for acl in reference.acls if is_chosen(chosen, acl)}
    for key, value in records:
        acls.replay(key, value)


def random_acl(random: Random) -> AclBinding:
    return AclBinding(
        random.choices([ResourceType.TOPIC, ResourceType.GROUP], [9, 1])[0],
        random.choice([PatternType.LITERAL, PatternType.PREFIXED]),
        random.choice(PATTERNS),
        f"User:{random.choice(USERS)}",
        random.choice([*HOSTS, "*"]),
        random.choice([*OPERATIONS, AclOperation.ALL]),
        random.choices([PermissionType.ALLOW, PermissionType.DENY], [3, 1])[0],
    )


def is_chosen(chosen: AclFilter, acl: AclBinding) -> bool:
    by_pattern = {
        PatternType.ANY: chosen.name in (None, acl.name),
        PatternType.MATCH: chosen.name is None or applies(acl, chosen.name),
        PatternType.LITERAL: acl.pattern_type is PatternType.LITERAL and chosen.name in (None, acl.name),
        PatternType.PREFIXED: acl.pattern_type is PatternType.PREFIXED and chosen.name in (None, acl.name),
    }
    return (
        by_pattern[chosen.pattern_type]
        and chosen.principal in (None, acl.principal)
        and chosen.host in (None, acl.host)
        and chosen.operation in (AclOperation.ANY, acl.operation)
        and chosen.permission in (PermissionType.ANY, acl.permission)
    )
