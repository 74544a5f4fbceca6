"""The active segment."""

import errno

import pytest

from logbrook.model.identifiers import Offset
from logbrook.records.batch import iter_headers
from logbrook.storage.active_segment import ActiveSegment
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.index import ENTRY_BYTES, HEADER_BYTES
from logbrook.storage.open_files import OpenFiles
from logbrook.storage.paths import index_path, log_path
from logbrook.storage.probe import StorageProbe
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.storage.kit import BATCH_BYTES, NOW_MS, PARTITION, content, flip, numbered, put, stamped

DIRECTORY = PARTITION.directory
BASE = Offset(50)
LOG = log_path(DIRECTORY, BASE)
INDEX = index_path(DIRECTORY, BASE)


def index_bytes(entries: int) -> int:
    """Return the size of an index file with this many entries."""
    return HEADER_BYTES + entries * ENTRY_BYTES


def segment_on(files: MemoryFiles | FaultyFiles, handles_max: int = 4, interval_bytes: int = 0) -> ActiveSegment:
    return ActiveSegment(PARTITION, BASE, OpenFiles(files, handles_max), interval_bytes, StorageProbe())


def append(segment: ActiveSegment, count: int, first: int = 0, now_ms: int = NOW_MS) -> int:
    data = stamped(numbered(count, first), BASE + first)
    places = [(position, header.base_offset, header.max_timestamp) for position, header in iter_headers(data)]
    return segment.append(memoryview(data), places, now_ms)


@pytest.fixture
def segment(files: MemoryFiles) -> ActiveSegment:
    files.make_dir(DIRECTORY)
    segment = segment_on(files)
    segment.create()
    return segment


def bases(segment: ActiveSegment) -> list[int]:
    return [batch.header.base_offset for batch in segment.batches()]


def test_a_new_segment_is_an_empty_log_and_an_index_without_entries(segment: ActiveSegment, files: MemoryFiles) -> None:
    assert (files.size(LOG), files.size(INDEX), segment.size) == (0, index_bytes(0), 0)


def test_creation_removes_files_of_a_failed_attempt(segment: ActiveSegment, files: MemoryFiles) -> None:
    put(files, LOG, b"half a batch")
    put(files, INDEX, b"half an entry")
    segment.create()
    assert (files.size(LOG), files.size(INDEX)) == (0, index_bytes(0))


def test_an_append_is_written_to_the_file_at_once(segment: ActiveSegment, files: MemoryFiles) -> None:
    assert append(segment, 2) == 0
    assert append(segment, 1, first=2) == 2 * BATCH_BYTES
    assert content(files, LOG) == bytes(stamped(numbered(3), BASE))
    assert segment.size == 3 * BATCH_BYTES


def test_the_first_append_is_remembered_by_its_time(segment: ActiveSegment) -> None:
    assert segment.first_append_ms is None
    append(segment, 1, now_ms=7)
    append(segment, 1, first=1, now_ms=9)
    assert segment.first_append_ms == 7


def test_the_time_of_the_first_append_is_known_to_the_next_process(segment: ActiveSegment, files: MemoryFiles) -> None:
    append(segment, 1, now_ms=7)
    again, _ = reopened(files, segment.size)
    assert again.first_append_ms == 7


@pytest.mark.parametrize("byte", range(HEADER_BYTES))
def test_a_damaged_index_header_is_detected_or_has_the_same_meaning(
    segment: ActiveSegment, files: MemoryFiles, byte: int
) -> None:
    append(segment, 4, now_ms=7)
    segment.write_index()
    flip(files, INDEX, byte)
    again, _ = reopened(files, segment.size)
    assert again.first_append_ms in (7, None)
    assert [again.position_of(Offset(BASE + n)) for n in range(4)] == [n * BATCH_BYTES for n in range(4)]


def test_read_bytes_do_not_change_when_the_segment_is_truncated(segment: ActiveSegment) -> None:
    append(segment, 2)
    held = segment.read(BATCH_BYTES, BATCH_BYTES)
    segment.truncate(BATCH_BYTES)
    assert bytes(held.data) == bytes(stamped(numbered(2), BASE)[BATCH_BYTES:])


def test_index_entries_are_written_when_asked_for_and_only_once(segment: ActiveSegment, files: MemoryFiles) -> None:
    append(segment, 5)
    assert files.size(INDEX) == index_bytes(0)
    segment.write_index()
    assert files.size(INDEX) == index_bytes(4)
    append(segment, 1, first=5)
    segment.write_index()
    segment.write_index()
    assert files.size(INDEX) == index_bytes(5)


def test_a_failed_append_leaves_the_segment_as_it_was(files: MemoryFiles) -> None:
    files.make_dir(DIRECTORY)
    faulty = FaultyFiles(files, error=errno.ENOSPC, only={"pwrite"}, partial_writes=True)
    segment = segment_on(faulty)
    segment.create()
    append(segment, 2)
    faulty.fail_at = faulty.calls + 1
    with pytest.raises(OSError, match="No space left"):
        append(segment, 3, first=2)
    assert segment.size == 2 * BATCH_BYTES
    assert bases(segment) == [BASE, BASE + 1]
    append(segment, 1, first=2)
    assert bases(segment) == [BASE, BASE + 1, BASE + 2]


def test_closing_writes_the_index_and_truncates_the_rest_of_a_failed_append(
    segment: ActiveSegment, files: MemoryFiles
) -> None:
    append(segment, 3)
    put(files, LOG, content(files, LOG) + b"half a batch")
    segment.close()
    assert files.size(LOG) == 3 * BATCH_BYTES
    assert files.size(INDEX) == index_bytes(2)


@pytest.mark.parametrize("handles_max", [1, 4])
@pytest.mark.parametrize("kept", range(7))
def test_a_truncated_segment_is_one_that_was_never_longer(files: MemoryFiles, handles_max: int, kept: int) -> None:
    files.make_dir(DIRECTORY)
    segment = segment_on(files, handles_max, interval_bytes=BATCH_BYTES)
    segment.create()
    append(segment, 4)
    segment.write_index()
    append(segment, 2, first=4)
    segment.truncate(kept * BATCH_BYTES)
    assert bases(segment) == list(range(BASE, BASE + kept))
    append(segment, 6 - kept, first=kept)
    segment.close()
    plain_files = MemoryFiles()
    plain_files.make_dir(DIRECTORY)
    plain = segment_on(plain_files, interval_bytes=BATCH_BYTES)
    plain.create()
    append(plain, 6)
    plain.close()
    assert files.snapshot() == plain_files.snapshot()
    assert segment.max_timestamp == plain.max_timestamp


def reopened(files: MemoryFiles, position: int) -> tuple[ActiveSegment, StorageProbe]:
    probe = StorageProbe()
    segment = ActiveSegment(PARTITION, BASE, OpenFiles(files, 4), 0, probe)
    segment.open_at(position)
    return segment, probe


def written(segment: ActiveSegment, count: int = 6) -> int:
    append(segment, count)
    segment.write_index()
    return segment.size


def test_a_reopened_segment_continues_at_its_end(segment: ActiveSegment, files: MemoryFiles) -> None:
    again, probe = reopened(files, written(segment))
    append(again, 1, first=6)
    assert bases(again) == list(range(BASE, BASE + 7))
    assert again.max_timestamp == segment.max_timestamp
    assert probe.indexes_rebuilt == 0


def test_a_segment_may_continue_from_before_its_end(segment: ActiveSegment, files: MemoryFiles) -> None:
    written(segment)
    again, _ = reopened(files, 2 * BATCH_BYTES)
    assert bases(again) == [BASE, BASE + 1]
    append(again, 1, first=2)
    again.write_index()
    assert files.size(INDEX) == index_bytes(2)


@pytest.mark.parametrize("entries", range(6))
def test_missing_index_entries_are_rebuilt_when_the_segment_is_opened(
    segment: ActiveSegment, files: MemoryFiles, entries: int
) -> None:
    size = written(segment)
    whole = content(files, INDEX)
    put(files, INDEX, whole[: index_bytes(entries) + 3])
    again, _ = reopened(files, size)
    again.write_index()
    assert content(files, INDEX) == whole


def test_a_missing_index_is_rebuilt(segment: ActiveSegment, files: MemoryFiles) -> None:
    size = written(segment)
    whole = content(files, INDEX)
    segment.forget()
    files.unlink(INDEX)
    again, _ = reopened(files, size)
    again.write_index()
    # The creation time of a segment is not in the log, so it is lost with the index.
    assert content(files, INDEX)[HEADER_BYTES:] == whole[HEADER_BYTES:]
    assert again.first_append_ms is None


@pytest.mark.parametrize("entry", range(5))
def test_a_damaged_index_is_rebuilt_by_the_time_it_is_needed(
    segment: ActiveSegment, files: MemoryFiles, entry: int
) -> None:
    size = written(segment)
    flip(files, INDEX, index_bytes(entry))
    again, probe = reopened(files, size)
    assert [again.position_of(Offset(BASE + n)) for n in range(6)] == [n * BATCH_BYTES for n in range(6)]
    assert probe.indexes_rebuilt == 1


def test_an_index_of_other_batches_is_rebuilt(segment: ActiveSegment, files: MemoryFiles) -> None:
    written(segment)
    put(files, LOG, stamped(numbered(3), BASE, gap=4))
    again, probe = reopened(files, 3 * BATCH_BYTES)
    assert [again.position_of(Offset(BASE + 5 * n)) for n in range(3)] == [n * BATCH_BYTES for n in range(3)]
    assert probe.indexes_rebuilt == 1


def test_a_bad_header_where_the_index_ends_is_corruption(segment: ActiveSegment, files: MemoryFiles) -> None:
    size = written(segment)
    put(files, INDEX, b"")
    flip(files, LOG, 3 * BATCH_BYTES + 16)
    with pytest.raises(CorruptLogError) as raised:
        reopened(files, size)
    assert raised.value.position == 3 * BATCH_BYTES
