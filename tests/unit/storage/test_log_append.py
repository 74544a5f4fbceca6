"""Appends: offsets, validation, stamping, and completion."""

import errno
import traceback
from collections.abc import Collection

import pytest

from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.records.batch import (
    CONTROL_BIT,
    SEQUENCE_MAX,
    Codec,
    TimestampType,
    check_batch,
    read_header,
    renew_crc,
)
from logbrook.records.errors import CorruptBatchError, InvalidBatchError, UnsupportedMagicError
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.errors import (
    BatchTooLargeError,
    DiskFullError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    PartitionNotFoundError,
    StorageError,
    StorageOfflineError,
)
from logbrook.testing import FaultyFiles, MemoryFiles
from logbrook.testing.forwarding import CALLS
from tests.unit.storage.kit import (
    BATCH_BYTES,
    NOW_MS,
    PARTITION,
    NewStore,
    Store,
    batch,
    marker,
    numbered,
    offsets_of,
    records_of,
)


@pytest.fixture
def store(new_store: NewStore) -> Store:
    return new_store()


def test_offsets_are_dense_and_start_at_zero(store: Store) -> None:
    appends = [store.append(batch(*[b"v"] * count)) for count in (1, 3, 2)]
    assert [(append.base_offset, append.next_offset) for append in appends] == [(0, 1), (1, 4), (4, 6)]
    assert store.log.log_end_offset == 6


def test_the_leader_stamps_offset_and_epoch_and_the_checksum_still_holds(store: Store) -> None:
    store.write(batch())
    data = batch(b"a", b"b")
    store.append(data, leader_epoch=7)
    header = check_batch(memoryview(data), 0, len(data))
    assert (header.base_offset, header.leader_epoch) == (1, 7)


def test_bytes_that_may_not_be_changed_are_copied_before_they_are_stamped(store: Store) -> None:
    store.write(batch())
    data = bytes(batch(b"constant"))
    before = bytes(data)
    store.write(data)
    assert data == before
    assert offsets_of(store.read()) == [0, 1]


def test_with_fsync_an_append_is_done_when_it_is_committed_and_not_before(store: Store) -> None:
    append = store.append(batch())
    assert not append.done
    assert (store.log.high_watermark, store.log.log_end_offset) == (0, 1)
    assert store.directory.commit() == 1
    assert append.result() is append
    assert store.log.high_watermark == 1


def test_with_interval_an_append_is_done_at_once(new_store: NewStore) -> None:
    store = new_store(durability="interval")
    append = store.append(batch())
    assert append.done
    assert store.log.high_watermark == 1


def test_one_commit_serves_all_partitions(open_store: NewStore) -> None:
    store = open_store()
    logs = [store.create(PARTITION._replace(partition=number)) for number in range(5)]
    appends = [log.append(batch(), now_ms=NOW_MS) for log in logs]
    assert store.directory.commit() == 5
    assert all(append.done for append in appends)
    assert store.directory.environment.probe.wal_commits == 1


def test_several_batches_in_one_append_get_offsets_one_after_the_other(store: Store) -> None:
    data = batch(b"a", b"b") + batch(b"c") + batch(b"d", b"e", codec=Codec.LZ4)
    append = store.write(data)
    assert (append.base_offset, append.next_offset) == (0, 5)
    assert [(record.offset, record.value) for record in records_of(store.read())] == list(enumerate_bytes(b"abcde"))


def enumerate_bytes(text: bytes) -> list[tuple[int, bytes]]:
    return [(number, text[number : number + 1]) for number in range(len(text))]


def test_of_several_batches_none_is_written_when_one_is_bad(store: Store) -> None:
    bad = batch(b"bad")
    bad[-1] ^= 0xFF
    with pytest.raises(CorruptBatchError):
        store.append(batch(b"good") + bad)
    assert (store.log.log_end_offset, store.log.size) == (0, 0)
    store.write(batch(b"next"))
    assert store.values() == [b"next"]


def test_an_empty_append_is_refused(store: Store) -> None:
    with pytest.raises(InvalidBatchError, match="no batch"):
        store.append(b"")


@pytest.mark.parametrize("length", [1, 60, BATCH_BYTES - 1])
def test_a_partial_batch_is_refused(store: Store, length: int) -> None:
    with pytest.raises(CorruptBatchError):
        store.append(batch()[:length])
    with pytest.raises(CorruptBatchError):
        store.append(batch() + batch()[:length])


def test_another_message_format_is_refused(store: Store) -> None:
    data = batch()
    data[16] = 1
    with pytest.raises(UnsupportedMagicError):
        store.append(data)


def test_a_batch_above_the_topics_limit_is_refused(new_store: NewStore) -> None:
    store = new_store(max_message_bytes=BATCH_BYTES)
    store.write(batch())
    with pytest.raises(BatchTooLargeError) as raised:
        store.append(batch(b"value!"))
    assert (raised.value.partition, raised.value.size, raised.value.size_max) == (
        PARTITION,
        BATCH_BYTES + 1,
        BATCH_BYTES,
    )


def test_the_limit_is_for_each_batch_and_not_for_the_append(new_store: NewStore) -> None:
    store = new_store(max_message_bytes=BATCH_BYTES)
    store.write(batch() + batch() + batch())
    assert store.log.log_end_offset == 3


def test_a_client_may_not_write_control_batches(store: Store) -> None:
    with pytest.raises(InvalidBatchError, match="control"):
        store.append(marker(5))
    with pytest.raises(InvalidBatchError, match="control"):
        store.append(batch() + marker(5))
    assert store.log.log_end_offset == 0


def test_a_coordinator_may(store: Store) -> None:
    append = store.append(marker(5), origin=AppendOrigin.COORDINATOR)
    assert append.base_offset == 0


def test_a_control_bit_that_is_smuggled_in_is_detected_too(store: Store) -> None:
    data = batch()
    data[22] |= CONTROL_BIT
    with pytest.raises(CorruptBatchError):
        store.append(data)
    renew_crc(memoryview(data), 0, len(data))
    with pytest.raises(InvalidBatchError):
        store.append(data)


def test_create_time_keeps_the_producers_timestamps(store: Store) -> None:
    append = store.write(batch(b"a", b"b", timestamps=[500, 400]))
    assert append.log_append_time_ms == -1
    assert [record.timestamp for record in records_of(store.read())] == [500, 400]


@pytest.mark.parametrize("codec", Codec)
def test_log_append_time_stamps_every_record_and_renews_the_checksum(new_store: NewStore, codec: Codec) -> None:
    store = new_store(message_timestamp_type="LogAppendTime")
    data = batch(b"a", b"b", timestamps=[500, 400], codec=codec)
    append = store.append(data, now_ms=NOW_MS + 9)
    store.directory.commit()
    assert append.log_append_time_ms == NOW_MS + 9
    (part,) = store.read()
    header = check_batch(part.data, 0, len(part.data))
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in records_of([part])] == [NOW_MS + 9] * 2
    result = store.log.find_time(NOW_MS + 9)
    assert result is not None
    assert result[:2] == (0, NOW_MS + 9)


def test_leader_epochs_are_remembered_by_where_they_began(store: Store) -> None:
    for epoch in (0, 0, 3, 3, 2):
        store.append(batch(), leader_epoch=epoch)
    assert store.log.epochs.starts == [(0, 0), (3, 2)]


def producing(sequence: int, epoch: int = 0, count: int = 1) -> bytearray:
    return batch(*[b"v"] * count, producer=(5, epoch, sequence))


def test_a_duplicate_is_answered_with_its_original_offset_and_not_written_again(store: Store) -> None:
    first = store.write(producing(0, count=2))
    store.write(producing(2))
    again = store.write(producing(0, count=2))
    assert again.duplicate
    assert not first.duplicate
    assert (again.base_offset, again.next_offset) == (first.base_offset, first.next_offset) == (0, 2)
    assert store.log.log_end_offset == 3
    assert store.log.high_watermark == 3


def test_a_duplicate_is_done_only_when_the_original_is_durable(store: Store) -> None:
    store.append(producing(0))
    again = store.append(producing(0))
    assert not again.done
    assert store.log.high_watermark == 0
    store.directory.commit()
    assert again.done
    assert store.log.high_watermark == 1


def test_a_duplicate_of_an_append_that_was_never_durable_fails_with_it(new_store: NewStore) -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.endswith(".wal"))
    store = new_store(files)
    store.write(batch())
    appends = [store.append(producing(0)), store.append(producing(0))]
    files.fail_at = files.calls + 1
    store.directory.commit()
    assert all(isinstance(append.error, StorageOfflineError) for append in appends)


def test_a_duplicate_of_log_append_time_is_answered_with_its_original_time(new_store: NewStore) -> None:
    store = new_store(message_timestamp_type="LogAppendTime")
    first = store.append(producing(0), now_ms=NOW_MS)
    again = store.append(producing(0), now_ms=NOW_MS + 1000)
    assert again.log_append_time_ms == first.log_append_time_ms == NOW_MS


def test_a_gap_in_the_sequence_is_refused_and_leaves_no_trace(store: Store) -> None:
    store.write(producing(0))
    with pytest.raises(OutOfOrderSequenceError):
        store.append(producing(2))
    store.write(producing(1))
    assert store.log.log_end_offset == 2


def test_an_older_epoch_is_refused(store: Store) -> None:
    store.write(producing(0, epoch=1))
    with pytest.raises(InvalidProducerEpochError):
        store.append(producing(1, epoch=0))


def test_sequences_wrap(store: Store) -> None:
    store.write(producing(SEQUENCE_MAX), producing(0), producing(1))
    assert store.log.log_end_offset == 3


def test_an_open_transaction_holds_the_last_stable_offset_back(store: Store) -> None:
    store.write(batch())
    store.write(batch(producer=(5, 0, 0), transactional=True))
    store.write(batch())
    assert store.log.last_stable_offset == 1
    store.append(marker(5), origin=AppendOrigin.COORDINATOR)
    assert store.log.last_stable_offset == 1, "a marker that is not durable decides nothing yet"
    store.directory.commit()
    assert store.log.last_stable_offset == 4


def test_appended_batches_and_bytes_are_counted(store: Store) -> None:
    store.write(*numbered(3))
    probe = store.directory.environment.probe
    assert (probe.batches_appended, probe.bytes_appended) == (3, 3 * BATCH_BYTES)


def on_small_disk(new_store: NewStore, files: MemoryFiles, **settings: object) -> Store:
    """A store with a preallocated write-ahead log, on a disk with room for about a batch and a half."""
    store = new_store(files, **settings)
    store.write(*numbered(2))
    files.capacity_bytes = files.used_bytes() + BATCH_BYTES + BATCH_BYTES // 2
    return store


@pytest.mark.parametrize("durability", ["fsync", "interval"])
def test_on_a_full_disk_an_append_is_refused_reads_continue_and_room_makes_it_work_again(
    new_store: NewStore, files: MemoryFiles, durability: str
) -> None:
    store = on_small_disk(new_store, files, durability=durability)
    store.write(batch(b"fits!"))
    with pytest.raises(DiskFullError) as raised:
        store.append(batch(b"full!"))
    assert raised.value.file == store.log.active.path
    assert raised.value.size == BATCH_BYTES
    assert store.values() == [b"00000", b"00001", b"fits!"]
    assert store.log.log_end_offset == 3
    files.capacity_bytes = None
    store.write(batch(b"again"))
    assert store.values() == [b"00000", b"00001", b"fits!", b"again"]
    assert store.killed().values() == store.values()


def test_a_producer_can_retry_a_batch_that_a_full_disk_refused(new_store: NewStore, files: MemoryFiles) -> None:
    store = on_small_disk(new_store, files)
    store.write(producing(0))
    with pytest.raises(DiskFullError):
        store.append(producing(1))
    files.capacity_bytes = None
    append = store.write(producing(1))
    assert (append.base_offset, append.duplicate) == (3, False)


def test_a_batch_that_follows_a_refused_one_is_refused_for_the_same_reason(
    new_store: NewStore, files: MemoryFiles
) -> None:
    """Producers send several batches at a time. Upon an error of sequences librdkafka begins a new producer epoch, and
    repeats batches of other partitions with it that it has no response for (issue 4953 of librdkafka)."""
    store = on_small_disk(new_store, files)
    store.write(producing(0))
    for sequence in (1, 2, 3):
        with pytest.raises(DiskFullError):
            store.append(producing(sequence))
    files.capacity_bytes = None
    with pytest.raises(OutOfOrderSequenceError):
        store.append(producing(2))
    store.write(producing(1))
    with pytest.raises(OutOfOrderSequenceError):
        store.append(producing(3))


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_the_very_same_bytes_may_be_tried_again(new_store: NewStore, files: MemoryFiles, timestamp_type: str) -> None:
    store = on_small_disk(new_store, files, message_timestamp_type=timestamp_type)
    store.write(batch())
    data = batch(b"retry")
    with pytest.raises(DiskFullError):
        store.append(data)
    files.capacity_bytes = None
    store.write(data)
    assert store.values()[-1] == b"retry"


@pytest.mark.parametrize("durability", ["fsync", "interval"])
def test_nothing_of_a_refused_append_is_seen_even_after_a_kill(
    new_store: NewStore, files: MemoryFiles, durability: str
) -> None:
    store = on_small_disk(new_store, files, durability=durability)
    with pytest.raises(DiskFullError):
        store.append(b"".join(numbered(3, first=100)))
    assert store.killed().values() == [b"00000", b"00001"]


def test_a_full_disk_that_stops_a_roll_refuses_the_append(new_store: NewStore, files: MemoryFiles) -> None:
    store = new_store(files, segment_bytes=3 * BATCH_BYTES, index_interval_bytes=0)
    store.write(*numbered(3))
    files.capacity_bytes = files.used_bytes()
    with pytest.raises(DiskFullError):
        store.append(batch(b"later"))
    assert store.values() == [b"00000", b"00001", b"00002"]
    files.capacity_bytes = None
    store.write(batch(b"later"))
    assert store.values()[-1] == b"later"
    assert len(store.log.closed) == 1


def broken_store(new_store: NewStore, call: str) -> tuple[Store, FaultyFiles]:
    files = FaultyFiles(MemoryFiles(), only={call}, sticky=True)
    store = new_store(files)
    store.write(*numbered(2))
    files.fail_at = files.calls + 1
    return store, files


def test_a_failed_write_takes_the_directory_offline(new_store: NewStore) -> None:
    store, files = broken_store(new_store, "pwrite")
    with pytest.raises(StorageOfflineError) as raised:
        store.append(batch())
    assert (raised.value.operation, raised.value.errno) == ("append", errno.EIO)
    files.fail_at = None
    with pytest.raises(StorageOfflineError) as again:
        store.append(batch())
    assert again.value is raised.value
    assert store.values() == [b"00000", b"00001"]


def test_after_a_failed_sync_every_later_append_is_refused_with_it_and_reads_continue(new_store: NewStore) -> None:
    store, files = broken_store(new_store, "fsync")
    append = store.append(batch())
    store.directory.commit()
    assert isinstance(append.error, StorageOfflineError)
    files.fail_at = None
    for _ in range(2):
        with pytest.raises(StorageOfflineError) as raised:
            store.append(batch())
        assert raised.value is append.error
    assert store.values() == [b"00000", b"00001"]
    assert store.log.high_watermark == 2


def test_a_refused_append_is_not_kept_alive_by_its_error(new_store: NewStore) -> None:
    """Every later append raises the same error, so it must not accumulate their frames and with them their bytes."""
    store, _ = broken_store(new_store, "pwrite")
    lengths: list[int] = []
    for _ in range(4):
        with pytest.raises(StorageOfflineError) as raised:
            store.append(batch())
        lengths.append(len(list(traceback.walk_tb(raised.value.__traceback__))))
    assert lengths[1] == lengths[-1]


def write_with_a_fault(new_store: NewStore, n: int | None, error: int, only: Collection[str] = CALLS) -> int:
    """Write 20 batches while the n-th call fails, and check the guarantees. Returns the number of calls."""
    files = FaultyFiles(MemoryFiles(), error=error, only=only, partial_writes=True)
    store = new_store(files, segment_bytes=2 * BATCH_BYTES, wal_file_bytes=4096, index_interval_bytes=0)
    health = store.directory.environment.health
    begin = files.calls
    files.fail_at = n and begin + n
    acknowledged = 0
    refusal: StorageError | None = None
    try:
        for data in numbered(20):
            acknowledged = store.write(data).next_offset
    except StorageError as raised:
        refusal = raised
    files.fail_at = None
    # Either the append succeeds, or the storage is offline.
    assert health.failure is (refusal if isinstance(refusal, StorageOfflineError) else None)
    assert store.log.high_watermark == acknowledged
    assert store.values() == [b"%05d" % number for number in range(acknowledged)]
    if health.failure is None:
        store.write(batch(b"goes on"))
    else:
        assert error != errno.EMFILE, "a lack of descriptors passes"
    return files.calls - begin


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_an_append_that_fails_at_any_call_raises_a_typed_error_and_loses_no_acknowledged_record(
    new_store: NewStore, error: int
) -> None:
    for n in range(1, write_with_a_fault(new_store, None, error) + 1):
        write_with_a_fault(new_store, n, error)


def test_a_lack_of_descriptors_refuses_an_append_and_passes(new_store: NewStore) -> None:
    only = {"open", "create", "fsync_dir", "map_readonly"}
    for n in range(1, write_with_a_fault(new_store, None, errno.EMFILE, only) + 1):
        write_with_a_fault(new_store, n, errno.EMFILE, only)


def test_a_deleted_log_rejects_appends_without_a_failure(store: Store) -> None:
    log = store.log
    store.write(batch())
    store.directory.delete(PARTITION, NOW_MS)
    with pytest.raises(PartitionNotFoundError):
        log.append(batch(), now_ms=NOW_MS)
    assert store.directory.environment.health.failure is None


def test_a_deleted_log_does_not_write_to_its_successor(store: Store) -> None:
    log = store.log
    store.write(batch(b"old"))
    store.directory.delete(PARTITION, NOW_MS)
    store.create()
    with pytest.raises(PartitionNotFoundError):
        log.append(batch(b"ghost"), now_ms=NOW_MS)
    store.write(batch(b"new"))
    assert store.values() == [b"new"]
    assert store.killed().values() == [b"new"]


def test_a_header_is_read_back_as_it_was_sent(store: Store) -> None:
    sent = batch(b"a", b"b", producer=(5, 2, 40), codec=Codec.ZSTD, timestamps=[7, 9])
    before = read_header(sent)
    store.write(sent)
    (part,) = store.read()
    assert read_header(part.data) == before._replace(base_offset=Offset(0), leader_epoch=LeaderEpoch(0))
