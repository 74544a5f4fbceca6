"""The interface of a handler: one API, its supported versions, and the function that handles a request.

A handler gets the request as one class for all versions and returns the response as one class. It returns the response
itself, a DeferredResponse, a future or a coroutine. It makes all its changes before its first await, so that the
requests of a connection take effect in the order of arrival.
"""

from asyncio import Future
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from logbrook.model.security import Principal
from logbrook.protocol.schema import ApiMessage, Versions
from logbrook.server.services import Services
from logbrook.server.session import ANONYMOUS_SESSION, ConnectionSession

Q = TypeVar("Q", bound=ApiMessage)


class RequestContext(NamedTuple):
    """The request's header fields, and the session of the connection that it came over."""

    version: int
    client_id: str
    session: ConnectionSession = ANONYMOUS_SESSION

    @property
    def host(self) -> str:
        """The address of the client."""
        return self.session.host

    @property
    def listener(self) -> str:
        """The name of the listener that the client is connected to."""
        return self.session.listener

    @property
    def principal(self) -> Principal:
        return self.session.principal


# None: the client expects no response.
Response: TypeAlias = ApiMessage | None


class ResponseTarget(Protocol):
    """The connection that a response is for."""

    def finish(self, pending: Any, response: Response) -> None: ...

    def fail(self, pending: Any, error: BaseException) -> None: ...


class DeferredResponse:
    """A response that its handler provides later, on the event loop, by `complete` or `fail`.

    It is a future without the extra event-loop turn of a callback: `complete` encodes the response and queues it
    on the connection. After `abandon` (the connection is closed) it does nothing.
    """

    __slots__ = ("_on_abandoned", "_pending", "_target")

    def __init__(self, on_abandoned: Callable[[], None] | None = None) -> None:
        self._on_abandoned = on_abandoned
        self._target: ResponseTarget | None = None
        self._pending: Any = None

    def attach(self, target: ResponseTarget, pending: Any) -> None:
        """Set the connection that sends the response. `pending` identifies the request."""
        self._target, self._pending = target, pending

    def complete(self, response: Response) -> None:
        if self._target is not None:
            target, self._target = self._target, None
            target.finish(self._pending, response)

    def fail(self, error: BaseException) -> None:
        if self._target is not None:
            target, self._target = self._target, None
            target.fail(self._pending, error)

    def abandon(self) -> None:
        self._target = None
        if self._on_abandoned is not None:
            self._on_abandoned()


HandlerResult: TypeAlias = Response | DeferredResponse | Future[Any] | Coroutine[Any, Any, Response]


class Api(Generic[Q]):
    """The declaration in a handler's file: message classes, versions, and `handle(services, request, context)`.

    `handle` turns every LogbrookError into a response: an exception that leaves it is a bug.
    """

    __slots__ = ("handle", "is_advertised", "key", "name", "request", "response", "versions")

    def __init__(
        self,
        request: type[Q],
        response: type[ApiMessage],
        handle: Callable[[Services, Q, RequestContext], HandlerResult],
        versions: Versions | None = None,
        *,
        is_advertised: bool = True,
    ) -> None:
        self.request = request
        self.response = response
        self.handle = handle
        self.key = request.API_KEY
        self.name = request.API_NAME
        self.versions = versions or request.VERSIONS
        # False: requests are answered, but the ApiVersions response does not have the API.
        self.is_advertised = is_advertised


def may_act_as_broker(services: Services, context: RequestContext) -> bool:
    """False if the brokers of the cluster have a listener of their own, and the request came over another one."""
    listener = services.config.cluster.listener
    return not listener or context.listener == listener.upper()


class CloseConnectionError(Exception):
    """Raised by a handler to close the connection instead of responding."""
