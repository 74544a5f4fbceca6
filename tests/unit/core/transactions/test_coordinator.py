"""Transaction coordinator shard: partitions, markers, loading, time, and descriptions for operators."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from logbrook.config import TransactionConfig
from logbrook.core.coordinator import CorruptCoordinatorRecordError, ProducerIdentity
from logbrook.core.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidPatternError,
    InvalidProducerIdMappingError,
    InvalidTransactionalIdError,
    InvalidTransactionStateError,
    TransactionalIdNotFoundError,
    TransactionalProducerFencedError,
    TransactionError,
)
from logbrook.core.transactions.messages import (
    InitRequest,
    TransactionMarkers,
    TransactionTimeouts,
)
from logbrook.core.transactions.records import encode_key, encode_value
from logbrook.core.transactions.shard import TransactionCoordinatorShard
from logbrook.core.transactions.transaction import TransactionState
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from tests.unit.core.transactions.kit import (
    EPOCH,
    ID,
    NOW_MS,
    PRODUCER_ID,
    T0,
    T1,
    TIMEOUT_MS,
    U0,
    Shell,
    a_coordinator,
    a_transaction,
    decoded,
)

DAY_MS = 24 * 60 * 60_000
AT_REST = [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
PREPARED = [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT]


# Partitions


@pytest.mark.parametrize("state", AT_REST)
def test_a_transaction_begins_with_its_first_partitions(state: TransactionState) -> None:
    before = a_transaction(state, last_producer_epoch=EPOCH - 1, client_version=2)
    records = a_coordinator(before).add_partitions(ID, PRODUCER_ID, EPOCH, [T0, T1], NOW_MS)
    assert decoded(records) == replace(
        before,
        state=TransactionState.ONGOING,
        partitions=frozenset({T0, T1}),
        start_ms=NOW_MS,
        last_update_ms=NOW_MS,
        last_producer_epoch=ProducerEpoch(-1),
        previous_producer_id=PRODUCER_ID,
    )


def test_adding_partitions_keeps_the_start_time_of_the_transaction() -> None:
    before = a_transaction(TransactionState.ONGOING)
    after = decoded(a_coordinator(before).add_partitions(ID, PRODUCER_ID, EPOCH, [T0, T1], NOW_MS))
    assert after.partitions == {T0, U0, T1}
    assert (after.start_ms, after.last_update_ms) == (before.start_ms, NOW_MS)


def test_partitions_that_are_in_it_already_need_no_record() -> None:
    coordinator = a_coordinator(a_transaction(TransactionState.ONGOING))
    assert coordinator.add_partitions(ID, PRODUCER_ID, EPOCH, [U0], NOW_MS) == []
    assert coordinator.add_partitions(ID, PRODUCER_ID, EPOCH, [], NOW_MS) == []


def test_no_partitions_begin_no_transaction() -> None:
    coordinator = a_coordinator(a_transaction(TransactionState.EMPTY))
    assert coordinator.add_partitions(ID, PRODUCER_ID, EPOCH, [], NOW_MS) == []


def test_a_partition_of_an_ongoing_transaction_may_be_written_to() -> None:
    coordinator = a_coordinator(a_transaction(TransactionState.ONGOING))
    coordinator.check_partition(ID, PRODUCER_ID, EPOCH, T0)
    with pytest.raises(InvalidTransactionStateError) as caught:
        coordinator.check_partition(ID, PRODUCER_ID, EPOCH, T1)
    assert caught.value.state == "Ongoing"
    assert "t-1" in str(caught.value)


@pytest.mark.parametrize("state", AT_REST)
def test_without_a_transaction_nothing_may_be_written(state: TransactionState) -> None:
    with pytest.raises(InvalidTransactionStateError):
        a_coordinator(a_transaction(state)).check_partition(ID, PRODUCER_ID, EPOCH, T0)


def add(coordinator: TransactionCoordinatorShard, transactional_id: str, producer_id: int, epoch: int) -> None:
    coordinator.add_partitions(transactional_id, ProducerId(producer_id), ProducerEpoch(epoch), [T0], NOW_MS)


def check(coordinator: TransactionCoordinatorShard, transactional_id: str, producer_id: int, epoch: int) -> None:
    coordinator.check_partition(transactional_id, ProducerId(producer_id), ProducerEpoch(epoch), T0)


@pytest.mark.parametrize("ask", [add, check])
@pytest.mark.parametrize("state", list(TransactionState))
@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "epoch", "expected"),
    [
        ("", PRODUCER_ID, EPOCH, InvalidTransactionalIdError),
        ("other", PRODUCER_ID, EPOCH, InvalidProducerIdMappingError),
        (ID, PRODUCER_ID + 1, EPOCH, InvalidProducerIdMappingError),
        (ID, PRODUCER_ID, EPOCH - 1, TransactionalProducerFencedError),
        (ID, PRODUCER_ID, EPOCH + 1, TransactionalProducerFencedError),
    ],
)
def test_only_its_producer_may_write(
    ask: Callable[[TransactionCoordinatorShard, str, int, int], None],
    state: TransactionState,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    expected: type[TransactionError],
) -> None:
    with pytest.raises(expected):
        ask(a_coordinator(a_transaction(state)), transactional_id, producer_id, epoch)


@pytest.mark.parametrize("ask", [add, check])
@pytest.mark.parametrize("state", PREPARED)
def test_a_prepared_transaction_accepts_no_more_partitions(
    ask: Callable[[TransactionCoordinatorShard, str, int, int], None], state: TransactionState
) -> None:
    with pytest.raises(ConcurrentTransactionsError):
        ask(a_coordinator(a_transaction(state)), ID, PRODUCER_ID, EPOCH)


# Markers


@pytest.mark.parametrize("state", PREPARED)
def test_a_transaction_that_is_decided_has_markers_in_order(state: TransactionState) -> None:
    before = a_transaction(state, partitions=frozenset({U0, T1, T0}))
    coordinator = a_coordinator(before)
    is_commit = state is TransactionState.PREPARE_COMMIT
    assert coordinator.markers(ID) == TransactionMarkers(
        ID, ProducerIdentity(PRODUCER_ID, EPOCH), is_commit, (T0, T1, U0), EPOCH
    )
    assert coordinator.prepared_ids() == [ID]
    after = decoded(coordinator.complete(ID, NOW_MS))
    completed = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    assert after == replace(
        before,
        state=completed,
        partitions=frozenset(),
        last_update_ms=NOW_MS,
        previous_producer_id=PRODUCER_ID,
    )


@pytest.mark.parametrize(("bumps_epoch", "decided_epoch"), [(True, 0), (False, 0)])
def test_markers_have_the_epoch_of_the_transaction_they_end(bumps_epoch: bool, decided_epoch: int) -> None:
    shell = Shell()
    producer = shell.init()
    shell.add(producer, T0)
    shell.end(producer, bumps_epoch=bumps_epoch, finish=False)
    markers = shell.coordinator.markers(ID)
    assert markers is not None
    assert (markers.transaction_epoch, markers.producer.producer_epoch) == (decided_epoch, int(bumps_epoch))


def test_fenced_writes_have_no_later_epoch_than_the_fencing_one() -> None:
    shell = Shell()
    bumped = shell.end(shell.init(), is_commit=False)
    shell.add(bumped, T0)
    shell.append(shell.coordinator.abort_timed_out(ID, TIMEOUT_MS))
    markers = shell.coordinator.markers(ID)
    assert markers is not None
    assert (markers.transaction_epoch, markers.producer.producer_epoch) == (2, 2)


@pytest.mark.parametrize("state", [*AT_REST, TransactionState.ONGOING])
def test_an_undecided_transaction_has_no_markers(state: TransactionState) -> None:
    coordinator = a_coordinator(a_transaction(state))
    assert coordinator.markers(ID) is None
    assert coordinator.markers("other") is None
    assert coordinator.prepared_ids() == []


@pytest.mark.parametrize("state", list(TransactionState))
def test_a_partition_is_open_until_the_transaction_is_completed(state: TransactionState) -> None:
    coordinator = a_coordinator(a_transaction(state))
    is_open = state in (*PREPARED, TransactionState.ONGOING)
    assert coordinator.is_open(PRODUCER_ID, T0) is is_open
    assert not coordinator.is_open(PRODUCER_ID, T1)
    assert not coordinator.is_open(ProducerId(PRODUCER_ID + 1), T0)
    assert coordinator.open_count == is_open


def test_deciding_changes_nothing_until_it_is_replayed() -> None:
    shell = Shell()
    producer = shell.init()
    shell.add(producer, T0)
    before = shell.coordinator.describe(ID)
    facts = (ID, producer.producer_id, producer.producer_epoch)
    for _ in range(2):
        shell.coordinator.init_producer(InitRequest(ID, 1), None, NOW_MS)
        shell.coordinator.add_partitions(*facts, [T1], NOW_MS)
        shell.coordinator.end(*facts, is_commit=True, bumps_epoch=True, next_producer_id=None, now_ms=NOW_MS)
        assert shell.coordinator.abort_timed_out(ID, TIMEOUT_MS) != []
    assert shell.coordinator.describe(ID) == before
    shell.coordinator.validate()


# Loading


def test_timers_start_when_the_log_has_been_read() -> None:
    coordinator = TransactionCoordinatorShard(TransactionConfig())
    ongoing = a_transaction(TransactionState.ONGOING)
    coordinator.replay(encode_key(ID), encode_value(ongoing))
    assert coordinator.next_deadline_ms() is None
    assert coordinator.tick(10**9) == TransactionTimeouts([], [])
    coordinator.finish_loading(0)
    assert coordinator.next_deadline_ms() == ongoing.start_ms + TIMEOUT_MS


def test_a_corrupt_record_changes_nothing() -> None:
    coordinator = a_coordinator(a_transaction(TransactionState.ONGOING))
    with pytest.raises(CorruptCoordinatorRecordError):
        coordinator.replay(encode_key(ID), b"\x00\x09")
    with pytest.raises(CorruptCoordinatorRecordError):
        coordinator.replay(b"\x00", None)
    coordinator.replay(b"\x00\x01?", b"of a kind that is to come")
    coordinator.validate()
    assert coordinator.describe(ID).state is TransactionState.ONGOING


def test_a_tombstone_of_an_unknown_id_has_no_effect() -> None:
    coordinator = a_coordinator()
    coordinator.replay(encode_key(ID), None)
    coordinator.validate()


# Time


def test_a_transaction_times_out_after_its_time_and_not_before() -> None:
    shell = Shell(now_ms=100)
    producer = shell.init()
    shell.now_ms = 200
    shell.add(producer, T0)
    shell.now_ms = 300
    shell.add(producer, T1)
    due_ms = 200 + TIMEOUT_MS
    assert shell.coordinator.tick(due_ms - 1) == TransactionTimeouts([], [])
    assert shell.coordinator.abort_timed_out(ID, due_ms - 1) == []
    assert shell.coordinator.next_deadline_ms() == due_ms
    assert shell.coordinator.tick(due_ms) == TransactionTimeouts([ID], [])
    after = decoded(shell.coordinator.abort_timed_out(ID, due_ms))
    assert after.state is TransactionState.PREPARE_ABORT
    assert after.producer_epoch == producer.producer_epoch + 1
    assert after.last_producer_epoch == -1
    assert after.partitions == {T0, T1}


def test_no_open_transaction_times_out_during_a_grace_period() -> None:
    shell = Shell(now_ms=100)
    producer = shell.init()
    shell.add(producer, T0)
    late_ms = 100 + 2 * TIMEOUT_MS
    shell.coordinator.begin_grace(late_ms)
    # Nor after a change, which sets its deadline anew.
    shell.add(producer, T1)
    assert shell.coordinator.tick(late_ms - 1) == TransactionTimeouts([], [])
    assert shell.coordinator.abort_timed_out(ID, late_ms - 1) == []
    assert shell.coordinator.next_deadline_ms() == late_ms
    shell.coordinator.validate()
    assert shell.coordinator.tick(late_ms).timed_out == [ID]


def test_a_timeout_without_a_result_is_due_again() -> None:
    shell = Shell(a_coordinator(a_transaction(TransactionState.ONGOING, start_ms=0)))
    assert shell.coordinator.tick(TIMEOUT_MS).timed_out == [ID]
    assert shell.coordinator.tick(TIMEOUT_MS).timed_out == []
    again_ms = shell.coordinator.next_deadline_ms()
    assert again_ms is not None
    assert again_ms > TIMEOUT_MS
    assert shell.coordinator.tick(again_ms).timed_out == [ID]
    shell.append(shell.coordinator.abort_timed_out(ID, again_ms))
    next_ms = shell.coordinator.next_deadline_ms()
    assert next_ms is not None
    assert shell.coordinator.tick(next_ms) == TransactionTimeouts([], [])
    assert shell.coordinator.next_deadline_ms() is None, "markers are being written, there is no time for that"


def test_a_transaction_that_ended_since_it_was_due_does_not_expire() -> None:
    shell = Shell()
    producer = shell.init()
    shell.add(producer, T0)
    shell.now_ms = TIMEOUT_MS
    assert shell.coordinator.tick(TIMEOUT_MS).timed_out == [ID]
    later = shell.end(producer)
    assert shell.coordinator.abort_timed_out(ID, TIMEOUT_MS) == []
    shell.add(later, T0)
    assert shell.coordinator.abort_timed_out(ID, TIMEOUT_MS) == []
    assert shell.coordinator.abort_timed_out("other", TIMEOUT_MS) == []
    assert shell.coordinator.tick(2 * TIMEOUT_MS).timed_out == [ID]


def test_a_transaction_that_timed_out_while_the_broker_was_down_is_due_at_once() -> None:
    coordinator = TransactionCoordinatorShard(TransactionConfig())
    coordinator.replay(encode_key(ID), encode_value(a_transaction(TransactionState.ONGOING)))
    coordinator.finish_loading(DAY_MS)
    assert coordinator.next_deadline_ms() == DAY_MS
    assert coordinator.tick(DAY_MS) == TransactionTimeouts([ID], [])


@pytest.mark.parametrize("state", AT_REST)
def test_an_id_that_is_not_used_is_removed_after_its_time_and_not_before(state: TransactionState) -> None:
    shell = Shell(a_coordinator(a_transaction(state, last_update_ms=10), id_expiration_ms=5_000))
    assert shell.coordinator.next_deadline_ms() == 5_010
    assert shell.coordinator.tick(5_009) == TransactionTimeouts([], [])
    due = shell.coordinator.tick(5_010)
    assert due == TransactionTimeouts([], [ID])
    assert shell.coordinator.describe(ID).state is state
    shell.append(shell.coordinator.remove_expired(ID))
    with pytest.raises(TransactionalIdNotFoundError):
        shell.coordinator.describe(ID)
    assert shell.coordinator.next_deadline_ms() is None
    with pytest.raises(InvalidProducerIdMappingError):
        shell.add(ProducerIdentity(PRODUCER_ID, EPOCH), T0)


@pytest.mark.parametrize("state", [*PREPARED, TransactionState.ONGOING])
def test_an_id_with_an_open_transaction_is_never_removed(state: TransactionState) -> None:
    coordinator = a_coordinator(a_transaction(state))
    for _ in range(3):
        assert coordinator.tick(1_000 * DAY_MS).expired_ids == []


def test_an_id_that_is_used_stays() -> None:
    shell = Shell(a_coordinator(id_expiration_ms=100))
    producer = shell.init()
    shell.now_ms = 99
    shell.init(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
    assert shell.coordinator.tick(198) == TransactionTimeouts([], [])
    assert len(shell.coordinator.tick(199).expired_ids) == 1


def test_a_tick_does_not_take_all_at_once() -> None:
    idle = [a_transaction(TransactionState.EMPTY, transactional_id=f"x{number}") for number in range(2_500)]
    coordinator = a_coordinator(*idle, id_expiration_ms=100)
    counts = [len(coordinator.tick(1_000).expired_ids) for _ in range(4)]
    assert counts == [1_000, 1_000, 500, 0]


def test_the_oldest_open_transaction_is_known() -> None:
    shell = Shell()
    assert shell.coordinator.oldest_open_ms(5) is None
    producers = {name: shell.init(name) for name in "abc"}
    for now_ms, name in enumerate("abc"):
        shell.now_ms = now_ms
        shell.add(producers[name], T0, transactional_id=name)
    assert shell.coordinator.oldest_open_ms(10) == 10
    assert shell.coordinator.open_count == 3
    shell.end(producers["a"], transactional_id="a", finish=False)
    assert shell.coordinator.oldest_open_ms(10) == 10, "its partitions do not know yet"
    shell.finish("a")
    assert shell.coordinator.oldest_open_ms(10) == 9
    shell.end(producers["b"], transactional_id="b")
    shell.end(producers["c"], transactional_id="c")
    assert shell.coordinator.oldest_open_ms(10) is None
    assert shell.coordinator.open_count == 0


def test_an_age_is_never_negative() -> None:
    assert a_coordinator(a_transaction(TransactionState.ONGOING)).oldest_open_ms(now_ms=0) == 0


def test_many_transactions_leave_no_state() -> None:
    shell = Shell()
    hanging = shell.init("hanging")
    shell.add(hanging, T0, transactional_id="hanging")
    producer: object = shell.init()
    for number in range(1_500):
        shell.now_ms = number
        assert isinstance(producer, ProducerIdentity)
        shell.add(producer, T0)
        ended = shell.end(producer)
        producer = ProducerIdentity(ended.producer_id, ended.producer_epoch)
    assert len(shell.coordinator._open_since._heap) < 1_200
    assert len(shell.coordinator._timers._heap) < 1_200
    assert shell.coordinator.oldest_open_ms(5_000) == 5_000


# Descriptions for operators


def everything() -> TransactionCoordinatorShard:
    """Transactions in every state, each with its own id and producer id; ongoing ones began at the time 20."""
    return a_coordinator(
        *(
            a_transaction(state, transactional_id=f"of-{state}", producer_id=number)
            for number, state in enumerate(TransactionState)
        )
    )


def test_all_are_listed_without_filters() -> None:
    listings = everything().list_transactions(now_ms=0)
    assert [(listing.transactional_id, listing.producer_id, listing.state) for listing in listings] == [
        (f"of-{state}", number, state) for number, state in enumerate(TransactionState)
    ]


def listed(**filters: object) -> list[int]:
    return [listing.producer_id for listing in everything().list_transactions(**filters)]  # type: ignore[arg-type]


def test_filters_are_all_to_be_met() -> None:
    assert listed(states=["Ongoing", "CompleteAbort"], now_ms=0) == [1, 5]
    assert listed(states=["ongoing", "Unknown"], now_ms=0) == []
    assert listed(producer_ids=[2, 5, 77], now_ms=0) == [2, 5]
    assert listed(states=["Ongoing", "CompleteAbort"], producer_ids=[1, 2], now_ms=0) == [1]
    assert listed(pattern="of-Prepare.*", now_ms=0) == [2, 3]
    assert listed(pattern="Prepare", now_ms=0) == []
    assert listed(pattern="", now_ms=0) == [0, 1, 2, 3, 4, 5]


def test_only_open_transactions_match_the_duration_filter() -> None:
    assert listed(open_longer_than_ms=100, now_ms=120) == []
    assert listed(open_longer_than_ms=100, now_ms=121) == [1, 2, 3]
    assert listed(open_longer_than_ms=0, now_ms=21) == [1, 2, 3]
    assert listed(open_longer_than_ms=-1, now_ms=21) == [0, 1, 2, 3, 4, 5]


def test_a_pattern_that_does_not_read_is_refused() -> None:
    with pytest.raises(InvalidPatternError):
        everything().list_transactions(pattern="(", now_ms=0)


def test_a_transaction_is_described() -> None:
    coordinator = a_coordinator(a_transaction(TransactionState.ONGOING))
    assert coordinator.describe(ID) == a_transaction(TransactionState.ONGOING)
    with pytest.raises(TransactionalIdNotFoundError):
        coordinator.describe("other")
    with pytest.raises(InvalidTransactionalIdError):
        coordinator.describe("")
