"""Ending a transaction: authorization by producer id and epoch, and repeated ends.

The tables have a column per request: an abort and a commit with the epoch before the present one, and with the present
one. An entry is what the records move to, `done` for an answer without records, or the error.
"""

from dataclasses import replace
from typing import TypeAlias

import pytest

from logbrook.core.coordinator import ProducerIdentity
from logbrook.core.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    TransactionalProducerFencedError,
    TransactionError,
)
from logbrook.core.transactions.messages import EndDecision
from logbrook.core.transactions.transaction import Transaction, TransactionState
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from tests.unit.core.transactions.kit import (
    EPOCH,
    ID,
    NOW_MS,
    PRODUCER_ID,
    T0,
    Shell,
    a_coordinator,
    a_transaction,
    decoded,
)

Outcome: TypeAlias = TransactionState | type[TransactionError] | str

DONE = "done"
FENCED = TransactionalProducerFencedError
REFUSED = InvalidTransactionStateError
LATER = ConcurrentTransactionsError
COMMIT = TransactionState.PREPARE_COMMIT
ABORT = TransactionState.PREPARE_ABORT

WITHOUT_BUMPS: dict[TransactionState, tuple[Outcome, Outcome, Outcome, Outcome]] = {
    # abort before, commit before, abort, commit
    TransactionState.EMPTY: (FENCED, FENCED, REFUSED, REFUSED),
    TransactionState.ONGOING: (FENCED, FENCED, ABORT, COMMIT),
    TransactionState.PREPARE_COMMIT: (FENCED, FENCED, REFUSED, LATER),
    TransactionState.PREPARE_ABORT: (FENCED, FENCED, LATER, REFUSED),
    TransactionState.COMPLETE_COMMIT: (FENCED, FENCED, REFUSED, DONE),
    TransactionState.COMPLETE_ABORT: (FENCED, FENCED, DONE, REFUSED),
}
WITH_BUMPS: dict[TransactionState, tuple[Outcome, Outcome, Outcome, Outcome]] = {
    TransactionState.EMPTY: (FENCED, FENCED, ABORT, REFUSED),
    TransactionState.ONGOING: (FENCED, FENCED, ABORT, COMMIT),
    TransactionState.PREPARE_COMMIT: (REFUSED, LATER, FENCED, FENCED),
    TransactionState.PREPARE_ABORT: (LATER, REFUSED, FENCED, FENCED),
    TransactionState.COMPLETE_COMMIT: (REFUSED, DONE, ABORT, REFUSED),
    TransactionState.COMPLETE_ABORT: (DONE, REFUSED, ABORT, REFUSED),
}
CASES = [
    pytest.param(bumps, state, epoch, is_commit, outcomes[column], id=f"{bumps}-{state}-{epoch}-{is_commit}")
    for bumps, table in ((False, WITHOUT_BUMPS), (True, WITH_BUMPS))
    for state, outcomes in table.items()
    for column, (epoch, is_commit) in enumerate([(EPOCH - 1, False), (EPOCH - 1, True), (EPOCH, False), (EPOCH, True)])
]


@pytest.mark.parametrize(("bumps_epoch", "state", "epoch", "is_commit", "expected"), CASES)
def test_the_table_of_ends(
    bumps_epoch: bool, state: TransactionState, epoch: int, is_commit: bool, expected: Outcome
) -> None:
    before = a_transaction(state, last_producer_epoch=EPOCH - 1)
    coordinator = a_coordinator(before)

    def end() -> EndDecision:
        return coordinator.end(
            ID,
            PRODUCER_ID,
            ProducerEpoch(epoch),
            is_commit=is_commit,
            bumps_epoch=bumps_epoch,
            next_producer_id=None,
            now_ms=NOW_MS,
        )

    if isinstance(expected, type) and issubclass(expected, TransactionError):
        with pytest.raises(expected):
            end()
        return
    decision = end()
    if not decision.records:
        assert expected == DONE
        assert decision.result == ProducerIdentity(PRODUCER_ID, EPOCH)
        return
    after = decoded(decision.records)
    assert after.state == expected
    assert decision.result == ProducerIdentity(PRODUCER_ID, ProducerEpoch(EPOCH + bumps_epoch))
    assert after == replace(
        before,
        state=after.state,
        producer_epoch=ProducerEpoch(EPOCH + bumps_epoch),
        last_producer_epoch=ProducerEpoch(EPOCH if bumps_epoch else EPOCH - 1),
        previous_producer_id=PRODUCER_ID,
        last_update_ms=NOW_MS,
        start_ms=before.start_ms if state is TransactionState.ONGOING else NOW_MS,
        client_version=2 if bumps_epoch else 0,
    )


@pytest.mark.parametrize("bumps_epoch", [False, True])
@pytest.mark.parametrize("state", list(TransactionState))
@pytest.mark.parametrize(
    ("producer_id", "epoch", "expected"),
    [
        (PRODUCER_ID + 1, EPOCH, InvalidProducerIdMappingError),
        (PRODUCER_ID, EPOCH + 1, FENCED),
        (PRODUCER_ID, EPOCH - 2, FENCED),
        (PRODUCER_ID, -1, FENCED),
    ],
)
def test_only_the_producer_decides(
    bumps_epoch: bool, state: TransactionState, producer_id: int, epoch: int, expected: type[TransactionError]
) -> None:
    """This also holds without a previous epoch, and if the request has none."""
    coordinator = a_coordinator(a_transaction(state))
    with pytest.raises(expected):
        coordinator.end(
            ID,
            ProducerId(producer_id),
            ProducerEpoch(epoch),
            is_commit=False,
            bumps_epoch=bumps_epoch,
            next_producer_id=None,
            now_ms=0,
        )


def test_an_id_that_is_not_known_has_no_producer() -> None:
    with pytest.raises(InvalidProducerIdMappingError):
        Shell().end(ProducerIdentity(ProducerId(1), ProducerEpoch(0)), transactional_id="other")


@pytest.mark.parametrize("state", [TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT])
@pytest.mark.parametrize("bumps_epoch", [False, True])
def test_an_end_of_a_transaction_that_timed_out_is_not_taken_for_a_retry(
    state: TransactionState, bumps_epoch: bool
) -> None:
    shell = Shell(a_coordinator(a_transaction(TransactionState.ONGOING)))
    shell.append(shell.coordinator.abort_timed_out(ID, 10**6))
    if state is TransactionState.COMPLETE_ABORT:
        shell.finish()
    assert shell.coordinator.describe(ID).state is state
    for is_commit in (False, True):
        with pytest.raises(FENCED):
            shell.end(
                ProducerIdentity(PRODUCER_ID, EPOCH),
                is_commit=is_commit,
                bumps_epoch=bumps_epoch,
            )


def test_a_delayed_end_decides_no_later_transaction_when_epochs_are_bumped() -> None:
    """KAFKA-17754: EndTxn of the first transaction is sent twice, and the second copy is delayed."""
    shell = Shell()
    first = shell.init()
    shell.add(first, T0)
    second = shell.end(first)
    assert shell.end(first) == second, "a retry is answered as the first was"
    shell.add(second, T0)
    before = shell.coordinator.describe(ID)
    for is_commit in (True, False):
        with pytest.raises(FENCED):
            shell.end(first, is_commit=is_commit)
    assert shell.coordinator.describe(ID) == before
    third = shell.end(second, is_commit=False)
    for late in (first, second):
        with pytest.raises(TransactionError):
            shell.end(late, is_commit=True)
    assert shell.end(second, is_commit=False) == third
    assert shell.written == [(101, 1, True, T0), (101, 2, False, T0)]


def test_without_bumps_a_delayed_end_does_decide_a_later_transaction() -> None:
    """The defect that the second version of the protocol fixes; it shows that the test above can fail."""
    shell = Shell()
    producer = shell.init()
    shell.add(producer, T0)
    shell.end(producer, bumps_epoch=False)
    shell.add(producer, T0)
    shell.end(producer, bumps_epoch=False)
    assert shell.coordinator.describe(ID).state is TransactionState.COMPLETE_COMMIT
    assert len(shell.written) == 2


def test_a_retry_is_known_after_a_restart() -> None:
    shell = Shell()
    first = shell.init()
    shell.add(first, T0)
    second = shell.end(first)
    restarted = Shell(a_coordinator())
    restarted.append(shell.log[-1:])
    assert restarted.end(first) == second


def test_an_abort_of_nothing_has_no_markers_and_bumps_the_epoch() -> None:
    shell = Shell()
    first = shell.init()
    second = shell.end(first, is_commit=False)
    assert second == ProducerIdentity(first.producer_id, ProducerEpoch(first.producer_epoch + 1))
    third = shell.end(second, is_commit=False)
    assert third.producer_epoch == second.producer_epoch + 1
    assert shell.written == []


# Epochs are exhausted

LAST_EPOCH = ProducerEpoch(32_766)


def test_the_epoch_before_the_last_is_bumped_to_the_last() -> None:
    shell = Shell(a_coordinator(a_transaction(TransactionState.ONGOING, producer_epoch=LAST_EPOCH - 1)))
    assert shell.end(ProducerIdentity(PRODUCER_ID, ProducerEpoch(LAST_EPOCH - 1))) == ProducerIdentity(
        PRODUCER_ID, LAST_EPOCH
    )


def test_with_the_last_epoch_a_fresh_producer_id_takes_over_at_completion() -> None:
    shell = Shell(a_coordinator(a_transaction(TransactionState.ONGOING, producer_epoch=LAST_EPOCH)))
    last = ProducerIdentity(PRODUCER_ID, LAST_EPOCH)
    assert shell.end(last, finish=False) == ProducerIdentity(ProducerId(101), ProducerEpoch(0))
    prepared = shell.coordinator.describe(ID)
    assert (prepared.producer_id, prepared.producer_epoch) == (PRODUCER_ID, LAST_EPOCH + 1)
    with pytest.raises(LATER):
        shell.end(last)
    shell.finish()
    assert {(producer_id, epoch) for producer_id, epoch, _, _ in shell.written} == {(PRODUCER_ID, LAST_EPOCH + 1)}
    completed = shell.coordinator.describe(ID)
    assert (completed.producer_id, completed.producer_epoch) == (101, 0)
    assert shell.end(last) == ProducerIdentity(ProducerId(101), ProducerEpoch(0))
    with pytest.raises(REFUSED):
        shell.end(last, is_commit=False)
    with pytest.raises(InvalidProducerIdMappingError):
        shell.add(last, T0)
    assert shell.init(producer_id=PRODUCER_ID, producer_epoch=LAST_EPOCH) == ProducerIdentity(
        ProducerId(101), ProducerEpoch(0)
    )


def test_a_retry_from_before_a_fresh_producer_id_ends_with_its_next_transaction() -> None:
    shell = Shell(a_coordinator(a_transaction(TransactionState.ONGOING, producer_epoch=LAST_EPOCH)))
    last = ProducerIdentity(PRODUCER_ID, LAST_EPOCH)
    fresh = shell.end(last)
    shell.add(fresh, T0)
    with pytest.raises(InvalidProducerIdMappingError):
        shell.end(last)
    shell.end(fresh)
    with pytest.raises(InvalidProducerIdMappingError):
        shell.end(last)


def test_the_producer_id_is_kept_until_its_epochs_are_exhausted() -> None:
    coordinator = a_coordinator(a_transaction(TransactionState.ONGOING))
    decision = coordinator.end(
        ID,
        PRODUCER_ID,
        EPOCH,
        is_commit=True,
        bumps_epoch=True,
        next_producer_id=ProducerId(99),
        now_ms=0,
    )
    assert decision.result == ProducerIdentity(PRODUCER_ID, ProducerEpoch(EPOCH + 1))
    assert decoded(decision.records).next_producer_id == -1


def test_without_bumps_the_last_epoch_stays() -> None:
    shell = Shell(a_coordinator(a_transaction(TransactionState.ONGOING, producer_epoch=LAST_EPOCH)))
    last = ProducerIdentity(PRODUCER_ID, LAST_EPOCH)
    assert shell.end(last, bumps_epoch=False) == ProducerIdentity(PRODUCER_ID, LAST_EPOCH)


def test_the_epoch_that_a_log_of_kafka_chose_for_the_successor_counts() -> None:
    """Two-phase commit (KIP-939) writes it; it is read, and kept until it is used."""
    before = a_transaction(TransactionState.PREPARE_COMMIT, next_producer_id=30, next_producer_epoch=4)
    after: Transaction = decoded(a_coordinator(before).complete(ID, NOW_MS))
    assert (after.producer_id, after.producer_epoch) == (30, 4)
    assert (after.next_producer_id, after.next_producer_epoch) == (-1, -1)
