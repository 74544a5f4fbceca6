"""A pool of large buffers for receiving frames and reading the active segment.

The kernel clears every page of fresh memory: for a busy producer that costs as much as checking its batches, for a
consumer more than the read itself. So a few buffers are kept and reused.

A buffer is free or lent. `take` lends it through a lease, an object that exports the buffer's memory; every view that
`take` returns, and every slice of it, keeps the lease alive. When the last of them is gone, the lease is finalized and
its buffer is free again. There is no release function, because callers do not know when to call it: a view that was
written to a transport is in use until the kernel has copied it, and asyncio does not report when that is.
"""

import weakref
from typing import Any

BUFFER_BYTES = (1 << 20) + (1 << 16)
"""Enough for a request with one batch of the default maximum size."""
LARGE_BUFFER_BYTES = (16 << 20) + (1 << 16)
"""Enough for the largest fetch response by default."""
POOLED_BYTES_MIN = BUFFER_BYTES // 4
"""Smaller requests get memory of their own."""


class BufferPool:
    """The buffers of one thread, which alone takes them: those of `BUFFER_BYTES`, and a few large ones."""

    def __init__(self) -> None:
        self._buffers = _SizedBuffers(BUFFER_BYTES, count_max=32, kept_max=4)
        self._large_buffers = _SizedBuffers(LARGE_BUFFER_BYTES, count_max=4, kept_max=1)

    def take(self, size: int) -> memoryview:
        """Return memory for `size` bytes, with undefined content."""
        return self._buffers.take(size) if POOLED_BYTES_MIN <= size <= BUFFER_BYTES else memoryview(bytearray(size))

    def take_large(self, size: int) -> memoryview:
        """Return memory for `size` bytes that will all be used, also from the large buffers."""
        return self._large_buffers.take(size) if BUFFER_BYTES < size <= LARGE_BUFFER_BYTES else self.take(size)

    def trim(self) -> None:
        """Free the memory of a burst. Called periodically."""
        self._buffers.trim()
        self._large_buffers.trim()


class _SizedBuffers:
    """Buffers of one size: at most `count_max` are lent, and `trim` keeps `kept_max` that are free."""

    def __init__(self, buffer_bytes: int, count_max: int, kept_max: int) -> None:
        self._buffer_bytes = buffer_bytes
        self._count_max = count_max
        self._kept_max = kept_max
        self._free: list[bytearray] = []
        # By identity. Views may be dropped on any thread; operations on a dict and a list are atomic.
        self._lent: dict[int, bytearray] = {}
        self._lease_type: Any = None

    def take(self, size: int) -> memoryview:
        if len(self._lent) >= self._count_max:
            return memoryview(bytearray(size))
        buffer = self._free.pop() if self._free else bytearray(self._buffer_bytes)
        return self._lend(buffer)[:size]

    def trim(self) -> None:
        del self._free[self._kept_max :]

    def _lend(self, buffer: bytearray) -> memoryview:
        if self._lease_type is None:
            # Imported here, since it adds milliseconds to the start of processes that need no large buffer.
            from ctypes import c_ubyte  # noqa: PLC0415

            self._lease_type = c_ubyte * self._buffer_bytes
        lease = self._lease_type.from_buffer(buffer)
        self._lent[id(buffer)] = buffer
        weakref.finalize(lease, self._return, id(buffer)).atexit = False
        return memoryview(lease).cast("B")

    def _return(self, buffer_id: int) -> None:
        self._free.append(self._lent.pop(buffer_id))
