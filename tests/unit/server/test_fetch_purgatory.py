"""Delayed fetches: the events that wake them, and that answered ones are removed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from logbrook.model import TopicPartition
from logbrook.server.fetch_purgatory import FetchPurgatory

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


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_fetch_of_several_partitions_is_counted_once(count: int) -> None:
    async def check() -> None:
        waits = FetchPurgatory(asyncio.get_running_loop())
        readers = [Reader(waits, A, B, C) for _ in range(count)]
        assert len(waits) == count
        for reader in readers:
            reader.wait.cancel()

    asyncio.run(check())
