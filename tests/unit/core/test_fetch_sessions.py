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
    FetchSessionNotFoundError,
    FetchSessions,
    InvalidFetchSessionEpochError,
)
from logbrook.core.session_partitions import CachedPartition, PartitionKey
from logbrook.model.identifiers import Offset
from logbrook.testing.seeded_random import SeededRandom

IDLE_MS = 120_000
TOPIC_ID = bytes(range(16))


def make(sessions_max: int = 10) -> FetchSessions:
    return FetchSessions(sessions_max, SeededRandom())


def want(*names: str, offset: int = 0) -> list[CachedPartition]:
    return [CachedPartition((name, 0), Offset(offset), 1_000) for name in names]


def begin(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    wanted: Iterable[CachedPartition] = (),
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
    assert [(partition.key[0], partition.fetch_offset) for partition in third] == [("a", 7), ("c", 0), ("d", 0)]
    assert names(begin(sessions, first.session_id, 3)) == ["a", "c", "d"]


def test_forgetting_an_unknown_partition_has_no_effect() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    assert names(begin(sessions, opened.session_id, 1, (), [("x", 0), ("a", 1)])) == ["a"]


def test_a_session_without_partitions_is_closed() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    last = begin(sessions, opened.session_id, 1, (), [("a", 0)])
    assert (last.session_id, names(last)) == (NO_SESSION, [])
    assert len(sessions) == 0
    with pytest.raises(FetchSessionNotFoundError):
        begin(sessions, opened.session_id, 2)


@pytest.mark.parametrize("epoch", [2, 7, 2**31 - 1, -2])
def test_a_wrong_session_epoch_is_refused_and_changes_nothing(epoch: int) -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    with pytest.raises(InvalidFetchSessionEpochError):
        begin(sessions, opened.session_id, epoch, want("b"), [("a", 0)])
    assert names(begin(sessions, opened.session_id, 1)) == ["a"]


def test_a_repeated_session_epoch_means_a_lost_response() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    begin(sessions, opened.session_id, 1)
    with pytest.raises(InvalidFetchSessionEpochError):
        begin(sessions, opened.session_id, 1)


def test_a_session_that_does_not_exist_is_refused() -> None:
    with pytest.raises(FetchSessionNotFoundError):
        begin(make(), 42, 1)


def test_session_epochs_wrap_to_1_after_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_fetch_without_partitions_opens_no_session() -> None:
    sessions = make()
    assert begin(sessions, NO_SESSION, INITIAL_EPOCH).session_id == NO_SESSION
    assert len(sessions) == 0


def test_a_session_with_topic_names_cannot_be_used_with_topic_ids_and_vice_versa() -> None:
    """A response identifies topics by name or by id, so it could not report the partitions of such a session."""
    sessions = make()
    of_names = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    with pytest.raises(FetchSessionNotFoundError):
        begin(sessions, of_names.session_id, 1, by_id=True)
    of_ids = begin(sessions, NO_SESSION, INITIAL_EPOCH, [CachedPartition((TOPIC_ID, 0), Offset(0), 1)], by_id=True)
    with pytest.raises(FetchSessionNotFoundError):
        begin(sessions, of_ids.session_id, 1)
    assert names(begin(sessions, of_ids.session_id, 1, by_id=True)) == [TOPIC_ID]


# Contents of incremental responses


def is_included(partition: CachedPartition, **facts: int) -> bool:
    """Decide about a response as a fetch does, then note that it was sent."""
    high_watermark, log_start_offset = facts.get("high_watermark", 5), facts.get("log_start_offset", 0)
    has_error = bool(facts.get("error"))
    has_news = partition.has_news(
        high_watermark=Offset(high_watermark),
        log_start_offset=Offset(log_start_offset),
        has_records=bool(facts.get("records")),
        has_error=has_error,
    )
    partition.note_sent(Offset(high_watermark), Offset(log_start_offset), has_error=has_error)
    return has_news


def test_only_changed_partitions_are_in_the_response() -> None:
    (partition,) = want("a")
    assert is_included(partition)
    assert not is_included(partition)
    assert is_included(partition, records=1)
    assert is_included(partition, high_watermark=6)
    assert not is_included(partition, high_watermark=6)
    assert is_included(partition, high_watermark=6, log_start_offset=1)
    assert not is_included(partition, high_watermark=6, log_start_offset=1)


def test_an_error_is_in_every_response_and_so_is_its_end() -> None:
    (partition,) = want("a")
    assert is_included(partition)
    assert is_included(partition, error=1)
    assert is_included(partition, error=1)
    assert is_included(partition)
    assert not is_included(partition)


def test_a_new_fetch_offset_does_not_repeat_an_unchanged_partition() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a"))
    (partition,) = opened
    assert is_included(partition)
    (partition,) = begin(sessions, opened.session_id, 1, want("a", offset=5))
    assert not is_included(partition)


def test_a_forgotten_partition_that_is_added_again_is_in_the_response() -> None:
    sessions = make()
    opened = begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a", "b"))
    for partition in opened:
        is_included(partition)
    begin(sessions, opened.session_id, 1, (), [("a", 0)])
    partitions = list(begin(sessions, opened.session_id, 2, want("a")))
    assert [(partition.key[0], is_included(partition)) for partition in partitions] == [("b", False), ("a", True)]


def test_partitions_with_records_come_last_in_the_next_fetch() -> None:
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


def test_a_session_that_grows_too_large_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_session_ids_are_neither_zero_nor_in_use(tokens: list[int]) -> None:
    class Few:
        """Returns some numbers twice, then unique ones."""

        def __init__(self) -> None:
            self._tokens: list[int] = [*tokens, *range(4, 100)]

        def token(self, length: int) -> bytes:
            return (self._tokens.pop(0) << 1).to_bytes(length, "big")

    sessions = FetchSessions(100, Few())
    given = [begin(sessions, NO_SESSION, INITIAL_EPOCH, want("a")).session_id for _ in range(20)]
    assert len(set(given)) == 20
    assert NO_SESSION not in given


class Consumers(RuleBasedStateMachine):
    """Consumers that act at random, against a model of each consumer's session."""

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


def _of(wanted: dict[str, int]) -> list[CachedPartition]:
    return [CachedPartition((name, 0), Offset(offset), 1) for name, offset in wanted.items()]


def _offsets(context: FetchContext) -> dict[bytes | str, int]:
    return {partition.key[0]: partition.fetch_offset for partition in context}


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(max_examples=40, stateful_step_count=20)
