"""What a handler is: one API, the versions of it that are served, and the function that answers.

A handler gets the request in one shape whatever its version, and returns the response in one shape. It may return it
at once or a future of it. It does all it decides before it first waits, so that the requests of a connection take
effect in the order in which they came.
"""

from asyncio import Future
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from logbrook.protocol.schema import ApiMessage, Versions
from logbrook.server.services import Services

Q = TypeVar("Q", bound=ApiMessage)


class Call(NamedTuple):
    """Who asks, and how."""

    version: int
    client_id: str
    host: str


# None: the client expects no answer.
Answer: TypeAlias = ApiMessage | None
Handled: TypeAlias = Answer | Future[Any] | Coroutine[Any, Any, Answer]


class Api(Generic[Q]):
    """What a handler's file declares: its messages, the versions that it serves, and `handle(services, request, call)`.

    A LogbrookError is answered by `handle` itself: what is raised out of it is a bug.
    """

    __slots__ = ("handle", "key", "name", "request", "response", "versions")

    def __init__(
        self,
        request: type[Q],
        response: type[ApiMessage],
        handle: Callable[[Services, Q, Call], Handled],
        versions: Versions | None = None,
    ) -> None:
        self.request = request
        self.response = response
        self.handle = handle
        self.key = request.API_KEY
        self.name = request.API_NAME
        self.versions = versions or request.VERSIONS


class CloseConnectionError(Exception):
    """Raised by a handler whose only answer is to hang up."""
