"""Responses that wait for a reply of a coordinator."""

import asyncio

from logbrook.core.coordinator import CoordinatorError, CoordinatorLoadingError
from logbrook.protocol.messages.heartbeat import HeartbeatResponse
from logbrook.server.api import HandlerResult
from logbrook.server.coordinators.responses import respond_when_done


def respond(result: int | CoordinatorError) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=-7 if isinstance(result, CoordinatorError) else result)


def test_a_result_that_is_available_is_answered_at_once() -> None:
    async def run() -> tuple[HandlerResult, HandlerResult]:
        known: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        known.set_result(3)
        refused: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        refused.set_exception(CoordinatorLoadingError())
        return respond_when_done(lambda: known, respond), respond_when_done(lambda: refused, respond)

    answer, refusal = asyncio.run(run())
    assert isinstance(answer, HeartbeatResponse)
    assert isinstance(refusal, HeartbeatResponse)
    assert (answer.error_code, refusal.error_code) == (3, -7)


def test_a_pending_result_is_answered_when_it_is_done() -> None:
    async def run() -> int:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer = respond_when_done(lambda: asked, respond)
        assert isinstance(answer, asyncio.Future)
        assert not answer.done()
        asked.set_result(3)
        response: HeartbeatResponse = await answer
        return response.error_code

    assert asyncio.run(run()) == 3


def test_an_asynchronous_error_is_answered_too() -> None:
    async def run() -> int:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer = respond_when_done(lambda: asked, respond)
        assert isinstance(answer, asyncio.Future)
        asked.set_exception(CoordinatorLoadingError())
        response: HeartbeatResponse = await answer
        return response.error_code

    assert asyncio.run(run()) == -7


def test_cancelling_a_response_cancels_its_future() -> None:
    async def run() -> bool:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer = respond_when_done(lambda: asked, respond)
        assert isinstance(answer, asyncio.Future)
        answer.cancel()
        await asyncio.wait([asked])
        return asked.cancelled()

    assert asyncio.run(run())


def test_a_bug_in_the_answer_is_not_swallowed() -> None:
    def broken(result: int | CoordinatorError) -> HeartbeatResponse:
        raise ZeroDivisionError

    async def run() -> BaseException | None:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer = respond_when_done(lambda: asked, broken)
        assert isinstance(answer, asyncio.Future)
        asked.set_result(3)
        await asyncio.wait([answer])
        return answer.exception()

    assert isinstance(asyncio.run(run()), ZeroDivisionError)
