"""One client connection: frames in, responses out, in the order of the requests.

Requests are started as they arrive and may finish in any order; a response is sent after all earlier ones. The
requests in flight are bounded in number, and requests plus responses in bytes: beyond that the connection stops
reading, so that back-pressure reaches the client through TCP. A connection whose client exceeds a quota is muted: it
does not read for some time (KIP-219). A client that stalls in the middle of a request or does
not read its responses is disconnected.

Memory is counted three ways: in-flight bytes (requests being handled, and responses not yet written to the transport),
held bytes (in-flight bytes plus a partly received frame; bounded over all connections) and unsent bytes (responses not
yet written to the transport, and its write buffer while it is congested; bounded over all connections too). The records
of a response that are sent from the files of their segments (`response_writer`) are not in memory: they count as in
flight until they are written, and no further request is started while there are some.
"""

import asyncio
import socket
import struct
from collections import deque
from types import CoroutineType
from typing import Any, cast

from logbrook.model.event_log import event_logger
from logbrook.protocol.errors import ProtocolError
from logbrook.server.api import CloseConnectionError, DeferredResponse
from logbrook.server.connection_contract import ConnectionRegistry, PendingResponse, ReceivedRequest, RequestDispatcher
from logbrook.server.peer_progress import ConnectionTimeouts, PeerProgress, Transfer
from logbrook.server.response_writer import COUNTED_BYTES_MIN, WRITE_BUFFER_BYTES, ResponseWriter
from logbrook.server.session import ANONYMOUS_SESSION

# Time from the response to a failed authentication to the end of the connection. kafka-python ignores a response that
# arrives together with the end.
_FAILED_CLOSE_S = 0.1
# SO_LINGER of 0 s: close with a reset and drop the data that the client has not read.
_RESET = struct.pack("ii", 1, 0)

_logger = event_logger(__name__)


class ServerConnection(asyncio.BufferedProtocol):
    """The connection of one client. All methods run on the event loop."""

    # Requests started before other connections get their turn.
    STARTED_PER_TURN_MAX = 64

    __slots__ = (
        "_busy_s",
        "_connected_s",
        "_dispatcher",
        "_frames",
        "_in_flight_bytes",
        "_is_closing",
        "_is_flush_due",
        "_is_lingering",
        "_is_lost",
        "_is_processing",
        "_is_reading",
        "_is_silent",
        "_loop",
        "_output",
        "_pending",
        "_progress",
        "_queue",
        "_reader",
        "_received_bytes",
        "_registry",
        "_session",
        "_transport",
        "_unmuting",
        "held_bytes",
        "is_exempt",
        "peer",
    )

    def __init__(
        self, registry: ConnectionRegistry, loop: asyncio.AbstractEventLoop, dispatcher: RequestDispatcher
    ) -> None:
        self._registry = registry
        self._loop = loop
        self._dispatcher = dispatcher
        # Both are replaced when the peer is known.
        self._session = ANONYMOUS_SESSION
        self._reader = dispatcher.new_reader(registry.receive_buffers, self._session)
        # Frames whose requests are not started.
        self._queue: deque[memoryview] = deque()
        self._pending: deque[PendingResponse] = deque()
        self._in_flight_bytes = 0
        self._is_reading = True
        # No request of an authenticated client has arrived.
        self._is_silent = True
        self._is_processing = False
        self._is_closing = False
        self._is_lingering = False
        self._is_lost = False
        self._output = ResponseWriter(loop, registry.response_memory, self._proceed, self._on_region_failed)
        self._is_flush_due = False
        self._frames = 0
        self._received_bytes = 0
        self._busy_s = self._connected_s = loop.time()
        self._progress = PeerProgress()
        self._unmuting: asyncio.TimerHandle | None = None
        self.held_bytes = 0
        # True while its request may exceed its share of memory. Set by `ReceiveMemory`.
        self.is_exempt = False
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._output.connect(self._transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else ""
        if not self._registry.register(self):
            self.abort()
            return
        if delay_s := self._registry.refusal_delay_s(self):
            # Later, because transports begin to read after this call.
            self._loop.call_soon(self._pause_reading)
            self._loop.call_later(delay_s, self.abort)
            return
        try:
            self._session = self._dispatcher.new_session(self.peer, transport.get_extra_info("peercert"))
        except ValueError as error:
            self._registry.warnings.warn(self.peer, "certificate refused", peer=self.peer, error=error)
            self.abort()
            return
        self._reader = self._dispatcher.new_reader(self._registry.receive_buffers, self._session)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._is_closing = self._is_lost = True
        self._queue.clear()
        while self._pending:
            self._abandon(self._pending.pop())
        self._session.end()
        self._output.close()
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._registry.unregister(self)

    @property
    def is_reading(self) -> bool:
        return self._is_reading

    @property
    def frame_bytes(self) -> int:
        """Size of the request that has arrived in part; 0 if there is none."""
        return self._reader.frame_bytes

    @property
    def growth_bytes(self) -> int:
        """Memory that the next bytes of the request need, in addition to what it has."""
        return self._reader.growth_bytes

    @property
    def is_idle(self) -> bool:
        return not (self._pending or self._queue or self._reader.is_within_frame)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._received_bytes += nbytes
        try:
            frames = self._reader.received(nbytes)
        except ProtocolError as error:
            self._disconnect(error)
            return
        if frames:
            if self.is_exempt:
                # For one request, also if the next one has begun to arrive.
                self._registry.end_exemption(self)
            if self._is_silent and self._session.is_authenticated:
                self._is_silent = False
                self._registry.heard_from(self)
            self._frames += len(frames)
            self._busy_s = self._loop.time()
            self._queue.extend(frames)
            self._process()
        self._update_held_bytes()

    def pause_writing(self) -> None:
        self._output.pause()

    def resume_writing(self) -> None:
        self._output.resume()

    def resume_reading(self) -> None:
        """Read again, if the connection's own limits permit. Called when there is memory for its request."""
        if not self._is_reading and not self._is_closing and self._has_room and not self._queue:
            self._is_reading = True
            self._transport.resume_reading()

    def check(self, now_s: float, limits: ConnectionTimeouts) -> str | None:
        """Return the reason to disconnect, such as "silent", "idle" or "stalled", or None. Called periodically."""
        if not self._session.is_authenticated and now_s - self._connected_s >= limits.authentication_s:
            return "not authenticated"
        unsent_bytes = self._output.unsent_bytes
        if self._session.muted_until_s and not unsent_bytes:
            # It is the broker that the client waits for.
            self._progress.reset()
            self._busy_s = now_s
            return None
        if self.is_idle and not unsent_bytes:
            self._progress.reset()
            if not self._frames and now_s - self._busy_s >= limits.first_request_s:
                return "silent"
            if self._session.expires_s is not None and now_s >= self._session.expires_s:
                return "expired"
            return "idle" if now_s - self._busy_s >= limits.idle_s else None
        # Idle time counts from the last response, which may come long after its request.
        self._busy_s = now_s
        self._output.update_count()
        transfer = Transfer(
            self._frames,
            self._received_bytes + self._output.sent_bytes - unsent_bytes,
            unsent_bytes,
            self._reader.frame_bytes if self._is_reading else 0,
        )
        is_scarce = self._registry.response_memory.is_scarce
        is_stalled = self._progress.is_stalled(now_s, transfer, limits.stalled_s, is_memory_scarce=is_scarce)
        return "stalled" if is_stalled else None

    def close_when_done(self) -> None:
        """Stop reading, send the responses in flight, then close."""
        self._pause_reading()
        self._queue.clear()
        self._is_closing = True
        self._close_if_done()

    def reset(self) -> None:
        """Disconnect a client that does not read its responses; unsent data is dropped."""
        connected = self._transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.abort()

    def abort(self) -> None:
        self._is_closing = True
        self._transport.abort()

    def flush(self) -> None:
        """Send the finished responses and start further requests. Called by the registry after `flush_soon`."""
        self._is_flush_due = False
        self._proceed()

    def finish(self, pending: PendingResponse, response: Any) -> None:
        """Encode the response of a request in flight, and send it once all earlier ones are."""
        assert pending.request is not None
        try:
            pieces, size = self._dispatcher.encode_response(pending.request, response)
        except Exception as error:
            self.fail(pending, error)
            return
        if self._is_lost:
            # The handler is a task that has outlived the connection.
            return
        pending.request = pending.source = None
        pending.pieces = pieces
        self._in_flight_bytes += size - pending.size
        pending.memory_bytes = self._output.count(pieces, size)
        pending.size = size
        pending.is_done = True
        if self._session.is_failed:
            self.close_when_done()
        queue = self._pending
        while queue and queue[0].is_done:
            first = queue.popleft()
            self._output.add(first.pieces, first.size, first.memory_bytes)
        if not self._is_processing:
            # Other requests may finish in the same turn, by the same sync: one write serves them all.
            self._flush_soon()

    def fail(self, pending: PendingResponse, error: BaseException) -> None:
        """Close the connection because of an error of the handler, for which the protocol has no response."""
        assert pending.request is not None
        name = pending.request.name
        if isinstance(error, CloseConnectionError):
            self._registry.warnings.warn(
                f"{name} {self.peer}", "connection closed by handler", peer=self.peer, api=name, reason=error
            )
            # Earlier requests get their responses, later ones do not.
            while self._pending and self._pending[-1] is not pending:
                self._abandon(self._pending.pop())
            self.finish(pending, None)
            self.close_when_done()
            return
        # A bug in the broker: close this connection only.
        self._dispatcher.probe.handler_failures += 1
        _logger.error("request handler failed", api=name, peer=self.peer, exc_info=error)
        self.abort()

    def _update_held_bytes(self) -> None:
        """Report the memory held to the registry, and stop reading if there is none for more of a request."""
        reading_bytes = self._reader.held_bytes
        held_bytes = reading_bytes + self._in_flight_bytes
        if not -COUNTED_BYTES_MIN < held_bytes - self.held_bytes < COUNTED_BYTES_MIN:
            self._registry.set_held_bytes(self, held_bytes, is_receiving=reading_bytes > 0)
        if reading_bytes and (more_bytes := self._reader.growth_bytes) and not self._registry.reserve(self, more_bytes):
            self._pause_reading()

    @property
    def _has_room(self) -> bool:
        if not self._output.is_writable or self._session.muted_until_s:
            return False
        if self._output.unsent_memory_bytes and self._registry.response_memory.is_scarce:
            return False
        in_flight_bytes = self._in_flight_bytes
        if not in_flight_bytes:
            # The write buffer alone is below its own limit, else the transport would have paused writing.
            return True
        return (
            len(self._pending) < self._registry.in_flight_requests_max
            and in_flight_bytes + self._transport.get_write_buffer_size() < self._registry.in_flight_bytes_max
        )

    def _proceed(self) -> None:
        """Go on after a wait. Reading that is resumed takes memory, which may have to be waited for."""
        if not self._transport.is_closing():
            self._process()
            self._update_held_bytes()

    def _process(self) -> None:
        """Start requests within the limits, send finished responses, resume reading if all requests are started."""
        if self._is_processing:
            return
        if self._queue:
            self._is_processing = True
            try:
                self._start_requests()
            finally:
                self._is_processing = False
        if self._output.out_bytes:
            self._send()
        if self._is_closing:
            self._close_if_done()
            return
        if self._queue or not (self._has_room or self._output.region_bytes):
            self._pause_reading()
            if self._session.muted_until_s:
                self._unmute_later()
            elif self._queue and self._has_room:
                # Thousands of requests may have arrived at once; other connections get their turn first.
                self._flush_soon()
        elif not self._is_reading:
            self.resume_reading()

    def _unmute_later(self) -> None:
        if self._unmuting is None:
            self._unmuting = self._loop.call_at(self._session.muted_until_s, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        if self._loop.time() < self._session.muted_until_s:
            # A request that was in flight has exceeded a quota, too.
            self._unmute_later()
            return
        self._session.muted_until_s = 0.0
        self._proceed()

    def _start_requests(self) -> None:
        for _ in range(self.STARTED_PER_TURN_MAX):
            if not self._queue or not self._has_room or self._is_closing:
                return
            self._start(self._queue.popleft())
            if self._output.out_bytes >= WRITE_BUFFER_BYTES:
                # If the client does not read, the transport pauses writing and no more requests are started.
                self._send()

    def _send(self) -> None:
        """Write the responses that may be sent."""
        self._in_flight_bytes -= self._output.out_bytes
        self._output.write(self._registry.receive_buffers.pool, self._registry.region_loader)

    def _on_region_failed(self, error: OSError) -> None:
        """The length of the records is announced already: the client gets them from its next connection."""
        self._registry.warnings.warn(
            self.peer, "records could not be sent", peer=self.peer, file=error.filename, error=error
        )
        self.abort()

    def _pause_reading(self) -> None:
        if self._is_reading and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def _start(self, frame: memoryview) -> None:
        try:
            request = self._dispatcher.receive(frame, self._session)
        except ProtocolError as error:
            self._disconnect(error)
            return
        self._start_request(request)

    def _start_request(self, request: ReceivedRequest) -> None:
        pending = PendingResponse(request)
        self._pending.append(pending)
        self._in_flight_bytes += pending.size
        try:
            result = self._dispatcher.handle(request)
        except Exception as error:
            self.fail(pending, error)
            return
        kind = type(result)
        if kind is DeferredResponse:
            pending.source = result
            result.attach(self, pending)
            return
        if kind is CoroutineType:
            result = self._loop.create_task(result)
        elif not isinstance(result, asyncio.Future):
            self.finish(pending, result)
            return
        pending.source = result
        result.add_done_callback(lambda future: self._finish_from(future, pending))

    def _finish_from(self, future: "asyncio.Future[Any]", pending: PendingResponse) -> None:
        pending.source = None
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self.fail(pending, error)
        else:
            self.finish(pending, future.result())

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._registry.flush_soon(self)

    def _close_if_done(self) -> None:
        is_sending = self._pending or self._output.out_bytes or self._output.region_bytes
        if not self._is_closing or is_sending or self._transport.is_closing():
            return
        if self._session.is_failed and not self._is_lingering:
            self._is_lingering = True
            self._loop.call_later(_FAILED_CLOSE_S, self._transport.close)
        elif not self._is_lingering:
            self._transport.close()

    def _abandon(self, pending: PendingResponse) -> None:
        """Drop a response that cannot be sent any more."""
        source = pending.source
        if isinstance(source, DeferredResponse):
            source.abandon()
        elif isinstance(source, asyncio.Task):
            # The task may be in the middle of a change: let it finish instead of cancelling it.
            self._registry.adopt(source)
        elif source is not None:
            source.cancel()

    def _disconnect(self, error: ProtocolError) -> None:
        self._note_protocol_error(error)
        self.abort()

    def _note_protocol_error(self, error: ProtocolError) -> None:
        self._dispatcher.probe.protocol_errors += 1
        self._registry.warnings.warn(self.peer, "invalid request", peer=self.peer, error=error)
