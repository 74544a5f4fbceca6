"""Kafka's settings that are stored and returned but have no effect, so that tools which set them keep working.

`ACCEPTED` are settings of topics, `ACCEPTED_BY_BROKERS` settings of brokers, some of which are only shown, and
`ACCEPTED_BY_GROUPS` settings of groups, all of which are for group protocols that Logbrook does not have.

Where no value could change the behaviour of a single node, every value that Kafka accepts is accepted. Where some
values require a behaviour that Logbrook does not have, those are rejected with the reason.
"""

import re
import sys
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from logbrook.config.errors import NotAllowedError
from logbrook.config.setting import ConfigType
from logbrook.config.storage import Durability, StorageConfig

CORDONED_LOG_DIRS = "cordoned.log.dirs"

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
# PARTITION:BROKER, a replica in Kafka's lists of throttled replicas.
_REPLICA = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")
# Settings are kept in memory, so values of any length would have no bound. A longer list is written as *.
_REPLICAS_MAX = 1_000
# A duration in ISO 8601, as Java parses it, such as P1DT2H.
_OFFSET_RESET = re.compile(
    r"latest|earliest|by_duration:P(?=[0-9T])([0-9]{1,19}D)?(T([0-9]{1,19}H)?([0-9]{1,19}M)?([0-9.]{1,29}S)?)?"
)


class AcceptedSetting(NamedTuple):
    """A setting without effect on a single node.

    `must_be` describes the values for which `allows` is true; `doc` gives the reason.
    """

    name: str
    kind: ConfigType
    default: str
    must_be: str
    allows: Callable[[Any], bool]
    doc: str

    def check(self, value: Any) -> None:
        """Raises NotAllowedError."""
        if not self.allows(value):
            raise NotAllowedError(self.must_be)


def check_flushes(name: str, value: Any, storage: StorageConfig) -> None:
    """Check that the broker syncs at least as often as flush.ms or flush.messages requires. Raises NotAllowedError."""
    if storage.durability is Durability.FSYNC:
        return
    if name in _FLUSH_MS and value < storage.flush_interval_ms:
        raise NotAllowedError(
            f"at least {storage.flush_interval_ms}, storage.flush_interval_ms: with durability=interval the broker "
            "syncs no more often"
        )
    if name in _FLUSH_MESSAGES and value != _LONG_MAX:
        raise NotAllowedError(f"{_LONG_MAX}: with durability=interval the broker syncs by time, not by messages")


def _number(name: str, kind: ConfigType, default: int, least: int, most: int, doc: str) -> AcceptedSetting:
    return AcceptedSetting(
        name,
        kind,
        str(default),
        f"a whole number from {least} to {most}",
        lambda value: isinstance(value, int) and least <= value <= most,
        doc,
    )


def _fraction(name: str, default: float, least: float, doc: str) -> AcceptedSetting:
    return AcceptedSetting(
        name,
        ConfigType.DOUBLE,
        str(default),
        f"a number from {least} on",
        lambda value: isinstance(value, float) and least <= value < inf,
        doc,
    )


def _boolean(name: str, default: str, doc: str) -> AcceptedSetting:
    return AcceptedSetting(
        name, ConfigType.BOOLEAN, default, "true or false", lambda value: isinstance(value, bool), doc
    )


def _only(name: str, kind: ConfigType, only: Any, doc: str) -> AcceptedSetting:
    text = str(only).lower()
    return AcceptedSetting(name, kind, text, f"{text}: {doc}", lambda value: value == only, doc)


def _text(name: str, default: str, must_be: str, pattern: re.Pattern[str], doc: str) -> AcceptedSetting:
    return AcceptedSetting(
        name, ConfigType.STRING, default, must_be, lambda value: pattern.fullmatch(value) is not None, doc
    )


def _replicas(name: str) -> AcceptedSetting:
    return AcceptedSetting(
        name,
        ConfigType.LIST,
        "",
        f"*, or PARTITION:BROKER with commas between them, at most {_REPLICAS_MAX:,}",
        lambda value: (
            value == ["*"] or (len(value) <= _REPLICAS_MAX and all(_REPLICA.fullmatch(part) for part in value))
        ),
        "Replicas outside the ISR to which the throttled rates apply. A single node has none.",
    )


# The names of topics and of brokers.
_FLUSH_MS = ("flush.ms", "log.flush.interval.ms")
_FLUSH_MESSAGES = ("flush.messages", "log.flush.interval.messages")
_SYNCED_BY_DURABILITY = "storage.durability decides when appends are synced."
_UNCLEAN = "In a cluster: elect a replica that lacks records if no other is alive. A single node is always the leader."
_NO_REMOTE = "Tiered storage is not supported."

_TABLE = (
    _number("segment.jitter.ms", ConfigType.LONG, 0, 0, _LONG_MAX, "Segments are rolled at segment.ms, never earlier."),
    _number("segment.index.bytes", ConfigType.INT, 10 << 20, 4, _INT_MAX, "An index grows with its segment."),
    _number(_FLUSH_MS[0], ConfigType.LONG, _LONG_MAX, 0, _LONG_MAX, _SYNCED_BY_DURABILITY),
    _number(_FLUSH_MESSAGES[0], ConfigType.LONG, _LONG_MAX, 1, _LONG_MAX, _SYNCED_BY_DURABILITY),
    _boolean("preallocate", "false", "Only write-ahead log files are preallocated."),
    _boolean("unclean.leader.election.enable", "false", _UNCLEAN),
    _boolean("message.downconversion.enable", "true", "Record formats before version 2 are not supported."),
    _replicas("leader.replication.throttled.replicas"),
    _replicas("follower.replication.throttled.replicas"),
    _number("local.retention.ms", ConfigType.LONG, -2, -2, _LONG_MAX, _NO_REMOTE),
    _number("local.retention.bytes", ConfigType.LONG, -2, -2, _LONG_MAX, _NO_REMOTE),
    _boolean("remote.log.copy.disable", "false", _NO_REMOTE),
    _boolean("remote.log.delete.on.disable", "false", _NO_REMOTE),
    _only("remote.storage.enable", ConfigType.BOOLEAN, False, "tiered storage is not supported"),
)

_ONE_THREAD = "Requests, maintenance and recovery have one thread each."
_ONE_REPLICA = "A single node has one replica."
_CORDONED = (
    "*: in a cluster this broker gets no replicas of new partitions and none that are moved; those it has stay "
    "(KIP-1066). `logbrook cluster drain` sets it, `logbrook cluster uncordon` removes it."
)
_THROTTLED = "Bytes per second of throttled replicas outside the ISR. A single node has none."
_NOT_THROTTLED = "There are no moves between data directories."
_OWN_MEMORY = "storage.compaction_map_bytes_max bounds the memory of compaction."

_BROKER_TABLE = (
    _number(_FLUSH_MS[1], ConfigType.LONG, _LONG_MAX, 0, _LONG_MAX, _SYNCED_BY_DURABILITY),
    _number(_FLUSH_MESSAGES[1], ConfigType.LONG, _LONG_MAX, 1, _LONG_MAX, _SYNCED_BY_DURABILITY),
    _number("log.roll.jitter.ms", ConfigType.LONG, 0, 0, _LONG_MAX, "Segments are rolled at log.roll.ms, not earlier."),
    _number("log.index.size.max.bytes", ConfigType.INT, 10 << 20, 4, _INT_MAX, "An index grows with its segment."),
    _boolean("log.preallocate", "false", "Only write-ahead log files are preallocated."),
    _boolean("unclean.leader.election.enable", "false", _UNCLEAN),
    AcceptedSetting(
        CORDONED_LOG_DIRS,
        ConfigType.LIST,
        "",
        "* or empty: all data directories of a broker are cordoned, or none",
        lambda value: value in ([], ["*"]),
        _CORDONED,
    ),
    _number("num.io.threads", ConfigType.INT, 8, 1, _INT_MAX, _ONE_THREAD),
    _number("num.network.threads", ConfigType.INT, 3, 1, _INT_MAX, _ONE_THREAD),
    _number("num.recovery.threads.per.data.dir", ConfigType.INT, 2, 1, _INT_MAX, _ONE_THREAD),
    _number("background.threads", ConfigType.INT, 10, 1, _INT_MAX, _ONE_THREAD),
    _number("num.replica.fetchers", ConfigType.INT, 1, 1, _INT_MAX, _ONE_REPLICA),
    _number("log.cleaner.threads", ConfigType.INT, 1, 0, _INT_MAX, _ONE_THREAD),
    _number("log.cleaner.dedupe.buffer.size", ConfigType.LONG, 128 << 20, 1, _LONG_MAX, _OWN_MEMORY),
    _number("log.cleaner.io.buffer.size", ConfigType.INT, 512 << 10, 0, _INT_MAX, _OWN_MEMORY),
    _fraction("log.cleaner.io.buffer.load.factor", 0.9, 0.0, _OWN_MEMORY),
    _fraction("log.cleaner.io.max.bytes.per.second", sys.float_info.max, 0.0, "Compaction is not throttled."),
    _number(
        "log.cleaner.backoff.ms", ConfigType.LONG, 15_000, 0, _LONG_MAX, "maintenance.interval_ms has this effect."
    ),
    _number("leader.replication.throttled.rate", ConfigType.LONG, _LONG_MAX, 0, _LONG_MAX, _THROTTLED),
    _number("follower.replication.throttled.rate", ConfigType.LONG, _LONG_MAX, 0, _LONG_MAX, _THROTTLED),
    _number("replica.alter.log.dirs.io.max.bytes.per.second", ConfigType.LONG, _LONG_MAX, 0, _LONG_MAX, _NOT_THROTTLED),
    _number("log.local.retention.ms", ConfigType.LONG, -2, -2, _LONG_MAX, _NO_REMOTE),
    _number("log.local.retention.bytes", ConfigType.LONG, -2, -2, _LONG_MAX, _NO_REMOTE),
    _boolean("transaction.partition.verification.enable", "true", "The partitions of transactions are always checked."),
)
_SHOWN_TABLE = (
    _only("default.replication.factor", ConfigType.INT, 1, _ONE_REPLICA),
    _only("offsets.topic.replication.factor", ConfigType.INT, 1, _ONE_REPLICA),
    _only("transaction.state.log.replication.factor", ConfigType.INT, 1, _ONE_REPLICA),
    _only("transaction.state.log.min.isr", ConfigType.INT, 1, _ONE_REPLICA),
    _only("delete.topic.enable", ConfigType.BOOLEAN, True, "Topics can always be deleted."),
    _only("log.cleaner.enable", ConfigType.BOOLEAN, True, "Compaction is always enabled."),
)

_CLASSIC_ONLY = "Only the classic group protocol is supported."
_BOUNDS_OF_INTERVALS = {
    "session.timeout.ms": (45_000, 45_000, 60_000),
    "heartbeat.interval.ms": (5_000, 5_000, 15_000),
    "assignment.interval.ms": (1_000, 0, 15_000),
}
# With Kafka's defaults and bounds.
_GROUP_TABLE = (
    *(
        _number(f"{protocol}.{name}", ConfigType.INT, *bounds, _CLASSIC_ONLY)
        for protocol in ("consumer", "share", "streams")
        for name, bounds in _BOUNDS_OF_INTERVALS.items()
    ),
    _number("share.record.lock.duration.ms", ConfigType.INT, 30_000, 15_000, 60_000, _CLASSIC_ONLY),
    _number("share.delivery.count.limit", ConfigType.INT, 5, 2, 10, _CLASSIC_ONLY),
    _number("share.partition.max.record.locks", ConfigType.INT, 2_000, 100, 4_000, _CLASSIC_ONLY),
    _text(
        "share.auto.offset.reset",
        "latest",
        "latest, earliest, or by_duration: followed by a duration such as P1DT2H",
        _OFFSET_RESET,
        _CLASSIC_ONLY,
    ),
    _text(
        "share.isolation.level",
        "read_uncommitted",
        "read_committed or read_uncommitted",
        re.compile("read_committed|read_uncommitted"),
        _CLASSIC_ONLY,
    ),
    _boolean("share.renew.acknowledge.enable", "true", _CLASSIC_ONLY),
    _number("streams.num.standby.replicas", ConfigType.INT, 0, 0, 2, _CLASSIC_ONLY),
    _number("streams.initial.rebalance.delay.ms", ConfigType.INT, 3_000, 0, _INT_MAX, _CLASSIC_ONLY),
)

ACCEPTED = {setting.name: setting for setting in _TABLE}
ACCEPTED_BY_BROKERS = {setting.name: setting for setting in (*_BROKER_TABLE, *_SHOWN_TABLE)}
ACCEPTED_BY_GROUPS = {setting.name: setting for setting in _GROUP_TABLE}
READ_ONLY = frozenset(setting.name for setting in _SHOWN_TABLE)
