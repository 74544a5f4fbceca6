"""Every setting: declared once, documented, bounded, immutable."""

import pickle
from dataclasses import FrozenInstanceError, asdict, fields, replace
from typing import Any

import pytest

from logbrook.config import (
    UNLIMITED,
    BrokerConfig,
    CleanupPolicy,
    Durability,
    GroupConfig,
    LogConfig,
    LoggingConfig,
    MaintenanceConfig,
    MetricsConfig,
    NetworkConfig,
    StorageConfig,
    TimestampSource,
    TopicsConfig,
)
from logbrook.config.errors import WrongValueError
from logbrook.config.setting import SettingFacts, Settings, facts_of, setting

GROUPS: list[type[Settings]] = [LogConfig, StorageConfig]
EVERY_GROUP: list[type[Settings]] = [
    *GROUPS,
    BrokerConfig,
    NetworkConfig,
    TopicsConfig,
    GroupConfig,
    MaintenanceConfig,
    MetricsConfig,
    LoggingConfig,
]
ALL = [(group, field.name) for group in GROUPS for field in fields(group)]


def facts(group: type[Settings], name: str) -> SettingFacts:
    (declared,) = (field for field in fields(group) if field.name == name)
    return facts_of(declared)


def make(group: type[Settings], *values: Any, **settings: Any) -> Any:
    """Call the constructor without type checking: settings files have values of any type."""
    return group(*values, **settings)


class Sample(Settings):
    """One field of each type that a setting may have."""

    flag: bool = setting(False, "A boolean.")
    count: int = setting(1, "A whole number.", at_least=0)
    share: float = setting(0.5, "A number.", at_least=0, at_most=1)
    name: str = setting("x", "A text.")
    address: str | None = setting(None, "A text or none.")
    durability: Durability = setting(Durability.FSYNC, "A choice.")
    policies: frozenset[CleanupPolicy] = setting(frozenset({CleanupPolicy.DELETE}), "Choices.")


@pytest.mark.parametrize("group", EVERY_GROUP)
def test_the_defaults_are_valid(group: type[Settings]) -> None:
    assert group(**asdict(group())) == group()


def test_every_setting_is_documented_with_a_sentence() -> None:
    for group, name in ALL:
        assert facts(group, name).doc.endswith("."), (group, name)


def test_a_name_tells_the_unit_that_is_declared() -> None:
    for group, name in ALL:
        parts = name.removesuffix("_max").split("_")
        assert facts(group, name).unit == {"ms": "ms", "bytes": "bytes"}.get(parts[-1]), (group, name)


def test_kafkas_name_is_the_setting_with_dots() -> None:
    for group, name in ALL:
        assert facts(group, name).kafka in (None, name.replace("_", ".")), (group, name)


@pytest.mark.parametrize("name", [field.name for field in fields(LogConfig)])
def test_every_setting_of_a_topic_is_one_of_kafkas_and_may_change_at_run_time(name: str) -> None:
    assert facts(LogConfig, name).kafka
    assert facts(LogConfig, name).dynamic


def test_a_setting_cannot_be_changed_in_place() -> None:
    for group, name in ALL:
        config = group()
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(config, name, getattr(config, name))


@pytest.mark.parametrize("group", EVERY_GROUP)
def test_an_unknown_name_is_refused(group: type[Settings]) -> None:
    with pytest.raises(TypeError, match="'segment_byte'"):
        group(**{"segment_byte": 1})


@pytest.mark.parametrize("group", EVERY_GROUP)
def test_a_value_without_its_name_is_refused(group: type[Settings]) -> None:
    with pytest.raises(TypeError, match="positional"):
        make(group, 1)


def test_a_value_at_its_bound_is_taken_and_one_past_it_is_refused() -> None:
    for group, name in ALL:
        declared = facts(group, name)
        for bound, past in ((declared.at_least, -1), (declared.at_most, 1)):
            if bound is not None:
                assert getattr(group(**{name: bound}), name) == bound, (group, name)
                with pytest.raises(WrongValueError, match=name):
                    group(**{name: bound + past})


def test_every_number_has_a_lower_bound() -> None:
    for group, name in ALL:
        if isinstance(getattr(group(), name), int | float):
            assert facts(group, name).at_least is not None, (group, name)


@pytest.mark.parametrize(
    ("name", "value", "must_be"),
    [
        ("flag", 1, "true or false"),
        ("flag", "true", "true or false"),
        ("flag", None, "true or false"),
        ("count", "many", "a whole number, at least 0"),
        ("count", "1", "a whole number, at least 0"),
        ("count", True, "a whole number, at least 0"),
        ("count", None, "a whole number, at least 0"),
        ("count", 1.0, "a whole number, at least 0"),
        ("count", [1], "a whole number, at least 0"),
        ("count", -1, "a whole number, at least 0"),
        ("share", "0.5", "a number from 0 to 1"),
        ("share", True, "a number from 0 to 1"),
        ("share", float("nan"), "a number from 0 to 1"),
        ("share", 10**400, "a number from 0 to 1"),
        ("name", 5, "a text"),
        ("name", None, "a text"),
        ("name", b"x", "a text"),
        ("address", 5, "a text or None"),
        ("durability", "maybe", "fsync or interval"),
        ("durability", "FSYNC", "fsync or interval"),
        ("durability", TimestampSource.CREATE_TIME, "fsync or interval"),
        ("durability", None, "fsync or interval"),
        ("policies", ["delete", "shred"], "any of delete and compact"),
        ("policies", ["delete", 1], "any of delete and compact"),
        ("policies", "delete", "any of delete and compact"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name_and_the_valid_ones(name: str, value: object, must_be: str) -> None:
    with pytest.raises(WrongValueError) as refused:
        make(Sample, **{name: value})
    assert (refused.value.name, refused.value.must_be) == (name, must_be)
    assert str(refused.value).startswith(f"{name} = ")
    assert str(refused.value).endswith(f", but it must be {must_be}")
    assert isinstance(refused.value, ValueError)


def test_a_refusal_quotes_the_value_but_not_all_of_a_long_one() -> None:
    with pytest.raises(ValueError, match=r"^count = 'many', but it must be a whole number, at least 0$"):
        make(Sample, count="many")
    with pytest.raises(WrongValueError) as refused:
        make(Sample, count="many" * 1_000)
    assert len(str(refused.value)) < 100


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("share", 1, 1.0),
        ("address", "a:1", "a:1"),
        ("address", None, None),
        ("durability", "interval", Durability.INTERVAL),
        ("policies", ["compact", "delete"], frozenset(CleanupPolicy)),
        ("policies", {CleanupPolicy.COMPACT}, frozenset({CleanupPolicy.COMPACT})),
        ("policies", frozenset({"compact"}), frozenset({CleanupPolicy.COMPACT})),
    ],
)
def test_equivalent_values_are_converted(name: str, value: object, taken: object) -> None:
    held = getattr(make(Sample, **{name: value}), name)
    assert held == taken
    assert type(held) is type(taken)
    if isinstance(held, frozenset):
        assert {type(policy) for policy in held} == {CleanupPolicy}


def test_a_mapping_is_converted_to_a_section() -> None:
    made = make(BrokerConfig, data="d", log={"segment_bytes": 5, "cleanup_policy": ["compact"]}, storage={})
    log = LogConfig(segment_bytes=5, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    assert made == BrokerConfig(data="d", log=log)


@pytest.mark.parametrize("value", [5, None, LogConfig])
def test_a_section_refuses_other_types(value: object) -> None:
    with pytest.raises(WrongValueError, match=r"^log = .* must be a LogConfig$"):
        make(BrokerConfig, log=value)
    with pytest.raises(WrongValueError, match="must be a LogConfig"):
        make(BrokerConfig, log=StorageConfig())


def test_a_mistake_in_a_section_names_the_setting() -> None:
    with pytest.raises(
        WrongValueError, match=r"^segment_bytes = 0, but it must be a whole number from 1 to 2147483647$"
    ):
        make(BrokerConfig, log={"segment_bytes": 0})
    with pytest.raises(TypeError, match="segment_byte"):
        make(BrokerConfig, log={"segment_byte": 0})


@pytest.mark.parametrize("name", ["retention_ms", "retention_bytes"])
def test_retention_may_be_unlimited(name: str) -> None:
    assert getattr(make(LogConfig, **{name: UNLIMITED}), name) == -1
    with pytest.raises(WrongValueError, match="at least -1"):
        make(LogConfig, **{name: -2})


def test_a_segment_is_never_too_large_for_its_index() -> None:
    with pytest.raises(WrongValueError, match="to 2147483647"):
        LogConfig(segment_bytes=2**31)


def test_changing_one_setting_leaves_the_original_as_it_was() -> None:
    config = LogConfig()
    changed = replace(config, segment_bytes=1)
    assert (config.segment_bytes, changed.segment_bytes) == (1 << 30, 1)
    with pytest.raises(WrongValueError, match="segment_bytes"):
        replace(config, segment_bytes=0)


def test_given_lists_the_names_passed_even_with_default_values() -> None:
    assert LogConfig().given == frozenset()
    made = LogConfig(segment_bytes=1 << 30)
    assert made.given == {"segment_bytes"}
    assert made == LogConfig()
    assert pickle.loads(pickle.dumps(made)).given == {"segment_bytes"}
    assert make(BrokerConfig, log={"segment_ms": 5}).log.given == {"segment_ms"}
