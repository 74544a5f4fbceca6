"""Finding places in a segment, the same way in one that is mapped and in one that is still written to."""

from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from logbrook.records.batch import Codec, iter_headers
from logbrook.records.reader import iter_records
from logbrook.storage.active_segment import ActiveSegment
from logbrook.storage.closed_segment import ClosedSegment, SegmentCache
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.open_files import OpenFiles
from logbrook.storage.paths import index_path, log_path
from logbrook.storage.probe import StorageProbe
from logbrook.storage.segment import Segment, TimestampedOffset
from logbrook.testing import MemoryFiles
from tests.unit.storage.kit import ALL_BYTES, BATCH_BYTES, PARTITION, batch, flip, numbered, put, stamped

BASE = 100
DIRECTORY = PARTITION.directory
LOG = log_path(DIRECTORY, BASE)
INDEX = index_path(DIRECTORY, BASE)


class MakeSegment(Protocol):
    def __call__(self, batches: Sequence[bytes | bytearray], interval_bytes: int = 0, gap: int = 0) -> Segment: ...


@pytest.fixture(params=["closed", "active"])
def segment_of(request: pytest.FixtureRequest, files: MemoryFiles) -> MakeSegment:
    """A segment of these batches. With the interval 0 every batch but the first has an index entry."""
    files.make_dir(DIRECTORY)

    def closed(batches: Sequence[bytes | bytearray], interval_bytes: int = 0, gap: int = 0) -> Segment:
        put(files, LOG, stamped(batches, BASE, gap))
        return ClosedSegment(PARTITION, BASE, SegmentCache(files, 4, StorageProbe()), interval_bytes)

    def active(batches: Sequence[bytes | bytearray], interval_bytes: int = 0, gap: int = 0) -> Segment:
        data = stamped(batches, BASE, gap)
        segment = ActiveSegment(PARTITION, BASE, OpenFiles(files, 4), interval_bytes, StorageProbe())
        segment.create()
        headers = iter_headers(data)
        segment.append(memoryview(data), [(at, one.base_offset, one.max_timestamp) for at, one in headers], 0)
        return segment

    makers: dict[str, Callable[..., Segment]] = {"closed": closed, "active": active}
    return makers[request.param]


INTERVALS = pytest.mark.parametrize("interval_bytes", [0, BATCH_BYTES, 3 * BATCH_BYTES, 1 << 20])


def test_an_empty_segment_has_nothing_to_find(segment_of: MakeSegment) -> None:
    segment = segment_of([])
    assert segment.size == 0
    assert segment.max_timestamp == -1
    assert segment.position_of(BASE) == 0
    assert segment.batch_end_before(1000, 0) == 0
    assert segment.find_time(0, BASE, ALL_BYTES) is None
    assert list(segment.hops()) == []


@INTERVALS
def test_the_position_of_an_offset_is_that_of_the_batch_that_holds_it(
    segment_of: MakeSegment, interval_bytes: int
) -> None:
    # Batches of three records: offsets 100-102, 103-105 and so on.
    batches = [batch(b"a", b"b", b"c") for _ in range(8)]
    segment = segment_of(batches, interval_bytes)
    size = len(batches[0])
    for offset in range(BASE, BASE + 24):
        assert segment.position_of(offset) == (offset - BASE) // 3 * size


def test_the_position_of_an_offset_past_the_end_is_the_size(segment_of: MakeSegment) -> None:
    segment = segment_of(numbered(3))
    assert segment.position_of(BASE + 3) == segment.size == 3 * BATCH_BYTES
    assert segment.position_of(10**15) == segment.size


@INTERVALS
def test_the_position_of_an_offset_in_a_gap_is_that_of_the_next_batch(
    segment_of: MakeSegment, interval_bytes: int
) -> None:
    segment = segment_of(numbered(4), interval_bytes, gap=9)
    assert [hop.header.base_offset for hop in segment.hops()] == [BASE, BASE + 10, BASE + 20, BASE + 30]
    for offset in range(BASE, BASE + 31):
        assert segment.position_of(offset) == -(-(offset - BASE) // 10) * BATCH_BYTES


@INTERVALS
def test_the_end_before_a_limit_is_that_of_the_last_whole_batch(segment_of: MakeSegment, interval_bytes: int) -> None:
    segment = segment_of(numbered(10), interval_bytes)
    for start in range(0, segment.size, BATCH_BYTES):
        for limit in range(start + BATCH_BYTES, segment.size + 1, 7):
            expected = limit // BATCH_BYTES * BATCH_BYTES
            assert segment.batch_end_before(limit, start) == expected, (start, limit)


@INTERVALS
def test_a_limit_that_is_a_batchs_end_is_that_end(segment_of: MakeSegment, interval_bytes: int) -> None:
    segment = segment_of(numbered(10), interval_bytes)
    for limit in range(BATCH_BYTES, segment.size + 1, BATCH_BYTES):
        assert segment.batch_end_before(limit, 0) == limit


@INTERVALS
def test_a_first_batch_that_is_longer_than_the_limit_is_taken_whole(
    segment_of: MakeSegment, interval_bytes: int
) -> None:
    segment = segment_of(numbered(4), interval_bytes)
    for start in range(0, segment.size, BATCH_BYTES):
        for limit in (0, start, start + 1, start + BATCH_BYTES - 1):
            assert segment.batch_end_before(limit, start) == start + BATCH_BYTES


def test_a_limit_past_the_end_is_the_end(segment_of: MakeSegment) -> None:
    segment = segment_of(numbered(4))
    assert segment.batch_end_before(segment.size + 1, BATCH_BYTES) == segment.size


# Out of order within batches and between them, with ties and with records that have no timestamp.
TIMES = [[50, 20], [10], [90, 30, 60], [90], [-1], [40, 120, 70], [110], [-1, 95]]


def first_at_or_after(batches: Sequence[bytes | bytearray], timestamp: int, from_offset: int) -> tuple[int, int] | None:
    """What a reader of every record finds."""
    data = stamped(batches, BASE)
    for position, _ in iter_headers(data):
        for record in iter_records(data, position, bytes_max=ALL_BYTES):
            if record.timestamp >= timestamp and record.offset >= from_offset:
                return record.offset, record.timestamp
    return None


@INTERVALS
@pytest.mark.parametrize("codec", Codec)
def test_the_first_record_at_or_after_a_time_is_the_one_that_a_reader_of_all_finds(
    segment_of: MakeSegment, interval_bytes: int, codec: Codec
) -> None:
    batches = [batch(*[b"v"] * len(times), timestamps=times, codec=codec) for times in TIMES]
    segment = segment_of(batches, interval_bytes)
    assert segment.max_timestamp == 120
    for timestamp in range(-1, 125):
        for from_offset in (BASE, BASE + 4, BASE + 9):
            found = segment.find_time(timestamp, from_offset, ALL_BYTES)
            expected = first_at_or_after(batches, timestamp, from_offset)
            assert (found and found[:2]) == expected, (timestamp, from_offset)


def test_a_found_time_comes_with_its_leader_epoch(segment_of: MakeSegment) -> None:
    segment = segment_of([batch(timestamps=[70])])
    assert segment.find_time(70, BASE, ALL_BYTES) == TimestampedOffset(BASE, 70, 0)


def test_a_control_batch_has_no_records_to_find(segment_of: MakeSegment) -> None:
    marker = batch(timestamps=[99], control=True, transactional=True, producer=(7, 0, -1))
    segment = segment_of([batch(timestamps=[10]), marker, batch(timestamps=[50])])
    assert segment.find_time(20, BASE, ALL_BYTES) == TimestampedOffset(BASE + 2, 50, 0)
    assert segment.find_time(60, BASE, ALL_BYTES) is None


def test_hops_go_from_batch_to_batch(segment_of: MakeSegment) -> None:
    segment = segment_of(numbered(3))
    hops = list(segment.hops())
    assert [(hop.position, hop.end) for hop in hops] == [(n * BATCH_BYTES, (n + 1) * BATCH_BYTES) for n in range(3)]
    assert [hop.header.base_offset for hop in hops] == [BASE, BASE + 1, BASE + 2]
    assert list(segment.hops(BATCH_BYTES)) == hops[1:]


def test_many_batches_are_hopped_over_whatever_window_they_are_read_through(segment_of: MakeSegment) -> None:
    segment = segment_of([batch(bytes(size)) for size in range(0, 9000, 61)])
    assert [hop.header.base_offset for hop in segment.hops()] == list(range(BASE, BASE + 148))


def test_a_slice_has_the_bytes_and_says_where_they_are(segment_of: MakeSegment) -> None:
    batches = numbered(3)
    found = segment_of(batches).read(BATCH_BYTES, BATCH_BYTES)
    assert (found.file, found.position, found.length) == (LOG, BATCH_BYTES, BATCH_BYTES)
    assert bytes(found.data) == bytes(stamped(batches, BASE)[BATCH_BYTES : 2 * BATCH_BYTES])


MAGIC_BYTE, LENGTH_BYTE, DELTA_BYTE = 16, 8, 23


@pytest.mark.parametrize("byte", [MAGIC_BYTE, LENGTH_BYTE, DELTA_BYTE])
def test_bytes_that_are_no_header_are_corruption(segment_of: MakeSegment, files: MemoryFiles, byte: int) -> None:
    segment = segment_of(numbered(3), interval_bytes=1 << 20)
    flip(files, LOG, BATCH_BYTES + byte, 0x80)
    with pytest.raises(CorruptLogError, match="no batch header") as raised:
        list(segment.hops())
    error = raised.value
    assert (error.partition, error.file, error.position) == (PARTITION, LOG, BATCH_BYTES)
