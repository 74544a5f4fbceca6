"""Opening logs with unreadable sectors: the partition is offline until a start can read it or a repair."""

import errno
import os

import pytest

from logbrook.model.identifiers import Offset
from logbrook.ports import Bytes, File, Files
from logbrook.storage.durable_files import PAGE_BYTES
from logbrook.storage.errors import CorruptLogError, UnreadableLogError
from logbrook.storage.paths import WAL_DIRECTORY, log_path
from logbrook.storage.truncation import truncate
from logbrook.testing import MemoryFiles, RecordingFiles, Variant, materialise
from logbrook.testing.forwarding import ForwardingFile, ForwardingFiles
from tests.unit.storage.kit import (
    BATCH_BYTES,
    NOW_MS,
    OTHER,
    PARTITION,
    NewStore,
    Store,
    batch,
    content,
    numbered,
    offsets_of,
)

DIRECTORY = PARTITION.directory
SMALL = {"segment_bytes": 4 * BATCH_BYTES, "index_interval_bytes": 0}
BOTH = pytest.mark.parametrize("durability", ["fsync", "interval"])


class BadSectors(ForwardingFiles):
    """Reads of bytes `start` to `end` of the file at `path` fail, until another file replaces it; writes succeed."""

    def __init__(self, inner: Files, path: str, start: int = 0, end: int = 1 << 30) -> None:
        super().__init__(inner)
        self._path = path
        self._range = start, end

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target == self._path:
            self._path = ""

    def _wrap(self, file: File) -> File:
        return _BadFile(file, *self._range) if file.path == self._path else file


class _BadFile(ForwardingFile):
    def __init__(self, inner: File, start: int, end: int) -> None:
        super().__init__(inner)
        self._start, self._end = start, end

    def pread(self, length: int, position: int) -> bytes:
        self._check(position, min(length, self.inner.size() - position))
        return self.inner.pread(length, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        self._check(position, min(len(buffer), self.inner.size() - position))
        return self.inner.pread_into(buffer, position)

    def pread_cached_into(self, buffer: memoryview, position: int) -> int:
        return self.pread_into(buffer, position)

    def map_readonly(self, length: int) -> memoryview:
        assert length <= self._start, "on a real disk this kills the process"
        return self.inner.map_readonly(length)

    def _check(self, position: int, length: int) -> None:
        if length > 0 and position < self._end and position + length > self._start:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def expected(end: int) -> list[bytes]:
    return [b"%05d" % number for number in range(end)]


def written(new_store: NewStore, durability: str = "fsync", on: Files | None = None) -> Store:
    """Eleven batches in segments of four, of which a checkpoint has synced six."""
    store = new_store(on, **SMALL, durability=durability)
    store.create(OTHER)
    store.write(*numbered(6))
    store.directory.checkpoint()
    store.write(*numbered(5, first=6))
    return store


def segment(base_offset: int) -> str:
    return log_path(DIRECTORY, Offset(base_offset))


def on_bad_sectors(store: Store, open_store: NewStore, path: str, start: int = 0, end: int = 1 << 30) -> Store:
    """Open the directory after a kill, with unreadable sectors."""
    assert isinstance(store.files, MemoryFiles)
    return open_store(BadSectors(MemoryFiles(store.files), path, start, end), **store.settings)


def mended(store: Store, open_store: NewStore) -> Store:
    assert isinstance(store.files, BadSectors)
    assert isinstance(store.files.inner, MemoryFiles)
    return open_store(MemoryFiles(store.files.inner), **store.settings)


@BOTH
def test_an_unreadable_tail_takes_its_partition_offline_only(
    new_store: NewStore, open_store: NewStore, durability: str
) -> None:
    store = on_bad_sectors(written(new_store, durability), open_store, segment(8), BATCH_BYTES)
    (error,) = store.directory.report.quarantined
    assert isinstance(error, UnreadableLogError)
    assert (error.partition, error.file, error.offset) == (PARTITION, segment(8), 9)
    assert offsets_of(store.read(0)) == list(range(9))
    with pytest.raises(UnreadableLogError):
        store.append(batch())
    append = store.directory.get(OTHER).append(batch(), now_ms=NOW_MS)
    store.directory.commit()
    assert append.result().base_offset == 0


@BOTH
@pytest.mark.parametrize("offset", [9, 10, 11, 12])
def test_reads_after_the_readable_part_fail_without_offset_out_of_range(
    new_store: NewStore, open_store: NewStore, durability: str, offset: int
) -> None:
    """OFFSET_OUT_OF_RANGE would make a consumer reset its position."""
    store = on_bad_sectors(written(new_store, durability), open_store, segment(8), BATCH_BYTES)
    with pytest.raises(UnreadableLogError):
        store.read(offset)


@BOTH
@pytest.mark.parametrize("bad", [(8, BATCH_BYTES), (4, BATCH_BYTES), (4, 2 * BATCH_BYTES)])
def test_nothing_is_lost_when_a_later_start_can_read_the_log(
    new_store: NewStore, open_store: NewStore, durability: str, bad: tuple[int, int]
) -> None:
    base_offset, start = bad
    store = on_bad_sectors(written(new_store, durability), open_store, segment(base_offset), start)
    store = on_bad_sectors(mended_files(store), open_store, segment(base_offset), start)
    assert isinstance(store.log.corruption, UnreadableLogError)
    store = mended(store, open_store)
    assert store.directory.report.quarantined == []
    assert store.values() == expected(11)
    assert store.write(batch()).base_offset == 11
    store = store.killed().reopened()
    assert store.log.corruption is None
    assert store.log.log_end_offset == 12


def mended_files(store: Store) -> Store:
    """Return the files without bad sectors."""
    assert isinstance(store.files, BadSectors)
    store.files = store.files.inner
    return store


def test_records_after_unreadable_ones_survive_a_power_loss_after_the_start(
    new_store: NewStore, open_store: NewStore
) -> None:
    """The start takes a checkpoint, after which the write-ahead log no longer has them."""
    files = RecordingFiles()
    settings = written(new_store, on=files).settings
    image = materialise(files.journal, len(files.journal.ops), Variant.LOST)
    files = RecordingFiles(image)
    store = open_store(BadSectors(files, segment(4), 2 * BATCH_BYTES), **settings)
    assert store.log.corruption is not None
    image = materialise(files.journal, len(files.journal.ops), Variant.LOST)
    assert open_store(image, **settings).values() == expected(11)


def test_the_write_ahead_log_restores_a_page_that_can_be_written_but_not_read(
    new_store: NewStore, open_store: NewStore
) -> None:
    files = written(new_store).files
    assert isinstance(files, MemoryFiles)
    store = open_store(PartialWritesFail(MemoryFiles(files), segment(8)), **SMALL)
    assert store.directory.report.quarantined == []
    assert store.values() == expected(11)


def test_entries_that_cannot_be_redone_take_their_partition_offline_and_are_kept(
    new_store: NewStore, open_store: NewStore
) -> None:
    files = written(new_store).files
    assert isinstance(files, MemoryFiles)
    disk = MemoryFiles(files)
    store = open_store(PartialWritesFail(disk, segment(8), from_position=0), **SMALL)
    (error,) = store.directory.report.quarantined
    assert isinstance(error, UnreadableLogError)
    assert store.log.log_end_offset == 11
    assert store.directory.get(OTHER).corruption is None
    assert [name for name in disk.list(WAL_DIRECTORY) if name.endswith(".damaged")]


def test_a_page_with_records_that_only_the_segment_has_is_not_overwritten(
    new_store: NewStore, open_store: NewStore
) -> None:
    settings = SMALL | {"segment_sync_min_bytes": 2 * BATCH_BYTES}
    store = new_store(**settings)
    store.write(*numbered(1))
    store.write(*numbered(2, first=1))
    assert isinstance(store.files, MemoryFiles)
    disk = MemoryFiles(store.files)
    store = open_store(PartialWritesFail(disk, segment(0)), **settings)
    (error,) = store.directory.report.quarantined
    assert isinstance(error, UnreadableLogError)
    assert open_store(MemoryFiles(disk), **settings).values() == expected(3)


class PartialWritesFail(ForwardingFiles):
    """Writes that end inside a page of the file at `path` fail, and with `from_position` all from there on."""

    def __init__(self, inner: Files, path: str, from_position: int | None = None) -> None:
        super().__init__(inner)
        self._path = path
        self._from_position = from_position

    def _wrap(self, file: File) -> File:
        return _PartlyWritable(file, self._from_position) if file.path == self._path else file


class _PartlyWritable(ForwardingFile):
    def __init__(self, inner: File, from_position: int | None) -> None:
        super().__init__(inner)
        self._from_position = from_position

    def pwrite(self, data: Bytes, position: int) -> None:
        is_partial = (position + len(data)) % PAGE_BYTES != 0
        if is_partial or (self._from_position is not None and position >= self._from_position):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.inner.pwrite(data, position)


@pytest.mark.parametrize("base_offset", [0, 4, 8])
def test_an_unreadable_index_is_rebuilt(new_store: NewStore, open_store: NewStore, base_offset: int) -> None:
    index = segment(base_offset).replace(".log", ".index")
    store = on_bad_sectors(written(new_store), open_store, index)
    assert store.directory.report.quarantined == []
    assert store.values() == expected(11)
    assert store.write(batch()).base_offset == 11


@pytest.mark.parametrize("name", ["snapshot", "aborted"])
def test_unreadable_producer_state_is_rebuilt(new_store: NewStore, open_store: NewStore, name: str) -> None:
    store = new_store()
    store.write(batch(b"a", producer=(7, 0, 0), transactional=True))
    store.end(7, commits=False)
    store.write(batch(b"b", producer=(9, 0, 0)))
    store.directory.checkpoint()
    aborted = store.log.aborted_between(Offset(0), Offset(3))
    assert aborted == [(7, 0)]
    assert name in store.files.list(DIRECTORY)
    again = on_bad_sectors(store, open_store, f"{DIRECTORY}/{name}")
    assert again.log.aborted_between(Offset(0), Offset(3)) == aborted
    assert again.append(batch(b"b", producer=(9, 0, 0))).duplicate


def test_no_record_is_read_while_it_is_unknown_which_were_aborted(new_store: NewStore, open_store: NewStore) -> None:
    store = written(new_store)
    store.directory.checkpoint()
    store.files.unlink(f"{DIRECTORY}/snapshot")
    again = on_bad_sectors(store, open_store, segment(4), BATCH_BYTES)
    with pytest.raises(UnreadableLogError):
        again.read(0)
    assert mended(again, open_store).values() == expected(11)


@pytest.mark.parametrize("start", [0, BATCH_BYTES])
def test_the_unreadable_part_of_a_log_is_not_truncated(new_store: NewStore, open_store: NewStore, start: int) -> None:
    """A file that was not read seems to be empty, and would be cut to nothing."""
    store = on_bad_sectors(written(new_store), open_store, segment(8), start)
    with pytest.raises(UnreadableLogError):
        truncate(store.log, Offset(store.log.log_end_offset - 1))
    assert mended(store, open_store).values() == expected(11)


def test_a_repair_keeps_readable_records(new_store: NewStore, open_store: NewStore) -> None:
    store = new_store()
    store.write(*numbered(200))
    path = segment(0)
    again = on_bad_sectors(store, open_store, path, PAGE_BYTES, 2 * PAGE_BYTES)
    assert again.log.corruption is not None
    again.directory.repair(PARTITION)
    first, last = PAGE_BYTES // BATCH_BYTES, (2 * PAGE_BYTES - 1) // BATCH_BYTES
    assert offsets_of(again.read(0)) == [*range(first), *range(last + 1, 200)]
    assert again.log.corruption is None
    assert again.write(batch()).base_offset == 200
    kept_aside = content(again.files, path + ".damaged")
    assert kept_aside[:PAGE_BYTES] == content(store.files, path)[:PAGE_BYTES]
    assert kept_aside[PAGE_BYTES : 2 * PAGE_BYTES] == bytes(PAGE_BYTES)


def test_a_log_that_became_corrupt_while_it_was_unreadable_is_quarantined(
    new_store: NewStore, open_store: NewStore
) -> None:
    """The durable offset is kept: no acknowledged record is treated as a torn write."""
    store = on_bad_sectors(written(new_store), open_store, segment(8), BATCH_BYTES)
    assert isinstance(store.files, BadSectors)
    file = store.files.inner.open(segment(8))
    file.truncate(BATCH_BYTES)
    file.close()
    again = mended(store, open_store)
    (error,) = again.directory.report.quarantined
    assert type(error) is CorruptLogError
    assert again.log.log_end_offset == 11


def test_a_truncation_of_an_unreadable_log_is_not_taken_for_lost_records(
    new_store: NewStore, open_store: NewStore
) -> None:
    store = on_bad_sectors(written(new_store), open_store, segment(8), BATCH_BYTES)
    truncate(store.log, Offset(7))
    again = mended(store, open_store)
    assert again.directory.report.quarantined == []
    assert again.values() == expected(7)
