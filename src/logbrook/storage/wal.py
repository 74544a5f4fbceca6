"""The write-ahead log shared by all partitions: one sync makes the appends of every partition durable.

An append calls `reserve`, writes its segment and calls `submit`. `commit` writes all entries submitted so far as one
block, syncs it and completes the appends: the cost is one sync, however many partitions were written. (Entries of
several WAL files are one block and one sync per file.) A checkpoint syncs the segments later; after that the WAL files
are reused.

A segment that gets `segment_sync_min_bytes` or more in one commit is synced at once, before the block is written, and
its entries are written without data (ADR 27): large batches are written once instead of twice.

Calls are made on the log owner's thread, except `commit` and `fail`, which may run on another (`committer`); submitted
entries pass between the threads through a deque. `reserve` allocates disk space, so a commit cannot run out of it: an
append without space is rejected before it is written anywhere. A failed commit is final: its appends and all later ones
fail.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count, groupby
from operator import itemgetter
from typing import TypeAlias

from logbrook.model.identifiers import Offset
from logbrook.ports import Clock, File, Files
from logbrook.storage.durable_files import IO_FAILURES, is_disk_full, is_out_of_descriptors, sync_directory, sync_file
from logbrook.storage.errors import DiskFullError, StorageOfflineError, TooManyOpenFilesError
from logbrook.storage.paths import WAL_DIRECTORY, log_path, wal_path
from logbrook.storage.pending_append import PendingAppend
from logbrook.storage.probe import StorageProbe
from logbrook.storage.wal_format import WalEntry, align, encode_block, entry_bytes


class WalFile:
    """A file of the write-ahead log; `reserved` bytes belong to submitted entries, `written` bytes are synced.

    `end_number` is the number after that of its last submitted entry.
    """

    __slots__ = ("capacity", "end_number", "file", "reserved", "written")

    def __init__(self, file: File, capacity: int) -> None:
        self.file = file
        self.capacity = capacity
        self.reset()

    def reset(self) -> None:
        self.reserved = 0
        self.written = 0
        self.end_number = 0


# An append that waits for a commit, with its file and entry. Without them it only waits for the appends before it. A
# plain tuple, since one is made for every append.
_Queued: TypeAlias = tuple[PendingAppend, WalFile | None, WalEntry | None]
# Directory and base offset.
_SegmentKey: TypeAlias = tuple[bytes, Offset]

_NAMES_MAX = 10_000


class Wal:
    """The write side; `wal_format` has the read side.

    Entries before `committed_number` are durable; `next_number` is the number of the next entry. `mark` is the random
    value that identifies this directory's blocks.
    """

    is_immediate = False

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
        segment_sync_min_bytes: int = 1 << 20,
    ) -> None:
        self._files = files
        self._mark = mark
        self._file_bytes = file_bytes
        self._clock = clock
        self._probe = probe
        self._on_failure = on_failure
        self._spares_max = spares_max
        self._segment_sync_min_bytes = segment_sync_min_bytes
        # Segments whose names `commit` has made durable, and the numbers skipped before. A skipped number may be that
        # of a truncation, after which a segment of the same name is another file.
        self._durable_names: dict[_SegmentKey, int] = {}
        self._numbers_skipped = 0
        self._failure: StorageOfflineError | None = None
        self._pending: deque[_Queued] = deque()
        # Data of all appends so far, and of those that commits have taken. Each is set by one thread.
        self._submitted_bytes = 0
        self._taken_bytes = 0
        self._spares: deque[WalFile] = deque()
        self._in_use: deque[WalFile] = deque()
        self._file_numbers = count(next_file)
        self.next_number = next_number
        self.committed_number = next_number
        # Called by `submit` and `submit_duplicate`, on their thread.
        self.on_pending: Callable[[], None] = lambda: None
        # Called once per commit with the appends it completed, in order, on the thread that commits.
        self.on_completed: Callable[[Sequence[PendingAppend]], None] = lambda _appends: None

    def adopt(self, path: str) -> None:
        """Reuse a file whose entries recovery has redone. A file that a crash left too short is removed."""
        file = self._files.open(path)
        if file.size() < self._file_bytes:
            self._remove(file)
        else:
            self._spares.append(WalFile(file, file.size()))

    @property
    def bytes_in_use(self) -> int:
        return sum(wal_file.reserved for wal_file in self._in_use)

    @property
    def pending(self) -> int:
        """Number of submitted appends that no commit has taken."""
        return len(self._pending)

    @property
    def pending_bytes(self) -> int:
        """Size of their data. While another thread appends or commits, it may be that of fewer appends."""
        return self._submitted_bytes - self._taken_bytes

    def reserve(self, directory: bytes, length: int) -> None:
        """Ensure space for an entry with `length` bytes of data. Raises DiskFullError or StorageOfflineError."""
        if self._failure is not None:
            raise self._failure
        needed = entry_bytes(directory, length)
        if not self._in_use or self._in_use[-1].reserved + needed > self._in_use[-1].capacity:
            self._in_use.append(self._take_spare(needed) or self._create(max(self._file_bytes, needed)))

    def submit(
        self, append: PendingAppend, directory: bytes, segment_base_offset: Offset, position: int, data: memoryview
    ) -> None:
        """Queue bytes for which space was reserved. They must not change until the append is done."""
        wal_file = self._in_use[-1]
        wal_file.reserved += entry_bytes(directory, len(data))
        number = self.next_number
        self.next_number = wal_file.end_number = number + 1
        entry = WalEntry(number, directory, segment_base_offset, position, append.next_offset, data)
        self._submitted_bytes += len(data)
        self._pending.append((append, wal_file, entry))
        self.on_pending()

    def submit_duplicate(self, append: PendingAppend) -> None:
        """Queue an append without bytes of its own. It is done once everything submitted before it is durable."""
        self._pending.append((append, None, None))
        self.on_pending()

    def skip_number(self) -> int:
        """Skip an entry number and return the next one, for a truncation, creation or deletion.

        All earlier entries have lower numbers; later ones have this number or a higher one. Every call returns another.
        """
        self._numbers_skipped += 1
        self.next_number += 1
        return self.next_number

    def commit(self) -> int:
        """Make everything submitted so far durable and complete its appends. Returns their number."""
        self._taken_bytes = self._submitted_bytes
        submitted = [self._pending.popleft() for _ in range(len(self._pending))]
        if not submitted:
            return 0
        if self._failure is None:
            try:
                self._write(submitted)
            except OSError as error:
                # The bytes are in their segments and have offsets, so even a full disk is final here.
                self.fail(StorageOfflineError("write", WAL_DIRECTORY, error))
            except StorageOfflineError as failure:
                self.fail(failure)
        appends = [append for append, _, _ in submitted]
        bugs: list[Exception] = []
        for append in appends:
            try:
                append.complete(self._failure)
            except Exception as bug:  # From a callback; raised once the other appends are completed.
                bugs.append(bug)
        self.on_completed(appends)
        if bugs:
            raise bugs[0]
        return len(submitted)

    def fail(self, failure: StorageOfflineError) -> StorageOfflineError:
        """Go offline: nothing is acknowledged from here on. Returns the first failure, which is the one to report."""
        if self._failure is None:
            self._failure = failure
            self._on_failure(failure)
        return self._failure

    def release(self, number: int) -> None:
        """Reuse or remove the files whose entries are all before `number`. The caller has synced their segments."""
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

    def _write(self, submitted: list[_Queued]) -> None:
        """Write and sync one block per file, in order: a block on disk proves that all earlier blocks are durable."""
        started_s = self._clock.monotonic_s()
        writes = [(wal_file, entry) for _, wal_file, entry in submitted if wal_file and entry]
        synced = self._sync_segments([entry for _, entry in writes])
        for wal_file, group in groupby(writes, key=itemgetter(0)):
            entries = [entry.without_data() if synced and entry.segment in synced else entry for _, entry in group]
            buffers, length = encode_block(self._mark, self.committed_number, entries)
            assert wal_file.written + length <= wal_file.capacity, "an entry took more space than it reserved"
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

    def _sync_segments(self, entries: Sequence[WalEntry]) -> set[_SegmentKey]:
        """Sync the segments that get much data of these entries, and their names. Returns them."""
        bytes_min = self._segment_sync_min_bytes
        if sum([len(entry.data) for entry in entries]) < bytes_min:
            return set()
        totals: Counter[_SegmentKey] = Counter()
        for entry in entries:
            totals[entry.segment] += len(entry.data)
        return {segment for segment, total in totals.items() if total >= bytes_min and self._sync_segment(segment)}

    def _sync_segment(self, segment: _SegmentKey) -> bool:
        """Return False if that is impossible. Raises OSError or StorageOfflineError."""
        skipped = self._numbers_skipped
        directory = segment[0].decode()
        try:
            # By name, as a checkpoint does: the owner may close its handle at any time, after a sync.
            with closing(self._files.open(log_path(directory, segment[1]))) as file:
                sync_file(file)
            if self._durable_names.get(segment) != skipped:
                sync_directory(self._files, directory)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or is_out_of_descriptors(error):
                # The owner has deleted, renamed or truncated the log meanwhile, or files are to be closed first.
                return False
            raise
        if len(self._durable_names) >= _NAMES_MAX:
            self._durable_names.clear()
        self._durable_names[segment] = skipped
        self._probe.wal_segment_syncs += 1
        return True

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
        """Create a file with all its space allocated and its name durable.

        Raises DiskFullError, TooManyOpenFilesError or, after going offline, StorageOfflineError.
        """
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
