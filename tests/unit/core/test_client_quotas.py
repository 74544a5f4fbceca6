"""The state machine of client quotas: precedence, alterations, filters, and replay."""

import math

import pytest

from logbrook.core.client_quotas import ClientQuotas, NameMatch, QuotaAlteration, QuotaLimit
from logbrook.core.quota_entities import EntityType, QuotaKey

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
ANY = NameMatch(is_any=True)
DEFAULT = NameMatch(is_any=False)
Entity = tuple[tuple[str, str | None], ...]

# From the most to the least specific, with who shares the quota.
LEVELS: list[tuple[Entity, tuple[str | None, str | None]]] = [
    ((("user", "u"), ("client-id", "c")), ("u", "c")),
    ((("user", "u"), ("client-id", None)), ("u", "c")),
    ((("user", "u"),), ("u", None)),
    ((("user", None), ("client-id", "c")), ("u", "c")),
    ((("user", None), ("client-id", None)), ("u", "c")),
    ((("user", None),), ("u", None)),
    ((("client-id", "c"),), (None, "c")),
    ((("client-id", None),), (None, "c")),
]


def changed(quotas: ClientQuotas, entity: Entity, **changes: float | None) -> None:
    change = quotas.alter([QuotaAlteration(entity, list(changes.items()))])
    assert change.errors == [None]
    for key, value in change.records:
        quotas.replay(key, value)
    quotas.validate()


def refusal(entity: Entity, *changes: tuple[str, float | None]) -> str:
    change = ClientQuotas().alter([QuotaAlteration(entity, changes)])
    (error,) = change.errors
    assert not change.records
    return str(error)


def test_the_most_specific_of_the_eight_levels_is_in_force() -> None:
    quotas = ClientQuotas()
    assert quotas.limit(PRODUCE, "u", "c") is None
    for number, (entity, _) in enumerate(LEVELS, 1):
        changed(quotas, entity, producer_byte_rate=number)
    for number, (entity, owner) in enumerate(LEVELS, 1):
        assert quotas.limit(PRODUCE, "u", "c") == QuotaLimit(owner, number)
        changed(quotas, entity, producer_byte_rate=None)
    assert quotas.limit(PRODUCE, "u", "c") is None
    assert not quotas.has_client_quotas


def test_a_level_without_the_key_is_skipped() -> None:
    quotas = ClientQuotas()
    changed(quotas, (("user", "u"),), consumer_byte_rate=5)
    changed(quotas, (("client-id", None),), producer_byte_rate=7)
    assert quotas.limit(PRODUCE, "u", "c") == QuotaLimit((None, "c"), 7)
    assert quotas.limit(QuotaKey.CONSUMER_BYTE_RATE, "u", "c") == QuotaLimit(("u", None), 5)


def test_the_default_client_id_applies_to_clients_without_one() -> None:
    quotas = ClientQuotas()
    changed(quotas, (("client-id", None),), producer_byte_rate=7)
    assert quotas.limit(PRODUCE, "u", "") == QuotaLimit((None, ""), 7)


def test_resolved_limits_are_bounded() -> None:
    quotas = ClientQuotas()
    changed(quotas, (("client-id", None),), producer_byte_rate=7)
    for number in range(10_001):
        quotas.limit(PRODUCE, "u", str(number))
    assert len(quotas._limits) == 1


def test_an_address_has_its_own_rate_or_that_of_all_addresses() -> None:
    quotas = ClientQuotas()
    assert quotas.connection_rate("10.0.0.1") is None
    changed(quotas, (("ip", "10.0.0.1"),), connection_creation_rate=3)
    changed(quotas, (("ip", "0:0::1"),), connection_creation_rate=4)
    assert (quotas.has_address_quotas, quotas.has_client_quotas) == (True, False)
    assert quotas.connection_rate("10.0.0.2") is None
    changed(quotas, (("ip", None),), connection_creation_rate=9)
    rates = [quotas.connection_rate(address) for address in ("10.0.0.1", "::ffff:10.0.0.1", "::1", "10.0.0.2", "")]
    assert rates == [3, 3, 4, 9, 9]


@pytest.mark.parametrize(
    ("entity", "reason"),
    [
        ((), "needs a user"),
        ((("team", "a"),), "type 'team'"),
        ((("user", ""),), "may not be empty"),
        ((("user", "a"), ("user", "b")), "only one user"),
        ((("user", "a"), ("ip", "10.0.0.1")), "may not have a user"),
        ((("ip", "example.invalid"),), "not an IP address"),
    ],
)
def test_an_invalid_entity_is_refused(entity: Entity, reason: str) -> None:
    assert reason in refusal(entity, ("producer_byte_rate", 1.0))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("bytes", 1.0, "not a quota of"),
        ("connection_creation_rate", 1.0, "not a quota of"),
        ("producer_byte_rate", 0.0, "greater than 0"),
        ("request_percentage", -1.0, "greater than 0"),
        ("request_percentage", math.nan, "greater than 0"),
        ("request_percentage", math.inf, "greater than 0"),
        ("consumer_byte_rate", 1.5, "whole number"),
        ("consumer_byte_rate", 1e19, "at most"),
    ],
)
def test_an_invalid_quota_is_refused(key: str, value: float, reason: str) -> None:
    assert reason in refusal((("user", "a"),), (key, value))


def test_a_rate_of_connections_is_only_for_addresses() -> None:
    assert "not a quota of" in refusal((("ip", None),), ("producer_byte_rate", 1.0))
    assert "at most" in refusal((("ip", None),), ("connection_creation_rate", 2.0**31))


def test_a_quota_may_be_changed_once_in_an_alteration_and_an_entity_once_in_a_request() -> None:
    user = (("user", "a"),)
    assert "more than once" in refusal(user, ("producer_byte_rate", 1.0), ("producer_byte_rate", None))
    alteration = QuotaAlteration(user, [("producer_byte_rate", 1.0)])
    change = ClientQuotas().alter([alteration, alteration])
    assert change.errors[0] is None
    assert "more than once" in str(change.errors[1])
    assert len(change.records) == 1


def test_an_alteration_with_one_invalid_quota_changes_nothing() -> None:
    assert refusal((("user", "a"),), ("producer_byte_rate", 1.0), ("consumer_byte_rate", -1.0))


def test_a_change_to_the_same_value_and_the_removal_of_what_is_not_set_write_nothing() -> None:
    quotas = ClientQuotas()
    changed(quotas, (("user", "a"),), producer_byte_rate=1.0)
    same = QuotaAlteration([("user", "a")], [("producer_byte_rate", 1.0), ("any", None)])
    missing = QuotaAlteration([("user", "b")], [("producer_byte_rate", None)])
    assert quotas.alter([same, missing]).records == []


def test_filters_match_exact_default_and_any_names() -> None:
    quotas = ClientQuotas()
    for entity, _ in LEVELS:
        changed(quotas, entity, producer_byte_rate=1)
    changed(quotas, (("ip", None),), connection_creation_rate=1)

    def found(components: dict[EntityType, NameMatch], *, is_strict: bool = False) -> list[Entity]:
        return [tuple(entity) for entity, _ in quotas.describe(components, is_strict=is_strict)]

    exact_user = {EntityType.USER: NameMatch(is_any=False, name="u")}
    assert len(found({})) == 9
    assert found({}, is_strict=True) == []
    assert found(exact_user, is_strict=True) == [(("user", "u"),)]
    assert len(found(exact_user)) == 3
    assert found({EntityType.USER: DEFAULT}, is_strict=True) == [(("user", None),)]
    assert len(found({EntityType.USER: ANY}, is_strict=True)) == 2
    assert len(found({EntityType.USER: ANY, EntityType.CLIENT_ID: ANY})) == 4
    assert found({EntityType.CLIENT_ID: DEFAULT, **exact_user}) == [(("user", "u"), ("client-id", None))]
    assert found({EntityType.USER: NameMatch(is_any=False, name="x")}) == []


def test_names_survive_the_store() -> None:
    quotas, copy = ClientQuotas(), ClientQuotas()
    names = ["a/b", "=", "%", "\u00fc \n", "<default>", "user=a/client-id"]
    for name in names:
        entity = (("user", name), ("client-id", name))
        for key, value in quotas.alter([QuotaAlteration(entity, [("request_percentage", 12.5)])]).records:
            quotas.replay(key, value)
            copy.replay(key, value)
    copy.validate()
    assert copy.describe({}) == quotas.describe({})
    assert [copy.limit(QuotaKey.REQUEST_PERCENTAGE, name, name) for name in names] == [
        QuotaLimit((name, name), 12.5) for name in names
    ]


@pytest.mark.parametrize(
    ("key", "value"), [("quotas/team=a", b"{}"), ("quotas/user=a", b"[]"), ("quotas/user=a", b'{"bytes":1}')]
)
def test_an_unknown_record_is_refused(key: str, value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        ClientQuotas().replay(key, value)
