"""The scrub: reads and checks every byte of all logs once per interval, so that damage is found before a reader has it.

It goes through the logs by name, segment by segment, and saves its position, so that a restart does not begin again. It
reads at the rate at which the interval suffices, but not below 1 MiB/s, and waits between two rounds. A damaged log is
quarantined; a broker of a cluster then repairs it from the leader (`cluster.replica_repair`).
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import Offset
from logbrook.ports import Clock, Files
from logbrook.storage.durable_files import IO_FAILURES, read_sealed, write_sealed
from logbrook.storage.errors import LogModifiedError, StorageError
from logbrook.storage.log import Log
from logbrook.storage.paths import SCRUB

T = TypeVar("T")

_RATE_MIN = 1 << 20
# The share of the interval in which a round is to be finished.
_SHARE = 0.8
# Maximum rate within a segment: other maintenance waits for its end.
_SEGMENT_RATE_MAX = 64 << 20
_FIRST_ROUND_S = 60.0
_SAVE_S = 30.0
_WAIT_S_MAX = 60.0

_logger = event_logger(__name__)


class ScrubPosition(NamedTuple):
    """A round that began at `began_ms`: every segment before this one is checked. `is_finished`: all are."""

    began_ms: int
    partition: str = ""
    segment: Offset = Offset(-1)
    is_finished: bool = False


class ScrubHost(Protocol):
    """The maintenance of a broker, which does the reading."""

    def logs(self) -> list[Log]: ...

    async def verify_segment(self, log: Log, segment: Offset, on_read: Callable[[int], Awaitable[bool]]) -> None: ...

    async def stopped_within(self, seconds: float) -> bool: ...

    async def in_thread(self, work: Callable[[], T]) -> T: ...


class Scrubber:
    """One per broker, on the event loop. The totals are since its start."""

    def __init__(self, interval_ms: int, files: Files, clock: Clock, host: ScrubHost) -> None:
        self._interval_ms = interval_ms
        self._files = files
        self._clock = clock
        self._host = host
        self._saved_s = clock.monotonic_s()
        self._rate = float(_RATE_MIN)
        self._position = ScrubPosition(clock.now_ms())
        self.bytes_read = 0
        self.rounds_finished = 0
        # The share of the current round that is done.
        self.progress = 0.0

    async def run(self) -> None:
        """Scrub until the broker stops."""
        if await self._host.stopped_within(_FIRST_ROUND_S):
            return
        self._position = await self._host.in_thread(self._load)
        while True:
            position = self._position
            due_ms = position.began_ms + self._interval_ms if position.is_finished else 0
            while self._clock.now_ms() < due_ms:
                wait_s = min(_WAIT_S_MAX, (due_ms - self._clock.now_ms()) / 1000)
                if await self._host.stopped_within(wait_s):
                    return
            if not await self.run_round(None if position.is_finished else position):
                return

    async def run_round(self, position: ScrubPosition | None = None) -> bool:
        """Check every segment, from a position on. Returns False if the broker stops meanwhile."""
        position = position or ScrubPosition(self._clock.now_ms())
        remaining = list(self._segments(position))
        total = sum(log.size for log in self._host.logs())
        self._rate = max(_RATE_MIN, total / (_SHARE * self._interval_ms / 1000))
        for number, (log, segment) in enumerate(remaining):
            self.progress = number / len(remaining)
            if not await self._scrub(log, segment):
                return False
            position = position._replace(partition=log.partition.directory, segment=segment)
            if self._clock.monotonic_s() - self._saved_s >= _SAVE_S:
                await self._save(position)
        self.progress = 1.0
        self.rounds_finished += 1
        await self._save(position._replace(is_finished=True))
        _logger.info("scrub finished", segments=len(remaining), took_ms=self._clock.now_ms() - position.began_ms)
        return True

    async def _scrub(self, log: Log, segment: Offset) -> bool:
        """Check a segment. Returns False if the broker stops meanwhile."""
        began_s, read = self._clock.monotonic_s(), 0

        async def on_read(length: int) -> bool:
            nonlocal read
            read += length
            self.bytes_read += length
            return not await self._is_stopped_until(began_s + read / _SEGMENT_RATE_MAX)

        try:
            await self._host.verify_segment(log, segment, on_read)
        except LogModifiedError:
            # The log was truncated or deleted. What is left of the segment is checked in the next round.
            pass
        except StorageError as error:
            if not log.is_deleted:
                _logger.error("scrub found damage", partition=log.partition, segment=segment, error=error)
        return not await self._is_stopped_until(began_s + read / self._rate)

    async def _is_stopped_until(self, until_s: float) -> bool:
        return await self._host.stopped_within(max(0.0, until_s - self._clock.monotonic_s()))

    def _segments(self, position: ScrubPosition) -> Iterator[tuple[Log, Offset]]:
        for log in sorted(self._host.logs(), key=lambda log: log.partition.directory):
            name = log.partition.directory
            for segment in log.segments:
                if (name, segment.base_offset) > (position.partition, position.segment):
                    yield log, segment.base_offset

    def _load(self) -> ScrubPosition:
        """Return the saved position, or that of a new round."""
        with suppress(*IO_FAILURES, StorageError, ValueError, TypeError):
            saved = read_sealed(self._files, SCRUB)
            if saved is not None:
                began_ms, partition, segment, is_finished = saved
                return ScrubPosition(began_ms, partition, Offset(segment), is_finished)
        return ScrubPosition(self._clock.now_ms())

    async def _save(self, position: ScrubPosition) -> None:
        self._saved_s = self._clock.monotonic_s()
        self._position = position
        try:
            await self._host.in_thread(lambda: write_sealed(self._files, SCRUB, list(position)))
        except IO_FAILURES as error:
            # After a restart the next round begins earlier than needed.
            _logger.warning("scrub position not saved", error=error)
