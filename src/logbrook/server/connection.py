"""A client's connection: frames in, answers out, in the order of the requests.

Requests are begun as they arrive and may finish in any order; their answers wait for their turn. What is under way is
bounded in number and in bytes, requests and answers alike: beyond that nothing more is read until some of it is done,
and the client's own sending is what waits. A client that takes forever over a request or over an answer is hung up on.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from types import CoroutineType
from typing import Any, NamedTuple, Protocol, cast

from logbrook.protocol.encoding import Pieces
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.frame_memory import FrameMemory
from logbrook.protocol.framing import FrameReader
from logbrook.server.api import CloseConnectionError
from logbrook.server.logs import RepeatedWarnings
from logbrook.server.probe import ServerProbe

_WRITE_BUFFER_BYTES = 1 << 20
# A connection is stalled when it moves less than this within `connection_stalled_ms`.
_PROGRESS_BYTES = 64 * 1024
# Close at once, and do not let the kernel go on sending what nobody takes.
_RESET = struct.pack("ii", 1, 0)

_logger = logging.getLogger(__name__)


class Received(Protocol):
    """A request: the name of what it asks for, and its bytes."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...


class Dispatcher(Protocol):
    """Whoever knows what requests mean. An answer may come at once, or be a future or a coroutine."""

    probe: ServerProbe

    def new_reader(self, memory: FrameMemory) -> FrameReader: ...

    def receive(self, frame: memoryview, host: str) -> Any: ...

    def handle(self, received: Any) -> Any: ...

    def answer(self, received: Any, answer: Any) -> tuple[Pieces, int]: ...


class Host(Protocol):
    """Whoever owns the connections."""

    frame_memory: FrameMemory
    warnings: RepeatedWarnings
    in_flight_bytes_max: int
    in_flight_requests_max: int

    def opened(self, connection: "Connection") -> bool: ...

    def closed(self, connection: "Connection") -> None: ...

    def holds(self, connection: "Connection", more_bytes: int) -> bool: ...

    def outlives(self, task: "asyncio.Task[Any]") -> None: ...

    def unsent(self, more_bytes: int) -> None: ...


class _Turn:
    """A request that was begun: its place in the queue of answers."""

    __slots__ = ("future", "is_done", "pieces", "received", "size")

    def __init__(self, received: Received) -> None:
        # Until it is answered: then its memory is free, though the answer may have to wait for its turn.
        self.received: Received | None = received
        self.future: asyncio.Future[Any] | None = None
        self.pieces: Pieces = []
        # What it holds in memory: the request, then the answer.
        self.size = received.size
        self.is_done = False


class _Mark(NamedTuple):
    """How far the connection was when it was last seen to make progress."""

    at_s: float
    frames: int
    moved_bytes: int


class Connection(asyncio.BufferedProtocol):
    """One client. All of it runs on the event loop."""

    BEGUN_PER_TURN_MAX = 64

    __slots__ = (
        "_accounted_bytes",
        "_busy_s",
        "_dispatcher",
        "_frames",
        "_host",
        "_in_flight_bytes",
        "_is_closing",
        "_is_flush_due",
        "_is_processing",
        "_is_reading",
        "_is_writable",
        "_loop",
        "_mark",
        "_out",
        "_out_bytes",
        "_queue",
        "_reader",
        "_received_bytes",
        "_sent_bytes",
        "_transport",
        "_turns",
        "_unsent_bytes",
        "peer",
    )

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop, dispatcher: Dispatcher) -> None:
        self._host = host
        self._loop = loop
        self._dispatcher = dispatcher
        self._reader = dispatcher.new_reader(host.frame_memory)
        self._queue: deque[memoryview] = deque()
        self._turns: deque[_Turn] = deque()
        self._in_flight_bytes = 0
        self._is_writable = True
        self._is_reading = True
        self._is_processing = False
        self._is_closing = False
        # Answers whose turn has come, to be sent together.
        self._out: Pieces = []
        self._out_bytes = 0
        self._is_flush_due = False
        self._frames = 0
        self._received_bytes = 0
        self._sent_bytes = 0
        self._busy_s = loop.time()
        self._mark: _Mark | None = None
        self._accounted_bytes = 0
        self.peer = ""
        # What the client has not taken, while that holds things up.
        self._unsent_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else ""
        if not self._host.opened(self):
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._is_closing = True
        self._queue.clear()
        while self._turns:
            self._give_up(self._turns.pop())
        self._out.clear()
        self._host.holds(self, -self._accounted_bytes)
        self._note_unsent(0)
        self._host.closed(self)

    @property
    def is_idle(self) -> bool:
        return not (self._turns or self._queue or self._reader.is_within_frame)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._received_bytes += nbytes
        try:
            frames = self._reader.received(nbytes)
        except ProtocolError as error:
            self._hang_up(error)
            return
        if frames:
            self._frames += len(frames)
            self._busy_s = self._loop.time()
            self._queue.extend(frames)
            self._process()
        if not self._account():
            self._pause_reading()

    def pause_writing(self) -> None:
        self._is_writable = False
        self._note_unsent(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_writable = True
        self._note_unsent(0)
        self._process()

    def resume_reading(self) -> None:
        """There is room again for what the connection was receiving."""
        if not self._is_reading and not self._is_closing and self._has_room and not self._queue:
            self._is_reading = True
            self._transport.resume_reading()

    def check(self, now_s: float, idle_s: float, stalled_s: float) -> str | None:
        """Why the connection should be hung up on, if it should. Called every now and then."""
        unsent = self._transport.get_write_buffer_size()
        if self.is_idle and not unsent:
            self._mark = None
            return "idle" if now_s - self._busy_s >= idle_s else None
        # A client is idle from its last answer on, not from its last request: that may have had to wait for long.
        self._busy_s = now_s
        if not self._is_writable:
            self._note_unsent(unsent)
        is_clients_turn = unsent > 0 or (self._reader.is_within_frame and self._is_reading)
        moved = self._received_bytes + self._sent_bytes - unsent
        mark = self._mark
        if (
            not is_clients_turn
            or mark is None
            or mark.frames != self._frames
            or moved - mark.moved_bytes >= _PROGRESS_BYTES
        ):
            self._mark = _Mark(now_s, self._frames, moved)
        elif now_s - mark.at_s >= stalled_s:
            return "stalled"
        return None

    def close_when_done(self) -> None:
        """Read no more, answer what was begun, then hang up."""
        self._pause_reading()
        self._queue.clear()
        self._is_closing = True
        self._close_if_done()

    def reset(self) -> None:
        """Hang up on a client that does not take its answers."""
        connected = self._transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.abort()

    def abort(self) -> None:
        self._is_closing = True
        self._transport.abort()

    def _note_unsent(self, size: int) -> None:
        more, self._unsent_bytes = size - self._unsent_bytes, size
        self._host.unsent(more)

    def _account(self) -> bool:
        """Tell the host how much the connection holds. False when it may not hold more than it does."""
        held = self._reader.held_bytes + self._in_flight_bytes
        more, self._accounted_bytes = held - self._accounted_bytes, held
        return self._host.holds(self, more) or not self._reader.held_bytes

    @property
    def _has_room(self) -> bool:
        return (
            self._is_writable
            and len(self._turns) < self._host.in_flight_requests_max
            and self._in_flight_bytes + self._transport.get_write_buffer_size() < self._host.in_flight_bytes_max
        )

    def _process(self) -> None:
        """Begin what may be begun, send what is ready, and read on when all of it is begun."""
        if self._is_processing:
            return
        self._is_processing = True
        try:
            for _ in range(self.BEGUN_PER_TURN_MAX):
                if not self._queue or not self._has_room or self._is_closing:
                    break
                self._begin(self._queue.popleft())
                if self._out_bytes >= _WRITE_BUFFER_BYTES:
                    # See whether the client takes it before there is more.
                    self._send()
            self._send()
        finally:
            self._is_processing = False
        if self._is_closing:
            self._close_if_done()
            return
        if self._queue or not self._has_room:
            self._pause_reading()
            if self._queue and self._has_room:
                # Thousands may have come at once; the others get their turn in between.
                self._flush_soon()
        else:
            self.resume_reading()

    def _send(self) -> None:
        """Send the answers whose turn has come."""
        size = self._out_bytes
        if not size:
            return
        out, self._out, self._out_bytes = self._out, [], 0
        self._in_flight_bytes -= size
        self._sent_bytes += size
        if not self._transport.is_closing():
            if len(out) == 1:
                self._transport.write(out[0])
            else:
                self._transport.writelines(out)
            if not self._is_writable:
                self._note_unsent(self._transport.get_write_buffer_size())

    def _pause_reading(self) -> None:
        if self._is_reading and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def _begin(self, frame: memoryview) -> None:
        try:
            received = self._dispatcher.receive(frame, self.peer)
        except ProtocolError as error:
            self._hang_up(error)
            return
        self._begin_request(received)

    def _begin_request(self, received: Received) -> None:
        turn = _Turn(received)
        self._turns.append(turn)
        self._in_flight_bytes += turn.size
        try:
            handled = self._dispatcher.handle(received)
        except Exception as error:
            self._fail(turn, error)
            return
        if isinstance(handled, CoroutineType):
            handled = self._loop.create_task(handled)
        elif not isinstance(handled, asyncio.Future):
            self._finish(turn, handled)
            return
        turn.future = handled
        handled.add_done_callback(lambda future: self._answered(turn, future))

    def _answered(self, turn: _Turn, future: "asyncio.Future[Any]") -> None:
        turn.future = None
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._fail(turn, error)
            return
        self._finish(turn, future.result())

    def _finish(self, turn: _Turn, answer: Any) -> None:
        assert turn.received is not None
        try:
            pieces, size = self._dispatcher.answer(turn.received, answer)
        except Exception as error:
            self._fail(turn, error)
            return
        turn.received = None
        turn.pieces = pieces
        self._in_flight_bytes += size - turn.size
        turn.size = size
        turn.is_done = True
        turns = self._turns
        while turns and turns[0].is_done:
            first = turns.popleft()
            self._out += first.pieces
            self._out_bytes += first.size
        if not self._is_processing:
            # Others may finish in the same moment, by the same sync: one write serves them all.
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if not self._transport.is_closing():
            self._process()
            self._account()

    def _close_if_done(self) -> None:
        if self._is_closing and not (self._turns or self._out) and not self._transport.is_closing():
            self._transport.close()

    def _give_up(self, turn: _Turn) -> None:
        """Nobody waits for the answer any more."""
        if isinstance(turn.future, asyncio.Task):
            # It may be about to change something, and must not stop half-way.
            self._host.outlives(turn.future)
        elif turn.future is not None:
            turn.future.cancel()

    def _hang_up(self, error: ProtocolError) -> None:
        self._note_protocol_error(error)
        self.abort()

    def _note_protocol_error(self, error: ProtocolError) -> None:
        self._dispatcher.probe.protocol_errors += 1
        self._host.warnings.warn(self.peer, f"closing a connection from {self.peer}: {error}")

    def _fail(self, turn: _Turn, error: BaseException) -> None:
        assert turn.received is not None
        name = turn.received.name
        if isinstance(error, CloseConnectionError):
            _logger.info("closing a connection from %s after %s: %s", self.peer, name, error)
            # Those before it get their answers, those after it do not.
            while self._turns and self._turns[-1] is not turn:
                self._give_up(self._turns.pop())
            self._finish(turn, None)
            self.close_when_done()
            return
        # Our own bug: the sender is told by hanging up, and nobody else notices.
        self._dispatcher.probe.handler_failures += 1
        _logger.error("%s from %s failed", name, self.peer, exc_info=error)
        self.abort()
