"""Which leader wrote which offsets: the start offset of each leader epoch, as KIP-101 keeps it.

A follower that comes back asks where an epoch ended and cuts its log there, never at a high watermark. The list can
always be made again from the batches, each of which carries its epoch.
"""

from bisect import bisect_right
from typing import NamedTuple


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    """Epochs and their start offsets, both rising."""

    def __init__(self, starts: list[EpochStart] | None = None) -> None:
        self.starts = starts or []
        # -1 before the first, as on the wire. An attribute, because every append asks for it.
        self.latest = -1
        self._note_latest()

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that the record at `start_offset` was written in `epoch`. True if that began a new epoch."""
        if epoch <= self.latest:
            return False
        while self.starts and self.starts[-1].start_offset >= start_offset:
            # Of that epoch nothing is left in the log.
            self.starts.pop()
        self.starts.append(EpochStart(epoch, start_offset))
        self._note_latest()
        return True

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochStart | None:
        """The largest known epoch up to `epoch`, and the offset at which it ended; None when all are later."""
        found = bisect_right(self.starts, epoch, key=lambda start: start.epoch)
        if found == 0:
            return None
        end = self.starts[found].start_offset if found < len(self.starts) else log_end_offset
        return EpochStart(self.starts[found - 1].epoch, end)

    def epoch_of(self, offset: int) -> int | None:
        """The epoch in which the record at `offset` was written."""
        found = bisect_right(self.starts, offset, key=lambda start: start.start_offset)
        return self.starts[found - 1].epoch if found else None

    def cut_end(self, offset: int) -> None:
        """Forget epochs that began at or past `offset`: the log was truncated there."""
        self.starts = [start for start in self.starts if start.start_offset < offset]
        self._note_latest()

    def cut_start(self, offset: int) -> None:
        """Forget epochs that ended by `offset`, where the log now starts, but keep the one it starts in."""
        found = bisect_right(self.starts, offset, key=lambda start: start.start_offset)
        if found:
            self.starts = [EpochStart(self.starts[found - 1].epoch, offset), *self.starts[found:]]

    def _note_latest(self) -> None:
        self.latest = self.starts[-1].epoch if self.starts else -1
