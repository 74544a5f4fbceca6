"""Answers that wait for the group coordinator."""

import asyncio

from logbrook.core.groups.errors import CoordinatorLoadingError, GroupError
from logbrook.protocol.messages.heartbeat import HeartbeatResponse
from logbrook.server.api import Handled
from logbrook.server.group_answers import answer_when_done


def respond(result: int | GroupError) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=-7 if isinstance(result, GroupError) else result)


def test_what_is_known_already_is_answered_at_once() -> None:
    async def run() -> tuple[Handled, Handled]:
        known: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        known.set_result(3)
        refused: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        refused.set_exception(CoordinatorLoadingError())
        return answer_when_done(known, respond), answer_when_done(refused, respond)

    answer, refusal = asyncio.run(run())
    assert isinstance(answer, HeartbeatResponse)
    assert isinstance(refusal, HeartbeatResponse)
    assert (answer.error_code, refusal.error_code) == (3, -7)


def test_what_comes_later_is_answered_then() -> None:
    async def run() -> int:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer = answer_when_done(asked, respond)
        assert isinstance(answer, asyncio.Future)
        assert not answer.done()
        asked.set_result(3)
        response: HeartbeatResponse = await answer
        return response.error_code

    assert asyncio.run(run()) == 3


def test_an_error_that_comes_later_is_an_answer_too() -> None:
    async def run() -> int:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer = answer_when_done(asked, respond)
        assert isinstance(answer, asyncio.Future)
        asked.set_exception(CoordinatorLoadingError())
        response: HeartbeatResponse = await answer
        return response.error_code

    assert asyncio.run(run()) == -7


def test_who_no_longer_waits_is_no_longer_waited_for() -> None:
    async def run() -> bool:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer = answer_when_done(asked, respond)
        assert isinstance(answer, asyncio.Future)
        answer.cancel()
        await asyncio.wait([asked])
        return asked.cancelled()

    assert asyncio.run(run())


def test_a_bug_in_the_answer_is_not_swallowed() -> None:
    def broken(result: int | GroupError) -> HeartbeatResponse:
        raise ZeroDivisionError

    async def run() -> BaseException | None:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer = answer_when_done(asked, broken)
        assert isinstance(answer, asyncio.Future)
        asked.set_result(3)
        await asyncio.wait([answer])
        return answer.exception()

    assert isinstance(asyncio.run(run()), ZeroDivisionError)
