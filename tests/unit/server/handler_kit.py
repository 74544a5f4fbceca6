"""A broker without sockets, for tests whose subject is a handler.

Requests are encoded, framed and given to the broker's dispatcher, and its response frames are decoded, as a client and
a connection would: all that is missing is the transport. The event loop runs on the test's thread, and only during the
calls of `HandlerShell` and `HandlerClient`. Tests of connections (their limits, the order of responses) use `Shell`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, Self, TypeVar, cast

from logbrook.client.errors import ConnectionClosedError
from logbrook.config.network import DEFAULT_LISTENER
from logbrook.ports import Clock, Random
from logbrook.protocol.decoding import decode
from logbrook.protocol.encoding import Pieces
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.messages.api_versions import ApiVersionsResponse
from logbrook.protocol.reader import Reader, read_int32, skip_tags
from logbrook.protocol.schema import ApiMessage
from logbrook.server.api import CloseConnectionError, DeferredResponse, Response
from logbrook.server.broker import BrokerServer
from logbrook.server.cluster_view import AdvertisedAddress, AdvertisedAddresses
from logbrook.server.dispatch import DecodedRequest, KafkaDispatcher
from logbrook.server.security.tls import TlsContexts
from logbrook.server.session import ConnectionSession
from tests.unit.server.shell_kit import DEADLINE_S, BrokerOnLoop, request_frame

R = TypeVar("R", bound=ApiMessage)
T = TypeVar("T")

ADDRESS = ("127.0.0.1", 9092)
CLIENT_HOST = "127.0.0.1"
_LENGTH_BYTES = 4


class UnboundBroker(BrokerServer):
    """A broker that advertises an address and does not bind it."""

    async def _listen(self, _: TlsContexts | None) -> AdvertisedAddresses:
        self.address = ADDRESS
        return {DEFAULT_LISTENER: AdvertisedAddress(*ADDRESS)}


class HandlerShell(BrokerOnLoop):
    """`with HandlerShell() as shell:` is a broker whose event loop runs on the caller's thread, without listeners."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.until(lambda: self.services.groups.runtime.is_ready and self.services.transactions.runtime.is_ready)
        return self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(work, DEADLINE_S))

    def call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        # Without the deadline of `run`, which costs more than most functions do.
        return self._loop.run_until_complete(call())

    def client(self, client_id: str = "logbrook", session: ConnectionSession | None = None) -> "HandlerClient":
        """Return a client whose requests come over a connection with this session, by default an anonymous one."""
        return HandlerClient(self, client_id, session or ConnectionSession(CLIENT_HOST))

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        # uvloop opens a socket pair whenever it begins to run on the main thread, which is once per request here.
        return asyncio.new_event_loop()

    def _new_broker(self, clock: Clock | None, random: Random | None) -> BrokerServer:
        return UnboundBroker(self.config, files=self.files, clock=clock, random=random)


class DispatchedRequest(Generic[R]):
    """A request that was given to the dispatcher, and the frame of its response, once there is one."""

    def __init__(self, response: type[R], version: int, correlation_id: int) -> None:
        self.response = response
        self.version = version
        self.correlation_id = correlation_id
        # Of the response, without its length. Empty if the request has no response.
        self.frame: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._source: DeferredResponse | asyncio.Future[Any] | None = None

    def start(self, dispatcher: KafkaDispatcher, frame: bytearray, session: ConnectionSession) -> None:
        """Call the handler. It may keep views of `frame`, and write to it."""
        self._dispatcher = dispatcher
        try:
            request = dispatcher.receive(memoryview(frame), session)
            result = dispatcher.handle(request)
        except Exception as error:
            self.fail(None, error)
            return
        if isinstance(result, DeferredResponse):
            self._source = result
            result.attach(self, request)
        elif isinstance(result, Coroutine | asyncio.Future):
            self._source = asyncio.ensure_future(result)
            self._source.add_done_callback(lambda future: self._finish_from(future, request))
        else:
            self.finish(request, result)

    def finish(self, request: DecodedRequest, response: Response) -> None:
        try:
            pieces, _ = self._dispatcher.encode_response(request, response)
        except Exception as error:
            self.fail(request, error)
            return
        self.frame.set_result(b"".join(cast(Pieces, pieces))[_LENGTH_BYTES:])

    def fail(self, _request: DecodedRequest | None, error: BaseException) -> None:
        if isinstance(error, CloseConnectionError | ProtocolError):
            error = ConnectionClosedError(*ADDRESS, str(error))
        self.frame.set_exception(error)

    def abandon(self) -> None:
        """Do what the end of a connection does to its requests in flight."""
        if isinstance(self._source, DeferredResponse):
            self._source.abandon()
        elif self._source is not None and not isinstance(self._source, asyncio.Task):
            self._source.cancel()

    def _finish_from(self, future: "asyncio.Future[Any]", request: DecodedRequest) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self.fail(request, error)
        else:
            self.finish(request, future.result())


class HandlerClient:
    """Asks a HandlerShell. It has the methods of `client.Connection` that tests of handlers need."""

    def __init__(self, shell: HandlerShell, client_id: str, session: ConnectionSession) -> None:
        self._shell = shell
        self._client_id = client_id
        self._session = session
        self._correlation_id = 0
        self._in_flight: deque[DispatchedRequest[Any]] = deque()

    def close(self) -> None:
        in_flight = [request for request in self._in_flight if not request.frame.done()]
        self._in_flight.clear()
        if in_flight and not self._shell.is_stopped:
            self._shell.call(lambda: _abandon(in_flight))

    @property
    def unanswered(self) -> int:
        """The number of requests that were sent and have no response yet."""
        return sum(not request.frame.done() for request in self._in_flight)

    def request(self, message: ApiMessage, response: type[R], version: int | None = None) -> R:
        """Return the response to `message`. The default version is the newest."""
        return self.receive(self.send(message, response, version))

    def send(self, message: ApiMessage, response: type[R], version: int | None = None) -> DispatchedRequest[R]:
        """Call the handler and do not wait for its response, which `receive` returns."""
        assert message.API_KEY == response.API_KEY, f"{response.__name__} does not answer {type(message).__name__}"
        version = message.VERSIONS.last if version is None else version
        self._correlation_id += 1
        frame = bytearray(request_frame(message, version, self._correlation_id, self._client_id))[_LENGTH_BYTES:]

        def start() -> DispatchedRequest[R]:
            request = DispatchedRequest(response, version, self._correlation_id)
            request.start(self._shell.broker.dispatchers[DEFAULT_LISTENER], frame, self._session)
            return request

        request = self._shell.call(start)
        self._in_flight.append(request)
        return request

    def send_unanswered(self, message: ApiMessage, version: int) -> None:
        """Send a request that has no response: Produce with acks=0."""
        self.send(message, type(message), version)

    def receive(self, sent: DispatchedRequest[R]) -> R:
        """Return the response to `sent`, which must be the oldest request that has one.

        Raises ConnectionClosedError if the broker would have disconnected the client, and what the handler raises.
        """
        while (request := self._in_flight.popleft()) is not sent:
            assert self._frame(request) == b"", "responses are received in the order of the requests"
        reader = Reader(memoryview(self._frame(sent)))
        assert read_int32(reader) == sent.correlation_id
        # KIP-511: the header of an ApiVersions response never has tagged fields.
        if sent.version >= sent.response.FLEXIBLE_SINCE and sent.response is not ApiVersionsResponse:
            skip_tags(reader)
        return decode(sent.response, sent.version, reader)

    def _frame(self, request: DispatchedRequest[Any]) -> bytes:
        if not request.frame.done():
            self._shell.run(_result(request.frame))
        return request.frame.result()


def _abandon(requests: Iterable[DispatchedRequest[Any]]) -> None:
    for request in requests:
        request.abandon()


async def _result(future: "asyncio.Future[T]") -> T:
    return await future
