"""Settings under Kafka's names: what is known, what is read, what is refused."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.config import BrokerConfig, CleanupPolicy, LogConfig, TimestampSource
from logbrook.config.kafka_settings import (
    InvalidSettingError,
    broker_name,
    broker_settings,
    from_text,
    override,
    to_text,
    topic_settings,
)
from logbrook.config.setting import Settings
from logbrook.config.setting_kind import SettingKind

# Those that change nothing have tests of their own.
TOPIC = {name: one for name, one in topic_settings().items() if one.accepted is None}
BROKER = broker_settings()

# What Kafka 4 calls them, from its documentation; those of a topic, and the same of a broker.
NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
}


def value_of(name: str, text: str) -> object:
    return getattr(override(LogConfig(), {name: text}, TOPIC), TOPIC[name].field)


def test_a_topic_may_set_what_a_log_has_and_a_broker_has_all_of_it_under_its_own_names() -> None:
    assert set(TOPIC) == set(NAMES)
    assert {name: broker_name(name) for name in TOPIC} == NAMES
    for name, of_broker in NAMES.items():
        assert BROKER[of_broker]._replace(name=name) == TOPIC[name]
    assert {one.field for one in TOPIC.values()} == {field.name for field in fields(LogConfig)}


def test_defaults_are_told_as_they_are() -> None:
    assert {name: one.default for name, one in TOPIC.items()} == {
        name: to_text(getattr(LogConfig(), one.field)) for name, one in TOPIC.items()
    }
    # Their text reads back as they are.
    assert override(LogConfig(), {name: one.default for name, one in TOPIC.items()}, TOPIC) == LogConfig()


def test_only_the_settings_of_logs_can_be_changed_while_the_broker_runs() -> None:
    assert {name for name, one in BROKER.items() if one.dynamic} == set(NAMES.values())


def test_what_is_not_of_a_log_is_of_a_section_of_the_brokers_settings() -> None:
    for one in BROKER.values():
        config: Settings = BrokerConfig()
        if one.section:
            config = getattr(config, one.section)
        assert to_text(getattr(config, one.field)) == one.default


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("retention.ms", SettingKind.LONG),
        ("min.insync.replicas", SettingKind.INT),
        ("cleanup.policy", SettingKind.LIST),
        ("message.timestamp.type", SettingKind.STRING),
        ("min.cleanable.dirty.ratio", SettingKind.DOUBLE),
    ],
)
def test_every_setting_has_a_kind(name: str, kind: SettingKind) -> None:
    assert TOPIC[name].kind is kind
    assert BROKER["auto.create.topics.enable"].kind is SettingKind.BOOLEAN


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 60000 ", 60_000),
        ("retention.ms", "+5", 5),
        ("retention.ms", "007", 7),
        ("retention.ms", str(2**63 - 1), 2**63 - 1),
        ("cleanup.policy", "compact", frozenset({CleanupPolicy.COMPACT})),
        ("cleanup.policy", "delete, compact", frozenset(CleanupPolicy)),
        ("message.timestamp.type", "LogAppendTime", TimestampSource.LOG_APPEND_TIME),
        ("message.timestamp.type", " CreateTime ", TimestampSource.CREATE_TIME),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("min.cleanable.dirty.ratio", " .25\n", 0.25),
        ("min.cleanable.dirty.ratio", "+1.", 1.0),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("min.cleanable.dirty.ratio", "5E-1", 0.5),
    ],
)
def test_values_are_in_kafkas_notation(name: str, text: str, value: object) -> None:
    assert value_of(name, text) == value
    assert type(value_of(name, text)) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("false", False), (" TRUE ", True), ("False", False), ("yes", "yes"), ("1", "1")],
)
def test_only_true_and_false_are_booleans_and_the_rest_stays_text(text: str, value: object) -> None:
    assert repr(from_text(SettingKind.BOOLEAN, text)) == repr(value)


@pytest.mark.parametrize("name", sorted(BROKER))
def test_every_kind_of_setting_can_be_read(name: str) -> None:
    """Words and lists of them become what they stand for once settings are made of them."""
    one = BROKER[name]
    group: Settings = getattr(BrokerConfig(), one.section) if one.section else BrokerConfig()
    made = type(group)(**{one.field: from_text(one.kind, one.default)})
    assert getattr(made, one.field) == getattr(group, one.field)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "7d"),
        ("retention.ms", ""),
        ("retention.ms", "-2"),
        ("retention.ms", "1.5"),
        ("retention.ms", "1.0"),
        ("retention.ms", "1e3"),
        ("retention.ms", "1_000"),
        ("retention.ms", "1 000"),
        ("retention.ms", "0x10"),
        ("retention.ms", "٣"),
        ("retention.ms", "- 1"),
        ("retention.ms", "+"),
        ("retention.ms", "true"),
        ("retention.ms", str(2**63)),
        ("retention.ms", str(-(2**63) - 1)),
        ("retention.ms", "9" * 5_000),
        ("segment.bytes", "0"),
        ("segment.bytes", str(2**31)),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,"),
        ("message.timestamp.type", "sometime"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "inf"),
        ("min.cleanable.dirty.ratio", "1e999"),
        ("min.cleanable.dirty.ratio", "0_1.5"),
        ("min.cleanable.dirty.ratio", "."),
        ("min.cleanable.dirty.ratio", "half"),
        ("min.cleanable.dirty.ratio", ""),
        ("message.timestamp.type", "createtime"),
        ("message.timestamp.type", ""),
        ("min.insync.replicas", "0"),
        ("nonsense", "1"),
        ("retention_ms", "1"),
        ("log.retention.ms", "1"),
        ("", ""),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidSettingError) as raised:
        override(LogConfig(), {"segment.ms": "5", name: text}, TOPIC)
    assert raised.value.name == name
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("retention.ms", "7d", "'7d' is not allowed (it must be a whole number, at least -1)"),
        ("retention.ms", str(2**63), f"'{2**63}' is not allowed (it must be a whole number that fits into 64 bits)"),
        ("segment.bytes", "0", "'0' is not allowed (it must be a whole number from 1 to 2147483647)"),
        ("min.cleanable.dirty.ratio", "2", "'2' is not allowed (it must be a number from 0 to 1)"),
        ("message.timestamp.type", "x", "'x' is not allowed (it must be CreateTime or LogAppendTime)"),
        (
            "cleanup.policy",
            "a" * 101,
            f"'{'a' * 100}...' is not allowed (it must be one or more of delete and compact)",
        ),
        ("compression.type", "gzip", "'gzip' is not allowed (it must be producer)"),
        ("nonsense", "1", "there is no such setting"),
    ],
)
def test_it_is_told_what_would_be_allowed(name: str, text: str, told: str) -> None:
    with pytest.raises(InvalidSettingError) as raised:
        override(LogConfig(), {name: text}, TOPIC)
    assert str(raised.value) == f"{name}: {told}"


@pytest.mark.parametrize("name", sorted(set(BROKER) - set(NAMES.values())))
def test_what_is_not_of_a_log_cannot_be_overridden(name: str) -> None:
    with pytest.raises(InvalidSettingError) as raised:
        override(LogConfig(), {name: BROKER[name].default}, BROKER)
    assert raised.value.name == name


def test_what_is_not_set_stays_as_it_was() -> None:
    defaults = LogConfig(retention_ms=11, segment_bytes=22)
    changed = override(defaults, {"segment.bytes": "33"}, TOPIC)
    assert (changed.retention_ms, changed.segment_bytes) == (11, 33)
    assert (defaults.retention_ms, defaults.segment_bytes) == (11, 22)
    assert override(defaults, {}, TOPIC) == defaults


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "retention.ms": st.integers(-1, 2**63 - 1).map(str),
            "segment.bytes": st.integers(1, 2**31 - 1).map(str),
            "min.cleanable.dirty.ratio": st.floats(0, 1).map(str),
            "cleanup.policy": st.permutations(["delete", "compact"]).map(",".join),
            "message.timestamp.type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        },
    )
)
def test_what_is_written_reads_back(texts: dict[str, str]) -> None:
    config = override(LogConfig(), texts, TOPIC)
    written = {name: to_text(getattr(config, TOPIC[name].field)) for name in texts}
    assert override(LogConfig(), written, TOPIC) == config
