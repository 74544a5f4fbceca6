"""Reads: by offset, within size limits, up to a bound, and by timestamp."""

import errno
from contextlib import suppress

import pytest

from logbrook.config import CleanupPolicy
from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.records.batch import Codec, renew_crc
from logbrook.records.control import build_marker
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.compaction import compact
from logbrook.storage.errors import (
    CorruptLogError,
    DiskFullError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    StorageError,
)
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.storage.kit import (
    ALL_BYTES,
    BATCH_BYTES,
    NOW_MS,
    PARTITION,
    NewStore,
    Store,
    bases_of,
    batch,
    flip,
    numbered,
    offsets_of,
    records_of,
)

COUNT = Offset(20)
SMALL = {"segment_bytes": 6 * BATCH_BYTES, "index_interval_bytes": 0, "open_segments_max": 2}


@pytest.fixture
def store(new_store: NewStore) -> Store:
    """Twenty batches of one record in four segments, three of them closed."""
    store = new_store(**SMALL)
    store.write(*numbered(COUNT))
    assert [segment.base_offset for segment in store.log.segments] == [0, 6, 12, 18]
    return store


def test_a_read_begins_with_the_batch_that_holds_the_offset(new_store: NewStore) -> None:
    store = new_store(**SMALL)
    store.write(*[batch(b"a", b"b", b"c") for _ in range(10)])
    for offset in range(30):
        assert bases_of(store.read(offset))[0] == offset // 3 * 3


def test_a_read_spans_segments(store: Store) -> None:
    for offset in range(COUNT):
        assert offsets_of(store.read(offset)) == list(range(offset, COUNT))


def test_a_read_gives_as_many_whole_batches_as_fit(store: Store) -> None:
    for offset in range(COUNT):
        for bytes_max in (BATCH_BYTES, 2 * BATCH_BYTES - 1, 3 * BATCH_BYTES, 7 * BATCH_BYTES + 5, 10**6):
            count = min(bytes_max // BATCH_BYTES, COUNT - offset)
            assert offsets_of(store.read(offset, bytes_max)) == list(range(offset, offset + count)), (offset, bytes_max)


def test_the_length_of_a_read_is_that_of_its_slices(store: Store) -> None:
    result = store.log.read(Offset(3), 9 * BATCH_BYTES)
    assert result.length == sum(len(part.data) for part in result.slices) == 9 * BATCH_BYTES


@pytest.mark.parametrize("bytes_max", [0, 1, BATCH_BYTES - 1])
def test_the_first_batch_is_returned_even_above_the_limit(store: Store, bytes_max: int) -> None:
    for offset in range(COUNT):
        assert offsets_of(store.read(offset, bytes_max)) == [offset]


@pytest.mark.parametrize("bytes_max", [0, 1, BATCH_BYTES - 1])
def test_without_at_least_one_a_batch_above_the_limit_is_not_returned(store: Store, bytes_max: int) -> None:
    for offset in range(COUNT):
        assert store.read(offset, bytes_max, at_least_one=False) == []


def test_readers_do_not_see_uncommitted_records(store: Store) -> None:
    for data in numbered(8, first=COUNT):
        store.append(data)
    assert store.log.log_end_offset == COUNT + 8
    for offset in range(COUNT):
        assert offsets_of(store.read(offset)) == list(range(offset, COUNT))
    for offset in range(COUNT, COUNT + 9):
        assert store.read(offset) == []


def test_a_read_may_have_an_explicit_upper_bound(store: Store) -> None:
    for data in numbered(3, first=COUNT):
        store.append(data)
    assert offsets_of(store.read(COUNT, up_to=COUNT + 2)) == [COUNT, COUNT + 1]
    assert offsets_of(store.read(COUNT, up_to=10**9)) == [COUNT, COUNT + 1, COUNT + 2]


def test_records_from_the_bound_on_are_left_out(store: Store) -> None:
    for offset in range(COUNT):
        for up_to in range(COUNT + 1):
            assert offsets_of(store.read(offset, up_to=up_to)) == list(range(offset, up_to)), (offset, up_to)


def test_a_batch_across_the_bound_is_left_out_whole(new_store: NewStore) -> None:
    store = new_store(**SMALL)
    store.write(*[batch(b"a", b"b", b"c") for _ in range(10)])
    assert offsets_of(store.read(0, up_to=7)) == list(range(6))


def test_a_read_returns_the_log_start_offset_and_the_read_limit(store: Store) -> None:
    store.append(batch())
    store.log.delete_before(Offset(5))
    result = store.log.read(Offset(7), ALL_BYTES)
    assert (result.log_start_offset, result.high_watermark, result.last_stable_offset) == (5, COUNT, COUNT)


def test_a_read_at_the_log_end_offset_is_empty(store: Store) -> None:
    assert store.read(COUNT) == []


@pytest.mark.parametrize("offset", [-1, 4, COUNT + 1])
def test_an_offset_outside_the_log_is_an_error_that_tells_the_range(store: Store, offset: int) -> None:
    store.log.delete_before(Offset(5))
    with pytest.raises(OffsetOutOfRangeError) as raised:
        store.read(offset)
    error = raised.value
    assert (error.partition, error.offset, error.log_start_offset, error.log_end_offset) == (
        PARTITION,
        offset,
        5,
        COUNT,
    )


def test_an_empty_log_reads_as_empty(new_store: NewStore) -> None:
    store = new_store()
    assert store.read(0) == []
    with pytest.raises(OffsetOutOfRangeError):
        store.read(1)


def test_slices_stay_valid_when_the_log_changes(store: Store) -> None:
    held = store.read(0)
    before = [bytes(part.data) for part in held]
    store.log.delete_before(Offset(12))
    store.log.remove_segments(2, due_ms=0)
    store.directory.remove_files(NOW_MS)
    store.write(*numbered(10))
    store.read(12)
    assert [bytes(part.data) for part in held] == before


def test_a_range_is_read_bit_by_bit(store: Store) -> None:
    for start in range(COUNT):
        for end in range(start, COUNT + 1):
            assert offsets_of(store.log.read_range(Offset(start), Offset(end), bytes_max=2 * BATCH_BYTES)) == list(
                range(start, end)
            )


def test_a_range_includes_every_batch_that_holds_one_of_its_offsets(new_store: NewStore) -> None:
    store = new_store(**SMALL)
    store.write(*[batch(b"a", b"b", b"c") for _ in range(10)])
    for start in range(30):
        for end in range(start + 1, 31):
            expected = list(range(start // 3 * 3, end + (-end % 3), 3))
            assert bases_of(store.log.read_range(Offset(start), Offset(end), bytes_max=1)) == expected, (start, end)


def test_a_range_ends_with_the_log(store: Store) -> None:
    assert offsets_of(store.log.read_range(Offset(15), Offset(10**9))) == [15, 16, 17, 18, 19]


def test_a_range_skips_compacted_records(new_store: NewStore) -> None:
    store = new_store(**SMALL, cleanup_policy={CleanupPolicy.COMPACT})
    store.write(*[batch(b"%d" % n, key=b"k") for n in range(COUNT)])
    store.log.roll()
    store.directory.checkpoint()
    assert compact(store.log, NOW_MS, force=True) is not None
    assert offsets_of(store.log.read_range(Offset(0), COUNT, bytes_max=1)) == [COUNT - 1]
    assert offsets_of(store.read(3)) == [COUNT - 1]


def first_at_or_after(store: Store, timestamp: int) -> tuple[int, int] | None:
    """Return the result of a scan over all visible records."""
    for record in records_of(store.read(store.log.log_start_offset)):
        if record.timestamp >= timestamp and record.offset >= store.log.log_start_offset:
            return record.offset, record.timestamp
    return None


TIMES = [[50, 20], [10], [90, 30, 60], [5], [-1], [40, 120, 70], [110], [-1, 95], [95, 130], [1]]


@pytest.fixture
def timed(new_store: NewStore) -> Store:
    """Timestamps out of order within batches, between them and between segments, in every compression."""
    store = new_store(segment_bytes=300, index_interval_bytes=0)
    for number, times in enumerate(TIMES):
        store.write(batch(*[b"v"] * len(times), timestamps=times, codec=Codec(number % 5)))
    assert len(store.log.closed) > 2
    return store


def test_a_time_is_found_where_a_reader_of_all_records_finds_it(timed: Store) -> None:
    for start in (0, 3, 9, 17):
        timed.log.delete_before(Offset(start))
        for timestamp in range(-1, 135):
            result = timed.log.find_time(timestamp)
            assert (result and result[:2]) == first_at_or_after(timed, timestamp), (start, timestamp)


def test_a_time_that_is_only_in_uncommitted_records_is_not_found(timed: Store) -> None:
    timed.append(batch(timestamps=[999]))
    assert timed.log.find_time(500) is None
    timed.directory.commit()
    result = timed.log.find_time(500)
    assert result is not None
    assert result.timestamp == 999


def test_a_found_time_has_the_epoch_of_its_leader(new_store: NewStore) -> None:
    store = new_store()
    for epoch in (2, 4):
        store.append(batch(timestamps=[epoch]), leader_epoch=epoch)
    store.directory.commit()
    assert [store.log.find_time(epoch) for epoch in (2, 4)] == [(0, 2, 2), (1, 4, 4)]


def test_in_an_empty_log_no_time_is_found(new_store: NewStore) -> None:
    assert new_store().log.find_time(0) is None


def undecodable(timestamp: int, codec: Codec = Codec.NONE) -> bytearray:
    """Return a batch with a valid checksum whose records cannot be decoded, as a client may send it."""
    data = batch(bytes(range(80)), timestamps=[timestamp], codec=codec)
    data[-30:] = b"\xff" * 30
    renew_crc(memoryview(data), 0, len(data))
    return data


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_an_undecodable_batch_does_not_fail_a_timestamp_lookup(new_store: NewStore, codec: Codec) -> None:
    store = new_store()
    store.write(undecodable(2**60, codec), batch(timestamps=[NOW_MS]))
    result = store.log.find_time(NOW_MS)
    assert result is not None
    assert result.offset <= 1


def test_a_lookup_of_times_decompresses_no_more_than_it_may(new_store: NewStore) -> None:
    store = new_store(decompressed_bytes_max=2048)
    store.write(batch(bytes(100_000), codec=Codec.ZSTD), batch(timestamps=[NOW_MS]))
    result = store.log.find_time(NOW_MS)
    assert result is not None
    assert result.offset <= 1


def test_markers_are_not_found_by_time(new_store: NewStore) -> None:
    store = new_store()
    store.write(batch(timestamps=[10]))
    store.append(
        build_marker(ProducerId(5), ProducerEpoch(0), True, 50, coordinator_epoch=0), origin=AppendOrigin.COORDINATOR
    )
    store.directory.commit()
    assert store.log.find_time(20) is None


def rotten(store: Store, segment: int = 1) -> str:
    """Corrupt a batch header in a closed segment. Returns the file."""
    path = store.log.closed[segment].path
    store.log.closed[segment].forget()
    store.files.unlink(store.log.closed[segment].index_path)
    flip(store.files, path, 2 * BATCH_BYTES + 16)
    return path


def test_bad_bytes_are_a_typed_error_to_the_reader(store: Store) -> None:
    path = rotten(store)
    with pytest.raises(CorruptLogError) as raised:
        store.read(8)
    error = raised.value
    assert (error.partition, error.file, error.position) == (PARTITION, path, 2 * BATCH_BYTES)
    assert error.offset <= 8


def test_a_quarantined_log_rejects_appends_and_deletes_nothing(store: Store) -> None:
    rotten(store)
    before = {name: store.files.size(f"{PARTITION}/{name}") for name in log_names(store)}
    with pytest.raises(CorruptLogError) as first_error:
        store.read(8)
    with pytest.raises(CorruptLogError) as refused:
        store.append(batch())
    assert refused.value is first_error.value
    assert store.directory.environment.probe.corruptions_found == 1
    assert {name: store.files.size(f"{PARTITION}/{name}") for name in log_names(store)} == before


def log_names(store: Store) -> list[str]:
    return [name for name in store.files.list(PARTITION.directory) if name.endswith(".log")]


def test_records_before_the_damage_can_still_be_read(store: Store) -> None:
    rotten(store)
    with pytest.raises(CorruptLogError):
        store.read(8)
    assert offsets_of(store.read(0, 6 * BATCH_BYTES)) == list(range(6))


def test_a_read_that_begins_before_the_bad_bytes_ends_before_them(store: Store) -> None:
    rotten(store)
    with pytest.raises(CorruptLogError):
        store.read(8)
    assert offsets_of(store.read(0)) == list(range(8))
    assert offsets_of(store.read(7)) == [7]
    with pytest.raises(CorruptLogError):
        store.read(8)


def test_other_partitions_are_not_harmed(store: Store) -> None:
    other_log = store.create(PARTITION._replace(partition=1))
    rotten(store)
    with pytest.raises(CorruptLogError):
        store.read(8)
    append = other_log.append(batch(b"fine"), now_ms=NOW_MS)
    store.directory.commit()
    assert append.result().base_offset == 0


def test_a_lookup_by_time_that_finds_bad_bytes_reports_it(store: Store) -> None:
    store = store.reopened()
    rotten(store, segment=0)
    with pytest.raises(CorruptLogError):
        store.log.find_time(NOW_MS)
    assert store.log.corruption is not None


def test_a_full_disk_does_not_hide_the_bad_bytes(store: Store, files: MemoryFiles) -> None:
    rotten(store)
    files.capacity_bytes = 0
    with pytest.raises(CorruptLogError):
        store.read(8)
    assert store.log.corruption is not None
    with pytest.raises(CorruptLogError):
        store.append(batch())


def test_on_a_full_disk_every_segment_can_be_read_with_or_without_its_index(store: Store, files: MemoryFiles) -> None:
    for segment in store.log.closed:
        segment.forget()
        files.unlink(segment.index_path)
    files.capacity_bytes = 0
    assert offsets_of(store.read(0)) == list(range(COUNT))
    with pytest.raises(DiskFullError):
        store.append(batch())


def read_with_a_fault(new_store: NewStore, n: int | None, error: int) -> int:
    """Read everything without cached handles and indexes while the n-th call fails. Returns the number of calls."""
    files = FaultyFiles(MemoryFiles(), error=error)
    store = new_store(files, **SMALL, open_files_max=1)
    store.write(*numbered(COUNT))
    store.create(PARTITION._replace(partition=1))
    for segment in store.log.closed:
        files.unlink(segment.index_path)
    begin = files.calls
    files.fail_at = n and begin + n
    with suppress(StorageError):
        # After an I/O error, the first batch is read again alone.
        assert offsets_of(store.read(0)) in (list(range(COUNT)), [0])
        assert store.log.find_time(NOW_MS) is not None
    files.fail_at = None
    calls = files.calls - begin
    if store.log.corruption is None:
        assert offsets_of(store.read(0)) == list(range(COUNT))
    return calls


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_read_that_fails_at_any_call_raises_a_typed_error_and_the_next_read_works(
    new_store: NewStore, error: int
) -> None:
    for n in range(1, read_with_a_fault(new_store, None, error) + 1):
        read_with_a_fault(new_store, n, error)


def test_a_deleted_log_cannot_be_read(store: Store) -> None:
    log = store.log
    store.directory.delete(PARTITION, NOW_MS)
    with pytest.raises(PartitionNotFoundError):
        log.read(Offset(0), ALL_BYTES)
    with pytest.raises(PartitionNotFoundError):
        log.find_time(0)
