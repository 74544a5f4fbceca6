"""Kafka's topic settings that are taken and shown and change nothing, so that tools which set them can do their work.

A setting is here for one of two reasons. Either no value of it can change what a single node does, or promises what a
single node breaks: then all that Kafka takes is taken. Or some values promise what Logbrook does not do: then only the
others are taken, and whoever asks for the promise is told so.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from logbrook.config.errors import NotAllowedError
from logbrook.config.setting_kind import SettingKind
from logbrook.config.storage import Durability, StorageConfig

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
# `*`, or partitions each with the broker whose copy is meant.
_REPLICA = re.compile(r"[0-9]+:[0-9]+")


class AcceptedSetting(NamedTuple):
    """`must_be` says in words what `allows` does; `doc` says why it changes nothing."""

    name: str
    kind: SettingKind
    default: str
    must_be: str
    allows: Callable[[Any], bool]
    doc: str

    def check(self, value: Any) -> None:
        """Raises NotAllowedError."""
        if not self.allows(value):
            raise NotAllowedError(self.must_be)


def check_flushes(name: str, value: Any, storage: StorageConfig) -> None:
    """Whether what is acknowledged is synced as often as a topic asks. Raises NotAllowedError."""
    if storage.durability is Durability.FSYNC:
        return
    if name == _FLUSH_MS and value < storage.flush_interval_ms:
        raise NotAllowedError(
            f"at least {storage.flush_interval_ms}, storage.flush_interval_ms: with durability=interval the broker "
            "syncs no more often"
        )
    if name == _FLUSH_MESSAGES and value != _LONG_MAX:
        raise NotAllowedError(f"{_LONG_MAX}: with durability=interval the broker syncs by time, not by messages")


def _number(name: str, kind: SettingKind, default: int, least: int, most: int, doc: str) -> AcceptedSetting:
    return AcceptedSetting(
        name,
        kind,
        str(default),
        f"a whole number from {least} to {most}",
        lambda value: isinstance(value, int) and least <= value <= most,
        doc,
    )


def _boolean(name: str, default: str, doc: str) -> AcceptedSetting:
    return AcceptedSetting(
        name, SettingKind.BOOLEAN, default, "true or false", lambda value: isinstance(value, bool), doc
    )


def _only(name: str, kind: SettingKind, only: Any, text: str, doc: str) -> AcceptedSetting:
    return AcceptedSetting(name, kind, text, f"{text}: {doc}", lambda value: value == only, doc)


def _replicas(name: str) -> AcceptedSetting:
    return AcceptedSetting(
        name,
        SettingKind.LIST,
        "",
        "*, or PARTITION:BROKER with commas between them",
        lambda value: value in ([""], ["*"]) or all(_REPLICA.fullmatch(part) for part in value),
        "There are no copies whose making could be slowed down.",
    )


_FLUSH_MS = "flush.ms"
_FLUSH_MESSAGES = "flush.messages"
_NEVER_COMPRESSED = "Batches are stored as their producer compressed them."
_NO_REMOTE = "There is no remote storage."

_TABLE = (
    _number("segment.jitter.ms", SettingKind.LONG, 0, 0, _LONG_MAX, "Segments are closed at segment.ms, never sooner."),
    _number("segment.index.bytes", SettingKind.INT, 10 << 20, 4, _INT_MAX, "An index has what its segment needs."),
    _number(_FLUSH_MS, SettingKind.LONG, _LONG_MAX, 0, _LONG_MAX, "What is acknowledged is synced, or soon will be."),
    _number(_FLUSH_MESSAGES, SettingKind.LONG, _LONG_MAX, 1, _LONG_MAX, "What is acknowledged is synced."),
    _boolean("preallocate", "false", "Segments grow as they are written, and the write-ahead log has its room."),
    _boolean("unclean.leader.election.enable", "false", "There is one node, and it is the leader."),
    _boolean("message.downconversion.enable", "true", "Clients of formats before version 2 are not served."),
    _replicas("leader.replication.throttled.replicas"),
    _replicas("follower.replication.throttled.replicas"),
    AcceptedSetting(
        "compression.gzip.level",
        SettingKind.INT,
        "-1",
        "-1, or a whole number from 1 to 9",
        lambda value: isinstance(value, int) and (value == -1 or 1 <= value <= 9),
        _NEVER_COMPRESSED,
    ),
    _number("compression.lz4.level", SettingKind.INT, 9, 1, 17, _NEVER_COMPRESSED),
    _number("compression.zstd.level", SettingKind.INT, 3, -131_072, 22, _NEVER_COMPRESSED),
    _number("local.retention.ms", SettingKind.LONG, -2, -2, _LONG_MAX, _NO_REMOTE),
    _number("local.retention.bytes", SettingKind.LONG, -2, -2, _LONG_MAX, _NO_REMOTE),
    _boolean("remote.log.copy.disable", "false", _NO_REMOTE),
    _boolean("remote.log.delete.on.disable", "false", _NO_REMOTE),
    _only("remote.storage.enable", SettingKind.BOOLEAN, False, "false", "there is no remote storage"),
    _only(
        "max.compaction.lag.ms",
        SettingKind.LONG,
        _LONG_MAX,
        str(_LONG_MAX),
        "nothing is compacted by a certain time; min.cleanable.dirty.ratio says when it is",
    ),
    _only(
        "message.timestamp.before.max.ms",
        SettingKind.LONG,
        _LONG_MAX,
        str(_LONG_MAX),
        "no record is refused for its timestamp",
    ),
    _only(
        "message.timestamp.after.max.ms",
        SettingKind.LONG,
        _LONG_MAX,
        str(_LONG_MAX),
        "no record is refused for its timestamp",
    ),
)

ACCEPTED = {one.name: one for one in _TABLE}
