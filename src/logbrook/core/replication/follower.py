"""A follower of a partition: where it fetches, where it truncates, and its high watermark.

A fetch names the follower's log end offset and the leader epoch of its last record. The leader compares them with its
own epochs: if that epoch ends earlier in its log, the logs diverge, and it answers with the largest epoch that it has
up to that one, and its end offset (KIP-595). The follower truncates to the smaller of the two ends of that epoch and
fetches again, until the logs agree (KIP-101, KIP-279). It never truncates by the high watermark, and takes the high
watermark of the leader over only from a response without divergence. If the epoch ends before the follower's log
starts, the leader, elected uncleanly, lacks committed records: then the follower starts again at the start of the
leader's log.

The leader takes the offset of a fetch for a durable end, so a follower fetches when all its records are synced. Below
the leader's high watermark it need not wait (ADR 29): the leader counts the offset only at or above it.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from logbrook.model.identifiers import BrokerId, LeaderEpoch, Offset

NO_EPOCH = LeaderEpoch(-1)


class EpochEnd(NamedTuple):
    """The offset after the last record of a leader epoch."""

    epoch: LeaderEpoch
    end_offset: Offset


class ReplicaFetch(NamedTuple):
    """The position of a fetch: the offset, the epoch of the record before it, and the epoch of the leader.

    `log_start_offset` is the follower's: it has deleted the records before it, durably.
    """

    offset: Offset
    last_epoch: LeaderEpoch
    leader_epoch: LeaderEpoch
    log_start_offset: Offset


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Remove all records from this offset on, durably. Then fetch again."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class StartAt:
    """Remove all records and continue at this offset: the leader has none before it."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """The response has records. The caller appends them before `on_response`, and fetches again if `may_fetch`."""


@dataclass(frozen=True, slots=True)
class MoveHighWatermark:
    """Records below the offset become visible to consumers that fetch from this follower (KIP-392)."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class MoveLogStart:
    """The leader has removed the records before this offset."""

    offset: Offset


FollowerEffect: TypeAlias = TruncateLog | StartAt | AppendFetched | MoveHighWatermark | MoveLogStart


def find_divergence(fetch: ReplicaFetch, own_end: EpochEnd | None, first_epoch_start: Offset) -> EpochEnd | None:
    """The leader's check of a fetch: where the logs diverge, or None if the follower has a prefix of this log.

    `own_end` is the largest epoch up to `fetch.last_epoch` in the leader's log, with its end offset; None if all epochs
    of the log are larger, and the first of them starts at `first_epoch_start`.
    """
    if fetch.last_epoch == NO_EPOCH:
        # The follower's log has never had a record. One that retention has emptied keeps its last epoch.
        return None
    if own_end is None:
        # Retention has removed the leader's records of that epoch; it ended here at the latest.
        own_end = EpochEnd(fetch.last_epoch, first_epoch_start)
    if own_end.epoch < fetch.last_epoch or own_end.end_offset < fetch.offset:
        return own_end
    return None


class PartitionFollower:
    """One term of a follower: it follows one leader in one epoch. The caller owns the log and reports its ends."""

    def __init__(self, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        # The newest that the leader has told in this term. Its own is never smaller.
        self.leader_high_watermark = Offset(0)

    def may_fetch(self, log_end_offset: Offset, synced_end_offset: Offset) -> bool:
        """True if everything is synced, or the leader does not count the offset of the fetch."""
        return log_end_offset == synced_end_offset or log_end_offset < self.leader_high_watermark

    def fetch(
        self, log_start_offset: Offset, log_end_offset: Offset, synced_end_offset: Offset, last_epoch: LeaderEpoch
    ) -> ReplicaFetch:
        """Return the next fetch. `may_fetch` must be true."""
        assert self.may_fetch(log_end_offset, synced_end_offset), "the offset of a fetch is a durable end"
        return ReplicaFetch(log_end_offset, last_epoch, self.leader_epoch, log_start_offset)

    def on_divergence(
        self,
        divergence: EpochEnd,
        own_end: EpochEnd | None,
        log_start_offset: Offset,
        log_end_offset: Offset,
        leader_log_start_offset: Offset,
    ) -> list[FollowerEffect]:
        """The leader's log has `divergence.epoch` up to that end offset, and no later one that this log has.

        `own_end` is the largest epoch up to that one in this log, with its end offset; None if all epochs are larger:
        then no record that is left is the leader's.
        """
        is_empty = log_start_offset == log_end_offset
        lacks_committed = divergence.end_offset < log_start_offset
        if is_empty or (lacks_committed and leader_log_start_offset < log_start_offset):
            # After an unclean election: records before the log start are below the high watermark.
            return [StartAt(leader_log_start_offset)]
        offset = log_start_offset
        if own_end is not None:
            offset = Offset(max(log_start_offset, min(divergence.end_offset, own_end.end_offset)))
        assert offset < log_end_offset, "a divergence removes at least one record"
        return [TruncateLog(offset)]

    def on_out_of_range(
        self, leader_log_start_offset: Offset, log_start_offset: Offset, log_end_offset: Offset
    ) -> list[FollowerEffect]:
        """The leader's log does not have the offset of the fetch.

        Either retention has removed it there, or this log is empty and starts after the end of the leader's.
        """
        is_empty = log_start_offset == log_end_offset
        if leader_log_start_offset > log_end_offset or (is_empty and leader_log_start_offset != log_end_offset):
            return [StartAt(leader_log_start_offset)]
        return []

    def before_append(
        self, base_offset: Offset, next_offset: Offset, log_start_offset: Offset, log_end_offset: Offset
    ) -> list[FollowerEffect]:
        """A response has records; its first batch has the offsets from `base_offset` up to `next_offset`.

        Batches are sent whole, and a log may start within one: clients have deleted its first records. An empty log
        then starts again with the batch; the leader's log start offset hides the first records of it. Another log has
        no prefix of the batch, so its records there are not the leader's, which cannot compare what it has deleted.

        If there is an effect the records are not appended, unless the log was replaced.
        """
        if not base_offset < log_end_offset < next_offset:
            return []
        if log_start_offset == log_end_offset:
            return [StartAt(base_offset)]
        return [TruncateLog(Offset(max(log_start_offset, base_offset)))]

    def on_response(
        self,
        *,
        has_records: bool,
        leader_high_watermark: Offset,
        leader_log_start_offset: Offset,
        high_watermark: Offset,
        log_start_offset: Offset,
        log_end_offset: Offset,
    ) -> list[FollowerEffect]:
        """A response without divergence. `log_end_offset` is that after its records are appended.

        `high_watermark` is that of this log, which a truncation after an unclean election may have lowered. The log
        start offset moves first: records before it that the leader could not compare must never be visible.
        """
        effects: list[FollowerEffect] = [AppendFetched()] if has_records else []
        self.leader_high_watermark = max(self.leader_high_watermark, leader_high_watermark)
        committed = max(high_watermark, min(leader_high_watermark, log_end_offset))
        start = min(leader_log_start_offset, committed)
        if start > log_start_offset:
            effects.append(MoveLogStart(Offset(start)))
        if committed > high_watermark:
            effects.append(MoveHighWatermark(Offset(committed)))
        return effects

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls."""
        assert self.leader_epoch >= 0
        assert self.leader_high_watermark >= 0
