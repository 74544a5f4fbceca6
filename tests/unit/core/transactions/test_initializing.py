"""InitProducerId for a transactional id: epochs, fencing and recovery of the producer's session."""

from dataclasses import replace

import pytest

from logbrook.core.coordinator import ProducerIdentity
from logbrook.core.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidTransactionalIdError,
    InvalidTransactionTimeoutError,
    TooManyTransactionalIdsError,
    TransactionalProducerFencedError,
)
from logbrook.core.transactions.messages import InitRequest
from logbrook.core.transactions.transaction import Transaction, TransactionState
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from tests.unit.core.transactions.kit import (
    EMPTY,
    EPOCH,
    ID,
    NOW_MS,
    PRODUCER_ID,
    T0,
    TIMEOUT_MS,
    Shell,
    a_coordinator,
    a_transaction,
    decoded,
)

AT_REST = [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
PREPARED = [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT]
FRESH_ID = ProducerId(99)
NEW = InitRequest(ID, 30_000)


def going_on(producer_id: int = PRODUCER_ID, producer_epoch: int = EPOCH) -> InitRequest:
    """Return the request of a producer with its current id and epoch (KIP-360)."""
    return InitRequest(ID, 30_000, ProducerId(producer_id), ProducerEpoch(producer_epoch))


def initialized(before: Transaction, request: InitRequest) -> tuple[Transaction, ProducerIdentity | None]:
    decision = a_coordinator(before).init_producer(request, FRESH_ID, NOW_MS)
    return decoded(decision.records), decision.result


@pytest.mark.parametrize("request_", [NEW, going_on()], ids=["new", "known"])
def test_an_id_that_was_never_seen_gets_a_fresh_producer(request_: InitRequest) -> None:
    coordinator = a_coordinator()
    assert coordinator.needs_producer_id(ID)
    decision = coordinator.init_producer(request_, FRESH_ID, NOW_MS)
    assert decision.result == ProducerIdentity(FRESH_ID, ProducerEpoch(0))
    assert decoded(decision.records) == Transaction(
        ID, FRESH_ID, ProducerEpoch(0), 30_000, TransactionState.EMPTY, last_update_ms=NOW_MS
    )


@pytest.mark.parametrize("state", AT_REST)
def test_a_new_producer_gets_the_next_epoch(state: TransactionState) -> None:
    before = a_transaction(state, last_producer_epoch=EPOCH - 1)
    after, result = initialized(before, NEW)
    assert result == ProducerIdentity(PRODUCER_ID, ProducerEpoch(EPOCH + 1))
    assert after == replace(
        EMPTY,
        producer_epoch=ProducerEpoch(EPOCH + 1),
        timeout_ms=30_000,
        last_update_ms=NOW_MS,
        previous_producer_id=PRODUCER_ID,
    )


@pytest.mark.parametrize("state", AT_REST)
def test_init_producer_id_with_the_current_epoch_bumps_it_and_can_be_retried(state: TransactionState) -> None:
    after, result = initialized(a_transaction(state), going_on())
    assert result == ProducerIdentity(PRODUCER_ID, ProducerEpoch(EPOCH + 1))
    assert after.last_producer_epoch == EPOCH
    again, result = initialized(after, going_on())
    assert result == ProducerIdentity(PRODUCER_ID, ProducerEpoch(EPOCH + 1))
    assert again == after
    with pytest.raises(TransactionalProducerFencedError):
        initialized(after, going_on(producer_epoch=EPOCH - 1))


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize(
    "request_",
    [
        going_on(producer_epoch=EPOCH - 1),
        going_on(producer_epoch=EPOCH + 1),
        going_on(producer_epoch=-1),
        going_on(producer_id=8),
        going_on(producer_id=8, producer_epoch=32_766),
    ],
    ids=["older", "newer", "no epoch", "other", "other and exhausted"],
)
def test_a_producer_that_was_replaced_is_fenced(state: TransactionState, request_: InitRequest) -> None:
    with pytest.raises(TransactionalProducerFencedError) as caught:
        initialized(a_transaction(state), request_)
    facts = caught.value
    assert (facts.producer_id, facts.producer_epoch) == (request_.producer_id, request_.producer_epoch)
    assert (facts.transactional_id, facts.epoch_current) == (ID, EPOCH)


def test_a_new_producer_fences_one_that_could_still_ask_again() -> None:
    shell = Shell()
    first = shell.init()
    bumped = shell.init(producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    second = shell.init()
    assert second.producer_epoch == bumped.producer_epoch + 1
    for known in (first, bumped):
        with pytest.raises(TransactionalProducerFencedError):
            shell.init(producer_id=known.producer_id, producer_epoch=known.producer_epoch)


@pytest.mark.parametrize("request_", [NEW, going_on()], ids=["new", "known"])
def test_an_open_transaction_is_aborted_with_an_epoch_that_fences(request_: InitRequest) -> None:
    before = a_transaction(TransactionState.ONGOING, last_producer_epoch=EPOCH - 1)
    after, result = initialized(before, request_)
    assert result is None
    assert after == replace(
        before,
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=ProducerEpoch(EPOCH + 1),
        last_producer_epoch=ProducerEpoch(-1),
        last_update_ms=NOW_MS,
        previous_producer_id=PRODUCER_ID,
    )


@pytest.mark.parametrize("producer_epoch", [EPOCH - 1, EPOCH + 1, -1])
def test_a_replaced_producer_does_not_abort_the_open_transaction(producer_epoch: int) -> None:
    before = a_transaction(TransactionState.ONGOING, last_producer_epoch=EPOCH - 1)
    with pytest.raises(TransactionalProducerFencedError):
        initialized(before, going_on(producer_epoch=producer_epoch))


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("request_", [NEW, going_on()], ids=["new", "known"])
def test_while_a_transaction_is_being_completed_it_is_to_be_tried_again(
    state: TransactionState, request_: InitRequest
) -> None:
    with pytest.raises(ConcurrentTransactionsError):
        initialized(a_transaction(state), request_)


def test_another_producer_id_is_fenced_even_while_a_transaction_is_being_completed() -> None:
    with pytest.raises(TransactionalProducerFencedError):
        initialized(a_transaction(TransactionState.PREPARE_ABORT), going_on(producer_id=8))


def test_after_the_abort_of_an_open_transaction_the_epoch_is_above_the_fencing_one() -> None:
    shell = Shell()
    first = shell.init()
    shell.add(first, T0)
    second = shell.init()
    assert second == ProducerIdentity(first.producer_id, ProducerEpoch(first.producer_epoch + 2))
    assert shell.written == [(first.producer_id, first.producer_epoch + 1, False, T0)]


def test_init_producer_id_during_an_open_transaction_can_be_retried() -> None:
    shell = Shell()
    first = shell.init()
    shell.add(first, T0)
    for _ in range(2):
        known = shell.init(producer_id=first.producer_id, producer_epoch=first.producer_epoch)
        assert known == ProducerIdentity(first.producer_id, ProducerEpoch(first.producer_epoch + 2))


def test_a_producer_whose_transaction_was_aborted_for_it_is_fenced_by_one_that_came_in_between() -> None:
    shell = Shell()
    first = shell.init()
    shell.add(first, T0)
    request = InitRequest(ID, TIMEOUT_MS, first.producer_id, first.producer_epoch)
    decision = shell.coordinator.init_producer(request, None, 0)
    shell.append(decision.records)
    shell.finish()
    shell.init()
    with pytest.raises(TransactionalProducerFencedError):
        shell.coordinator.init_producer(request, None, 0, decision.aborted)


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_new_producer_does_not_fence_one_that_came_while_it_waited_for_an_abort(has_begun: bool) -> None:
    """Its client may be gone, and have sent the request again (simulation, seed 22029)."""
    shell = Shell()
    shell.add(shell.init(), T0)
    decision = shell.coordinator.init_producer(NEW, None, 0)
    shell.append(decision.records)
    shell.finish()
    successor = shell.init()
    if has_begun:
        shell.add(successor, T0)
    with pytest.raises(ConcurrentTransactionsError):
        shell.coordinator.init_producer(NEW, None, 0, decision.aborted)


def test_a_producer_whose_transaction_timed_out_is_fenced() -> None:
    shell = Shell()
    first = shell.init()
    shell.add(first, T0)
    shell.append(shell.coordinator.abort_timed_out(ID, TIMEOUT_MS))
    shell.finish()
    with pytest.raises(TransactionalProducerFencedError):
        shell.init(producer_id=first.producer_id, producer_epoch=first.producer_epoch)


# Epochs are exhausted

LAST_EPOCH = ProducerEpoch(32_766)


@pytest.mark.parametrize(("epoch", "needs"), [(32_765, False), (32_766, True), (32_767, True)])
def test_the_last_epochs_need_a_fresh_producer_id(epoch: int, needs: bool) -> None:
    coordinator = a_coordinator(a_transaction(TransactionState.EMPTY, producer_epoch=epoch))
    assert coordinator.needs_producer_id(ID) is needs


def test_the_last_epoch_that_is_given_out_leaves_one_for_fencing() -> None:
    before = a_transaction(TransactionState.EMPTY, producer_epoch=LAST_EPOCH - 1)
    assert initialized(before, NEW)[1] == ProducerIdentity(PRODUCER_ID, LAST_EPOCH)


@pytest.mark.parametrize(
    ("request_", "last_epoch"), [(NEW, -1), (going_on(producer_epoch=LAST_EPOCH), LAST_EPOCH)], ids=["new", "known"]
)
def test_after_the_last_epoch_comes_a_fresh_producer_id(request_: InitRequest, last_epoch: int) -> None:
    before = a_transaction(TransactionState.COMPLETE_COMMIT, producer_epoch=LAST_EPOCH)
    after, result = initialized(before, request_)
    assert result == ProducerIdentity(FRESH_ID, ProducerEpoch(0))
    assert after == replace(
        EMPTY,
        producer_id=FRESH_ID,
        producer_epoch=ProducerEpoch(0),
        timeout_ms=30_000,
        last_update_ms=NOW_MS,
        last_producer_epoch=ProducerEpoch(last_epoch),
        previous_producer_id=PRODUCER_ID,
    )


def test_a_producer_with_a_new_id_may_retry_with_its_old_one() -> None:
    known = going_on(producer_epoch=LAST_EPOCH)
    after, _ = initialized(a_transaction(TransactionState.EMPTY, producer_epoch=LAST_EPOCH), known)
    for _ in range(2):
        after, result = initialized(after, known)
        assert result == ProducerIdentity(FRESH_ID, ProducerEpoch(0))
    with pytest.raises(TransactionalProducerFencedError):
        initialized(after, going_on(producer_id=FRESH_ID, producer_epoch=LAST_EPOCH))
    replaced, _ = initialized(after, NEW)
    with pytest.raises(TransactionalProducerFencedError):
        initialized(replaced, known)


def test_a_transaction_of_the_last_epoch_can_be_fenced() -> None:
    before = a_transaction(TransactionState.ONGOING, producer_epoch=LAST_EPOCH)
    shell = Shell(a_coordinator(before))
    assert shell.init(producer_id=PRODUCER_ID, producer_epoch=LAST_EPOCH) == ProducerIdentity(
        ProducerId(102), ProducerEpoch(0)
    )
    assert {epoch for _, epoch, _, _ in shell.written} == {LAST_EPOCH + 1}
    assert shell.init(producer_id=PRODUCER_ID, producer_epoch=LAST_EPOCH) == ProducerIdentity(
        ProducerId(102), ProducerEpoch(0)
    )


def test_an_epoch_never_overflows() -> None:
    """The coordinator never returns the highest epoch, but a client may guess it."""
    shell = Shell(a_coordinator(a_transaction(TransactionState.COMPLETE_ABORT, producer_epoch=32_767)))
    guessed = ProducerIdentity(PRODUCER_ID, ProducerEpoch(32_767))
    shell.add(guessed, T0)
    shell.append(shell.coordinator.abort_timed_out(ID, TIMEOUT_MS))
    shell.finish()
    shell.add(guessed, T0)
    assert shell.end(guessed).producer_epoch == 0
    assert shell.init().producer_id == 101


# Refused requests


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_a_timeout_is_positive_and_bounded(timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeoutError) as caught:
        a_coordinator().init_producer(InitRequest(ID, timeout_ms), FRESH_ID, 0)
    assert (caught.value.timeout_ms, caught.value.timeout_ms_max) == (timeout_ms, 900_000)


@pytest.mark.parametrize("timeout_ms", [1, 900_000])
def test_timeouts_up_to_the_bound_are_taken(timeout_ms: int) -> None:
    assert a_coordinator().init_producer(InitRequest(ID, timeout_ms), FRESH_ID, 0).result is not None


@pytest.mark.parametrize("transactional_id", ["", "ö" * 16_384], ids=["empty", "long"])
def test_a_transactional_id_has_at_least_one_byte_and_fits_its_field(transactional_id: str) -> None:
    with pytest.raises(InvalidTransactionalIdError):
        a_coordinator().init_producer(InitRequest(transactional_id, TIMEOUT_MS), FRESH_ID, 0)


def test_the_longest_transactional_id_is_taken() -> None:
    assert Shell().init("x" * 32_767).producer_epoch == 0


def test_the_number_of_transactional_ids_is_bounded() -> None:
    shell = Shell(a_coordinator(ids_max=1))
    shell.init("a")
    with pytest.raises(TooManyTransactionalIdsError) as caught:
        shell.init("b")
    assert (caught.value.transactional_id, caught.value.limit) == ("b", 1)
    assert shell.init("a").producer_epoch == 1
