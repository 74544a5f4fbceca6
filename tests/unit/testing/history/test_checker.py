"""What the checker takes for granted and what not: the edges of its rules, each in a history of a few events."""

from collections.abc import Sequence
from itertools import count
from time import process_time

import pytest

from logbrook.model import TopicPartition
from logbrook.testing.history import Event, Finding, Recorder, check
from logbrook.testing.history.findings import (
    AcknowledgedElsewhere,
    CommitFromNowhere,
    CommitWentBack,
    Duplicate,
    LatestWentBack,
    LostTopic,
    LostWrite,
    NeverRead,
    NotDense,
    NotRead,
    ReadAgain,
    Reordered,
    Skipped,
    TwoValues,
    Unsent,
    Vanished,
)
from tests.unit.testing.history.good import good_history

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def recorder() -> Recorder:
    """Every event has a time of its own."""
    clock = count(1)
    made = Recorder(lambda: next(clock))
    made.producer_started("idem", idempotent=True)
    made.producer_started("plain", idempotent=False)
    return made


def found(recorder: Recorder) -> list[Finding]:
    return list(check(recorder.events()).findings)


def write(recorder: Recorder, values: str, producer: str = "idem", *, at: int = 0) -> None:
    """Values of one letter, sent and then acknowledged in a row."""
    for value in values:
        recorder.sent(producer, P0, value)
    for offset, value in enumerate(values, at):
        recorder.acknowledged(producer, P0, offset, value)


def end(recorder: Recorder, values: str, *, log_end_offset: int | None = None) -> None:
    records = [(offset, value) for offset, value in enumerate(values) if value != " "]
    begun_at_ns = recorder.now_ns()
    recorder.final_read(begun_at_ns, P0, len(values) if log_end_offset is None else log_end_offset, records)


def poll(recorder: Recorder, offsets: Sequence[int], values: str, consumer: str = "c", group: str = "g") -> None:
    for offset in offsets:
        recorder.polled(consumer, group, P0, offset, values[offset])


def test_what_is_acknowledged_must_be_there(recorder: Recorder) -> None:
    write(recorder, "abc")
    end(recorder, "ab")
    assert found(recorder) == [LostWrite(P0, 2, "idem", "c", None)]


def test_what_took_the_place_of_a_lost_write_is_told_with_it(recorder: Recorder) -> None:
    write(recorder, "abc")
    recorder.sent("plain", P0, "x")
    end(recorder, "abx")
    assert found(recorder) == [LostWrite(P0, 2, "idem", "c", "x")]


def test_a_log_that_moved_up_has_every_write_elsewhere(recorder: Recorder) -> None:
    write(recorder, "abc")
    end(recorder, "bc", log_end_offset=2)
    assert found(recorder) == [
        LostWrite(P0, 0, "idem", "a", "b"),
        AcknowledgedElsewhere(P0, 1, "idem", "b", 0, "c"),
        AcknowledgedElsewhere(P0, 2, "idem", "c", 1, None),
    ]


@pytest.mark.parametrize("there", ["ab", "abc", "acb"])
def test_a_write_without_an_answer_may_be_there_or_not(recorder: Recorder, there: str) -> None:
    recorder.sent("plain", P0, "a")
    recorder.acknowledged("plain", P0, 0, "a")
    recorder.sent("plain", P0, "b")
    recorder.sent("plain", P0, "c")
    recorder.unknown("plain", P0, "b", "timed out")
    recorder.unknown("plain", P0, "c", "timed out")
    end(recorder, there)
    verdict = check(recorder.events())
    assert (verdict.findings, verdict.counts.unknown_found) == ((), len(there) - 1)


def test_a_write_without_an_answer_may_not_be_there_twice_if_it_is_idempotent(recorder: Recorder) -> None:
    recorder.sent("idem", P0, "a")
    recorder.unknown("idem", P0, "a", "timed out")
    end(recorder, "aa")
    assert found(recorder) == [Duplicate(P0, (0, 1), "idem", "a")]


def test_a_plain_producer_may_write_again_and_it_is_counted(recorder: Recorder) -> None:
    recorder.sent("plain", P0, "a")
    recorder.acknowledged("plain", P0, 1, "a")
    end(recorder, "aaa")
    verdict = check(recorder.events())
    assert (verdict.findings, verdict.counts.duplicates_allowed) == ((), 2)


def test_order_is_the_promise_of_idempotent_producers_alone(recorder: Recorder) -> None:
    for value in "ab":
        recorder.sent("plain", P0, value)
    for value in "cd":
        recorder.sent("idem", P0, value)
    end(recorder, "badc")
    assert found(recorder) == [Reordered(P0, "idem", "c", 3, "d", 2)]


def test_a_value_that_was_read_and_not_acknowledged_must_stay(recorder: Recorder) -> None:
    recorder.sent("idem", P0, "a")
    poll(recorder, [0], "a")
    end(recorder, "", log_end_offset=1)
    assert found(recorder) == [Vanished(P0, 0, "a", "c")]


def test_a_stranger_at_the_end_and_a_stranger_on_the_way(recorder: Recorder) -> None:
    write(recorder, "a")
    end(recorder, "ax")
    assert found(recorder) == [Unsent(P0, 1, "x", "the last reader")]


def test_a_value_belongs_to_the_partition_it_was_sent_to(recorder: Recorder) -> None:
    recorder.sent("plain", P1, "a")
    end(recorder, "a")
    assert found(recorder) == [NotRead(P1, 0), Unsent(P0, 0, "a", "the last reader")]


def test_gaps_are_told_as_ranges(recorder: Recorder) -> None:
    for value in "abcd":
        recorder.sent("plain", P0, value)
    end(recorder, " a   b", log_end_offset=8)
    assert found(recorder) == [NotDense(P0, 0, 0), NotDense(P0, 2, 4), NotDense(P0, 6, 7)]


def test_two_consumers_must_see_the_same(recorder: Recorder) -> None:
    write(recorder, "ab")
    poll(recorder, [0], "ab")
    poll(recorder, [0], "ba", "d")
    end(recorder, "ab")
    assert found(recorder) == [TwoValues(P0, 0, "a", "the last reader", "b", "d")]


def test_a_consumer_begins_where_it_resumed(recorder: Recorder) -> None:
    write(recorder, "abcdef")
    recorder.committed(recorder.now_ns(), "", P0, 2)
    recorder.resumed(recorder.now_ns(), "c", "", P0, 2)
    poll(recorder, [4, 5], "abcdef", group="")
    end(recorder, "abcdef")
    assert Skipped(P0, "c", 2, 3) in found(recorder)


def test_a_consumer_that_resumes_earlier_reads_again_and_that_is_counted(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, [0, 1, 2], "abc")
    recorder.resumed(recorder.now_ns(), "c", "g", P0, 0)
    poll(recorder, [0, 1], "abc")
    end(recorder, "abc")
    verdict = check(recorder.events())
    assert (verdict.findings, verdict.counts.polled_again) == ((), 2)


def test_a_consumer_that_does_not_resume_may_not_read_again(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, [0, 1, 0, 1, 2], "abc")
    end(recorder, "abc")
    assert found(recorder) == [ReadAgain(P0, "c", 2, 0)]


def test_offsets_without_records_are_no_skip(recorder: Recorder) -> None:
    recorder.sent("plain", P0, "a")
    recorder.sent("plain", P0, "b")
    poll(recorder, [0, 2], "a b")
    end(recorder, "a b")
    assert found(recorder) == [NotDense(P0, 1, 1)]


def test_what_a_group_committed_was_given_to_one_of_its_members(recorder: Recorder) -> None:
    write(recorder, "abcd")
    poll(recorder, [0, 1], "abcd", "c")
    recorder.committed(recorder.now_ns(), "g", P0, 4)
    end(recorder, "abcd")
    assert found(recorder) == [NeverRead(P0, "g", 2, 3, 4)]
    poll(recorder, [2, 3], "abcd", "d")
    assert found(recorder) == []


def test_the_latest_offset_reaches_past_what_was_acknowledged_before_the_question(recorder: Recorder) -> None:
    write(recorder, "ab")
    recorder.latest_seen(recorder.now_ns(), "prober", P0, 1)
    end(recorder, "ab")
    assert found(recorder) == [LatestWentBack(P0, 2, 1, "prober")]


def test_the_latest_offset_may_be_as_old_as_the_question(recorder: Recorder) -> None:
    begun_at_ns = recorder.now_ns()
    write(recorder, "ab")
    recorder.latest_seen(begun_at_ns, "prober", P0, 0)
    end(recorder, "ab")
    assert found(recorder) == []


def test_a_fall_of_the_latest_offset_is_told_once(recorder: Recorder) -> None:
    for value in "abcdef":
        recorder.sent("plain", P0, value)
    for offset in (5, 3, 3, 4):
        recorder.latest_seen(recorder.now_ns(), "prober", P0, offset)
    end(recorder, "abcdef")
    assert found(recorder) == [LatestWentBack(P0, 5, 3, "prober")]


def test_the_end_of_the_log_is_not_before_what_clients_were_shown(recorder: Recorder) -> None:
    recorder.sent("plain", P0, "a")
    recorder.latest_seen(recorder.now_ns(), "prober", P0, 3)
    end(recorder, "a")
    assert found(recorder) == [LatestWentBack(P0, 3, 1, "the last reader")]


def test_a_commit_that_was_acknowledged_stays(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.committed(recorder.now_ns(), "g", P0, 2)
    recorder.broker_killed()
    recorder.committed_seen(recorder.now_ns(), "prober", "g", P0, None)
    recorder.resumed(recorder.now_ns(), "c", "g", P0, 0)
    end(recorder, "abc")
    assert found(recorder) == [CommitWentBack(P0, "g", 2, None, "prober"), CommitWentBack(P0, "g", 2, 0, "c")]


def test_an_older_commit_may_not_come_back(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.committed(recorder.now_ns(), "g", P0, 1)
    recorder.committed(recorder.now_ns(), "g", P0, 2)
    recorder.committed_seen(recorder.now_ns(), "prober", "g", P0, 1)
    end(recorder, "abc")
    assert found(recorder) == [CommitWentBack(P0, "g", 2, 1, "prober")]


def test_a_group_may_commit_a_lower_offset_of_its_own_will(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.committed(recorder.now_ns(), "g", P0, 3)
    recorder.committed(recorder.now_ns(), "g", P0, 1)
    recorder.committed_seen(recorder.now_ns(), "prober", "g", P0, 1)
    end(recorder, "abc")
    assert found(recorder) == []


def test_a_commit_may_be_as_old_as_the_question(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    begun_at_ns = recorder.now_ns()
    recorder.committed(recorder.now_ns(), "g", P0, 1)
    recorder.committed(recorder.now_ns(), "g", P0, 2)
    for offset in (None, 1, 2):
        recorder.committed_seen(begun_at_ns, f"prober {offset}", "g", P0, offset)
    end(recorder, "abc")
    assert found(recorder) == []


def test_a_commit_without_an_answer_may_take_effect_until_the_broker_is_killed(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.commit_unknown(recorder.now_ns(), "g", P0, 1)
    recorder.committed(recorder.now_ns(), "g", P0, 2)
    recorder.committed_seen(recorder.now_ns(), "prober", "g", P0, 1)
    end(recorder, "abc")
    assert found(recorder) == []


def test_a_commit_without_an_answer_takes_no_effect_after_the_broker_was_killed(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.commit_unknown(recorder.now_ns(), "g", P0, 1)
    recorder.broker_killed()
    recorder.committed(recorder.now_ns(), "g", P0, 2)
    recorder.committed_seen(recorder.now_ns(), "prober", "g", P0, 1)
    end(recorder, "abc")
    assert found(recorder) == [CommitWentBack(P0, "g", 2, 1, "prober")]


def test_a_commit_without_an_answer_that_was_seen_stays(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.committed(recorder.now_ns(), "g", P0, 1)
    recorder.commit_unknown(recorder.now_ns(), "g", P0, 2)
    recorder.committed_seen(recorder.now_ns(), "prober", "g", P0, 2)
    recorder.broker_killed()
    recorder.committed_seen(recorder.now_ns(), "prober", "g", P0, 1)
    end(recorder, "abc")
    assert found(recorder) == [CommitWentBack(P0, "g", 2, 1, "prober")]


def test_an_offset_that_nobody_committed(recorder: Recorder) -> None:
    write(recorder, "abc")
    recorder.committed_seen(recorder.now_ns(), "prober", "g", P0, 3)
    end(recorder, "abc")
    assert found(recorder) == [CommitFromNowhere(P0, "g", 3, "prober")]


def test_a_topic_keeps_its_partitions(recorder: Recorder) -> None:
    recorder.topic_created("kept", 2)
    recorder.topic_created("lost", 2)
    recorder.topic_created("shrunk", 2)
    recorder.final_topics({"kept": 2, "shrunk": 1, "other": 1})
    assert found(recorder) == [LostTopic("lost", 2, None), LostTopic("shrunk", 2, 1)]


def test_the_order_of_events_in_the_list_does_not_matter() -> None:
    events: list[Event] = good_history(3)
    assert check(reversed(events)).findings == ()


def test_a_verdict_reads_as_sentences_and_stays_short(recorder: Recorder) -> None:
    write(recorder, "abcdefghij")
    end(recorder, "")
    told = str(check(recorder.events()))
    assert "10 findings in 23 events, 0 kills, 10 sent" in told
    assert "LostWrite: 10\n    t-0: a of idem, acknowledged at 0, is lost\n" in told
    assert told.endswith("    and 5 more")


def test_the_time_a_check_takes_grows_with_the_events() -> None:
    """A quadratic rule would take minutes here."""
    events = good_history(1, steps=25_000)
    assert len(events) > 100_000
    begun = process_time()
    check(events)
    assert process_time() - begun < 10
