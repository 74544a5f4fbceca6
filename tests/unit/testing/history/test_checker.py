"""Edge cases of the checker's rules, each in a history of a few events."""

from collections.abc import Sequence
from itertools import count
from time import process_time

import pytest

from logbrook.model import TopicPartition
from logbrook.testing.history import Event, Recorder, check
from logbrook.testing.history.anomalies import Anomaly, OffsetSpan, Rule
from logbrook.testing.history.events import (
    Acknowledged,
    BrokerKilled,
    Committed,
    CommittedSeen,
    CommitUnknown,
    FinalProducers,
    FinalRead,
    FinalTopics,
    LatestSeen,
    Polled,
    ProducerStarted,
    Resumed,
    Sent,
    TopicCreated,
    Unknown,
)
from tests.unit.testing.history.good import good_history

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def recorder() -> Recorder:
    """A recorder that gives every event a distinct time."""
    clock = count(1)
    made = Recorder(lambda: next(clock))
    made.record(ProducerStarted, "idem", idempotent=True)
    made.record(ProducerStarted, "plain", idempotent=False)
    return made


def found(recorder: Recorder) -> list[Anomaly]:
    return list(check(recorder.events()).anomalies)


def write(recorder: Recorder, values: str, producer: str = "idem", *, at: int = 0) -> None:
    """Record values of one letter, sent and then acknowledged in order."""
    for value in values:
        recorder.record(Sent, producer, P0, value)
    for offset, value in enumerate(values, at):
        recorder.record(Acknowledged, producer, P0, offset, value)


def end(recorder: Recorder, values: str, *, log_end_offset: int | None = None) -> None:
    records = [(offset, value) for offset, value in enumerate(values) if value != " "]
    begun_at_ns = recorder.now_ns()
    recorder.record(FinalRead, begun_at_ns, P0, len(values) if log_end_offset is None else log_end_offset, records)


def poll(recorder: Recorder, offsets: Sequence[int], values: str, consumer: str = "c", group: str = "g") -> None:
    for offset in offsets:
        recorder.record(Polled, consumer, group, P0, offset, values[offset])


def test_an_acknowledged_record_that_is_missing_is_a_lost_write(recorder: Recorder) -> None:
    write(recorder, "abc")
    end(recorder, "ab")
    assert found(recorder) == [
        Anomaly.of(Rule.LOST_WRITE, partition=P0, offset=2, producer="idem", value="c", stored=None)
    ]


def test_the_value_in_place_of_a_lost_write_is_reported_with_it(recorder: Recorder) -> None:
    write(recorder, "abc")
    recorder.record(Sent, "plain", P0, "x")
    end(recorder, "abx")
    assert found(recorder) == [
        Anomaly.of(Rule.LOST_WRITE, partition=P0, offset=2, producer="idem", value="c", stored="x")
    ]


def test_a_log_that_moved_up_has_every_write_elsewhere(recorder: Recorder) -> None:
    write(recorder, "abc")
    end(recorder, "bc", log_end_offset=2)
    assert found(recorder) == [
        Anomaly.of(Rule.LOST_WRITE, partition=P0, offset=0, producer="idem", value="a", stored="b"),
        Anomaly.of(
            Rule.ACKNOWLEDGED_AT_OTHER_OFFSET,
            partition=P0,
            offset=1,
            producer="idem",
            value="b",
            actual_offset=0,
            stored="c",
        ),
        Anomaly.of(
            Rule.ACKNOWLEDGED_AT_OTHER_OFFSET,
            partition=P0,
            offset=2,
            producer="idem",
            value="c",
            actual_offset=1,
            stored=None,
        ),
    ]


@pytest.mark.parametrize("there", ["ab", "abc", "acb"])
def test_a_write_without_an_answer_may_be_there_or_not(recorder: Recorder, there: str) -> None:
    recorder.record(Sent, "plain", P0, "a")
    recorder.record(Acknowledged, "plain", P0, 0, "a")
    recorder.record(Sent, "plain", P0, "b")
    recorder.record(Sent, "plain", P0, "c")
    recorder.record(Unknown, "plain", P0, "b", "timed out")
    recorder.record(Unknown, "plain", P0, "c", "timed out")
    end(recorder, there)
    verdict = check(recorder.events())
    assert (verdict.anomalies, verdict.counts.unknown_found) == ((), len(there) - 1)


def test_a_write_without_an_answer_may_not_be_there_twice_if_it_is_idempotent(recorder: Recorder) -> None:
    recorder.record(Sent, "idem", P0, "a")
    recorder.record(Unknown, "idem", P0, "a", "timed out")
    end(recorder, "aa")
    assert found(recorder) == [Anomaly.of(Rule.DUPLICATE, partition=P0, offsets=[0, 1], producer="idem", value="a")]


@pytest.mark.parametrize(("second_epoch", "rules"), [(0, [Rule.DUPLICATE]), (1, [])])
def test_a_record_may_be_there_twice_if_its_producer_has_begun_another_epoch(
    recorder: Recorder, second_epoch: int, rules: list[Rule]
) -> None:
    recorder.record(Sent, "idem", P0, "a")
    recorder.record(Acknowledged, "idem", P0, 1, "a")
    end(recorder, "aa")
    recorder.record(FinalProducers, P0, [(0, 1, 7, 0), (1, 2, 7, second_epoch)])
    verdict = check(recorder.events())
    assert [anomaly.rule for anomaly in verdict.anomalies] == rules
    assert verdict.counts.duplicates_allowed == second_epoch


def test_a_plain_producer_may_write_again_and_it_is_counted(recorder: Recorder) -> None:
    recorder.record(Sent, "plain", P0, "a")
    recorder.record(Acknowledged, "plain", P0, 1, "a")
    end(recorder, "aaa")
    verdict = check(recorder.events())
    assert (verdict.anomalies, verdict.counts.duplicates_allowed) == ((), 2)


def test_order_is_the_promise_of_idempotent_producers_alone(recorder: Recorder) -> None:
    for value in "ab":
        recorder.record(Sent, "plain", P0, value)
    for value in "cd":
        recorder.record(Sent, "idem", P0, value)
    end(recorder, "badc")
    assert found(recorder) == [
        Anomaly.of(
            Rule.REORDERED, partition=P0, producer="idem", earlier="c", earlier_offset=3, later="d", later_offset=2
        )
    ]


def test_a_value_that_was_read_and_not_acknowledged_must_stay(recorder: Recorder) -> None:
    recorder.record(Sent, "idem", P0, "a")
    poll(recorder, [0], "a")
    end(recorder, "", log_end_offset=1)
    assert found(recorder) == [Anomaly.of(Rule.READ_THEN_LOST, partition=P0, offset=0, value="a", consumer="c")]


def test_a_value_never_sent_is_reported(recorder: Recorder) -> None:
    write(recorder, "a")
    end(recorder, "ax")
    assert found(recorder) == [
        Anomaly.of(Rule.NEVER_SENT, partition=P0, offset=1, value="x", reader="the final reader")
    ]


def test_a_value_belongs_to_the_partition_it_was_sent_to(recorder: Recorder) -> None:
    recorder.record(Sent, "plain", P1, "a")
    end(recorder, "a")
    assert found(recorder) == [
        Anomaly.of(Rule.NO_FINAL_READ, partition=P1, acknowledged=0),
        Anomaly.of(Rule.NEVER_SENT, partition=P0, offset=0, value="a", reader="the final reader"),
    ]


def test_gaps_are_reported_as_ranges(recorder: Recorder) -> None:
    for value in "abcd":
        recorder.record(Sent, "plain", P0, value)
    end(recorder, " a   b", log_end_offset=8)
    assert found(recorder) == [
        Anomaly.of(Rule.NOT_DENSE, partition=P0, offsets=OffsetSpan(0, 0)),
        Anomaly.of(Rule.NOT_DENSE, partition=P0, offsets=OffsetSpan(2, 4)),
        Anomaly.of(Rule.NOT_DENSE, partition=P0, offsets=OffsetSpan(6, 7)),
    ]


def test_two_consumers_must_see_the_same(recorder: Recorder) -> None:
    write(recorder, "ab")
    poll(recorder, [0], "ab")
    poll(recorder, [0], "ba", "d")
    end(recorder, "ab")
    assert found(recorder) == [
        Anomaly.of(
            Rule.TWO_VALUES, partition=P0, offset=0, first="a", first_by="the final reader", second="b", second_by="d"
        )
    ]


def test_a_consumer_begins_where_it_resumed(recorder: Recorder) -> None:
    write(recorder, "abcdef")
    recorder.record(Committed, recorder.now_ns(), "", P0, 2)
    recorder.record(Resumed, recorder.now_ns(), "c", "", P0, 2)
    poll(recorder, [4, 5], "abcdef", group="")
    end(recorder, "abcdef")
    assert Anomaly.of(Rule.SKIPPED, partition=P0, consumer="c", offsets=OffsetSpan(2, 3)) in found(recorder)


def test_a_consumer_that_resumes_earlier_reads_again_and_that_is_counted(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, [0, 1, 2], "abc")
    recorder.record(Resumed, recorder.now_ns(), "c", "g", P0, 0)
    poll(recorder, [0, 1], "abc")
    end(recorder, "abc")
    verdict = check(recorder.events())
    assert (verdict.anomalies, verdict.counts.polled_again) == ((), 2)


def test_a_consumer_that_does_not_resume_may_not_read_again(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, [0, 1, 0, 1, 2], "abc")
    end(recorder, "abc")
    assert found(recorder) == [Anomaly.of(Rule.READ_AGAIN, partition=P0, consumer="c", position=2, offset=0)]


@pytest.mark.parametrize(("again", "is_allowed"), [(2, True), (1, False)])
def test_after_a_kill_a_consumer_may_read_again_what_it_has_read_since(
    recorder: Recorder, again: int, is_allowed: bool
) -> None:
    write(recorder, "abcd")
    poll(recorder, [0, 1], "abcd")
    recorder.record(BrokerKilled)
    poll(recorder, [2, *range(again, 4)], "abcd")
    end(recorder, "abcd")
    assert (found(recorder) == []) == is_allowed


@pytest.mark.parametrize("joins_before", [True, False])
def test_only_consumers_from_before_a_kill_may_read_again(recorder: Recorder, joins_before: bool) -> None:
    write(recorder, "ab")
    joined_at_ns = recorder.now_ns()
    recorder.record(BrokerKilled)
    recorder.record(Resumed, joined_at_ns if joins_before else recorder.now_ns(), "c", "g", P0, 0)
    poll(recorder, [0, 0, 0, 1], "ab")
    end(recorder, "ab")
    assert (found(recorder) == []) == joins_before


@pytest.mark.parametrize(
    ("offsets", "is_allowed"), [([0, 0, 1, 2], True), ([0, 1, 0, 1, 2], True), ([0, 1, 1, 2], False)]
)
def test_a_consumer_that_resumed_may_receive_its_first_record_again_once(
    recorder: Recorder, offsets: list[int], is_allowed: bool
) -> None:
    write(recorder, "abc")
    recorder.record(Resumed, recorder.now_ns(), "c", "g", P0, 0)
    poll(recorder, offsets, "abc")
    end(recorder, "abc")
    assert (found(recorder) == []) == is_allowed


def test_offsets_without_records_are_no_skip(recorder: Recorder) -> None:
    recorder.record(Sent, "plain", P0, "a")
    recorder.record(Sent, "plain", P0, "b")
    poll(recorder, [0, 2], "a b")
    end(recorder, "a b")
    assert found(recorder) == [Anomaly.of(Rule.NOT_DENSE, partition=P0, offsets=OffsetSpan(1, 1))]


def test_a_committed_offset_that_no_member_received_is_an_anomaly(recorder: Recorder) -> None:
    write(recorder, "abcd")
    poll(recorder, [0, 1], "abcd", "c")
    recorder.record(Committed, recorder.now_ns(), "g", P0, 4)
    end(recorder, "abcd")
    assert found(recorder) == [
        Anomaly.of(Rule.NEVER_READ, partition=P0, group="g", committed=4, offsets=OffsetSpan(2, 3))
    ]
    poll(recorder, [2, 3], "abcd", "d")
    assert found(recorder) == []


def test_the_latest_offset_is_after_all_records_acknowledged_before_the_request(recorder: Recorder) -> None:
    write(recorder, "ab")
    recorder.record(LatestSeen, recorder.now_ns(), "prober", P0, 1)
    end(recorder, "ab")
    assert found(recorder) == [Anomaly.of(Rule.LATEST_OFFSET_WENT_BACK, partition=P0, was=2, seen=1, client="prober")]


def test_the_latest_offset_may_be_as_old_as_the_question(recorder: Recorder) -> None:
    begun_at_ns = recorder.now_ns()
    write(recorder, "ab")
    recorder.record(LatestSeen, begun_at_ns, "prober", P0, 0)
    end(recorder, "ab")
    assert found(recorder) == []


def test_a_decreasing_latest_offset_is_reported_once(recorder: Recorder) -> None:
    for value in "abcdef":
        recorder.record(Sent, "plain", P0, value)
    for offset in (5, 3, 3, 4):
        recorder.record(LatestSeen, recorder.now_ns(), "prober", P0, offset)
    end(recorder, "abcdef")
    assert found(recorder) == [Anomaly.of(Rule.LATEST_OFFSET_WENT_BACK, partition=P0, was=5, seen=3, client="prober")]


def test_the_log_end_offset_is_not_below_an_offset_shown_to_clients(recorder: Recorder) -> None:
    recorder.record(Sent, "plain", P0, "a")
    recorder.record(LatestSeen, recorder.now_ns(), "prober", P0, 3)
    end(recorder, "a")
    assert found(recorder) == [
        Anomaly.of(Rule.LATEST_OFFSET_WENT_BACK, partition=P0, was=3, seen=1, client="the final reader")
    ]


def test_a_commit_that_was_acknowledged_stays(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.record(Committed, recorder.now_ns(), "g", P0, 2)
    recorder.record(BrokerKilled)
    recorder.record(CommittedSeen, recorder.now_ns(), "prober", "g", P0, None)
    recorder.record(Resumed, recorder.now_ns(), "c", "g", P0, 0)
    end(recorder, "abc")
    assert found(recorder) == [
        Anomaly.of(Rule.COMMIT_WENT_BACK, partition=P0, group="g", committed=2, seen=None, client="prober"),
        Anomaly.of(Rule.COMMIT_WENT_BACK, partition=P0, group="g", committed=2, seen=0, client="c"),
    ]


def test_an_older_commit_may_not_reappear(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.record(Committed, recorder.now_ns(), "g", P0, 1)
    recorder.record(Committed, recorder.now_ns(), "g", P0, 2)
    recorder.record(CommittedSeen, recorder.now_ns(), "prober", "g", P0, 1)
    end(recorder, "abc")
    assert found(recorder) == [
        Anomaly.of(Rule.COMMIT_WENT_BACK, partition=P0, group="g", committed=2, seen=1, client="prober")
    ]


def test_a_group_may_commit_a_lower_offset_of_its_own_will(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.record(Committed, recorder.now_ns(), "g", P0, 3)
    recorder.record(Committed, recorder.now_ns(), "g", P0, 1)
    recorder.record(CommittedSeen, recorder.now_ns(), "prober", "g", P0, 1)
    end(recorder, "abc")
    assert found(recorder) == []


def test_a_commit_may_be_as_old_as_the_question(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    begun_at_ns = recorder.now_ns()
    recorder.record(Committed, recorder.now_ns(), "g", P0, 1)
    recorder.record(Committed, recorder.now_ns(), "g", P0, 2)
    for offset in (None, 1, 2):
        recorder.record(CommittedSeen, begun_at_ns, f"prober {offset}", "g", P0, offset)
    end(recorder, "abc")
    assert found(recorder) == []


def test_a_commit_without_an_answer_may_take_effect_until_the_broker_is_killed(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.record(CommitUnknown, recorder.now_ns(), "g", P0, 1)
    recorder.record(Committed, recorder.now_ns(), "g", P0, 2)
    recorder.record(CommittedSeen, recorder.now_ns(), "prober", "g", P0, 1)
    end(recorder, "abc")
    assert found(recorder) == []


def test_a_commit_without_an_answer_takes_no_effect_after_the_broker_was_killed(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.record(CommitUnknown, recorder.now_ns(), "g", P0, 1)
    recorder.record(BrokerKilled)
    recorder.record(Committed, recorder.now_ns(), "g", P0, 2)
    recorder.record(CommittedSeen, recorder.now_ns(), "prober", "g", P0, 1)
    end(recorder, "abc")
    assert found(recorder) == [
        Anomaly.of(Rule.COMMIT_WENT_BACK, partition=P0, group="g", committed=2, seen=1, client="prober")
    ]


def test_a_commit_without_an_answer_that_was_seen_stays(recorder: Recorder) -> None:
    write(recorder, "abc")
    poll(recorder, range(3), "abc")
    recorder.record(Committed, recorder.now_ns(), "g", P0, 1)
    recorder.record(CommitUnknown, recorder.now_ns(), "g", P0, 2)
    recorder.record(CommittedSeen, recorder.now_ns(), "prober", "g", P0, 2)
    recorder.record(BrokerKilled)
    recorder.record(CommittedSeen, recorder.now_ns(), "prober", "g", P0, 1)
    end(recorder, "abc")
    assert found(recorder) == [
        Anomaly.of(Rule.COMMIT_WENT_BACK, partition=P0, group="g", committed=2, seen=1, client="prober")
    ]


def test_an_offset_never_committed_is_reported(recorder: Recorder) -> None:
    write(recorder, "abc")
    recorder.record(CommittedSeen, recorder.now_ns(), "prober", "g", P0, 3)
    end(recorder, "abc")
    assert found(recorder) == [Anomaly.of(Rule.COMMIT_NEVER_MADE, partition=P0, group="g", seen=3, client="prober")]


def test_a_topic_keeps_its_partitions(recorder: Recorder) -> None:
    recorder.record(TopicCreated, "kept", 2)
    recorder.record(TopicCreated, "lost", 2)
    recorder.record(TopicCreated, "shrunk", 2)
    recorder.record(FinalTopics, {"kept": 2, "shrunk": 1, "other": 1})
    assert found(recorder) == [
        Anomaly.of(Rule.LOST_TOPIC, topic="lost", created=2, remaining=None),
        Anomaly.of(Rule.LOST_TOPIC, topic="shrunk", created=2, remaining=1),
    ]


def test_the_order_of_events_in_the_list_does_not_matter() -> None:
    events: list[Event] = good_history(3)
    assert check(reversed(events)).anomalies == ()


def test_a_verdict_reads_as_sentences_and_stays_short(recorder: Recorder) -> None:
    write(recorder, "abcdefghij")
    end(recorder, "")
    reported = str(check(recorder.events()))
    assert "10 anomalies in 23 events, 0 kills, 10 sent" in reported
    assert "LOST_WRITE: 10\n    t-0: a of idem, acknowledged at 0, is lost; its offset holds nothing\n" in reported
    assert reported.endswith("    and 5 more")


@pytest.mark.slow
def test_the_time_a_check_takes_grows_with_the_events() -> None:
    """A quadratic rule would take a minute here."""
    events = good_history(1, steps=10_000)
    assert len(events) > 40_000
    begun = process_time()
    check(events)
    assert process_time() - begun < 10
