"""The interfaces between a connection and its two neighbours, its dispatcher and its listener; a request in flight."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from logbrook.protocol.encoding import ResponsePieces
from logbrook.protocol.framing import FrameReader, ReceiveBuffers
from logbrook.server.api import DeferredResponse
from logbrook.server.logs import RateLimitedWarnings
from logbrook.server.probe import ServerProbe
from logbrook.server.region_sender import RegionLoader
from logbrook.server.response_memory import ResponseMemory
from logbrook.server.session import ConnectionSession

if TYPE_CHECKING:
    from logbrook.server.connection import ServerConnection


class ReceivedRequest(Protocol):
    """A decoded request: its name for logs and metrics, and its size in bytes."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...


class RequestDispatcher(Protocol):
    """Decodes requests, calls their handlers and encodes responses, for Kafka's protocol or the JSON protocol.

    `handle` returns the response, a DeferredResponse, a future or a coroutine.
    """

    probe: ServerProbe

    def new_session(self, host: str, certificate: Mapping[str, Any] | None) -> ConnectionSession: ...

    def new_reader(self, buffers: ReceiveBuffers, session: ConnectionSession) -> FrameReader: ...

    def receive(self, frame: memoryview, session: ConnectionSession) -> Any: ...

    def handle(self, request: Any) -> Any: ...

    def encode_response(self, request: Any, response: Any) -> tuple[ResponsePieces, int]: ...


class ConnectionRegistry(Protocol):
    """The owner of all connections, with the limits that they share.

    `refusal_delay_s` is the time after which a new connection above a quota is closed, 0 for others. `heard_from` is
    called with the first request of an authenticated client. `reserve` returns False if the connection may not read
    more of its request; the registry calls `resume_reading` later. `adopt` keeps a task running after its connection
    is closed.
    """

    receive_buffers: ReceiveBuffers
    warnings: RateLimitedWarnings
    response_memory: ResponseMemory
    in_flight_bytes_max: int
    in_flight_requests_max: int

    @property
    def region_loader(self) -> RegionLoader: ...

    def register(self, connection: "ServerConnection") -> bool: ...

    def refusal_delay_s(self, connection: "ServerConnection") -> float: ...

    def heard_from(self, connection: "ServerConnection") -> None: ...

    def unregister(self, connection: "ServerConnection") -> None: ...

    def set_held_bytes(self, connection: "ServerConnection", held_bytes: int, *, is_receiving: bool) -> None: ...

    def end_exemption(self, connection: "ServerConnection") -> None: ...

    def reserve(self, connection: "ServerConnection", more_bytes: int) -> bool: ...

    def adopt(self, task: "asyncio.Task[Any]") -> None: ...

    def flush_soon(self, connection: "ServerConnection") -> None: ...


class PendingResponse:
    """A request in flight, in the connection's queue of responses."""

    __slots__ = ("is_done", "memory_bytes", "pieces", "request", "size", "source")

    def __init__(self, request: ReceivedRequest) -> None:
        # None once the response is encoded: the request's memory is free while the response waits for earlier ones.
        self.request: ReceivedRequest | None = request
        # The deferred response, future or task of the handler, if it did not return the response.
        self.source: DeferredResponse | asyncio.Future[Any] | None = None
        self.pieces: ResponsePieces = []
        # Bytes of the request, then of the response.
        self.size = request.size
        # Those of the response without the regions of files in it.
        self.memory_bytes = 0
        self.is_done = False
