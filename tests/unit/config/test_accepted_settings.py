"""Kafka's topic settings that are accepted and described without effect, and their values that are refused."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from logbrook.config import Durability, LogConfig
from logbrook.config.accepted_settings import ACCEPTED, ACCEPTED_BY_BROKERS, READ_ONLY
from logbrook.config.kafka_settings import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    InvalidSettingError,
    KafkaSetting,
    apply_overrides,
    canonical_values,
    check_flush_settings,
    parse_text,
)
from logbrook.config.storage import StorageConfig

DOCUMENT = Path(__file__).parents[3] / "docs" / "PROTOCOL.md"
LONG_MAX = str(2**63 - 1)


def test_the_default_is_accepted_and_has_no_effect() -> None:
    for name in ACCEPTED:
        setting = TOPIC_SETTINGS[name]
        assert apply_overrides(LogConfig(), {name: setting.default}, TOPIC_SETTINGS) == LogConfig(), name
        assert canonical_values({name: setting.default}, TOPIC_SETTINGS) == {name: setting.default}, name
        assert setting.dynamic, name
        assert setting.doc.startswith("Accepted, and changes nothing: "), name


@pytest.mark.parametrize(
    ("name", "text", "written"),
    [
        ("segment.jitter.ms", " 100 ", "100"),
        ("segment.index.bytes", "+4096", "4096"),
        ("flush.ms", "1000", "1000"),
        ("flush.messages", "1", "1"),
        ("preallocate", "TRUE", "true"),
        ("unclean.leader.election.enable", "true", "true"),
        ("message.downconversion.enable", "false", "false"),
        ("leader.replication.throttled.replicas", "*", "*"),
        ("follower.replication.throttled.replicas", "0:1, 1:2", "0:1,1:2"),
        ("local.retention.ms", "-1", "-1"),
        ("remote.log.copy.disable", "true", "true"),
        ("remote.storage.enable", "False", "false"),
    ],
)
def test_values_that_kafka_accepts_are_accepted(name: str, text: str, written: str) -> None:
    assert canonical_values({name: text, "segment.ms": "5"}, TOPIC_SETTINGS) == {name: written, "segment.ms": "5"}
    assert apply_overrides(LogConfig(), {name: text, "segment.ms": "5"}, TOPIC_SETTINGS) == LogConfig(segment_ms=5)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("remote.storage.enable", "true", "it must be false: tiered storage is not supported"),
        ("segment.jitter.ms", "-1", "a whole number from 0 to"),
        ("segment.index.bytes", "3", "a whole number from 4 to"),
        ("flush.ms", "soon", "a whole number from 0 to"),
        ("flush.messages", "0", "a whole number from 1 to"),
        ("preallocate", "yes", "true or false"),
        ("local.retention.bytes", "-3", "a whole number from -2 to"),
        ("leader.replication.throttled.replicas", "one", "*, or PARTITION:BROKER"),
        ("leader.replication.throttled.replicas", "*,0:1", "*, or PARTITION:BROKER"),
    ],
)
def test_unsupported_and_invalid_values_are_refused(name: str, text: str, told: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        apply_overrides(LogConfig(), {name: text}, TOPIC_SETTINGS)
    assert told in str(refused.value)


def test_flush_settings_are_checked_against_the_brokers_durability() -> None:
    often = {"flush.ms": "10", "flush.messages": "1"}
    check_flush_settings(often, StorageConfig(durability=Durability.FSYNC))
    lazy = StorageConfig(durability=Durability.INTERVAL, flush_interval_ms=500)
    check_flush_settings({"flush.ms": "500", "flush.messages": LONG_MAX, "segment.ms": "5"}, lazy)
    for name, text in often.items():
        with pytest.raises(InvalidSettingError, match="durability=interval"):
            check_flush_settings({name: text}, lazy)

    with pytest.raises(InvalidSettingError, match="durability=interval"):
        check_flush_settings({"log.flush.interval.ms": "10"}, lazy)


def test_broker_settings_are_accepted_or_shown() -> None:
    for name, accepted in ACCEPTED_BY_BROKERS.items():
        setting = BROKER_SETTINGS[name]
        accepted.check(parse_text(accepted.kind, accepted.default))
        assert setting.dynamic is (name not in READ_ONLY)
        if setting.dynamic:
            assert apply_overrides(LogConfig(), {name: setting.default}, BROKER_SETTINGS) == LogConfig(), name
        else:
            with pytest.raises(InvalidSettingError):
                apply_overrides(LogConfig(), {name: setting.default}, BROKER_SETTINGS)


LONG_VALUES = (
    "9" * 100_000,
    "0" * 100_000 + "1",
    "1." + "0" * 100_000,
    "compact," * 50_000 + "delete",
    ",".join(f"{partition}:1" for partition in range(50_000)),
    "0:" + "0" * 100_000 + "1",
    f"by_duration:P{'1' * 100_000}D",
    f"by_duration:PT0.{'1' * 100_000}S",
    "x" * 100_000,
)


@pytest.mark.parametrize(
    "settings", [TOPIC_SETTINGS, BROKER_SETTINGS, GROUP_SETTINGS], ids=["topic", "broker", "group"]
)
def test_stored_setting_values_are_short(settings: Mapping[str, KafkaSetting]) -> None:
    """Settings are kept in memory, for every topic and group."""
    for name in settings:
        for text in LONG_VALUES:
            with suppress(InvalidSettingError):
                assert len(canonical_values({name: text}, settings)[name]) < 20_000, f"{name}: {text[:30]}"


# The names in TopicConfig of Kafka 4.3, and the two lists of throttled replicas.
KAFKAS_TOPIC_SETTINGS = {
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.downconversion.enable",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
}


def test_topics_have_every_setting_of_kafka_and_one_of_their_own() -> None:
    assert TOPIC_SETTINGS.keys() == KAFKAS_TOPIC_SETTINGS | {"validate"}


# The settings of threads, logs and the cleaner that Kafka 4.3 changes at run time, with its defaults.
KAFKAS_DYNAMIC_BROKER_SETTINGS = {
    "background.threads": "10",
    "log.cleaner.backoff.ms": "15000",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "log.cleaner.io.buffer.load.factor": "0.9",
    "log.cleaner.io.buffer.size": "524288",
    "log.cleaner.io.max.bytes.per.second": "1.7976931348623157E308",
    "log.cleaner.threads": "1",
    "log.local.retention.bytes": "-2",
    "log.local.retention.ms": "-2",
    "message.max.bytes": "1048588",
    "num.io.threads": "8",
    "num.network.threads": "3",
    "num.recovery.threads.per.data.dir": "2",
    "num.replica.fetchers": "1",
    "transaction.partition.verification.enable": "true",
}


@pytest.mark.parametrize(("name", "default"), KAFKAS_DYNAMIC_BROKER_SETTINGS.items())
def test_brokers_accept_the_settings_that_kafka_changes_at_run_time(name: str, default: str) -> None:
    assert apply_overrides(LogConfig(), {name: default}, BROKER_SETTINGS) == LogConfig()
    assert BROKER_SETTINGS[name].dynamic
    kept = canonical_values({name: default}, BROKER_SETTINGS)
    assert kept == {name: BROKER_SETTINGS[name].default}
    assert canonical_values(kept, BROKER_SETTINGS) == kept


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.cleaner.io.buffer.load.factor", "full"),
        ("log.cleaner.io.max.bytes.per.second", "-1"),
        ("log.cleaner.io.max.bytes.per.second", "1e999"),
        ("log.local.retention.ms", "-3"),
    ],
)
def test_brokers_refuse_values_that_kafka_refuses(name: str, text: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"{name}: '{text}' is not allowed"):
        apply_overrides(LogConfig(), {name: text}, BROKER_SETTINGS)


def test_protocol_md_lists_every_accepted_setting() -> None:
    for name in {**ACCEPTED, **ACCEPTED_BY_BROKERS}:
        assert f"`{name}`" in DOCUMENT.read_text(), name
