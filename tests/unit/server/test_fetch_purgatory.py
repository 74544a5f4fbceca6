"""Delayed fetches: the events that wake them, and that answered ones are removed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from logbrook.core.session_partitions import CachedPartition, PartitionWatches, SessionPartitions
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.server.fetch_purgatory import DelayedFetch, FetchPurgatory

A, B, C = (TopicPartition(name, 0) for name in "abc")
LONG_S = 1_000.0


class Reader:
    """Records the argument of each wake-up; waits again `again` times."""

    def __init__(self, waits: FetchPurgatory, *partitions: TopicPartition, missing: int = 1, again: int = 0) -> None:
        self._waits = waits
        self._partitions = partitions
        self._missing = missing
        self._again = again
        self.woken: list[bool] = []
        self.wait = self._begin()

    def _begin(self, within_s: float = LONG_S) -> Any:
        loop = asyncio.get_running_loop()
        return self._waits.add(self._partitions, self._missing, loop.time() + within_s, self._wake)

    def _wake(self, time_is_up: bool) -> None:
        self.woken.append(time_is_up)
        if self._again and not time_is_up:
            self._again -= 1
            self.wait = self._begin()


def looped(test: Callable[[FetchPurgatory], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on an event loop, and check that no fetch is left at its end."""

    def run() -> None:
        async def run_and_check() -> None:
            waits = FetchPurgatory(asyncio.get_running_loop())
            await test(waits)
            assert len(waits) == 0
            assert waits._delayed == {}

        asyncio.run(run_and_check())

    run.__name__ = run.__qualname__ = test.__name__
    return run


async def turn() -> None:
    """Run all callbacks that are due."""
    for _ in range(3):
        await asyncio.sleep(0)


@looped
async def test_a_fetch_is_woken_once_by_the_commit_that_completes_its_min_bytes(waits: FetchPurgatory) -> None:
    reader = Reader(waits, A, B, missing=100)
    waits.committed(A, 60)
    waits.committed(C, 1_000)
    await turn()
    assert (reader.woken, len(waits)) == ([], 1)
    waits.committed(B, 40)
    waits.committed(A, 40)
    waits.changed(A)
    await turn()
    assert reader.woken == [False]


@looped
async def test_one_commit_wakes_all_fetches_that_it_completes(waits: FetchPurgatory) -> None:
    readers = [Reader(waits, A, missing=missing) for missing in (1, 10, 100)]
    waits.committed(A, 10)
    await turn()
    assert [reader.woken for reader in readers] == [[False], [False], []]
    readers[2].wait.cancel()


@looped
async def test_a_change_wakes_every_fetch_of_the_partition(waits: FetchPurgatory) -> None:
    readers = [Reader(waits, A, missing=1_000), Reader(waits, A, B, missing=1_000), Reader(waits, B, missing=1_000)]
    waits.changed(A)
    await turn()
    assert [reader.woken for reader in readers] == [[False], [False], []]
    readers[2].wait.cancel()


@looped
async def test_a_fetch_is_not_woken_within_the_call_that_commits(waits: FetchPurgatory) -> None:
    """The caller may be in the middle of a change."""
    reader = Reader(waits, A)
    waits.committed(A, 1)
    assert reader.woken == []
    await turn()
    assert reader.woken == [False]


@looped
async def test_a_fetch_is_woken_at_its_deadline(waits: FetchPurgatory) -> None:
    woken = asyncio.get_running_loop().create_future()
    waits.add([A, B], 1, asyncio.get_running_loop().time() + 0.01, woken.set_result)
    assert await asyncio.wait_for(woken, 5) is True


@looped
async def test_a_cancelled_fetch_is_not_woken(waits: FetchPurgatory) -> None:
    reader = Reader(waits, A, B)
    reader.wait.cancel()
    reader.wait.cancel()
    waits.committed(A, 1)
    waits.changed(B)
    waits.wake_all()
    await turn()
    assert reader.woken == []


@looped
async def test_a_fetch_that_waits_again_is_woken_again(waits: FetchPurgatory) -> None:
    reader = Reader(waits, A, missing=10, again=2)
    for _ in range(2):
        waits.committed(A, 10)
        await turn()
    assert (reader.woken, len(waits)) == ([False, False], 1)
    waits.committed(A, 10)
    await turn()
    assert reader.woken == [False] * 3


@looped
async def test_at_the_stop_every_fetch_expires(waits: FetchPurgatory) -> None:
    readers = [Reader(waits, A, B), Reader(waits, C)]
    waits.wake_all()
    await turn()
    assert [reader.woken for reader in readers] == [[True], [True]]


@looped
async def test_after_the_stop_a_fetch_that_waits_again_expires_at_once(waits: FetchPurgatory) -> None:
    """Otherwise a fetch that was woken just before, and needs more bytes, would delay the stop until its deadline."""
    late = Reader(waits, A, again=5)
    waits.committed(A, 1)
    waits.wake_all()
    new = Reader(waits, B)
    await turn()
    await turn()
    assert late.woken == [True]
    assert new.woken == [True]


@looped
async def test_fetches_are_woken_a_few_per_turn_so_that_responses_are_sent_in_between(waits: FetchPurgatory) -> None:
    """Each may read megabytes, which stay in memory until the event loop can send them."""
    readers = [Reader(waits, A) for _ in range(100)]
    waits.committed(A, 1)
    counts = []
    while not all(reader.woken for reader in readers):
        before = sum(bool(reader.woken) for reader in readers)
        await asyncio.sleep(0)
        counts.append(sum(bool(reader.woken) for reader in readers) - before)
    assert max(counts) == 8
    assert [reader.woken for reader in readers] == [[False]] * 100


@looped
async def test_an_exception_of_one_fetch_does_not_keep_others_waiting(waits: FetchPurgatory) -> None:
    def fail(_time_is_up: bool) -> None:
        raise ZeroDivisionError

    loop = asyncio.get_running_loop()
    failures: list[object] = []
    loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
    waits.add([A], 1, loop.time() + LONG_S, fail)
    reader = Reader(waits, A)
    waits.add([A], 1, loop.time() + LONG_S, fail)
    waits.committed(A, 1)
    await turn()
    await turn()
    assert (reader.woken, len(failures)) == ([False], 2)


# Sessions


class Session:
    """A session with idle partitions, and its fetches that wait."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.watches = PartitionWatches()
        self.waits = FetchPurgatory(asyncio.get_running_loop(), self.watches)
        self._by_name = {
            partition: CachedPartition((partition.topic, partition.partition), Offset(0), 1_000)
            for partition in partitions
        }
        self.partitions = SessionPartitions(self.watches, self._by_name.values(), now_ms=0)
        for partition in partitions:
            self.make_idle(partition)
        self.woken: list[bool] = []

    def make_idle(self, partition: TopicPartition) -> None:
        self.partitions.watch(self._by_name[partition], partition.topic)
        self.partitions.settle(self._by_name[partition])

    def wait(self, *partitions: TopicPartition, missing: int = 1) -> DelayedFetch:
        deadline_s = asyncio.get_running_loop().time() + LONG_S
        return self.waits.add(partitions, missing, deadline_s, self.woken.append, self.partitions)

    def active(self) -> list[str]:
        return [str(partition.key[0]) for partition in self.partitions.active()]

    def check_empty(self) -> None:
        assert len(self.waits) == 0
        assert (self.waits._delayed, self.waits._in_sessions) == ({}, {})


def in_session(test: Callable[[Session], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test with a session that watches A and B, and check that no fetch is left at its end."""

    def run() -> None:
        async def run_and_check() -> None:
            session = Session(A, B)
            await test(session)
            session.check_empty()

        asyncio.run(run_and_check())

    run.__name__ = run.__qualname__ = test.__name__
    return run


@in_session
async def test_a_fetch_waits_for_the_idle_partitions_of_its_session(session: Session) -> None:
    delayed = session.wait(missing=100)
    # Both commits count, although the first one ends the watch.
    for _ in range(2):
        session.waits.committed(B, 50)
    await turn()
    assert (session.woken, delayed.changed, session.active()) == ([False], {B}, ["b"])


@in_session
async def test_a_fetch_waits_for_active_partitions_beside_the_idle_ones(session: Session) -> None:
    session.waits.changed(A)
    delayed = session.wait(A, missing=100)
    session.waits.committed(A, 40)
    session.waits.committed(B, 40)
    session.waits.committed(A, 20)
    await turn()
    assert (session.woken, delayed.changed) == ([False], {A, B})


@in_session
async def test_a_change_makes_a_partition_active_though_no_fetch_waits(session: Session) -> None:
    session.waits.committed(A, 1)
    session.waits.changed(B)
    assert session.active() == ["a", "b"]
    assert len(session.watches) == 0


@in_session
async def test_a_change_of_a_topic_is_one_of_all_its_watched_partitions(session: Session) -> None:
    session.wait(missing=1_000)
    session.waits.topic_changed("c")
    await turn()
    assert (session.woken, session.active()) == ([], [])
    session.waits.topic_changed("a")
    await turn()
    assert (session.woken, session.active()) == ([False], ["a"])


@in_session
async def test_the_end_of_a_session_answers_its_fetches(session: Session) -> None:
    """Its partitions are not watched any more, so nothing else would wake them before the deadline."""
    session.wait(missing=1_000)
    session.partitions.close()
    session.waits.session_ended(session.partitions)
    await turn()
    assert session.woken == [True]


@in_session
async def test_a_cancelled_fetch_of_a_session_is_not_woken_and_the_session_goes_on(session: Session) -> None:
    delayed = session.wait()
    session.waits.committed(A, 0)
    delayed.cancel()
    session.waits.committed(A, 1)
    session.waits.committed(B, 1)
    session.waits.wake_all()
    await turn()
    assert (session.woken, session.active()) == ([], ["a", "b"])


@in_session
async def test_fetches_of_sessions_are_answered_when_the_broker_stops(session: Session) -> None:
    session.wait()
    assert len(session.waits) == 1
    session.waits.wake_all()
    await turn()
    assert session.woken == [True]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_fetch_of_several_partitions_is_counted_once(count: int) -> None:
    async def check() -> None:
        waits = FetchPurgatory(asyncio.get_running_loop())
        readers = [Reader(waits, A, B, C) for _ in range(count)]
        assert len(waits) == count
        for reader in readers:
            reader.wait.cancel()

    asyncio.run(check())
