"""The shared write-ahead log: one sync makes the appends of every partition durable.

An append is written to its segment first, where it lives, and then submitted here. `commit` takes all that was
submitted, writes it as one block, syncs once and completes the tickets: however many partitions were written to, they
cost one sync. Segments are synced later, by a checkpoint, after which the files here are used again.

One thread submits, another may commit. Between them stands a deque; every entry was given its file and its room in it
when it was submitted, so that a commit cannot run out of room: an append that has none is refused before it is written
anywhere. A commit that fails is final: the tickets get the error, and so does everything after it.
"""

from collections import deque
from collections.abc import Callable
from itertools import count, groupby
from operator import itemgetter
from typing import NamedTuple

from logbrook.ports import Clock, File, Files
from logbrook.storage.disk_errors import IO_FAILURES, is_disk_full, is_out_of_descriptors, sync_directory, sync_file
from logbrook.storage.errors import DiskFullError, StorageOfflineError, TooManyOpenFilesError
from logbrook.storage.paths import WAL_DIRECTORY, wal_path
from logbrook.storage.probe import StorageProbe
from logbrook.storage.ticket import Ticket
from logbrook.storage.wal_format import WalEntry, align, encode_block, entry_bytes


class WalFile:
    """A file of the log, and how far it is promised and written."""

    __slots__ = ("capacity", "end_number", "file", "reserved", "written")

    def __init__(self, file: File, capacity: int) -> None:
        self.file = file
        self.capacity = capacity
        self.reset()

    def reset(self) -> None:
        self.reserved = 0
        self.written = 0
        self.end_number = 0


class _Pending(NamedTuple):
    """Without a file and an entry, a ticket that only waits for those before it."""

    ticket: Ticket
    file: WalFile | None
    entry: WalEntry | None


class Wal:
    """The write side. `next_number` is the number that the next entry gets."""

    def __init__(
        self,
        files: Files,
        mark: bytes,
        file_bytes: int,
        next_number: int,
        next_file: int,
        clock: Clock,
        probe: StorageProbe,
        on_failure: Callable[[StorageOfflineError], None],
        spares_max: int = 2,
    ) -> None:
        self._files = files
        self._mark = mark
        self._file_bytes = file_bytes
        self._clock = clock
        self._probe = probe
        self._on_failure = on_failure
        self._spares_max = spares_max
        self._failure: StorageOfflineError | None = None
        self._pending: deque[_Pending] = deque()
        self._spares: deque[WalFile] = deque()
        self._in_use: deque[WalFile] = deque()
        self._file_numbers = count(next_file)
        self.next_number = next_number
        self.committed_number = next_number
        self.on_pending: Callable[[], None] = lambda: None

    def adopt(self, path: str) -> None:
        """Take a file that recovery is done with, to write over it. One that a crash left without its room goes."""
        file = self._files.open(path)
        if file.size() < self._file_bytes:
            self._remove(file)
        else:
            self._spares.append(WalFile(file, file.size()))

    @property
    def bytes_in_use(self) -> int:
        return sum(wal_file.reserved for wal_file in self._in_use)

    def reserve(self, directory: bytes, length: int) -> None:
        """Make sure of room for an entry with `length` bytes of data. Raises DiskFullError or StorageOfflineError."""
        if self._failure is not None:
            raise self._failure
        needed = entry_bytes(directory, length)
        if not self._in_use or self._in_use[-1].reserved + needed > self._in_use[-1].capacity:
            self._in_use.append(self._take_spare(needed) or self._create(max(self._file_bytes, needed)))

    def submit(
        self, ticket: Ticket, directory: bytes, segment_base_offset: int, position: int, data: memoryview
    ) -> None:
        """Queue bytes for which room was reserved. They must not change until the ticket is done."""
        wal_file = self._in_use[-1]
        wal_file.reserved += entry_bytes(directory, len(data))
        number = self.next_number
        self.next_number = wal_file.end_number = number + 1
        entry = WalEntry(number, directory, segment_base_offset, position, ticket.next_offset, data)
        self._pending.append(_Pending(ticket, wal_file, entry))
        self.on_pending()

    def wait(self, ticket: Ticket) -> None:
        """Complete the ticket, which brings no bytes, once everything submitted before it is durable."""
        self._pending.append(_Pending(ticket, None, None))
        self.on_pending()

    def skip_number(self) -> int:
        """A number that no entry has: all entries before it are older, all after it newer."""
        self.next_number += 1
        return self.next_number

    def commit(self) -> int:
        """Make everything submitted so far durable and complete its tickets. Returns how many there were."""
        taken = [self._pending.popleft() for _ in range(len(self._pending))]
        if taken and self._failure is None:
            try:
                self._write(taken)
            except OSError as error:
                # The bytes are in their segments under offsets that were given out, so even a full disk is too late.
                self.fail(StorageOfflineError("write", WAL_DIRECTORY, error))
            except StorageOfflineError as failure:
                self.fail(failure)
        bugs: list[Exception] = []
        for pending in taken:
            try:
                pending.ticket.complete(self._failure)
            except Exception as bug:  # A callback's: it is raised, once nobody else has to wait for it.
                bugs.append(bug)
        if bugs:
            raise bugs[0]
        return len(taken)

    def fail(self, failure: StorageOfflineError) -> StorageOfflineError:
        """Go offline: nothing is acknowledged from here on. Returns the failure that is to be reported."""
        if self._failure is None:
            self._failure = failure
            self._on_failure(failure)
        return self._failure

    def release(self, number: int) -> None:
        """Entries before `number` are in synced segments: let their files be written over, or go."""
        while (
            self._in_use
            and self._in_use[0].end_number <= number
            and self._in_use[0].end_number <= self.committed_number
        ):
            wal_file = self._in_use.popleft()
            if len(self._spares) < self._spares_max:
                wal_file.reset()
                self._spares.append(wal_file)
            else:
                self._remove(wal_file.file)

    def close(self) -> None:
        for wal_file in (*self._in_use, *self._spares):
            wal_file.file.close()
        self._in_use.clear()
        self._spares.clear()

    def _write(self, taken: list[_Pending]) -> None:
        """One block and one sync per file, in order: a block is proof that all blocks before it are durable."""
        started_s = self._clock.monotonic_s()
        writes = [(pending.file, pending.entry) for pending in taken if pending.file and pending.entry]
        for wal_file, group in groupby(writes, key=itemgetter(0)):
            entries = [entry for _, entry in group]
            buffers, length = encode_block(self._mark, self.committed_number, entries)
            assert wal_file.written + length <= wal_file.capacity, "an entry took more room than it reserved"
            wal_file.file.pwritev(buffers, wal_file.written)
            written_s = self._clock.monotonic_s()
            sync_file(wal_file.file)
            self._probe.wal_sync_latency.add(self._clock.monotonic_s() - written_s)
            wal_file.written = align(wal_file.written + length)
            self.committed_number = entries[-1].number + 1
            self._probe.wal_entries += len(entries)
            self._probe.wal_bytes += length
        self._probe.wal_commits += 1
        self._probe.wal_commit_latency.add(self._clock.monotonic_s() - started_s)

    def _take_spare(self, needed: int) -> WalFile | None:
        for _ in range(len(self._spares)):
            wal_file = self._spares.popleft()
            if wal_file.capacity >= needed:
                return wal_file
            self._spares.append(wal_file)
        return None

    def _remove(self, file: File) -> None:
        file.close()
        self._files.unlink(file.path)

    def _create(self, capacity: int) -> WalFile:
        """A file with all its room, and a name that lasts. Raises DiskFullError or, having gone offline,
        StorageOfflineError."""
        path = wal_path(next(self._file_numbers))
        try:
            file = self._files.create(path)
            try:
                file.reserve(capacity)
                sync_directory(self._files, WAL_DIRECTORY)
            except IO_FAILURES:
                self._remove(file)
                raise
        except OSError as error:
            if is_disk_full(error):
                raise DiskFullError(path, capacity) from error
            if is_out_of_descriptors(error):
                raise TooManyOpenFilesError(path) from error
            raise self.fail(StorageOfflineError("create", path, error)) from error
        except StorageOfflineError as failure:
            raise self.fail(failure) from failure.__cause__
        return WalFile(file, capacity)
