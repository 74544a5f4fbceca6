"""How long offsets and empty groups are kept (KIP-211).

    the group is Empty              the retention counts from when it became so, or from a later commit
    no member ever joined           it counts from the last commit
    consumers, Stable               it counts from the last commit, for topics that no member reads any more
    anything else                   nothing expires

An Empty group goes with its last offset. Now and then all groups are swept, some per tick, so that no tick is long.
"""

from collections.abc import Iterable

from logbrook.config.groups import GroupConfig
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.results import Record, Write
from logbrook.model import TopicPartition

SWEEP_INTERVAL_MS = 10 * 60_000
_GROUPS_PER_TICK_MAX = 1_000


class RetentionSweep:
    """Which groups to look at, and when."""

    def __init__(self) -> None:
        self._next_ms: int | None = None
        self._left: list[str] = []

    def start(self, now_ms: int) -> None:
        self._next_ms = now_ms + SWEEP_INTERVAL_MS

    def next_ms(self) -> int | None:
        return self._next_ms

    def take_due(self, group_ids: Iterable[str], now_ms: int) -> list[str]:
        """The groups to sweep now. While some of a sweep are left, the next step is due at once."""
        if self._next_ms is None or now_ms < self._next_ms:
            return []
        if not self._left:
            self._left = list(group_ids)
        due, self._left = self._left[:_GROUPS_PER_TICK_MAX], self._left[_GROUPS_PER_TICK_MAX:]
        self._next_ms = now_ms if self._left else now_ms + SWEEP_INTERVAL_MS
        return due


def expire_offsets(group: Group, config: GroupConfig, now_ms: int) -> Write | None:
    """The tombstones of what this group has kept for long enough; None if there are none."""
    group.offsets.forget_decided_before(now_ms - config.offsets_retention_ms)
    expired = _expired(group, config, now_ms)
    records: list[Record] = group.offsets.delete(expired)
    if group.is_unused and group.is_written and not group.offsets.has_others_than(expired):
        records.append(group.tombstone())
    return Write(group.group_id, records) if records else None


def _expired(group: Group, config: GroupConfig, now_ms: int) -> list[TopicPartition]:
    retention_ms = config.offsets_retention_ms
    if group.state is GroupState.EMPTY:
        since_ms = group.state_timestamp_ms if group.protocol_type is not None else None
        return group.offsets.expired(now_ms, retention_ms, since_ms, kept_topics=())
    if group.state is GroupState.STABLE and group.subscribed_topics is not None:
        return group.offsets.expired(now_ms, retention_ms, None, kept_topics=group.subscribed_topics)
    return []
