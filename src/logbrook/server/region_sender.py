"""Sends responses whose records are in files: they are read as the client takes them.

A response is a list of buffers and of regions of segments (`FileRegion`). From the first region on, all that follows is
queued here. A piece of at most `_PIECE_BYTES` is read into a reused buffer and written to the transport; the next one
follows in a later turn of the event loop, when the transport is not congested. So a large response takes the memory of
one piece, and its bytes are still in the processor's cache when they are sent.

Requests of other clients wait for the piece of the current turn. While there are any, pieces are therefore a quarter as
large: for a producer beside a consumer at full speed the median latency halves, and the consumer loses a fifth of its
throughput. Responses without regions tell that there are such clients, since consumers at full speed do not get any.

Pieces count as memory of responses while the transport is congested. If that is scarce, pieces are small; if it is
exhausted, the next one is read when there is room.

What a region refers to was in the page cache when it was made. If it is not any more, a thread loads it first. A region
that cannot be read ends the connection, since its length is announced already. The next read of that file is made
before its length is announced, so that the client gets the error.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from logbrook.ports import FileRegion
from logbrook.ports.buffer_pool import BUFFER_BYTES, POOLED_BYTES_MIN, BufferPool
from logbrook.protocol.encoding import Piece, ResponsePieces
from logbrook.server.response_memory import SCARCE_FETCH_BYTES, ResponseMemory

# Read and written in one turn of the event loop, about 0.8 ms: a buffer of the pool.
_PIECE_BYTES = BUFFER_BYTES
# The same while other clients are served: the least for which there is a buffer.
_SHARED_PIECE_BYTES = POOLED_BYTES_MIN
# Clients count as served for this time after a response.
_SHARED_S = 0.1
# After this time a piece is tried again for which there was no memory.
_MEMORY_WAIT_S = 0.1


class RegionLoader(Protocol):
    """Reads from disk in a thread: see `ColdReads`."""

    def load_region(self, region: FileRegion, start: int, length: int) -> "asyncio.Future[None]": ...

    def note_failed_region(self, region: FileRegion) -> None: ...


class RegionSender:
    """The queue of one connection, on the event loop.

    `on_written` is called after each piece, `on_sent` when the queue has become empty, `on_failure` when a region could
    not be read.
    """

    __slots__ = (
        "_buffers",
        "_is_loaded",
        "_is_paused",
        "_loader",
        "_loading",
        "_loop",
        "_memory",
        "_next_turn",
        "_on_failure",
        "_on_sent",
        "_on_written",
        "_queue",
        "_start",
        "_transport",
        "queued_bytes",
        "waits_for_memory",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        buffers: BufferPool,
        loader: RegionLoader,
        memory: ResponseMemory,
        on_written: Callable[[], None],
        on_sent: Callable[[], None],
        on_failure: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._buffers = buffers
        self._loader = loader
        self._memory = memory
        self._on_written = on_written
        self._on_sent = on_sent
        self._on_failure = on_failure
        self._queue: deque[Piece | FileRegion] = deque()
        # Bytes of the first piece of the queue that are written, if it is a region.
        self._start = 0
        # Of the whole queue, not written yet.
        self.queued_bytes = 0
        # The transport is congested.
        self._is_paused = False
        self.waits_for_memory = False
        self._next_turn: asyncio.Handle | None = None
        self._loading: asyncio.Future[None] | None = None
        # The next bytes were loaded by a thread, so they are read even if that waits for the disk again.
        self._is_loaded = False

    def send(self, pieces: ResponsePieces, size: int) -> None:
        """Send responses of `size` bytes, after all earlier ones."""
        is_first = not self._queue
        self._queue += pieces
        self.queued_bytes += size
        if is_first and not self._is_paused:
            self._write()

    def pause(self) -> None:
        """The transport is congested."""
        self._is_paused = True

    def resume(self) -> None:
        """The transport is not congested any more."""
        self._is_paused = False
        if self._queue and self._loading is None and self._next_turn is None:
            self._write()

    def close(self) -> None:
        """Drop what is not sent. The connection is lost."""
        self._queue.clear()
        self.queued_bytes = 0
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None

    def _write(self) -> None:
        """Write one piece, and see to the next."""
        self._next_turn = None
        if not self._queue or self._transport.is_closing():
            return
        self.waits_for_memory = self._memory.is_exhausted
        if self.waits_for_memory:
            self._next_turn = self._loop.call_later(_MEMORY_WAIT_S, self._write)
            return
        try:
            written = self._take_piece(self._piece_bytes())
        except OSError as error:
            self._fail(error)
            return
        if written:
            self._transport.writelines(written)
            self._on_written()
        if self._loading is not None:
            return
        if not self._queue:
            self._on_sent()
        elif not self._is_paused:
            self._next_turn = self._loop.call_soon(self._write)

    def _piece_bytes(self) -> int:
        if self._memory.is_scarce:
            return SCARCE_FETCH_BYTES
        is_shared = self._loop.time() - self._memory.small_response_s < _SHARED_S
        return _SHARED_PIECE_BYTES if is_shared else _PIECE_BYTES

    def _take_piece(self, room_bytes: int) -> list[Piece]:
        """Take up to `room_bytes` of the queue, fewer if something has to be loaded first. Raises OSError."""
        queue = self._queue
        taken: list[Piece] = []
        while queue and room_bytes > 0:
            piece = queue[0]
            if not isinstance(piece, bytes | bytearray | memoryview):
                length = min(room_bytes, len(piece) - self._start)
                data = self._read(piece, length)
                if data is None:
                    break
                taken.append(data)
                self._start += length
                if self._start == len(piece):
                    queue.popleft()
                    self._start = 0
            else:
                length = len(piece)
                taken.append(piece)
                queue.popleft()
            room_bytes -= length
            self.queued_bytes -= length
        return taken

    def _read(self, region: FileRegion, length: int) -> memoryview | None:
        """Return the next bytes of the region, or None if a thread loads them first. Raises OSError."""
        buffer = self._buffers.take(length)
        if not self._is_loaded and region.read_cached_into(buffer, self._start) < length:
            self._load(region)
            return None
        if self._is_loaded:
            self._is_loaded = False
            if region.read_into(buffer, self._start) < length:
                raise OSError(0, "the file was truncated", region.path)
        return buffer

    def _load(self, region: FileRegion) -> None:
        length = min(_PIECE_BYTES, len(region) - self._start)
        self._loading = loading = self._loader.load_region(region, self._start, length)

        def loaded(loading: "asyncio.Future[None]") -> None:
            if loading.cancelled() or self._loading is not loading:
                return
            self._loading = None
            error = loading.exception()
            if error is not None:
                self._fail(OSError(0, str(error), region.path))
                return
            self._is_loaded = True
            if not self._is_paused:
                self._write()

        loading.add_done_callback(loaded)

    def _fail(self, error: OSError) -> None:
        region = self._queue[0]
        assert not isinstance(region, bytes | bytearray | memoryview)
        self._loader.note_failed_region(region)
        self._on_failure(error)
