"""Active and idle partitions of fetch sessions, without a broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbrook.core.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSessionNotFoundError,
    FetchSessions,
)
from logbrook.core.session_partitions import SWEEP_MS, CachedPartition, SessionPartitions
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.testing.seeded_random import SeededRandom

REPORT_MS = 1_000


class Consumer:
    """A consumer whose fetches find every partition at its end, unless they are told otherwise."""

    def __init__(self, names: str, sessions: FetchSessions | None = None, now_ms: int = 0) -> None:
        self.sessions = FetchSessions(10, SeededRandom()) if sessions is None else sessions
        self.now_ms = now_ms
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.fetch(names)

    def begin(self, named: str = "", forgotten: str = "", conditions: str = "") -> FetchContext:
        wanted = [CachedPartition((name, 0), Offset(0), 1_000) for name in named]
        keys = [(name, 0) for name in forgotten]
        context = self.sessions.begin(
            self.session_id, self.epoch, wanted, keys, self.now_ms, by_id=False, conditions=conditions
        )
        self.session_id, self.epoch = context.session_id, self.epoch + 1
        self.sessions.validate()
        return context

    def read(self, context: FetchContext, with_records: str = "") -> str:
        """Read the partitions of a fetch. Return their names."""
        names = ""
        for partition in context:
            name = str(partition.key[0])
            names += name
            if name not in with_records:
                context.watch(partition, name)
        return names

    def answer(self, context: FetchContext, with_records: str = "") -> None:
        for partition in list(context):
            has_records = str(partition.key[0]) in with_records
            context.answered(partition, has_news=has_records, is_at_end=not has_records)
            if has_records:
                context.served(partition)
        self.sessions.validate()

    def fetch(self, named: str = "", forgotten: str = "", conditions: str = "", with_records: str = "") -> str:
        """Return the names of the partitions that were read, in this order."""
        context = self.begin(named, forgotten, conditions)
        names = self.read(context, with_records)
        self.answer(context, with_records)
        return names

    def report(self, name: str) -> list[SessionPartitions]:
        return list(self.sessions.watches.fire(TopicPartition(name, 0)))


def test_a_partition_at_its_end_is_read_once() -> None:
    consumer = Consumer("abc")
    assert len(consumer.sessions.watches) == 3
    assert consumer.fetch() == ""
    assert consumer.fetch() == ""


def test_a_reported_change_makes_a_partition_active_until_it_is_read() -> None:
    consumer = Consumer("abc")
    assert len(consumer.report("b")) == 1
    assert consumer.report("b") == []
    assert consumer.fetch() == "b"
    assert consumer.fetch() == ""


def test_a_change_between_the_read_and_the_answer_is_not_lost() -> None:
    consumer = Consumer("ab")
    consumer.report("a")
    context = consumer.begin()
    assert consumer.read(context) == "a"
    consumer.report("a")
    consumer.answer(context)
    assert consumer.fetch() == "a"


def test_a_partition_with_records_stays_active() -> None:
    consumer = Consumer("abc")
    consumer.report("a")
    assert consumer.fetch(with_records="a") == "a"
    assert consumer.fetch() == "a"
    assert consumer.fetch() == ""


def test_a_partition_that_the_client_names_is_active() -> None:
    consumer = Consumer("abc")
    assert consumer.fetch("b") == "b"
    assert consumer.fetch("d") == "d"
    assert consumer.fetch() == ""


def test_active_partitions_are_read_in_the_order_of_the_session() -> None:
    consumer = Consumer("abcde")
    for name in "eca":
        consumer.report(name)
    assert consumer.fetch(with_records="ac") == "ace"
    # Those with records have moved behind all others, idle or not.
    for name in "bde":
        consumer.report(name)
    assert consumer.fetch("f") == "bdeacf"


def test_a_partition_keeps_its_turn_while_it_is_idle() -> None:
    consumer = Consumer("abc")
    consumer.report("a")
    assert consumer.fetch(with_records="a") == "a"
    assert consumer.fetch() == "a"
    for name in "abc":
        consumer.report(name)
    assert consumer.fetch() == "bca"


def test_other_conditions_make_all_partitions_active() -> None:
    consumer = Consumer("abc")
    assert consumer.fetch(conditions="read committed") == "abc"
    assert consumer.fetch(conditions="read committed") == ""
    assert consumer.fetch() == "abc"


def test_only_the_latest_fetch_of_a_session_makes_partitions_idle() -> None:
    """An earlier one that is still in flight may have had other conditions."""
    consumer = Consumer("ab")
    consumer.report("a")
    earlier = consumer.begin()
    assert consumer.read(earlier) == "a"
    assert consumer.fetch(conditions="others", with_records="a") == "ab"
    consumer.answer(earlier)
    assert consumer.fetch(conditions="others") == "a"


def test_a_response_that_was_not_sent_leaves_its_partitions_active() -> None:
    consumer = Consumer("ab")
    consumer.report("a")
    assert consumer.read(consumer.begin()) == "a"
    assert consumer.fetch() == "a"


def test_a_forgotten_partition_is_not_watched() -> None:
    consumer = Consumer("abc")
    consumer.fetch(forgotten="b")
    assert len(consumer.sessions.watches) == 2
    assert consumer.report("b") == []
    assert consumer.fetch() == ""


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_session_that_ends_watches_nothing(epoch: int) -> None:
    ended: list[SessionPartitions] = []
    consumer = Consumer("abc")
    consumer.sessions.on_ended = ended.append
    consumer.epoch = epoch
    consumer.begin()
    assert len(ended) == 1
    assert (len(consumer.sessions), len(consumer.sessions.watches)) == (0, 0)


def test_a_session_that_loses_its_last_partition_watches_nothing() -> None:
    consumer = Consumer("ab")
    consumer.begin(forgotten="ab")
    assert (len(consumer.sessions), len(consumer.sessions.watches)) == (0, 0)


def test_an_evicted_session_watches_nothing() -> None:
    sessions = FetchSessions(1, SeededRandom())
    evicted = Consumer("abc", sessions)
    another = Consumer("ax", sessions, now_ms=1_000_000)
    assert another.session_id != NO_SESSION
    with pytest.raises(FetchSessionNotFoundError):
        evicted.begin()
    assert len(sessions.watches) == 2


def test_a_fetch_whose_session_has_ended_watches_nothing() -> None:
    consumer = Consumer("ab")
    consumer.report("a")
    context = consumer.begin()
    partitions = list(context)
    consumer.sessions.close(consumer.session_id)
    for partition in partitions:
        context.watch(partition, "a")
        context.answered(partition, has_news=False, is_at_end=True)
    assert len(consumer.sessions.watches) == 0


def test_sessions_that_watch_the_same_partition_are_all_told() -> None:
    first = Consumer("ab")
    second = Consumer("bc", first.sessions)
    assert len(first.report("b")) == 2
    assert (first.fetch(), second.fetch()) == ("b", "b")


# The sweep of idle partitions


def test_idle_partitions_are_read_in_turns_all_of_them_once_per_minute() -> None:
    consumer = Consumer("abcdef")
    read = ""
    for _ in range(60):
        consumer.now_ms += SWEEP_MS // 60
        read += consumer.fetch()
    assert sorted(read) == list("abcdef")
    assert consumer.sessions.missed_changes == 0


def test_a_clock_that_jumps_causes_no_more_than_a_share_of_the_reads() -> None:
    names = "".join(chr(0x4E00 + number) for number in range(1_000))
    consumer = Consumer(names)
    consumer.now_ms += 1_000 * SWEEP_MS
    assert 0 < len(consumer.fetch()) < 50
    consumer.now_ms = 0
    assert consumer.fetch() == ""


def sweep(consumer: Consumer, with_records: str) -> None:
    """Fetch until every partition was read once."""
    consumer.now_ms += SWEEP_MS
    consumer.fetch(with_records=with_records)


def test_a_change_that_is_not_reported_is_found_and_counted() -> None:
    consumer = Consumer("abc")
    sweep(consumer, "b")
    assert consumer.sessions.missed_changes == 0
    # The client reads on: it names the partition.
    consumer.fetch("b")
    consumer.now_ms += REPORT_MS
    context = consumer.begin()
    assert [partition.key[0] for partition in context.missed] == ["b"]
    assert consumer.sessions.missed_changes == 1


def test_a_report_that_is_late_is_not_a_missed_change() -> None:
    consumer = Consumer("abc")
    sweep(consumer, "b")
    consumer.fetch("b")
    consumer.report("b")
    consumer.now_ms += REPORT_MS
    assert list(consumer.begin().missed) == []
    assert consumer.sessions.missed_changes == 0


def test_a_change_caused_by_other_conditions_is_not_a_missed_change() -> None:
    consumer = Consumer("abc")
    consumer.now_ms += SWEEP_MS
    # This fetch is not answered, so its partitions remain to be read.
    assert sorted(consumer.read(consumer.begin())) == ["a", "b", "c"]
    consumer.fetch(conditions="without the right", with_records="abc")
    consumer.now_ms += REPORT_MS
    assert list(consumer.begin(conditions="without the right").missed) == []


# What a session reads is what changed, was named or had records, in the order of the session.

STEPS = st.lists(
    st.tuples(st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdefgh")), st.sets(st.sampled_from("ab"))),
    max_size=20,
)


@given(STEPS)
def test_a_fetch_reads_what_changed_was_named_or_had_records(steps: list[tuple[set[str], set[str], set[str]]]) -> None:
    consumer = Consumer("abcdef")
    order = list("abcdef")
    had_records: set[str] = set()
    for changed, named, records in steps:
        for name in sorted(changed):
            consumer.report(name)
        order += sorted(named - set(order))
        expected = [name for name in order if name in changed | named | had_records]
        had_records = set(expected) & records
        names = consumer.fetch("".join(sorted(named)), with_records="".join(records))
        assert list(names) == expected
        order = [name for name in order if name not in had_records] + [n for n in expected if n in had_records]
