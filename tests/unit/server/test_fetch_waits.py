"""Readers that wait: what wakes them, and that nothing is left of those who do not wait any more."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from logbrook.model import TopicPartition
from logbrook.server.fetch_waits import FetchWaits

A, B, C = (TopicPartition(name, 0) for name in "abc")
LONG_S = 1_000.0


class Reader:
    """Notes with what it was woken. Given `again`, it goes on waiting as often as that."""

    def __init__(self, waits: FetchWaits, *partitions: TopicPartition, missing: int = 1, again: int = 0) -> None:
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


def looped(test: Callable[[FetchWaits], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on an event loop, and see that nobody waits at its end."""

    def run() -> None:
        async def run_and_check() -> None:
            waits = FetchWaits(asyncio.get_running_loop())
            await test(waits)
            assert len(waits) == 0
            assert waits._waits == {}

        asyncio.run(run_and_check())

    run.__name__ = run.__qualname__ = test.__name__
    return run


async def turn() -> None:
    """Let what is due happen."""
    for _ in range(3):
        await asyncio.sleep(0)


@looped
async def test_a_reader_is_woken_once_by_the_commit_that_brings_what_is_missing(waits: FetchWaits) -> None:
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
async def test_one_commit_wakes_all_who_have_enough_by_it(waits: FetchWaits) -> None:
    readers = [Reader(waits, A, missing=missing) for missing in (1, 10, 100)]
    waits.committed(A, 10)
    await turn()
    assert [reader.woken for reader in readers] == [[False], [False], []]
    readers[2].wait.cancel()


@looped
async def test_a_change_wakes_everyone_whatever_is_missing(waits: FetchWaits) -> None:
    readers = [Reader(waits, A, missing=1_000), Reader(waits, A, B, missing=1_000), Reader(waits, B, missing=1_000)]
    waits.changed(A)
    await turn()
    assert [reader.woken for reader in readers] == [[False], [False], []]
    readers[2].wait.cancel()


@looped
async def test_nobody_is_woken_within_the_call_that_commits(waits: FetchWaits) -> None:
    """Whoever commits is in the middle of something."""
    reader = Reader(waits, A)
    waits.committed(A, 1)
    assert reader.woken == []
    await turn()
    assert reader.woken == [False]


@looped
async def test_patience_ends(waits: FetchWaits) -> None:
    woken = asyncio.get_running_loop().create_future()
    waits.add([A, B], 1, asyncio.get_running_loop().time() + 0.01, woken.set_result)
    assert await asyncio.wait_for(woken, 5) is True


@looped
async def test_one_who_waits_no_longer_hears_nothing(waits: FetchWaits) -> None:
    reader = Reader(waits, A, B)
    reader.wait.cancel()
    reader.wait.cancel()
    waits.committed(A, 1)
    waits.changed(B)
    waits.wake_all()
    await turn()
    assert reader.woken == []


@looped
async def test_one_who_goes_on_waiting_is_woken_again(waits: FetchWaits) -> None:
    reader = Reader(waits, A, missing=10, again=2)
    for _ in range(2):
        waits.committed(A, 10)
        await turn()
    assert (reader.woken, len(waits)) == ([False, False], 1)
    waits.committed(A, 10)
    await turn()
    assert reader.woken == [False] * 3


@looped
async def test_at_the_end_everyone_is_told_that_time_is_up(waits: FetchWaits) -> None:
    readers = [Reader(waits, A, B), Reader(waits, C)]
    waits.wake_all()
    await turn()
    assert [reader.woken for reader in readers] == [[True], [True]]


@looped
async def test_at_the_end_nobody_begins_to_wait_again(waits: FetchWaits) -> None:
    """One who was woken just before, and finds that there is not enough, would wait out its time."""
    late = Reader(waits, A, again=5)
    waits.committed(A, 1)
    waits.wake_all()
    new = Reader(waits, B)
    await turn()
    await turn()
    assert late.woken == [True]
    assert new.woken == [True]


@looped
async def test_many_are_woken_a_few_at_a_time_so_that_their_answers_go_out_between(waits: FetchWaits) -> None:
    """Each of them may read a lot, and nothing that was read leaves before the event loop has had its turn."""
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
async def test_a_bug_in_one_who_is_woken_keeps_nobody_asleep(waits: FetchWaits) -> None:
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
def test_those_who_wait_are_counted_once(count: int) -> None:
    async def check() -> None:
        waits = FetchWaits(asyncio.get_running_loop())
        readers = [Reader(waits, A, B, C) for _ in range(count)]
        assert len(waits) == count
        for reader in readers:
            reader.wait.cancel()

    asyncio.run(check())
