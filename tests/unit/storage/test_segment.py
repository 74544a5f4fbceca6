"""Lookups in segments, closed and active, and iteration over their batches with validation."""

from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.ports import File
from logbrook.records.batch import Codec, iter_headers
from logbrook.records.errors import CorruptBatchError, UnsupportedMagicError
from logbrook.records.reader import iter_records
from logbrook.storage.active_segment import ActiveSegment
from logbrook.storage.closed_segment import ClosedSegment, ClosedSegmentCache
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.open_files import OpenFiles
from logbrook.storage.paths import index_path, log_path
from logbrook.storage.probe import StorageProbe
from logbrook.storage.segment import Segment, TimestampedOffset, VerifiedBatch, scan_batches, scan_headers
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.storage.kit import ALL_BYTES, BATCH_BYTES, PARTITION, batch, flip, numbered, put, stamped

BASE = Offset(100)
DIRECTORY = PARTITION.directory
LOG = log_path(DIRECTORY, BASE)
INDEX = index_path(DIRECTORY, BASE)


class MakeSegment(Protocol):
    def __call__(self, batches: Sequence[bytes | bytearray], interval_bytes: int = 0, gap: int = 0) -> Segment: ...


@pytest.fixture(params=["closed", "active"])
def segment_of(request: pytest.FixtureRequest, files: MemoryFiles) -> MakeSegment:
    """Return a segment of these batches. With the interval 0 every batch but the first has an index entry."""
    files.make_dir(DIRECTORY)

    def closed(batches: Sequence[bytes | bytearray], interval_bytes: int = 0, gap: int = 0) -> Segment:
        put(files, LOG, stamped(batches, BASE, gap))
        return ClosedSegment(PARTITION, BASE, ClosedSegmentCache(files, 4, StorageProbe()), interval_bytes)

    def active(batches: Sequence[bytes | bytearray], interval_bytes: int = 0, gap: int = 0) -> Segment:
        data = stamped(batches, BASE, gap)
        segment = ActiveSegment(PARTITION, BASE, OpenFiles(files, 4), interval_bytes, StorageProbe())
        segment.create()
        headers = iter_headers(data)
        segment.append(memoryview(data), [(at, header.base_offset, header.max_timestamp) for at, header in headers], 0)
        return segment

    makers: dict[str, Callable[..., Segment]] = {"closed": closed, "active": active}
    return makers[request.param]


INTERVALS = pytest.mark.parametrize("interval_bytes", [0, BATCH_BYTES, 3 * BATCH_BYTES, 1 << 20])


def end_before(segment: Segment, limit: int, start: int) -> int:
    boundary = segment.boundary_before(limit, start)
    if boundary is None:
        return segment.size
    following = next(segment.batches(boundary.position), None)
    assert boundary.offset == (following.header.base_offset if following else BASE + segment.size // BATCH_BYTES)
    return boundary.position


def test_a_read_position_is_known_from_the_last_read_or_append_and_forgotten_when_the_segment_is_cut(
    segment_of: MakeSegment,
) -> None:
    segment = segment_of(numbered(10))
    assert [segment.read_position(Offset(BASE + n)) for n in (4, 4, 10)] == [4 * BATCH_BYTES] * 2 + [segment.size]
    segment.note_position(Offset(BASE + 7), 7 * BATCH_BYTES)
    assert segment.read_position(Offset(BASE + 7)) == 7 * BATCH_BYTES
    if isinstance(segment, ActiveSegment):
        segment.truncate(6 * BATCH_BYTES)
        assert segment.read_position(Offset(BASE + 7)) == segment.size == 6 * BATCH_BYTES


def test_positions_of_appends_are_noted_once_the_segment_is_read(files: MemoryFiles) -> None:
    files.make_dir(DIRECTORY)
    segment = ActiveSegment(PARTITION, BASE, OpenFiles(files, 4), 0, StorageProbe())
    segment.create()

    def append(number: int) -> None:
        data = stamped(numbered(1), Offset(BASE + number), 0)
        segment.append(memoryview(data), [(0, BASE + number, 0)], 0)

    append(0)
    assert segment._known_positions == {}
    segment.read_position(BASE)
    append(1)
    assert segment._known_positions == {BASE: 0, BASE + 1: BATCH_BYTES}


def test_the_oldest_known_positions_make_room(segment_of: MakeSegment) -> None:
    segment = segment_of(numbered(100))
    for _ in range(2):
        for n in range(101):
            assert segment.read_position(Offset(BASE + n)) == n * BATCH_BYTES
    assert len(segment._known_positions) <= 16


def test_an_empty_segment_has_nothing_to_find(segment_of: MakeSegment) -> None:
    segment = segment_of([])
    assert segment.size == 0
    assert segment.max_timestamp == -1
    assert segment.position_of(BASE) == 0
    assert end_before(segment, 1000, 0) == 0
    assert segment.find_time(0, BASE, ALL_BYTES) is None
    assert list(segment.batches()) == []


@INTERVALS
def test_the_position_of_an_offset_is_that_of_the_batch_that_holds_it(
    segment_of: MakeSegment, interval_bytes: int
) -> None:
    # Batches of three records: offsets 100-102, 103-105 and so on.
    batches = [batch(b"a", b"b", b"c") for _ in range(8)]
    segment = segment_of(batches, interval_bytes)
    size = len(batches[0])
    for offset in range(BASE, BASE + 24):
        assert segment.position_of(Offset(offset)) == (offset - BASE) // 3 * size


def test_the_position_of_an_offset_past_the_end_is_the_size(segment_of: MakeSegment) -> None:
    segment = segment_of(numbered(3))
    assert segment.position_of(Offset(BASE + 3)) == segment.size == 3 * BATCH_BYTES
    assert segment.position_of(Offset(10**15)) == segment.size


@INTERVALS
def test_the_position_of_an_offset_in_a_gap_is_that_of_the_next_batch(
    segment_of: MakeSegment, interval_bytes: int
) -> None:
    segment = segment_of(numbered(4), interval_bytes, gap=9)
    assert [batch.header.base_offset for batch in segment.batches()] == [BASE, BASE + 10, BASE + 20, BASE + 30]
    for offset in range(BASE, BASE + 31):
        assert segment.position_of(Offset(offset)) == -(-(offset - BASE) // 10) * BATCH_BYTES


@INTERVALS
def test_the_end_before_a_limit_is_that_of_the_last_whole_batch(segment_of: MakeSegment, interval_bytes: int) -> None:
    segment = segment_of(numbered(10), interval_bytes)
    for start in range(0, segment.size, BATCH_BYTES):
        for limit in range(start + BATCH_BYTES, segment.size + 1, 7):
            expected = limit // BATCH_BYTES * BATCH_BYTES
            assert end_before(segment, limit, start) == expected, (start, limit)


@INTERVALS
def test_a_limit_that_is_a_batchs_end_is_that_end(segment_of: MakeSegment, interval_bytes: int) -> None:
    segment = segment_of(numbered(10), interval_bytes)
    for limit in range(BATCH_BYTES, segment.size + 1, BATCH_BYTES):
        assert end_before(segment, limit, 0) == limit


@INTERVALS
def test_a_first_batch_that_is_longer_than_the_limit_is_taken_whole(
    segment_of: MakeSegment, interval_bytes: int
) -> None:
    segment = segment_of(numbered(4), interval_bytes)
    for start in range(0, segment.size, BATCH_BYTES):
        for limit in (0, start, start + 1, start + BATCH_BYTES - 1):
            assert end_before(segment, limit, start) == start + BATCH_BYTES


def test_a_limit_after_the_end_is_clamped_to_the_end(segment_of: MakeSegment) -> None:
    segment = segment_of(numbered(4))
    assert end_before(segment, segment.size + 1, BATCH_BYTES) == segment.size


# Out of order within batches and between them, with ties and with records that have no timestamp.
TIMES = [[50, 20], [10], [90, 30, 60], [90], [-1], [40, 120, 70], [110], [-1, 95]]


def first_at_or_after(batches: Sequence[bytes | bytearray], timestamp: int, from_offset: int) -> tuple[int, int] | None:
    """Return the result of a scan over all records."""
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
            result = segment.find_time(timestamp, Offset(from_offset), ALL_BYTES)
            expected = first_at_or_after(batches, timestamp, from_offset)
            assert (result and result[:2]) == expected, (timestamp, from_offset)


def test_a_time_lookup_returns_the_leader_epoch(segment_of: MakeSegment) -> None:
    segment = segment_of([batch(timestamps=[70])])
    assert segment.find_time(70, BASE, ALL_BYTES) == TimestampedOffset(BASE, 70, LeaderEpoch(0))


def test_a_control_batch_has_no_records_to_find(segment_of: MakeSegment) -> None:
    marker = batch(timestamps=[99], control=True, transactional=True, producer=(7, 0, -1))
    segment = segment_of([batch(timestamps=[10]), marker, batch(timestamps=[50])])
    assert segment.find_time(20, BASE, ALL_BYTES) == TimestampedOffset(Offset(BASE + 2), 50, LeaderEpoch(0))
    assert segment.find_time(60, BASE, ALL_BYTES) is None


def test_batches_of_a_segment_are_iterated_in_order(segment_of: MakeSegment) -> None:
    segment = segment_of(numbered(3))
    batches = list(segment.batches())
    assert [(batch.position, batch.end) for batch in batches] == [
        (n * BATCH_BYTES, (n + 1) * BATCH_BYTES) for n in range(3)
    ]
    assert [batch.header.base_offset for batch in batches] == [BASE, BASE + 1, BASE + 2]
    assert list(segment.batches(BATCH_BYTES)) == batches[1:]


def test_many_batches_are_hopped_over_whatever_window_they_are_read_through(segment_of: MakeSegment) -> None:
    segment = segment_of([batch(bytes(size)) for size in range(0, 9000, 61)])
    assert [batch.header.base_offset for batch in segment.batches()] == list(range(BASE, BASE + 148))


def test_a_slice_has_its_bytes_and_their_file_position(segment_of: MakeSegment) -> None:
    batches = numbered(3)
    part = segment_of(batches).read(BATCH_BYTES, BATCH_BYTES)
    assert (part.file, part.position, part.length) == (LOG, BATCH_BYTES, BATCH_BYTES)
    assert bytes(part.data) == bytes(stamped(batches, BASE)[BATCH_BYTES : 2 * BATCH_BYTES])


MAGIC_BYTE, LENGTH_BYTE, DELTA_BYTE = 16, 8, 23


@pytest.mark.parametrize("byte", [MAGIC_BYTE, LENGTH_BYTE, DELTA_BYTE])
def test_bytes_that_are_no_header_are_corruption(segment_of: MakeSegment, files: MemoryFiles, byte: int) -> None:
    segment = segment_of(numbered(3), interval_bytes=1 << 20)
    flip(files, LOG, BATCH_BYTES + byte, 0x80)
    with pytest.raises(CorruptLogError, match="not a valid batch header") as raised:
        list(segment.batches())
    error = raised.value
    assert (error.partition, error.file, error.position) == (PARTITION, LOG, BATCH_BYTES)


def file_with(*parts: bytes | bytearray) -> File:
    file = MemoryFiles().create("a")
    file.pwrite(b"".join(parts), 0)
    return file


def scan(file: File, position: int = 0, end: int | None = None) -> list[VerifiedBatch]:
    return list(scan_batches(file, position, file.size() if end is None else end))


def test_an_empty_range_has_no_batches() -> None:
    assert scan(file_with()) == []
    assert scan(file_with(*numbered(2)), BATCH_BYTES, BATCH_BYTES) == []


def test_every_batch_is_given_with_its_place_and_its_bytes() -> None:
    batches = numbered(3)
    scanned = scan(file_with(*batches))
    assert [entry.position for entry in scanned] == [0, BATCH_BYTES, 2 * BATCH_BYTES]
    assert [bytes(entry.data) for entry in scanned] == [bytes(data) for data in batches]
    assert all(entry.header.size == BATCH_BYTES for entry in scanned)


def test_a_scan_starts_and_ends_at_the_given_positions() -> None:
    file = file_with(*numbered(5))
    assert [entry.position for entry in scan(file, BATCH_BYTES, 3 * BATCH_BYTES)] == [BATCH_BYTES, 2 * BATCH_BYTES]


def test_a_scan_ignores_bytes_after_the_end() -> None:
    assert len(scan(file_with(*numbered(2), b"garbage"), end=2 * BATCH_BYTES)) == 2


def test_batches_larger_than_the_window_are_read_whole() -> None:
    large = batch(bytes(3 << 20))
    scanned = scan(file_with(batch(), large, batch(), large))
    assert [entry.header.size for entry in scanned] == [BATCH_BYTES, len(large), BATCH_BYTES, len(large)]


def test_many_batches_are_read_in_few_calls() -> None:
    files = FaultyFiles(MemoryFiles(), only={"pread"})
    file = files.create("a")
    file.pwrite(b"".join(numbered(5000)), 0)
    assert len(scan(file)) == 5000
    assert files.calls <= 2


def test_every_changed_byte_that_the_checksum_covers_is_detected() -> None:
    good = b"".join(numbered(2))
    for position in range(BATCH_BYTES + 21, 2 * BATCH_BYTES):
        file = file_with(good[:position], bytes([good[position] ^ 0x10]), good[position + 1 :])
        batches = scan_batches(file, 0, len(good))
        next(batches)
        with pytest.raises(CorruptBatchError):
            next(batches)


def test_every_cut_is_detected_at_the_batch_it_hits() -> None:
    good = b"".join(numbered(2))
    for length in range(BATCH_BYTES + 1, 2 * BATCH_BYTES):
        batches = scan_batches(file_with(good[:length]), 0, length)
        next(batches)
        with pytest.raises(CorruptBatchError):
            next(batches)


def test_zeros_are_no_batch() -> None:
    batches = scan_batches(file_with(batch(), bytes(4096)), 0, BATCH_BYTES + 4096)
    next(batches)
    with pytest.raises(UnsupportedMagicError):
        next(batches)


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1, -(2**31)])
def test_a_wrong_length_is_detected_without_reading_that_many_bytes(length: int) -> None:
    bad = batch()
    bad[8:12] = (length & 0xFFFFFFFF).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        scan(file_with(bad, *numbered(3)))


def test_headers_end_where_the_file_does_though_more_was_expected() -> None:
    """The file may belong to a recreated topic by now."""
    first, second = numbered(2)
    file = file_with(first, second[:40])
    assert [header.base_offset for header in scan_headers(file, 0, 3 * BATCH_BYTES)] == [0]
