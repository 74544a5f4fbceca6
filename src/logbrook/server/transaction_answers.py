"""Answers that wait for the transaction coordinator."""

from asyncio import Future
from collections.abc import Callable

from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.schema import ApiMessage
from logbrook.server.api import Handled


def answer_when_written(
    ask: "Callable[[], Future[None]]", respond: Callable[[LogbrookError | None], ApiMessage]
) -> Handled:
    """What `respond` makes of how `ask`, and the future that it gives, end.

    It is asked at once, so that the requests of a connection reach the coordinator in order.
    """
    try:
        asked = ask()
    except LogbrookError as error:
        return respond(error)
    return _when_written(asked, respond)


async def _when_written(asked: "Future[None]", respond: Callable[[LogbrookError | None], ApiMessage]) -> ApiMessage:
    try:
        await asked
    except LogbrookError as error:
        return respond(error)
    return respond(None)


def producer_fenced_code(code: ErrorCode, version: int, *, fenced_since: int) -> ErrorCode:
    """Clients of old versions of a request know a fenced producer only by its epoch (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
