"""The log of a replica: batches at the leader's offsets, and a high watermark that other replicas decide."""

import pytest

from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.records.batch import stamp
from logbrook.records.errors import CorruptBatchError
from logbrook.storage.durable_files import write_sealed
from logbrook.storage.errors import UnexpectedOffsetError
from logbrook.storage.leader_epochs import EpochStart
from logbrook.storage.truncation import truncate
from logbrook.storage.verification import verify
from logbrook.testing import RecordingFiles
from logbrook.testing.crash_states import crash_states
from logbrook.testing.memory_files import MemoryFiles
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
    stamped,
)

BOTH = pytest.mark.parametrize("durability", ["fsync", "interval"])


def fetched(store: Store, data: bytearray) -> None:
    append = store.log.append_fetched(data, now_ms=NOW_MS)
    store.directory.commit()
    append.result()


def with_epoch(data: bytearray, offset: int, epoch: int) -> bytearray:
    stamp(data, 0, Offset(offset), LeaderEpoch(epoch))
    return data


# Batches


@BOTH
def test_fetched_batches_keep_their_offsets_and_epochs(new_store: NewStore, durability: str) -> None:
    store = new_store(durability=durability)
    fetched(store, with_epoch(batch(b"a", b"b"), 0, 3))
    fetched(store, with_epoch(batch(b"c"), 2, 5))
    assert store.values() == [b"a", b"b", b"c"]
    assert store.log.epochs.starts == [EpochStart(LeaderEpoch(3), Offset(0)), EpochStart(LeaderEpoch(5), Offset(2))]
    for after in (store.killed(), store.reopened()):
        assert after.values() == [b"a", b"b", b"c"]
        assert after.log.epochs.starts == store.log.epochs.starts


def test_fetched_bytes_are_stored_unchanged(new_store: NewStore) -> None:
    store = new_store()
    data = with_epoch(batch(b"a"), 0, 7)
    before = bytes(data)
    fetched(store, data)
    assert bytes(data) == before
    assert store.read()[0].data == before


@pytest.mark.parametrize("offset", [0, 1])
def test_a_batch_before_the_log_end_is_refused(new_store: NewStore, offset: int) -> None:
    store = new_store()
    fetched(store, stamped(numbered(2)))
    with pytest.raises(UnexpectedOffsetError, match=f"has offset {offset}, but the log ends at 2"):
        store.log.append_fetched(stamped(numbered(1), offset), now_ms=NOW_MS)
    assert store.log.log_end_offset == 2


def test_batches_out_of_order_are_refused_as_a_whole(new_store: NewStore) -> None:
    store = new_store()
    with pytest.raises(UnexpectedOffsetError):
        store.log.append_fetched(stamped(numbered(1), 5) + stamped(numbered(1), 3), now_ms=NOW_MS)
    assert store.log.log_end_offset == 0


def test_a_damaged_batch_is_refused(new_store: NewStore) -> None:
    store = new_store()
    data = stamped(numbered(2))
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        store.log.append_fetched(data, now_ms=NOW_MS)
    assert store.log.log_end_offset == 0


def test_a_batch_that_the_leader_accepted_may_exceed_the_size_limit(new_store: NewStore) -> None:
    store = new_store(max_message_bytes=BATCH_BYTES)
    fetched(store, stamped([batch(b"x" * 1000)]))
    assert store.log.log_end_offset == 1


def test_producers_and_transactions_are_replayed(new_store: NewStore) -> None:
    store = new_store()
    fetched(store, stamped([batch(b"a", producer=(7, 0, 0), transactional=True)]))
    assert store.log.last_stable_offset == 0
    producer = store.log.producers.get(7)  # type: ignore[arg-type]
    assert producer is not None
    fetched(store, stamped([marker(7, commits=False)], 1))
    assert store.log.last_stable_offset == 2
    assert store.log.aborted_between(Offset(0), Offset(2)) == [(7, 0)]


# Gaps: the leader's log is compacted


@BOTH
def test_gaps_survive_a_restart(new_store: NewStore, durability: str) -> None:
    store = new_store(durability=durability, segment_bytes=3 * BATCH_BYTES)
    fetched(store, stamped(numbered(2)))
    for first in (10, 20, 30):
        fetched(store, stamped(numbered(2), first, gap=2))
    expected = [0, 1, 10, 13, 20, 23, 30, 33]
    assert store.log.log_end_offset == 34
    for after in (store, store.killed(), store.reopened()):
        assert offsets_of(after.read()) == expected
        assert after.log.log_end_offset == 34
        verify(after.log)
        after.log.validate()


def test_a_log_without_gaps_does_not_accept_one_in_recovery(new_store: NewStore) -> None:
    """A gap that nothing announced is a lost write."""
    store = new_store()
    fetched(store, stamped(numbered(1)))
    assert not store.log.state.has_gaps
    fetched(store, stamped(numbered(1), 5))
    assert store.log.state.has_gaps


def test_gaps_survive_a_power_loss_at_any_time(new_store: NewStore) -> None:
    files = RecordingFiles()
    store = new_store(files)
    for number, first in enumerate((0, 5, 9)):
        fetched(store, stamped(numbered(1), first))
        files.mark(("synced", number))
    checked = 0
    for state in crash_states(files.journal):
        synced = [mark[1] for mark in state.marks if isinstance(mark, tuple)]
        if not synced:
            continue
        after = Store(MemoryFiles(state.files), store.settings, [])
        assert offsets_of(after.read())[: synced[-1] + 1] == [0, 5, 9][: synced[-1] + 1]
        after.close()
        checked += 1
    assert checked > 10


# A log that does not begin at 0


@BOTH
def test_a_replica_may_begin_where_the_leader_begins(open_store: NewStore, durability: str) -> None:
    store = open_store(durability=durability)
    log = store.directory.create(PARTITION, store.log_config, topic_id="abc", start_offset=Offset(100))
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    empty = store.killed()
    assert (empty.log.log_start_offset, empty.log.log_end_offset) == (100, 100)
    fetched(store, stamped(numbered(2), 100))
    for after in (store, store.killed(), store.reopened()):
        assert (after.log.log_start_offset, after.log.log_end_offset) == (100, 102)
        assert offsets_of(after.read(100)) == [100, 101]
        assert after.log.state.topic_id == "abc"


# The high watermark


def test_the_high_watermark_of_a_replica_is_not_its_synced_end(new_store: NewStore) -> None:
    store = new_store()
    log = store.log
    assert not log.is_replica
    log.replicate_from(Offset(0))
    fetched(store, stamped(numbered(3)))
    assert log.is_replica
    assert (log.synced_end_offset, log.high_watermark, log.last_stable_offset) == (3, 0, 0)
    assert store.read() == []
    log.advance_high_watermark(Offset(2))
    assert offsets_of(store.read()) == [0, 1]
    # It never falls, and it is never above the log end.
    log.advance_high_watermark(Offset(1))
    assert log.high_watermark == 2
    log.advance_high_watermark(Offset(9))
    assert log.high_watermark == 3


def test_readers_may_read_up_to_the_log_end_for_replication(new_store: NewStore) -> None:
    store = new_store()
    store.log.replicate_from(Offset(0))
    store.append(batch(b"not synced"))
    assert store.log.synced_end_offset == 0
    assert offsets_of(store.read(up_to=store.log.log_end_offset)) == [0]


def test_a_transaction_is_decided_when_its_marker_is_below_the_high_watermark(new_store: NewStore) -> None:
    store = new_store()
    log = store.log
    log.replicate_from(Offset(0))
    fetched(store, stamped([batch(b"a", producer=(7, 0, 0), transactional=True)]))
    fetched(store, stamped([marker(7)], 1))
    log.advance_high_watermark(Offset(1))
    assert log.last_stable_offset == 0
    log.advance_high_watermark(Offset(2))
    assert log.last_stable_offset == 2


def test_a_truncation_below_the_high_watermark_lowers_it(new_store: NewStore) -> None:
    """After an unclean election the new leader lacks committed records."""
    store = new_store()
    store.log.replicate_from(Offset(0))
    fetched(store, stamped(numbered(4)))
    store.log.advance_high_watermark(Offset(3))
    truncate(store.log, Offset(2))
    assert (store.log.log_end_offset, store.log.synced_end_offset, store.log.high_watermark) == (2, 2, 2)


def test_a_truncation_above_the_high_watermark_keeps_it(new_store: NewStore) -> None:
    store = new_store()
    store.log.replicate_from(Offset(0))
    fetched(store, stamped(numbered(4)))
    store.log.advance_high_watermark(Offset(1))
    truncate(store.log, Offset(2))
    assert store.log.high_watermark == 1


def test_saved_high_watermarks_are_at_most_the_log_end(new_store: NewStore) -> None:
    store = new_store()
    assert store.directory.saved_high_watermarks() == {}
    store.log.replicate_from(Offset(0))
    fetched(store, stamped(numbered(4)))
    store.log.advance_high_watermark(Offset(3))
    store.directory.save_high_watermarks()
    after = store.killed()
    assert after.directory.saved_high_watermarks() == {PARTITION: 3}


def test_a_saved_high_watermark_does_not_survive_a_truncation(new_store: NewStore) -> None:
    """After an unclean election other records may get its offsets, and reach fewer replicas before a power loss."""
    store = new_store()
    store.log.replicate_from(Offset(0))
    fetched(store, stamped(numbered(4)))
    store.log.advance_high_watermark(Offset(3))
    store.directory.save_high_watermarks()
    truncate(store.log, Offset(1))
    fetched(store, stamped(numbered(4), 1))
    assert store.killed().directory.saved_high_watermarks() == {}
    store.directory.save_high_watermarks()
    assert store.killed().directory.saved_high_watermarks() == {PARTITION: 1}


@pytest.mark.parametrize("new_topic_id", ["aa", "bb"], ids=["of the same topic", "of another topic"])
def test_a_new_log_does_not_get_the_saved_high_watermark_of_the_deleted_one(
    open_store: NewStore, new_topic_id: str
) -> None:
    store = open_store()

    def create(topic_id: str) -> None:
        store.directory.create(PARTITION, store.log_config, topic_id=topic_id).replicate_from(Offset(0))
        fetched(store, stamped(numbered(4)))

    create("aa")
    store.log.advance_high_watermark(Offset(3))
    store.directory.save_high_watermarks()
    assert store.killed().directory.saved_high_watermarks() == {PARTITION: 3}
    store.directory.delete(PARTITION, NOW_MS)
    create(new_topic_id)
    assert store.killed().directory.saved_high_watermarks() == {}


def test_high_watermarks_of_an_earlier_version_are_ignored(new_store: NewStore) -> None:
    """They do not tell to which log they belong."""
    store = new_store()
    store.log.replicate_from(Offset(0))
    fetched(store, stamped(numbered(4)))

    def write_old_format(disk: MemoryFiles) -> None:
        write_sealed(disk, "high-watermarks", {PARTITION.directory: 3})

    assert store.killed(write_old_format).directory.saved_high_watermarks() == {}


def test_a_damaged_file_of_high_watermarks_is_ignored(new_store: NewStore) -> None:
    store = new_store()
    store.log.replicate_from(Offset(0))
    store.directory.save_high_watermarks()

    def damage(disk: MemoryFiles) -> None:
        file = disk.open("high-watermarks")
        file.pwrite(b"x", 5)
        file.close()

    assert store.killed(damage).directory.saved_high_watermarks() == {}
