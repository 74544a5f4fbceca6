"""The start offset of each leader epoch of a log (KIP-101, Kafka's leader epoch cache).

A restarted follower asks its leader for the end offset of an epoch and truncates its log there, not at its high
watermark. The list can be rebuilt from the batches, each of which carries its leader epoch.
"""

from bisect import bisect_right
from typing import NamedTuple

from logbrook.model.identifiers import LeaderEpoch, Offset

# As on the wire.
_NO_EPOCH = LeaderEpoch(-1)


class EpochStart(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset


class LeaderEpochs:
    """Epochs and their start offsets, both strictly ascending."""

    def __init__(self, starts: list[EpochStart] | None = None) -> None:
        self.starts = starts or []
        # Damage that a start has found hides the epochs from this offset on. None if all are known.
        self.unknown_from: Offset | None = None
        # -1 if there is none. An attribute because every append reads it.
        self.latest = _NO_EPOCH
        self._update_latest()

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Record that the batch at `start_offset` has `epoch`. Returns True if the epoch is new."""
        if epoch <= self.latest:
            return False
        while self.starts and self.starts[-1].start_offset >= start_offset:
            # The epoch has no records left in the log.
            self.starts.pop()
        self.starts.append(EpochStart(epoch, start_offset))
        self._update_latest()
        return True

    def end_offset(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochStart | None:
        """Return the largest epoch up to `epoch` with its end offset, or None if all epochs are larger."""
        following = bisect_right(self.starts, epoch, key=lambda start: start.epoch)
        if following == 0:
            return None
        end = self.starts[following].start_offset if following < len(self.starts) else log_end_offset
        return EpochStart(self.starts[following - 1].epoch, end)

    def is_known(self, end_offset: Offset) -> bool:
        """True if `end_offset`, as returned by `end_offset()`, is the true end of the epoch."""
        return self.unknown_from is None or end_offset < self.unknown_from

    def epoch_of(self, offset: Offset) -> LeaderEpoch | None:
        """Return the leader epoch of the record at `offset`."""
        following = bisect_right(self.starts, offset, key=lambda start: start.start_offset)
        return self.starts[following - 1].epoch if following else None

    def truncate_end(self, offset: Offset) -> None:
        """Remove epochs that start at or past `offset`, after a truncation to it."""
        self.starts = [start for start in self.starts if start.start_offset < offset]
        if self.unknown_from is not None and offset <= self.unknown_from:
            self.unknown_from = None
        self._update_latest()

    def truncate_start(self, offset: Offset) -> None:
        """Remove epochs that end at or before `offset`, the new log start offset; keep the one that contains it.

        The start of that one is kept as it is. By it a leader finds followers whose records of an earlier epoch go
        beyond: those are not the leader's.
        """
        following = bisect_right(self.starts, offset, key=lambda start: start.start_offset)
        if following:
            del self.starts[: following - 1]

    def _update_latest(self) -> None:
        self.latest = self.starts[-1].epoch if self.starts else _NO_EPOCH
