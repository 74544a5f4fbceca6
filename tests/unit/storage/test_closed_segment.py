"""A closed segment: mapped on first use, given up for another, with an index that can always be made again."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from logbrook.model.identifiers import Offset
from logbrook.ports import File, Files, OsFiles
from logbrook.records.batch import HEADER_BYTES
from logbrook.storage.closed_segment import ClosedSegment, ClosedSegmentCache
from logbrook.storage.errors import CorruptLogError, NotCachedError
from logbrook.storage.index import ENTRY_BYTES
from logbrook.storage.index import HEADER_BYTES as INDEX_HEADER_BYTES
from logbrook.storage.paths import index_path, log_path
from logbrook.storage.probe import StorageProbe
from logbrook.testing import FaultyFiles, MemoryFiles
from logbrook.testing.forwarding import ForwardingFile, ForwardingFiles
from tests.unit.storage.kit import ALL_BYTES, BATCH_BYTES, PARTITION, content, flip, numbered, put, stamped

DIRECTORY = PARTITION.directory
COUNT = 20


def disk(files: Files, *bases: int) -> Files:
    """Segments of 20 numbered batches at each base offset, without indexes."""
    files.make_dir(DIRECTORY)
    for base in bases:
        put(files, log_path(DIRECTORY, Offset(base)), stamped(numbered(COUNT, base), base))
    return files


class Shelf:
    """Segments that share a cache."""

    def __init__(self, files: Files, mappings_max: int = 4, interval_bytes: int = 0) -> None:
        self.probe = StorageProbe()
        self.cache = ClosedSegmentCache(files, mappings_max, self.probe)
        self.interval_bytes = interval_bytes

    def segment(self, base: int = 0, size: int | None = None) -> ClosedSegment:
        return ClosedSegment(PARTITION, Offset(base), self.cache, self.interval_bytes, size)


INDEX = index_path(DIRECTORY, Offset(0))
LOG = log_path(DIRECTORY, Offset(0))


def test_nothing_is_opened_before_the_first_read() -> None:
    counted = FaultyFiles(disk(MemoryFiles(), 0))
    before = counted.calls
    segment = Shelf(counted).segment(0)
    assert counted.calls == before
    segment.position_of(Offset(7))
    assert counted.calls > before


def test_an_open_segment_has_one_handle_until_it_is_evicted() -> None:
    files = MemoryFiles()
    disk(files, 0)
    shelf = Shelf(files)
    shelf.segment(0).read(0, BATCH_BYTES)
    assert sum(inode.handle_count for inode in files.root_directory.inodes()) == 1
    shelf.cache.clear()
    assert sum(inode.handle_count for inode in files.root_directory.inodes()) == 0


def test_reads_of_cached_bytes_only_raise_for_others_and_leave_no_handle_open() -> None:
    class Cold(ForwardingFile):
        def pread_cached_into(self, buffer: memoryview, position: int) -> int:
            return 0

    class ColdFiles(ForwardingFiles):
        def _wrap(self, file: File) -> File:
            return Cold(file)

    files = MemoryFiles()
    shelf = Shelf(ColdFiles(disk(files, 0)))
    with shelf.cache.reader.cached_only({}), pytest.raises(NotCachedError) as missing:
        shelf.segment(0).read(0, BATCH_BYTES)
    assert missing.value.file in (LOG, INDEX)
    assert sum(inode.handle_count for inode in files.root_directory.inodes()) == 0
    assert shelf.segment(0).read(0, BATCH_BYTES).length == BATCH_BYTES


def test_the_size_is_that_of_the_file_unless_it_is_known() -> None:
    shelf = Shelf(disk(MemoryFiles(), 0))
    assert shelf.segment(0).size == COUNT * BATCH_BYTES
    assert shelf.segment(0, size=3 * BATCH_BYTES).size == 3 * BATCH_BYTES


def test_bytes_after_the_known_size_are_ignored() -> None:
    shelf = Shelf(disk(MemoryFiles(), 0))
    segment = shelf.segment(0, size=3 * BATCH_BYTES)
    assert [batch.header.base_offset for batch in segment.batches()] == [0, 1, 2]


def test_a_missing_index_is_rebuilt() -> None:
    files = disk(MemoryFiles(), 0)
    shelf = Shelf(files)
    assert shelf.segment(0).position_of(Offset(13)) == 13 * BATCH_BYTES
    assert shelf.probe.indexes_rebuilt == 1
    assert files.size(INDEX) == INDEX_HEADER_BYTES + (COUNT - 1) * ENTRY_BYTES


def test_a_good_index_is_used_as_it_is() -> None:
    files = disk(MemoryFiles(), 0)
    Shelf(files).segment(0).position_of(Offset(0))
    shelf = Shelf(files)
    assert [shelf.segment(0).position_of(Offset(offset)) for offset in range(COUNT)] == [
        n * BATCH_BYTES for n in range(COUNT)
    ]
    assert shelf.segment(0).max_timestamp == Shelf(disk(MemoryFiles(), 0)).segment(0).max_timestamp
    assert shelf.probe.indexes_rebuilt == 0


def test_a_rebuilt_index_is_byte_for_byte_the_same() -> None:
    files = disk(MemoryFiles(), 0)
    Shelf(files).segment(0).position_of(Offset(0))
    first = content(files, INDEX)
    files.unlink(INDEX)
    Shelf(files).segment(0).position_of(Offset(0))
    assert content(files, INDEX) == first


def damage_short(files: Files) -> None:
    put(files, INDEX, content(files, INDEX)[: INDEX_HEADER_BYTES + 5 * ENTRY_BYTES])


def damage_empty(files: Files) -> None:
    put(files, INDEX, b"")


def damage_last(files: Files) -> None:
    flip(files, INDEX, -ENTRY_BYTES)


def damage_zeros(files: Files) -> None:
    put(files, INDEX, bytes(files.size(INDEX)))


def damage_header(files: Files) -> None:
    flip(files, INDEX, 0)


def damage_middle(files: Files) -> None:
    for number in range(5, 15):
        flip(files, INDEX, INDEX_HEADER_BYTES + number * ENTRY_BYTES)


def damage_too_long(files: Files) -> None:
    """Replace the index by that of a longer segment of the same name."""
    files.rename(LOG, "kept")
    put(files, LOG, stamped(numbered(COUNT + 5), 0))
    files.unlink(INDEX)
    Shelf(files).segment(0).position_of(Offset(0))
    files.unlink(LOG)
    files.rename("kept", LOG)


def damage_stale(files: Files) -> None:
    """Replace the index by that of another segment of the same name: valid checksums, wrong positions."""
    files.rename(LOG, "kept")
    put(files, LOG, stamped(numbered(COUNT // 2), 0, gap=1))
    files.unlink(INDEX)
    Shelf(files).segment(0).position_of(Offset(0))
    files.unlink(LOG)
    files.rename("kept", LOG)


def damage_other_segment(files: Files) -> None:
    """Replace the index by that of a segment with another base offset."""
    put(files, log_path(DIRECTORY, Offset(40)), stamped(numbered(COUNT), 40))
    Shelf(files).segment(40).position_of(Offset(40))
    put(files, INDEX, content(files, index_path(DIRECTORY, Offset(40))))


DAMAGES = [
    damage_short,
    damage_empty,
    damage_last,
    damage_zeros,
    damage_header,
    damage_middle,
    damage_too_long,
    damage_stale,
    damage_other_segment,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_lookups_are_correct_with_a_damaged_index_and_it_is_rebuilt(
    damage: Callable[[Files], None],
) -> None:
    files = disk(MemoryFiles(), 0)
    Shelf(files).segment(0).position_of(Offset(0))
    good = content(files, INDEX)
    damage(files)
    shelf = Shelf(files)
    segment = shelf.segment(0)
    assert [segment.position_of(Offset(offset)) for offset in range(COUNT)] == [n * BATCH_BYTES for n in range(COUNT)]
    assert segment.find_time(0, Offset(0), ALL_BYTES) is not None
    assert shelf.probe.indexes_rebuilt == 1
    assert content(files, INDEX) == good


def test_a_partial_entry_at_the_end_of_an_index_is_ignored() -> None:
    files = disk(MemoryFiles(), 0)
    Shelf(files).segment(0).position_of(Offset(0))
    put(files, INDEX, content(files, INDEX) + b"\x01\x02\x03")
    segment = Shelf(files).segment(0)
    assert [segment.position_of(Offset(offset)) for offset in range(COUNT)] == [n * BATCH_BYTES for n in range(COUNT)]


@pytest.mark.parametrize("call", ["create", "pwrite", "fsync", "rename", "fsync_dir"])
def test_an_index_that_cannot_be_written_does_not_stop_a_reader(call: str) -> None:
    files = FaultyFiles(disk(MemoryFiles(), 0), fail_at=1, error=errno.ENOSPC, only={call}, sticky=True)
    segment = Shelf(files).segment(0)
    assert segment.position_of(Offset(13)) == 13 * BATCH_BYTES
    assert bytes(segment.read(0, BATCH_BYTES).data) == bytes(stamped(numbered(1)))


def test_a_file_shorter_than_its_written_size_is_corrupt() -> None:
    files = disk(MemoryFiles(), 0)
    segment = Shelf(files).segment(0, size=COUNT * BATCH_BYTES)
    put(files, LOG, content(files, LOG)[:-1])
    with pytest.raises(CorruptLogError, match=r"has \d+ bytes, expected \d+") as raised:
        segment.read(0, BATCH_BYTES)
    assert raised.value.position == COUNT * BATCH_BYTES - 1


@pytest.mark.parametrize("size", [None, COUNT * BATCH_BYTES])
def test_a_missing_file_is_corruption(size: int | None) -> None:
    files = disk(MemoryFiles(), 0)
    segment = Shelf(files).segment(0, size)
    files.unlink(LOG)
    with pytest.raises(CorruptLogError):
        segment.read(0, BATCH_BYTES)


def test_a_file_that_ends_inside_a_header_is_corrupt() -> None:
    files = disk(MemoryFiles(), 0)
    put(files, LOG, content(files, LOG) + numbered(1)[0][: HEADER_BYTES - 1])
    with pytest.raises(CorruptLogError, match="inside a batch header"):
        list(Shelf(files, interval_bytes=1 << 20).segment(0).batches())


def test_no_more_segments_are_mapped_than_may_be() -> None:
    shelf = Shelf(disk(MemoryFiles(), 0, 20, 40), mappings_max=2)
    for base in (0, 20, 40, 0, 20):
        assert shelf.segment(base).position_of(Offset(base + 3)) == 3 * BATCH_BYTES
        assert len(shelf.cache) <= 2


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_slice_stays_readable_after_its_mapping_was_given_up(on_disk: bool, tmp_path: Path) -> None:
    files = disk(OsFiles(tmp_path) if on_disk else MemoryFiles(), 0, 20)
    shelf = Shelf(files, mappings_max=1)
    held = shelf.segment(0).read(BATCH_BYTES, 2 * BATCH_BYTES)
    shelf.segment(20).read(0, BATCH_BYTES)
    shelf.cache.clear()
    files.unlink(LOG)
    assert bytes(held.data) == bytes(stamped(numbered(COUNT))[BATCH_BYTES : 3 * BATCH_BYTES])


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_walk_continues_after_its_mapping_is_evicted(on_disk: bool, tmp_path: Path) -> None:
    shelf = Shelf(disk(OsFiles(tmp_path) if on_disk else MemoryFiles(), 0, 20), mappings_max=1)
    walk = shelf.segment(0).batches()
    seen = [next(walk).header.base_offset]
    shelf.segment(20).read(0, BATCH_BYTES)
    seen += [batch.header.base_offset for batch in walk]
    assert seen == list(range(COUNT))


def test_a_forgotten_segment_is_read_anew() -> None:
    files = disk(MemoryFiles(), 0)
    segment = Shelf(files).segment(0)
    old = segment.read(0, BATCH_BYTES)
    segment.forget()
    files.unlink(LOG)
    put(files, LOG, stamped(numbered(COUNT, first=500)))
    assert bytes(segment.read(0, BATCH_BYTES).data) == bytes(stamped(numbered(1, first=500)))
    assert bytes(old.data) == bytes(stamped(numbered(1)))
