"""The edges of the rules about transactions, each in a history of a few events."""

from itertools import count

import pytest

from logbrook.model import TopicPartition
from logbrook.testing.history import Finding, Recorder, check
from logbrook.testing.history.findings import (
    AbortedRead,
    FencedRead,
    HangingTransaction,
    Hidden,
    LostCommit,
    LostWrite,
    NotDense,
    TornTransaction,
    UncommittedRead,
)

P0 = TopicPartition("t", 0)
LAST = "the last reader of committed records"


@pytest.fixture
def recorder() -> Recorder:
    """Every event has a time of its own."""
    clock = count(1)
    made = Recorder(lambda: next(clock))
    made.producer_started("plain", idempotent=False)
    take(made, "old")
    return made


def take(recorder: Recorder, producer: str) -> None:
    recorder.producer_started(producer, idempotent=True)
    recorder.transactional_id_taken(producer, "id")


def write(recorder: Recorder, values: str, producer: str = "old", *, at: int = 0) -> None:
    for offset, value in enumerate(values, at):
        recorder.sent(producer, P0, value)
        recorder.acknowledged(producer, P0, offset, value)


def begin(recorder: Recorder, values: str = "ab", producer: str = "old") -> None:
    recorder.transaction_begun(producer, "T")
    write(recorder, values, producer)


def end(recorder: Recorder, log: str, visible: str, *, stable: int | None = None) -> list[Finding]:
    """What is found if this is the log in the end ("|" for the end of a transaction) and this is seen of it."""
    records = [(offset, value) for offset, value in enumerate(log) if value not in "| "]
    recorder.final_read(recorder.now_ns(), P0, len(log), records)
    seen = [(offset, value) for offset, value in records if value in visible]
    recorder.final_committed_read(P0, len(log) if stable is None else stable, seen)
    recorder.final_markers(P0, [offset for offset, value in enumerate(log) if value == "|"])
    return list(check(recorder.events()).findings)


@pytest.mark.parametrize("visible", ["ab", ""])
def test_a_commit_without_an_answer_is_seen_as_a_whole_or_not_at_all(recorder: Recorder, visible: str) -> None:
    begin(recorder)
    recorder.transaction_unknown(recorder.now_ns(), "old", "T", "timed out")
    assert end(recorder, "ab|", visible) == []


def test_a_part_of_a_commit_without_an_answer_is_torn(recorder: Recorder) -> None:
    begin(recorder)
    recorder.transaction_unknown(recorder.now_ns(), "old", "T", "timed out")
    assert end(recorder, "ab|", "a") == [TornTransaction("T", "old", 2, 1, P0, "b")]


def test_a_committed_transaction_is_seen(recorder: Recorder) -> None:
    begin(recorder)
    recorder.transaction_committed(recorder.now_ns(), "old", "T")
    assert end(recorder, "ab|", "") == [LostCommit("T", "old", 2)]


def test_a_commit_that_came_to_an_abort_is_aborted(recorder: Recorder) -> None:
    begin(recorder, "a")
    recorder.transaction_unknown(recorder.now_ns(), "old", "T", "timed out")
    recorder.transaction_aborted("old", "T")
    assert end(recorder, "a|", "a") == [AbortedRead(P0, 0, "T", "a", LAST)]


def test_a_record_that_was_given_before_its_commit_was_asked_for(recorder: Recorder) -> None:
    begin(recorder, "a")
    recorder.polled("c", "", P0, 0, "a")
    recorder.transaction_committed(recorder.now_ns(), "old", "T")
    assert end(recorder, "a|", "a") == [UncommittedRead(P0, 0, "T", "a", "c")]


def test_a_record_may_be_given_before_its_commit_is_answered(recorder: Recorder) -> None:
    begin(recorder, "a")
    asked_at_ns = recorder.now_ns()
    recorder.polled("c", "", P0, 0, "a")
    recorder.transaction_committed(asked_at_ns, "old", "T")
    assert end(recorder, "a|", "a") == []


def test_a_producer_that_was_replaced_commits_nothing(recorder: Recorder) -> None:
    begin(recorder, "a")
    take(recorder, "new")
    recorder.transaction_committed(recorder.now_ns(), "old", "T")
    assert end(recorder, "a|", "a") == [FencedRead(P0, 0, "T", "a", LAST, "new")]


def test_a_producer_may_be_replaced_while_its_commit_is_on_its_way(recorder: Recorder) -> None:
    begin(recorder, "a")
    asked_at_ns = recorder.now_ns()
    take(recorder, "new")
    recorder.transaction_unknown(asked_at_ns, "old", "T", "fenced")
    assert end(recorder, "a|", "a") == []


def test_a_transaction_that_nobody_ended_is_not_seen(recorder: Recorder) -> None:
    begin(recorder, "a")
    take(recorder, "new")
    assert end(recorder, "a|", "") == []


def test_a_record_that_is_gone_from_the_log_is_lost_and_not_torn(recorder: Recorder) -> None:
    begin(recorder)
    recorder.transaction_committed(recorder.now_ns(), "old", "T")
    assert end(recorder, "a |", "a") == [LostWrite(P0, 1, "old", "b", None)]


def test_a_gap_is_the_end_of_a_transaction_or_it_is_one(recorder: Recorder) -> None:
    begin(recorder, "a")
    recorder.transaction_committed(recorder.now_ns(), "old", "T")
    assert end(recorder, "a| ", "a") == [NotDense(P0, 2, 2)]


def test_what_is_of_no_transaction_is_seen_beside_one_that_was_aborted(recorder: Recorder) -> None:
    begin(recorder, "a")
    write(recorder, "xy", "plain", at=1)
    recorder.transaction_aborted("old", "T")
    assert end(recorder, "axy|", "y") == [Hidden(P0, 1, 1)]


def test_a_transaction_that_is_open_in_the_end_hangs(recorder: Recorder) -> None:
    begin(recorder, "a")
    assert end(recorder, "a", "", stable=0) == [HangingTransaction(P0, 0, 1)]


def test_a_member_may_begin_after_what_it_is_not_given(recorder: Recorder) -> None:
    """It committed 1, and the next record for it is the one at 4: a transaction that was aborted is between them."""
    write(recorder, "x", "plain")
    recorder.transaction_begun("old", "T")
    write(recorder, "ab", at=1)
    recorder.transaction_aborted("old", "T")
    write(recorder, "y", "plain", at=4)
    recorder.polled("c", "g", P0, 0, "x")
    recorder.committed(recorder.now_ns(), "g", P0, 1)
    recorder.resumed(recorder.now_ns(), "d", "g", P0, 4)
    recorder.polled("d", "g", P0, 4, "y")
    assert end(recorder, "xab|y", "xy") == []
