"""The time of a request on the event loop: of its handler's steps, not of what it waits for."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from logbrook.server.api import RequestContext
from logbrook.server.security.request_usage import RequestUsage
from logbrook.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def usage(clock: FakeClock) -> RequestUsage:
    return RequestUsage(RequestContext(0, "client"), clock.monotonic_s)


def run(usage: RequestUsage, work: Coroutine[Any, Any, Any]) -> Any:
    timed = usage.timed(work)
    assert isinstance(timed, Coroutine)
    return asyncio.run(timed)


def test_steps_count_and_waiting_does_not(usage: RequestUsage, clock: FakeClock) -> None:
    async def handle() -> str:
        clock.advance(100)
        waiting = asyncio.get_running_loop().create_future()

        def finish() -> None:
            clock.advance(5_000)
            waiting.set_result("done")

        asyncio.get_running_loop().call_soon(finish)
        result = await waiting
        clock.advance(200)
        return str(result)

    assert run(usage, handle()) == "done"
    assert usage.busy_s == pytest.approx(0.3)


def test_an_error_is_raised_and_its_time_counts(usage: RequestUsage, clock: FakeClock) -> None:
    async def handle() -> None:
        await asyncio.sleep(0)
        clock.advance(100)
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        run(usage, handle())
    assert usage.busy_s == pytest.approx(0.1)


def test_an_error_and_a_cancellation_reach_the_handler_where_it_waits(usage: RequestUsage, clock: FakeClock) -> None:
    async def handle() -> Any:
        failing = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failing.set_exception, LookupError("lost"))
        with pytest.raises(LookupError, match="lost"):
            await failing
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            clock.advance(100)
            return "cancelled"
        return "not cancelled"

    async def cancel() -> Any:
        timed = usage.timed(handle())
        assert isinstance(timed, Coroutine)
        task = asyncio.ensure_future(timed)
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(cancel()) == "cancelled"
    assert usage.busy_s == pytest.approx(0.1)


def test_other_results_are_returned_as_they_are(usage: RequestUsage) -> None:
    assert usage.timed(None) is None
