"""Kafka's topic settings that are taken and shown and change nothing, and those of their values that are refused."""

from pathlib import Path

import pytest

from logbrook.config import Durability, LogConfig
from logbrook.config.accepted_settings import ACCEPTED
from logbrook.config.kafka_settings import (
    InvalidSettingError,
    broker_settings,
    check_promises,
    in_one_notation,
    override,
    topic_settings,
)
from logbrook.config.storage import StorageConfig

DOCUMENT = Path(__file__).parents[3] / "docs" / "PROTOCOL.md"
LONG_MAX = str(2**63 - 1)


@pytest.mark.parametrize("name", ACCEPTED)
def test_its_default_is_taken_and_changes_nothing(name: str) -> None:
    setting = topic_settings()[name]
    assert override(LogConfig(), {name: setting.default}, topic_settings()) == LogConfig()
    assert in_one_notation({name: setting.default}, topic_settings()) == {name: setting.default}
    assert setting.dynamic
    assert setting.doc.startswith("Accepted, and changes nothing: ")


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
        ("compression.gzip.level", "9", "9"),
        ("compression.zstd.level", "-5", "-5"),
        ("local.retention.ms", "-1", "-1"),
        ("remote.log.copy.disable", "true", "true"),
        ("remote.storage.enable", "False", "false"),
        ("max.compaction.lag.ms", LONG_MAX, LONG_MAX),
    ],
)
def test_what_kafka_takes_is_taken(name: str, text: str, written: str) -> None:
    assert in_one_notation({name: text, "segment.ms": "5"}, topic_settings()) == {name: written, "segment.ms": "5"}
    assert override(LogConfig(), {name: text, "segment.ms": "5"}, topic_settings()) == LogConfig(segment_ms=5)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("remote.storage.enable", "true", "it must be false: there is no remote storage"),
        ("max.compaction.lag.ms", "86400000", "nothing is compacted by a certain time"),
        ("message.timestamp.before.max.ms", "1000", "no record is refused for its timestamp"),
        ("message.timestamp.after.max.ms", "3600000", "no record is refused for its timestamp"),
        ("segment.jitter.ms", "-1", "a whole number from 0 to"),
        ("segment.index.bytes", "3", "a whole number from 4 to"),
        ("flush.ms", "soon", "a whole number from 0 to"),
        ("flush.messages", "0", "a whole number from 1 to"),
        ("preallocate", "yes", "true or false"),
        ("compression.gzip.level", "0", "-1, or a whole number from 1 to 9"),
        ("local.retention.bytes", "-3", "a whole number from -2 to"),
        ("leader.replication.throttled.replicas", "one", "*, or PARTITION:BROKER"),
        ("leader.replication.throttled.replicas", "*,0:1", "*, or PARTITION:BROKER"),
    ],
)
def test_what_we_would_not_keep_and_what_kafka_refuses_is_refused(name: str, text: str, told: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        override(LogConfig(), {name: text}, topic_settings())
    assert told in str(refused.value)


def test_how_often_is_synced_is_a_promise_that_depends_on_the_broker() -> None:
    often = {"flush.ms": "10", "flush.messages": "1"}
    check_promises(often, StorageConfig(durability=Durability.FSYNC))
    lazy = StorageConfig(durability=Durability.INTERVAL, flush_interval_ms=500)
    check_promises({"flush.ms": "500", "flush.messages": LONG_MAX, "segment.ms": "5"}, lazy)
    for name, text in often.items():
        with pytest.raises(InvalidSettingError, match="durability=interval"):
            check_promises({name: text}, lazy)


def test_a_broker_has_none_of_them() -> None:
    assert not ACCEPTED.keys() & broker_settings().keys()


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_document_speaks_of_it(name: str) -> None:
    assert f"`{name}`" in DOCUMENT.read_text()
