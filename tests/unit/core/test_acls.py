"""ACLs: the rules one by one. `tests/property/test_acl_decisions.py` compares all combinations with a reference."""

import pytest

from logbrook.core.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    Acls,
    InvalidAclError,
    PatternType,
    PermissionType,
    ResourceType,
)
from logbrook.model.security import Principal

ALICE = Principal("User", "alice")
HOST = "10.0.0.1"
ALLOWED = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    AclOperation.READ,
    PermissionType.ALLOW,
)
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
DENIED = PermissionType.DENY


def acls_with(*bindings: AclBinding, allows_without_acl: bool = False) -> Acls:
    acls = Acls([Principal("User", "root")], allows_without_acl=allows_without_acl)
    for key, value in acls.create(bindings):
        acls.replay(key, value)
    acls.validate()
    return acls


def may(acls: Acls, operation: AclOperation, name: str = "orders", host: str = HOST) -> bool:
    return acls.authorize(ALICE, host, operation, ResourceType.TOPIC, name)


def test_nothing_is_allowed_without_an_acl_except_to_super_users() -> None:
    acls = acls_with()
    assert not may(acls, READ)
    assert acls.authorize(Principal("User", "root"), HOST, READ, ResourceType.TOPIC, "orders")


def test_an_acl_allows_its_operation_and_describe() -> None:
    acls = acls_with(ALLOWED)
    assert may(acls, READ)
    assert may(acls, DESCRIBE)
    assert not may(acls, WRITE)
    assert not may(acls, READ, "orders2")


@pytest.mark.parametrize(
    ("operation", "implied"),
    [
        *((operation, DESCRIBE) for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER)),
        (AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS),
    ],
)
def test_operations_imply_others_if_they_are_allowed_but_not_if_they_are_denied(
    operation: AclOperation, implied: AclOperation
) -> None:
    assert may(acls_with(ALLOWED._replace(operation=operation)), implied)
    everything = ALLOWED._replace(operation=AclOperation.ALL)
    acls = acls_with(everything, ALLOWED._replace(operation=operation, permission=DENIED))
    assert not may(acls, operation)
    assert may(acls, implied)


def test_create_does_not_imply_describe() -> None:
    assert not may(acls_with(ALLOWED._replace(operation=AclOperation.CREATE)), DESCRIBE)


def test_a_deny_wins_over_every_allow() -> None:
    deny = ALLOWED._replace(pattern_type=PatternType.PREFIXED, name="or", principal="User:*", permission=DENIED)
    acls = acls_with(ALLOWED, ALLOWED._replace(name="*"), deny)
    assert not may(acls, READ)
    assert may(acls, READ, "payments")


def test_hosts_are_compared_literally() -> None:
    acls = acls_with(ALLOWED._replace(host=HOST))
    assert may(acls, READ)
    assert not may(acls, READ, host="10.0.0.2")


def test_everyone_may_use_a_resource_without_acls_if_it_is_so_configured() -> None:
    acls = acls_with(ALLOWED._replace(principal="User:bob"), allows_without_acl=True)
    assert not may(acls, READ), "it has an ACL, although of another principal"
    assert may(acls, READ, "payments")


def test_removing_one_acl_of_a_resource_hides_no_other() -> None:
    """CVE-2024-27309."""
    deny = ALLOWED._replace(permission=DENIED, operation=WRITE)
    acls = acls_with(ALLOWED, deny, ALLOWED._replace(operation=WRITE), allows_without_acl=True)
    for key, value in acls.delete([ALLOWED]):
        acls.replay(key, value)
    acls.validate()
    assert not may(acls, WRITE)
    assert not may(acls, READ)


def test_a_change_takes_effect_for_the_next_decision() -> None:
    acls = acls_with(ALLOWED)
    assert may(acls, READ)
    for key, value in acls.delete([ALLOWED]):
        acls.replay(key, value)
    assert not may(acls, READ)
    assert len(acls) == 0


def test_creating_and_deleting_twice_has_no_records_the_second_time() -> None:
    acls = acls_with(ALLOWED)
    assert acls.create([ALLOWED]) == []
    ((key, value),) = acls.delete([ALLOWED, ALLOWED])
    assert value is None
    acls.replay(key, value)
    assert acls.delete([ALLOWED]) == []
    acls.replay(key, value)


def test_keys_keep_names_with_slashes_and_percent_signs() -> None:
    odd = ALLOWED._replace(name="a/b%2F*", principal="User:CN=x/y,O=ü")
    assert odd.key == "acls/TOPIC/LITERAL/a%2Fb%252F%2A/User%3ACN%3Dx%2Fy%2CO%3D%C3%BC/%2A/READ/ALLOW"
    assert AclBinding.of_key(odd.key) == odd


@pytest.mark.parametrize("key", ["acls/TOPIC/LITERAL", "acls/SHOE/LITERAL/a/User%3Aa/%2A/READ/ALLOW"])
def test_an_unknown_key_is_of_a_newer_version(key: str) -> None:
    with pytest.raises(ValueError, match="newer version"):
        Acls().replay(key, b"{}")


@pytest.mark.parametrize(
    "invalid",
    [
        ALLOWED._replace(resource_type=ResourceType.ANY),
        ALLOWED._replace(resource_type=ResourceType.CLUSTER),
        ALLOWED._replace(pattern_type=PatternType.ANY),
        ALLOWED._replace(pattern_type=PatternType.MATCH),
        ALLOWED._replace(name=""),
        ALLOWED._replace(principal="alice"),
        ALLOWED._replace(principal=" User:alice"),
        ALLOWED._replace(host=""),
        ALLOWED._replace(operation=AclOperation.ANY),
        ALLOWED._replace(permission=PermissionType.ANY),
    ],
    ids=str,
)
def test_invalid_acls_are_not_created(invalid: AclBinding) -> None:
    with pytest.raises(InvalidAclError):
        Acls().create([invalid])


def test_a_filter_with_match_selects_all_patterns_of_a_name() -> None:
    prefixed = ALLOWED._replace(pattern_type=PatternType.PREFIXED, name="or")
    wildcard = ALLOWED._replace(name="*")
    acls = acls_with(ALLOWED, prefixed, wildcard, ALLOWED._replace(name="or"))

    def names(pattern_type: PatternType, name: str | None) -> set[tuple[str, str]]:
        selected = acls.matching(AclFilter(pattern_type=pattern_type, name=name))
        return {(acl.pattern_type.name, acl.name) for acl in selected}

    assert names(PatternType.MATCH, "orders") == {("LITERAL", "orders"), ("LITERAL", "*"), ("PREFIXED", "or")}
    assert names(PatternType.ANY, "or") == {("LITERAL", "or"), ("PREFIXED", "or")}
    assert names(PatternType.PREFIXED, None) == {("PREFIXED", "or")}
    assert len(names(PatternType.MATCH, None)) == 4


def test_a_right_on_any_topic_is_not_implied_and_can_be_denied() -> None:
    def may_write_any(*bindings: AclBinding) -> bool:
        return acls_with(*bindings).authorize_any(ALICE, HOST, WRITE, ResourceType.TOPIC)

    write = ALLOWED._replace(operation=WRITE)
    assert not may_write_any(ALLOWED)
    assert may_write_any(write)
    assert not may_write_any(write, write._replace(permission=DENIED))
    assert not may_write_any(write, write._replace(permission=DENIED, name="*"))
    prefix = write._replace(pattern_type=PatternType.PREFIXED, name="o")
    assert not may_write_any(write, prefix._replace(permission=DENIED))
    assert may_write_any(prefix, write._replace(permission=DENIED))


def test_the_cache_of_decisions_is_bounded() -> None:
    acls = Acls(decisions_max=10)
    for number in range(100):
        assert not may(acls, READ, f"topic-{number}")
        acls.validate()
