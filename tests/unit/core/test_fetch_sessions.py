"""Fetch sessions (KIP-227), without a broker."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from logbrook.core import fetch_sessions
from logbrook.core.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchPartition,
    FetchSessionNotFoundError,
    FetchSessions,
    InvalidFetchSessionEpochError,
    PartitionKey,
)
from logbrook.testing.seeded_random import SeededRandom

IDLE_MS = 120_000
TOPIC_ID = bytes(range(16))


def make(sessions_max: int = 10) -> FetchSessions:
    return FetchSessions(sessions_max, SeededRandom())


def want(*names: str, offset: int = 0) -> list[FetchPartition]:
    return [FetchPartition((name, 0), offset, 1_000) for name in names]


def begin(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    wanted: Iterable[FetchPartition] = (),
    forgotten: Iterable[PartitionKey] = (),
    now_ms: int = 0,
    *,
    by_id: bool = False,
) -> FetchContext:
    context = sessions.begin(session_id, epoch, wanted, forgotten, now_ms, by_id=by_id)
    sessions.validate()
    return context


def names(context: FetchContext) -> list[bytes | str]:
    return [partition.key[0] for partition in context]


def test_a_first_fetch_opens_a_session_and_the_next_ones_name_only_what_changed() -> None:
    sessions = make()
    first = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a", "b", "c"))
    assert first.is_full
    assert first.session_id != NO_SESSION
    second = begin(sessions, first.session_id, 1, want("d"), [("b", 0)])
    assert not second.is_full
    assert names(second) == ["a", "c", "d"]
    third = begin(sessions, first.session_id, 2, want("a", offset=7))
    assert [(one.key[0], one.fetch_offset) for one in third] == [("a", 7), ("c", 0), ("d", 0)]
    assert names(begin(sessions, first.session_id, 3)) == ["a", "c", "d"]


def test_forgetting_what_is_not_known_forgets_nothing() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    assert names(begin(sessions, opened.session_id, 1, (), [("x", 0), ("a", 1)])) == ["a"]


def test_a_session_with_nothing_left_in_it_is_over() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    last = begin(sessions, opened.session_id, 1, (), [("a", 0)])
    assert (last.session_id, names(last)) == (NO_SESSION, [])
    assert len(sessions) == 0
    with pytest.raises(FetchSessionNotFoundError):
        begin(sessions, opened.session_id, 2)


@pytest.mark.parametrize("epoch", [2, 7, 2**31 - 1, -2])
def test_a_wrong_count_is_refused_and_changes_nothing(epoch: int) -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    with pytest.raises(InvalidFetchSessionEpochError):
        begin(sessions, opened.session_id, epoch, want("b"), [("a", 0)])
    assert names(begin(sessions, opened.session_id, 1)) == ["a"]


def test_an_answer_that_was_lost_shows_as_the_same_count_again() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    begin(sessions, opened.session_id, 1)
    with pytest.raises(InvalidFetchSessionEpochError):
        begin(sessions, opened.session_id, 1)


def test_a_session_that_is_not_there_is_refused() -> None:
    with pytest.raises(FetchSessionNotFoundError):
        begin(make(), 42, 1)


def test_counts_go_on_at_one_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "_EPOCH_MAX", 3)
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    for epoch in (1, 2, 3, 1, 2, 3, 1):
        begin(sessions, opened.session_id, epoch)


def test_a_full_fetch_takes_the_place_of_the_session_before() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    another = begin(sessions, opened.session_id, INITIAL_EPOCH, want("b"))
    assert another.session_id not in (NO_SESSION, opened.session_id)
    assert len(sessions) == 1
    with pytest.raises(FetchSessionNotFoundError):
        begin(sessions, opened.session_id, 1)


def test_the_last_fetch_of_a_session_ends_it_and_opens_none() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    last = begin(sessions, opened.session_id, FINAL_EPOCH, want("a", "b"))
    assert (last.session_id, last.is_full, names(last)) == (NO_SESSION, True, ["a", "b"])
    assert len(sessions) == 0


def test_a_fetch_of_nothing_opens_no_session() -> None:
    sessions = make()
    assert begin(sessions, NO_SESSION, INITIAL_EPOCH).session_id == NO_SESSION
    assert len(sessions) == 0


def test_a_session_of_names_is_none_for_one_who_speaks_of_ids_and_the_other_way_round() -> None:
    """What it remembers could not be told in the answer: that has room for one of the two."""
    sessions = make()
    of_names = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    with pytest.raises(FetchSessionNotFoundError):
        begin(sessions, of_names.session_id, 1, by_id=True)
    of_ids = begin(sessions, NO_SESSION, INITIAL_EPOCH, [FetchPartition((TOPIC_ID, 0), 0, 1)], by_id=True)
    with pytest.raises(FetchSessionNotFoundError):
        begin(sessions, of_ids.session_id, 1)
    assert names(begin(sessions, of_ids.session_id, 1, by_id=True)) == [TOPIC_ID]


# What is told


def told(partition: FetchPartition, **what: int) -> bool:
    return partition.is_news(
        high_watermark=what.get("high_watermark", 5),
        log_start_offset=what.get("log_start_offset", 0),
        has_records=bool(what.get("records")),
        has_error=bool(what.get("error")),
    )


def test_only_news_are_told() -> None:
    (partition,) = want("a")
    assert told(partition)
    assert not told(partition)
    assert told(partition, records=1)
    assert told(partition, high_watermark=6)
    assert not told(partition, high_watermark=6)
    assert told(partition, high_watermark=6, log_start_offset=1)
    assert not told(partition, high_watermark=6, log_start_offset=1)


def test_an_error_is_told_each_time_and_so_is_its_end() -> None:
    (partition,) = want("a")
    assert told(partition)
    assert told(partition, error=1)
    assert told(partition, error=1)
    assert told(partition)
    assert not told(partition)


def test_one_who_moves_on_is_not_told_again_what_it_knows() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    (partition,) = opened
    assert told(partition)
    (partition,) = begin(sessions, opened.session_id, 1, want("a", offset=5))
    assert not told(partition)


def test_one_who_forgets_and_asks_again_is_told_again() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a", "b"))
    for partition in opened:
        told(partition)
    begin(sessions, opened.session_id, 1, (), [("a", 0)])
    partitions = list(begin(sessions, opened.session_id, 2, want("a")))
    assert [(one.key[0], told(one)) for one in partitions] == [("b", False), ("a", True)]


def test_those_who_had_records_come_last_next_time() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a", "b", "c"))
    context = begin(sessions, opened.session_id, 1)
    for partition in context:
        if partition.key[0] == "a":
            context.served(partition)
    assert names(begin(sessions, opened.session_id, 2)) == ["b", "c", "a"]


# Bounds


def test_a_session_is_not_given_up_for_another_while_it_is_used() -> None:
    sessions = make(2)
    kept = [begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"), now_ms=0).session_id for _ in range(2)]
    refused = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"), now_ms=IDLE_MS - 1)
    assert (refused.session_id, names(refused)) == (NO_SESSION, ["a"])
    begin(sessions, kept[0], 1, now_ms=IDLE_MS - 1)
    assert begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"), now_ms=IDLE_MS).session_id != NO_SESSION
    begin(sessions, kept[0], 2, now_ms=IDLE_MS)
    with pytest.raises(FetchSessionNotFoundError):
        begin(sessions, kept[1], 1, now_ms=IDLE_MS)


def test_there_may_be_no_sessions_at_all() -> None:
    sessions = make(0)
    assert begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"), now_ms=IDLE_MS).session_id == NO_SESSION


def test_sessions_remember_no_more_partitions_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "_PARTITIONS_MAX", 5)
    sessions = make()
    first = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a", "b", "c"))
    second = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a", "b", "c"))
    assert second.session_id == NO_SESSION
    assert names(begin(sessions, first.session_id, 1, want("d", "e"))) == ["a", "b", "c", "d", "e"]
    assert begin(sessions, NO_SESSION, INITIAL_EPOCH, want(*"abcdef"), now_ms=IDLE_MS).session_id == NO_SESSION


def test_a_session_that_grows_too_large_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "_PARTITIONS_MAX", 5)
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    with pytest.raises(FetchSessionNotFoundError):
        begin(sessions, opened.session_id, 1, want(*"bcdefg"))
    sessions.validate()
    assert len(sessions) == 0
    # Without a session it is served all the same.
    context = begin(sessions, NO_SESSION, INITIAL_EPOCH, want(*"abcdefg"))
    assert (context.session_id, len(names(context))) == (NO_SESSION, 7)


@given(st.lists(st.integers(0, 3), max_size=30))
def test_ids_are_never_zero_nor_taken(tokens: list[int]) -> None:
    class Few:
        """Tokens that repeat, and then some that do not."""

        def __init__(self) -> None:
            self._tokens: list[int] = [*tokens, *range(4, 100)]

        def token(self, length: int) -> bytes:
            return (self._tokens.pop(0) << 1).to_bytes(length, "big")

    sessions = FetchSessions(100, Few())
    given = [begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a")).session_id for _ in range(20)]
    assert len(set(given)) == 20
    assert NO_SESSION not in given


class Consumers(RuleBasedStateMachine):
    """Consumers that do what they like, against what each of them would remember for itself."""

    opened = Bundle("opened")

    def __init__(self) -> None:
        super().__init__()
        self.sessions = make(3)
        self.now_ms = 0
        self.known: dict[int, tuple[int, dict[str, int]]] = {}

    @rule(target=opened, wanted=st.dictionaries(st.sampled_from("abcde"), st.integers(0, 9)))
    def open(self, wanted: dict[str, int]) -> object:
        context = self.sessions.begin(NO_SESSION, INITIAL_EPOCH, _of(wanted), (), self.now_ms, by_id=False)
        assert _offsets(context) == wanted
        if context.session_id == NO_SESSION:
            return multiple()
        self.known[context.session_id] = (1, dict(wanted))
        return context.session_id

    @rule(
        session_id=opened,
        wanted=st.dictionaries(st.sampled_from("abcde"), st.integers(0, 9)),
        forgotten=st.sets(st.sampled_from("abcde")),
        slip=st.sampled_from([0, 0, 0, 1]),
    )
    def go_on(self, session_id: int, wanted: dict[str, int], forgotten: set[str], slip: int) -> None:
        epoch, partitions = self.known[session_id]
        gone = [(name, 0) for name in forgotten]
        try:
            context = self.sessions.begin(session_id, epoch + slip, _of(wanted), gone, self.now_ms, by_id=False)
        except FetchSessionNotFoundError:
            return
        except InvalidFetchSessionEpochError:
            assert slip
            return
        assert not slip
        expected = {name: offset for name, offset in partitions.items() if name not in forgotten} | wanted
        assert _offsets(context) == expected
        self.known[session_id] = (epoch + 1, expected)

    @rule(session_id=consumes(opened))
    def close(self, session_id: int) -> None:
        self.sessions.begin(session_id, FINAL_EPOCH, (), (), self.now_ms, by_id=False)

    @rule(by_ms=st.sampled_from([1, IDLE_MS]))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @invariant()
    def holds(self) -> None:
        self.sessions.validate()


def _of(wanted: dict[str, int]) -> list[FetchPartition]:
    return [FetchPartition((name, 0), offset, 1) for name, offset in wanted.items()]


def _offsets(context: FetchContext) -> dict[bytes | str, int]:
    return {one.key[0]: one.fetch_offset for one in context}


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(max_examples=40, stateful_step_count=20)
