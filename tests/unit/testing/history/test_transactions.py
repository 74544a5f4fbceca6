"""Edge cases of the rules about transactions, each in a history of a few events."""

from itertools import count

import pytest

from logbrook.model import TopicPartition
from logbrook.testing.history import Recorder, check
from logbrook.testing.history.anomalies import Anomaly, OffsetSpan, Rule
from logbrook.testing.history.events import (
    Acknowledged,
    Committed,
    FinalCommittedRead,
    FinalMarkers,
    FinalRead,
    Polled,
    ProducerStarted,
    Resumed,
    Sent,
    TransactionAborted,
    TransactionalIdTaken,
    TransactionBegun,
    TransactionCommitted,
    TransactionUnknown,
)

P0 = TopicPartition("t", 0)
LAST = "the final read_committed reader"


@pytest.fixture
def recorder() -> Recorder:
    """A recorder that gives every event a distinct time."""
    clock = count(1)
    made = Recorder(lambda: next(clock))
    made.record(ProducerStarted, "plain", idempotent=False)
    take(made, "old")
    return made


def take(recorder: Recorder, producer: str) -> None:
    recorder.record(ProducerStarted, producer, idempotent=True)
    recorder.record(TransactionalIdTaken, producer, "id")


def write(recorder: Recorder, values: str, producer: str = "old", *, at: int = 0) -> None:
    for offset, value in enumerate(values, at):
        recorder.record(Sent, producer, P0, value)
        recorder.record(Acknowledged, producer, P0, offset, value)


def begin(recorder: Recorder, values: str = "ab", producer: str = "old") -> None:
    recorder.record(TransactionBegun, producer, "T")
    write(recorder, values, producer)


def end(recorder: Recorder, log: str, visible: str, *, stable: int | None = None) -> list[Anomaly]:
    """Return the anomalies for a final log ("|" is the end of a transaction) of which `visible` is read."""
    records = [(offset, value) for offset, value in enumerate(log) if value not in "| "]
    recorder.record(FinalRead, recorder.now_ns(), P0, len(log), records)
    seen = [(offset, value) for offset, value in records if value in visible]
    recorder.record(FinalCommittedRead, P0, len(log) if stable is None else stable, seen)
    recorder.record(FinalMarkers, P0, [offset for offset, value in enumerate(log) if value == "|"])
    return list(check(recorder.events()).anomalies)


@pytest.mark.parametrize("visible", ["ab", ""])
def test_a_commit_without_an_answer_is_seen_as_a_whole_or_not_at_all(recorder: Recorder, visible: str) -> None:
    begin(recorder)
    recorder.record(TransactionUnknown, recorder.now_ns(), "old", "T", "timed out")
    assert end(recorder, "ab|", visible) == []


def test_a_part_of_a_commit_without_an_answer_is_torn(recorder: Recorder) -> None:
    begin(recorder)
    recorder.record(TransactionUnknown, recorder.now_ns(), "old", "T", "timed out")
    assert end(recorder, "ab|", "a") == [
        Anomaly.of(Rule.TORN_TRANSACTION, transaction="T", producer="old", values=2, hidden=1, partition=P0, value="b")
    ]


def test_a_committed_transaction_is_seen(recorder: Recorder) -> None:
    begin(recorder)
    recorder.record(TransactionCommitted, recorder.now_ns(), "old", "T")
    assert end(recorder, "ab|", "") == [Anomaly.of(Rule.LOST_COMMIT, transaction="T", producer="old", values=2)]


def test_a_commit_that_came_to_an_abort_is_aborted(recorder: Recorder) -> None:
    begin(recorder, "a")
    recorder.record(TransactionUnknown, recorder.now_ns(), "old", "T", "timed out")
    recorder.record(TransactionAborted, "old", "T")
    assert end(recorder, "a|", "a") == [
        Anomaly.of(Rule.ABORTED_READ, partition=P0, offset=0, transaction="T", value="a", reader=LAST)
    ]


def test_a_record_that_was_given_before_its_commit_was_asked_for(recorder: Recorder) -> None:
    begin(recorder, "a")
    recorder.record(Polled, "c", "", P0, 0, "a")
    recorder.record(TransactionCommitted, recorder.now_ns(), "old", "T")
    assert end(recorder, "a|", "a") == [
        Anomaly.of(Rule.UNCOMMITTED_READ, partition=P0, offset=0, transaction="T", value="a", reader="c")
    ]


def test_a_record_may_be_given_before_its_commit_is_answered(recorder: Recorder) -> None:
    begin(recorder, "a")
    asked_at_ns = recorder.now_ns()
    recorder.record(Polled, "c", "", P0, 0, "a")
    recorder.record(TransactionCommitted, asked_at_ns, "old", "T")
    assert end(recorder, "a|", "a") == []


def test_a_producer_that_was_replaced_commits_nothing(recorder: Recorder) -> None:
    begin(recorder, "a")
    take(recorder, "new")
    recorder.record(TransactionCommitted, recorder.now_ns(), "old", "T")
    assert end(recorder, "a|", "a") == [
        Anomaly.of(Rule.FENCED_READ, partition=P0, offset=0, transaction="T", value="a", reader=LAST, fenced_by="new")
    ]


def test_a_producer_may_be_replaced_while_its_commit_is_on_its_way(recorder: Recorder) -> None:
    begin(recorder, "a")
    asked_at_ns = recorder.now_ns()
    take(recorder, "new")
    recorder.record(TransactionUnknown, asked_at_ns, "old", "T", "fenced")
    assert end(recorder, "a|", "a") == []


def test_a_transaction_without_an_end_is_not_visible(recorder: Recorder) -> None:
    begin(recorder, "a")
    take(recorder, "new")
    assert end(recorder, "a|", "") == []


def test_a_record_that_is_gone_from_the_log_is_lost_and_not_torn(recorder: Recorder) -> None:
    begin(recorder)
    recorder.record(TransactionCommitted, recorder.now_ns(), "old", "T")
    assert end(recorder, "a |", "a") == [
        Anomaly.of(Rule.LOST_WRITE, partition=P0, offset=1, producer="old", value="b", stored=None)
    ]


def test_a_gap_is_allowed_only_for_a_marker(recorder: Recorder) -> None:
    begin(recorder, "a")
    recorder.record(TransactionCommitted, recorder.now_ns(), "old", "T")
    assert end(recorder, "a| ", "a") == [Anomaly.of(Rule.NOT_DENSE, partition=P0, offsets=OffsetSpan(2, 2))]


def test_a_hidden_record_without_a_transaction_is_an_anomaly(recorder: Recorder) -> None:
    begin(recorder, "a")
    write(recorder, "xy", "plain", at=1)
    recorder.record(TransactionAborted, "old", "T")
    assert end(recorder, "axy|", "y") == [
        Anomaly.of(Rule.COMMITTED_RECORD_HIDDEN, partition=P0, offsets=OffsetSpan(1, 1))
    ]


def test_a_transaction_that_is_open_in_the_end_hangs(recorder: Recorder) -> None:
    begin(recorder, "a")
    assert end(recorder, "a", "", stable=0) == [
        Anomaly.of(Rule.HANGING_TRANSACTION, partition=P0, last_stable_offset=0, log_end_offset=1)
    ]


def test_a_member_may_start_after_an_aborted_transaction(recorder: Recorder) -> None:
    """It committed 1, and its next record is at 4: an aborted transaction is in between."""
    write(recorder, "x", "plain")
    recorder.record(TransactionBegun, "old", "T")
    write(recorder, "ab", at=1)
    recorder.record(TransactionAborted, "old", "T")
    write(recorder, "y", "plain", at=4)
    recorder.record(Polled, "c", "g", P0, 0, "x")
    recorder.record(Committed, recorder.now_ns(), "g", P0, 1)
    recorder.record(Resumed, recorder.now_ns(), "d", "g", P0, 4)
    recorder.record(Polled, "d", "g", P0, 4, "y")
    assert end(recorder, "xab|y", "xy") == []
