"""The output of a connection: the responses that may be sent, and the memory that they hold.

Responses in memory are written to the transport, those with regions of files go through a `RegionSender`. Memory is
counted from when a response is encoded until the transport has sent it: what is not written to the transport, and the
transport's write buffer while it is congested. Regions are not in memory; they count as unsent only.
"""

import asyncio
from collections.abc import Callable

from logbrook.ports.buffer_pool import BufferPool
from logbrook.protocol.encoding import IN_MEMORY, ResponsePieces
from logbrook.server.region_sender import RegionLoader, RegionSender
from logbrook.server.response_memory import ResponseMemory

# Nothing further is to be written while the write buffer of the transport has this many bytes.
WRITE_BUFFER_BYTES = 1 << 20
# The transport is congested when its write buffer has this many bytes; fewer are not counted as memory.
_CONGESTED_BYTES = 64 * 1024
# Smaller responses are not counted as memory: they are bounded per connection. They have no regions of files, which are
# larger (`REGION_BYTES_MIN`); `write` relies on it.
COUNTED_BYTES_MIN = 4 * 1024


class ResponseWriter:
    """One per connection, on the event loop.

    `on_writable` is called when it can be written to again, `on_failure` if a region of a file could not be read.
    """

    __slots__ = (
        "_is_congested",
        "_loop",
        "_memory",
        "_on_failure",
        "_on_writable",
        "_out",
        "_out_memory_bytes",
        "_regions",
        "_transport",
        "_unwritten_bytes",
        "is_writable",
        "out_bytes",
        "sent_bytes",
        "unsent_memory_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        memory: ResponseMemory,
        on_writable: Callable[[], None],
        on_failure: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._memory = memory
        self._on_writable = on_writable
        self._on_failure = on_failure
        self._is_congested = False
        self.is_writable = True
        # Responses that may be sent, to be written together.
        self._out: ResponsePieces = []
        self.out_bytes = 0
        self._out_memory_bytes = 0
        # Bytes of all responses passed to `write`, sent or still queued in the region sender.
        self.sent_bytes = 0
        # Memory of responses that are encoded and not written.
        self._unwritten_bytes = 0
        # The same plus the transport's write buffer while it is congested, as counted in the memory of all responses.
        self.unsent_memory_bytes = 0
        # Made for the first response with regions of files.
        self._regions: RegionSender | None = None

    def connect(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_CONGESTED_BYTES)

    @property
    def region_bytes(self) -> int:
        """Bytes that wait to be read from files, or behind such bytes."""
        return 0 if self._regions is None else self._regions.queued_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes that are written and that the client has not taken, without those that wait for memory."""
        regions = self._regions
        waiting_bytes = 0 if regions is None or regions.waits_for_memory else regions.queued_bytes
        return self._transport.get_write_buffer_size() + waiting_bytes

    def count(self, pieces: ResponsePieces, size: int) -> int:
        """Count the memory of an encoded response of `size` bytes, and return it."""
        memory_bytes = size
        if size >= COUNTED_BYTES_MIN:
            memory_bytes -= sum(len(piece) for piece in pieces if type(piece) not in IN_MEMORY)
            self._set_unsent(self.unsent_memory_bytes + memory_bytes)
        self._unwritten_bytes += memory_bytes
        return memory_bytes

    def update_count(self) -> None:
        """Count the memory again: the client may have read since it was counted. Called periodically."""
        if self._is_congested:
            self._set_unsent(self._unwritten_bytes + self._transport.get_write_buffer_size())

    def add(self, pieces: ResponsePieces, size: int, memory_bytes: int) -> None:
        """Add a response whose memory is counted; `write` writes it."""
        self._out += pieces
        self.out_bytes += size
        self._out_memory_bytes += memory_bytes

    def write(self, buffers: BufferPool, loader: RegionLoader) -> None:
        """Write the responses that were added."""
        out, size, memory_bytes = self._out, self.out_bytes, self._out_memory_bytes
        self._out, self.out_bytes, self._out_memory_bytes = [], 0, 0
        self._unwritten_bytes -= memory_bytes
        self.sent_bytes += size
        if not self._transport.is_closing():
            if size > memory_bytes or (self._regions is not None and self.region_bytes):
                self._send_regions(out, size, buffers, loader)
            else:
                self._memory.small_response_s = self._loop.time()
                if len(out) == 1:
                    self._transport.write(out[0])  # type: ignore[arg-type]  # without regions, pieces are in memory
                else:
                    self._transport.writelines(out)  # type: ignore[arg-type]
        buffer_bytes = self._transport.get_write_buffer_size() if self._is_congested else 0
        self.is_writable = buffer_bytes < WRITE_BUFFER_BYTES and (self._regions is None or not self.region_bytes)
        if self.unsent_memory_bytes or buffer_bytes:
            self._set_unsent(self._unwritten_bytes + buffer_bytes)

    def pause(self) -> None:
        """The transport is congested. Called within `write`, which counts the bytes, or while regions are sent."""
        self._is_congested = True
        if self._regions is not None:
            self._regions.pause()

    def resume(self) -> None:
        """The transport is not congested any more."""
        self._is_congested = False
        self._set_unsent(self._unwritten_bytes)
        had_regions = self.region_bytes > 0
        if self._regions is not None:
            self._regions.resume()
        if not had_regions:
            self.is_writable = True
            self._on_writable()

    def close(self) -> None:
        """Drop all responses, and the references to the connection, which is lost: it is freed at once."""
        self._out.clear()
        if self._regions is not None:
            self._regions.close()
            self._regions = None
        self._on_writable = self._on_failure = _do_nothing
        self._set_unsent(0)

    def _send_regions(self, out: ResponsePieces, size: int, buffers: BufferPool, loader: RegionLoader) -> None:
        if self._regions is None:
            self._regions = RegionSender(
                self._loop,
                self._transport,
                buffers,
                loader,
                self._memory,
                self.update_count,
                self._on_regions_sent,
                self._on_failure,
            )
            if self._is_congested:
                self._regions.pause()
        self._regions.send(out, size)

    def _on_regions_sent(self) -> None:
        if not self.is_writable and not self._is_congested:
            self.is_writable = True
            self._on_writable()

    def _set_unsent(self, size: int) -> None:
        if size != self.unsent_memory_bytes:
            self._memory.used_bytes += size - self.unsent_memory_bytes
            self.unsent_memory_bytes = size


def _do_nothing(*_: object) -> None:
    pass
