"""Producer state: sequences, epochs, open transactions and the last stable offset."""

import json

import pytest

from logbrook.model.identifiers import Offset, ProducerId
from logbrook.records.batch import SEQUENCE_MAX, BatchHeader, read_header
from logbrook.storage.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from logbrook.storage.producer_state import BATCHES_KEPT, ProducerStateTable
from logbrook.storage.truncation import truncate
from tests.unit.storage.kit import NOW_MS, PARTITION, NewStore, batch, marker

ID = 77
COUNT_MAX = 10_000


def header(
    sequence: int,
    count: int = 1,
    epoch: int = 0,
    producer_id: int = ID,
    *,
    transactional: bool = False,
    timestamp: int = NOW_MS,
) -> BatchHeader:
    return read_header(
        batch(
            *[b"v"] * count,
            timestamps=[timestamp] * count,
            producer=(producer_id, epoch, sequence),
            transactional=transactional,
        )
    )


class Log:
    """Producer state, and the offset of the next batch."""

    def __init__(self) -> None:
        self.producers = ProducerStateTable(PARTITION, COUNT_MAX)
        self.offset = 0

    def take(self, *headers: BatchHeader) -> None:
        """Append a valid batch."""
        assert self.producers.check(headers) is None
        for header in headers:
            self.producers.replay(header, Offset(self.offset), b"")
            self.offset += header.last_offset_delta + 1

    def mark(self, epoch: int = 0, producer_id: int = ID, *, commits: bool = True) -> None:
        """End the producer's transaction."""
        data = marker(producer_id, epoch, commits=commits)
        assert self.producers.check([read_header(data)]) is None
        self.producers.replay(read_header(data), Offset(self.offset), data)
        self.offset += 1

    @property
    def first_undecided(self) -> int | None:
        offset = self.producers.first_unstable_offset(Offset(self.offset))
        return offset if offset < self.offset else None


@pytest.fixture
def log() -> Log:
    return Log()


def test_batches_without_a_producer_are_not_looked_at(log: Log) -> None:
    assert log.producers.check([read_header(batch()), read_header(batch())]) is None


@pytest.mark.parametrize("sequence", [0, 1, 12345, SEQUENCE_MAX])
def test_a_producer_that_is_not_known_may_start_anywhere(log: Log, sequence: int) -> None:
    log.take(header(sequence))


def test_a_batch_that_follows_the_last_one_is_in_order(log: Log) -> None:
    log.take(header(0, count=3))
    log.take(header(3, count=2))
    log.take(header(5))


@pytest.mark.parametrize("sequence", [4, 2, 100])
def test_a_batch_that_does_not_follow_is_out_of_order(log: Log, sequence: int) -> None:
    log.take(header(0, count=3))
    with pytest.raises(OutOfOrderSequenceError) as raised:
        log.producers.check([header(sequence)])
    error = raised.value
    assert (error.partition, error.producer_id, error.sequence, error.expected) == (PARTITION, ID, sequence, 3)


def test_sequences_wrap_to_zero_after_the_last(log: Log) -> None:
    log.take(header(SEQUENCE_MAX))
    log.take(header(0))


def test_a_batch_may_wrap_in_the_middle(log: Log) -> None:
    log.take(header(SEQUENCE_MAX - 1, count=3))
    log.take(header(1))
    duplicate = log.producers.check([header(SEQUENCE_MAX - 1, count=3)])
    assert duplicate is not None
    assert (duplicate.base_offset, duplicate.last_sequence) == (0, 0)


def test_a_duplicate_is_answered_with_the_offset_it_got_the_first_time(log: Log) -> None:
    log.take(header(0, count=3))
    log.take(header(3, count=2))
    duplicate = log.producers.check([header(0, count=3)])
    assert duplicate is not None
    assert (duplicate.base_offset, duplicate.next_offset) == (0, 3)
    duplicate = log.producers.check([header(3, count=2)])
    assert duplicate is not None
    assert (duplicate.base_offset, duplicate.next_offset) == (3, 5)


def test_only_the_last_five_batches_are_known_as_duplicates(log: Log) -> None:
    for sequence in range(BATCHES_KEPT + 1):
        log.take(header(sequence))
    for sequence in range(1, BATCHES_KEPT + 1):
        assert log.producers.check([header(sequence)]) is not None
    with pytest.raises(OutOfOrderSequenceError):
        log.producers.check([header(0)])


@pytest.mark.parametrize("changed", [header(0, count=2), header(1, count=2), header(0, count=4)])
def test_a_batch_that_only_overlaps_is_no_duplicate(log: Log, changed: BatchHeader) -> None:
    log.take(header(0, count=3))
    with pytest.raises(OutOfOrderSequenceError):
        log.producers.check([changed])


def test_an_older_epoch_is_fenced(log: Log) -> None:
    log.take(header(0, epoch=3))
    with pytest.raises(InvalidProducerEpochError) as raised:
        log.producers.check([header(1, epoch=2)])
    error = raised.value
    assert (error.partition, error.producer_id, error.epoch, error.current_epoch) == (PARTITION, ID, 2, 3)


def test_a_duplicate_of_an_older_epoch_is_fenced_too(log: Log) -> None:
    log.take(header(0, epoch=2))
    log.take(header(0, epoch=3))
    with pytest.raises(InvalidProducerEpochError):
        log.producers.check([header(0, epoch=2)])


def test_a_newer_epoch_starts_again_at_zero(log: Log) -> None:
    log.take(header(0, count=3))
    with pytest.raises(OutOfOrderSequenceError):
        log.producers.check([header(3, epoch=1)])
    log.take(header(0, epoch=1))
    log.take(header(1, epoch=1))


def test_the_batches_of_an_older_epoch_are_removed(log: Log) -> None:
    log.take(header(0), header(1))
    log.take(header(0, epoch=1))
    producer = log.producers.get(ProducerId(ID))
    assert producer is not None
    assert [entry.base_offset for entry in producer.batches] == [2]


def test_producers_do_not_know_of_each_other(log: Log) -> None:
    log.take(header(0, producer_id=1), header(40, producer_id=2))
    log.take(header(1, producer_id=1))
    log.take(header(41, producer_id=2))
    assert len(log.producers) == 2


def test_several_batches_at_once_must_follow_each_other(log: Log) -> None:
    log.take(header(0, count=2), header(2, count=2), header(4))
    with pytest.raises(OutOfOrderSequenceError) as raised:
        log.producers.check([header(5), header(7)])
    assert raised.value.expected == 6
    with pytest.raises(InvalidProducerEpochError):
        log.producers.check([header(0, epoch=2), header(1, epoch=1)])


def test_a_refusal_changes_nothing(log: Log) -> None:
    log.take(header(0))
    before = json.dumps(log.producers.to_json())
    with pytest.raises(OutOfOrderSequenceError):
        log.producers.check([header(1), header(5)])
    assert json.dumps(log.producers.to_json()) == before


def test_a_transaction_begins_with_its_first_batch_and_ends_with_its_marker(log: Log) -> None:
    assert log.first_undecided is None
    log.take(header(0, count=2))
    log.take(header(2, transactional=True))
    log.take(header(3, transactional=True))
    assert log.first_undecided == 2
    log.mark()
    assert log.first_undecided is None


@pytest.mark.parametrize("commits", [False, True])
def test_a_batch_of_an_ended_transaction_has_no_duplicates(log: Log, commits: bool) -> None:
    """librdkafka gives sequence numbers of aborted records to others: as duplicates these would be lost."""
    reused = header(1, transactional=True)
    log.take(header(0, transactional=True))
    log.take(reused)
    duplicate = log.producers.check([reused])
    assert duplicate is not None
    assert duplicate.base_offset == 1
    log.mark(commits=commits)
    for sequence in (2, 3):
        with pytest.raises(OutOfOrderSequenceError):
            log.producers.check([reused])
        log.take(header(sequence, transactional=True))
    duplicate = log.producers.check([header(2, transactional=True)])
    assert duplicate is not None
    assert duplicate.base_offset == 3


def test_the_oldest_open_transaction_decides(log: Log) -> None:
    log.take(header(0, producer_id=1, transactional=True))
    log.take(header(0, producer_id=2, transactional=True))
    log.mark(producer_id=1)
    assert log.first_undecided == 1


def test_a_marker_with_a_newer_epoch_ends_the_transaction_and_fences_the_old_one(log: Log) -> None:
    log.take(header(0, transactional=True))
    log.mark(epoch=1)
    assert log.first_undecided is None
    with pytest.raises(InvalidProducerEpochError):
        log.producers.check([header(1, transactional=True)])
    log.take(header(0, epoch=1, transactional=True))


def test_a_marker_does_not_count_as_a_sequence(log: Log) -> None:
    log.take(header(0, transactional=True))
    log.mark()
    log.take(header(1, transactional=True))


def test_a_marker_of_an_older_epoch_is_fenced_and_one_of_the_same_is_not(log: Log) -> None:
    log.take(header(0, epoch=2, transactional=True))
    with pytest.raises(InvalidProducerEpochError):
        log.mark(epoch=1)
    log.mark(epoch=2)
    log.mark(epoch=2)


def test_only_an_abort_is_remembered(log: Log) -> None:
    log.take(header(0, transactional=True))
    log.mark()
    log.take(header(1, transactional=True))
    log.mark(commits=False)
    log.mark(commits=False)
    assert log.producers.aborted.overlapping(Offset(0), Offset(log.offset)) == [(ID, 2, 3, 4)]


def test_an_aborted_transaction_has_the_last_stable_offset_after_its_marker(log: Log) -> None:
    log.take(header(0, producer_id=1, transactional=True), header(0, producer_id=2, transactional=True))
    log.mark(producer_id=2, commits=False)
    log.mark(producer_id=1, commits=False)
    assert log.producers.aborted.overlapping(Offset(0), Offset(log.offset)) == [(2, 1, 2, 0), (1, 0, 3, 4)]


def test_a_transaction_is_decided_once_its_marker_is_committed(log: Log) -> None:
    log.take(header(0, transactional=True), header(1, transactional=True))
    assert log.producers.last_stable_offset(Offset(2)) == 0
    log.mark()
    assert log.producers.last_stable_offset(Offset(2)) == 0
    assert log.producers.last_stable_offset(Offset(3)) == 3
    # Reading does not change the state: repeated calls return the same.
    assert log.producers.last_stable_offset(Offset(2)) == 0
    log.producers.advance_high_watermark(Offset(3))
    assert log.producers.last_stable_offset(Offset(3)) == 3


def test_the_last_stable_offset_is_at_most_the_high_watermark(log: Log) -> None:
    log.take(header(0), header(1))
    assert log.producers.last_stable_offset(Offset(1)) == 1
    log.take(header(2, transactional=True))
    assert log.producers.last_stable_offset(Offset(1)) == 1


def test_the_open_transactions_have_their_epoch_and_their_beginning(log: Log) -> None:
    log.take(header(0, producer_id=1, transactional=True, timestamp=50))
    log.take(header(0, producer_id=2, transactional=True, epoch=4, timestamp=60))
    log.take(header(1, producer_id=1, transactional=True, timestamp=70))
    assert log.producers.open_transactions() == [(1, 0, 0), (2, 4, 1)]
    producer = log.producers.get(ProducerId(1))
    assert producer is not None
    assert (producer.transaction_started_ms, producer.coordinator_epoch) == (50, -1)
    log.mark(producer_id=1, epoch=1)
    producer = log.producers.get(ProducerId(1))
    assert producer is not None
    assert (producer.transaction_started_ms, producer.coordinator_epoch) == (-1, 3)
    assert log.producers.open_transactions() == [(2, 4, 1)]


def test_a_transaction_stays_open_when_its_producer_uses_a_newer_epoch(log: Log) -> None:
    log.take(header(0, transactional=True, timestamp=50))
    log.take(header(0, epoch=1, transactional=True, timestamp=90))
    producer = log.producers.get(ProducerId(ID))
    assert producer is not None
    assert (producer.epoch, producer.transaction_start_offset, producer.transaction_started_ms) == (1, 0, 50)


def test_batches_without_a_sequence_are_checked_by_their_epoch_alone(log: Log) -> None:
    log.take(header(-1, transactional=True), header(-1, transactional=True), header(-1, epoch=2, transactional=True))
    with pytest.raises(InvalidProducerEpochError):
        log.take(header(-1, epoch=1, transactional=True))
    producer = log.producers.get(ProducerId(ID))
    assert producer is not None
    assert (producer.epoch, producer.batches) == (2, [])


def test_rows_of_an_older_snapshot_are_read() -> None:
    producers = ProducerStateTable(PARTITION, COUNT_MAX)
    producers.load_json([[ID, 3, 17, 99, [[0, 1, 17, 19, 99]]]])
    assert producers.open_transactions() == [(ID, 3, 17)]
    producer = producers.get(ProducerId(ID))
    assert producer is not None
    assert (producer.transaction_started_ms, producer.coordinator_epoch) == (-1, -1)


def test_silent_producers_expire(log: Log) -> None:
    log.take(header(0, producer_id=1, timestamp=100), header(0, producer_id=2, timestamp=200))
    assert log.producers.expire(before_ms=100) == []
    assert log.producers.expire(before_ms=150) == [1]
    assert log.producers.get(ProducerId(1)) is None
    assert log.producers.get(ProducerId(2)) is not None


def test_a_producer_with_an_open_transaction_does_not_expire(log: Log) -> None:
    log.take(header(0, transactional=True, timestamp=100))
    assert log.producers.expire(before_ms=10**15) == []
    log.mark()
    assert log.producers.expire(before_ms=10**15) == [ID]


def test_the_ids_of_all_producers_are_known(log: Log) -> None:
    log.take(header(0, producer_id=1), header(0, producer_id=2))
    log.mark(producer_id=3)
    assert log.producers.ids() == {1, 2, 3}


def test_json_brings_everything_back(log: Log) -> None:
    log.take(header(0, count=2), header(SEQUENCE_MAX, producer_id=2, transactional=True), header(5, producer_id=3))
    log.mark(producer_id=4)
    again = ProducerStateTable(PARTITION, COUNT_MAX)
    again.load_json(json.loads(json.dumps(log.producers.to_json())))
    assert again.to_json() == log.producers.to_json()
    assert again.first_unstable_offset(Offset(log.offset)) == log.first_undecided == 2
    assert again.check([header(0, count=2)]) == log.producers.check([header(0, count=2)])


def test_replaying_a_log_gives_the_state_that_writing_it_gave(log: Log) -> None:
    written: list[tuple[BatchHeader, int]] = []
    for batch_header in (
        header(0, count=2),
        header(0, producer_id=2),
        header(2),
        header(0, epoch=1),
        header(1, epoch=1),
    ):
        written.append((batch_header, log.offset))
        log.take(batch_header)
    again = ProducerStateTable(PARTITION, COUNT_MAX)
    for batch_header, offset in written:
        again.replay(batch_header, Offset(offset), b"")
    assert again.to_json() == log.producers.to_json()


# Found by the simulation (seed 100010 of its time): a retried batch was appended twice.


@pytest.mark.parametrize("timestamp", [-1, 0, NOW_MS - 1_000_000_000])
def test_a_producer_of_old_records_does_not_expire_between_two_attempts(new_store: NewStore, timestamp: int) -> None:
    store = new_store()
    old = batch(b"old", timestamps=[timestamp], producer=(7, 0, 0))
    store.write(bytearray(old))
    store.directory.expire_producers(NOW_MS + 1_000)
    assert store.write(bytearray(old)).duplicate
    for after in (store.killed(), store.reopened()):
        after.directory.expire_producers(NOW_MS + 1_000)
        assert after.write(bytearray(old)).duplicate
        after.directory.expire_producers(NOW_MS + after.directory.environment.config.producer_id_expiration_ms + 1)
        assert len(after.log.producers) == 0


def test_a_truncation_keeps_the_producers_of_old_records(new_store: NewStore) -> None:
    store = new_store()
    old = batch(b"old", timestamps=[0], producer=(7, 0, 0))
    store.write(bytearray(old), batch(b"more"))
    truncate(store.log, Offset(1))
    store.directory.expire_producers(NOW_MS + 1_000)
    assert store.write(bytearray(old)).duplicate
