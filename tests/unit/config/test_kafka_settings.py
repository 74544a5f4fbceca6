"""Settings under Kafka's names: which are known, read and refused."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.config import BrokerConfig, CleanupPolicy, LogConfig, TimestampSource
from logbrook.config.kafka_settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    InvalidSettingError,
    apply_overrides,
    broker_name,
    format_text,
    parse_text,
)
from logbrook.config.setting import ConfigType, Settings

# Settings without effect have their own tests.
TOPIC = {name: setting for name, setting in TOPIC_SETTINGS.items() if setting.accepted is None}
BROKER = {name: setting for name, setting in BROKER_SETTINGS.items() if setting.accepted is None}

# The names in Kafka 4's documentation: those of a topic, and the corresponding ones of a broker.
NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    # Not a setting of Kafka.
    "validate": "log.validate",
}


def value_of(name: str, text: str) -> object:
    return getattr(apply_overrides(LogConfig(), {name: text}, TOPIC), TOPIC[name].field)


def test_topics_have_the_log_settings_and_brokers_have_them_under_broker_names() -> None:
    assert set(TOPIC) == set(NAMES)
    assert {name: broker_name(name) for name in TOPIC} == NAMES
    for name, of_broker in NAMES.items():
        assert BROKER[of_broker]._replace(name=name) == TOPIC[name]
    assert {setting.field for setting in TOPIC.values()} == {field.name for field in fields(LogConfig)}


def test_defaults_are_reported_in_kafkas_notation() -> None:
    assert {name: setting.default for name, setting in TOPIC.items()} == {
        name: format_text(getattr(LogConfig(), setting.field)) for name, setting in TOPIC.items()
    }
    # The formatted text is parsed to the same value.
    assert (
        apply_overrides(LogConfig(), {name: setting.default for name, setting in TOPIC.items()}, TOPIC) == LogConfig()
    )


def test_only_the_settings_of_logs_can_be_changed_while_the_broker_runs() -> None:
    assert {name for name, setting in BROKER.items() if setting.dynamic} == set(NAMES.values())


def test_other_broker_settings_are_fields_of_their_section() -> None:
    for setting in BROKER.values():
        config: Settings = BrokerConfig()
        if setting.section:
            config = getattr(config, setting.section)
        assert format_text(getattr(config, setting.field)) == setting.default


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("retention.ms", ConfigType.LONG),
        ("min.insync.replicas", ConfigType.INT),
        ("cleanup.policy", ConfigType.LIST),
        ("message.timestamp.type", ConfigType.STRING),
        ("min.cleanable.dirty.ratio", ConfigType.DOUBLE),
    ],
)
def test_every_setting_has_a_kind(name: str, kind: ConfigType) -> None:
    assert TOPIC[name].kind is kind
    assert BROKER["auto.create.topics.enable"].kind is ConfigType.BOOLEAN


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
    assert repr(parse_text(ConfigType.BOOLEAN, text)) == repr(value)


def test_every_kind_of_setting_can_be_read() -> None:
    """Words and lists are converted to their values when the settings are constructed."""
    for name in sorted(BROKER):
        setting = BROKER[name]
        group: Settings = getattr(BrokerConfig(), setting.section) if setting.section else BrokerConfig()
        made = type(group)(**{setting.field: parse_text(setting.kind, setting.default)})
        assert getattr(made, setting.field) == getattr(group, setting.field), name


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
def test_a_value_that_is_not_allowed_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidSettingError) as raised:
        apply_overrides(LogConfig(), {"segment.ms": "5", name: text}, TOPIC)
    assert raised.value.name == name
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("retention.ms", "7d", "'7d' is not allowed (it must be a whole number, at least -1)"),
        ("retention.ms", str(2**63), f"'{2**63}' is not allowed (it must be a whole number that fits into 64 bits)"),
        ("segment.bytes", "0", "'0' is not allowed (it must be a whole number from 1 to 2147483647)"),
        ("min.cleanable.dirty.ratio", "2", "'2' is not allowed (it must be a number from 0 to 1)"),
        ("message.timestamp.type", "x", "'x' is not allowed (it must be CreateTime or LogAppendTime)"),
        (
            "cleanup.policy",
            "a" * 101,
            f"'{'a' * 100}...' is not allowed (it must be any of delete and compact)",
        ),
        (
            "compression.type",
            "brotli",
            "'brotli' is not allowed (it must be producer, uncompressed, gzip, snappy, lz4 or zstd)",
        ),
        ("compression.gzip.level", "0", "'0' is not allowed (it must be -1 or a whole number from 1 to 9)"),
        ("compression.lz4.level", "18", "'18' is not allowed (it must be a whole number from 1 to 17)"),
        ("nonsense", "1", "there is no such setting"),
        ("retention_ms", "1", "there is no such setting; did you mean retention.ms?"),
        ("RETENTION.MS", "1", "there is no such setting; did you mean retention.ms?"),
        ("retention.byte", "1", "there is no such setting; did you mean retention.bytes?"),
        ("retention.ms" * 10, "1", "there is no such setting"),
    ],
)
def test_a_refusal_describes_the_allowed_values(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidSettingError) as raised:
        apply_overrides(LogConfig(), {name: text}, TOPIC)
    assert str(raised.value) == f"{name}: {message}"


def test_only_log_settings_can_be_overridden() -> None:
    for name in sorted(set(BROKER) - set(NAMES.values())):
        with pytest.raises(InvalidSettingError) as raised:
            apply_overrides(LogConfig(), {name: BROKER[name].default}, BROKER)
        assert raised.value.name == name, name


def test_settings_that_are_not_overridden_keep_their_values() -> None:
    defaults = LogConfig(retention_ms=11, segment_bytes=22)
    changed = apply_overrides(defaults, {"segment.bytes": "33"}, TOPIC)
    assert (changed.retention_ms, changed.segment_bytes) == (11, 33)
    assert (defaults.retention_ms, defaults.segment_bytes) == (11, 22)
    assert apply_overrides(defaults, {}, TOPIC) == defaults


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
def test_formatted_values_parse_to_the_same_value(texts: dict[str, str]) -> None:
    config = apply_overrides(LogConfig(), texts, TOPIC)
    written = {name: format_text(getattr(config, TOPIC[name].field)) for name in texts}
    assert apply_overrides(LogConfig(), written, TOPIC) == config
