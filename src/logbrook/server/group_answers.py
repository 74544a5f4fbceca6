"""Answers that wait for the group coordinator.

The coordinator is asked while the request is being handled, so that the requests of a connection reach it in order;
what it says comes later. Whoever no longer waits for the answer is no longer waited for either: cancelling the answer
cancels the question.
"""

from asyncio import Future
from collections.abc import Callable
from typing import Any, TypeVar

from logbrook.core.groups.errors import GroupError
from logbrook.protocol.schema import ApiMessage
from logbrook.server.api import Handled

T = TypeVar("T")


def answer_when_done(asked: "Future[T]", respond: Callable[[T | GroupError], ApiMessage]) -> Handled:
    """What `respond` makes of the result of `asked`, or of the GroupError that it ends with."""
    if asked.done():
        return respond(_outcome(asked))
    answer: Future[ApiMessage] = asked.get_loop().create_future()

    def finish(asked: "Future[T]") -> None:
        if answer.done():
            return
        if asked.cancelled():
            answer.cancel()
            return
        try:
            answer.set_result(respond(_outcome(asked)))
        except Exception as error:
            answer.set_exception(error)

    asked.add_done_callback(finish)
    answer.add_done_callback(lambda answer: asked.cancel() if answer.cancelled() else None)
    return answer


def _outcome(asked: "Future[Any]") -> Any:
    try:
        return asked.result()
    except GroupError as error:
        # The error stays alive with the answer, and must not keep the frames of those who raised it.
        return error.with_traceback(None)
