"""The memory of responses: counted from when they are encoded until the transport has sent them, and bounded.

Fetched records are read into memory, and nothing else that a client requests is as large. A fetch therefore asks here
how much it may read, and its response is counted in the same event-loop turn, so that the next fetch knows of it.

    below 3/4 of the bound    up to `fetch_bytes_max`, and no further than 3/4 of the bound
    below the bound           64 KiB, or the first batch if it is larger
    at the bound              nothing: the fetch waits, at most for its `max_wait_ms`

So the bound is exceeded by one batch at most. Clients that do not read their responses cannot keep the memory: while it
is scarce, a connection is disconnected if it takes longer than `connection_stalled_ms` to read what it was sent.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from logbrook.config import NetworkConfig

SCARCE_FETCH_BYTES = 64 * 1024


class ResponseMemory:
    """One per broker. `used_bytes` is kept by the connections, on the event loop."""

    def __init__(self, config: NetworkConfig) -> None:
        self.used_bytes = 0
        self._bytes_max = config.answers_bytes_max
        self._scarce_from_bytes = self._bytes_max - self._bytes_max // 4
        self._fetch_bytes_max = config.fetch_bytes_max
        # Time of the event loop at which the last response without regions of files was written: see `region_sender`.
        self.small_response_s = float("-inf")

    @property
    def is_scarce(self) -> bool:
        return self.used_bytes >= self._scarce_from_bytes

    @property
    def is_exhausted(self) -> bool:
        """True if no records may be read, not even one batch."""
        return self.used_bytes >= self._bytes_max

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Count a response of this size while it is made, if that takes several event-loop turns."""
        self.used_bytes += size
        try:
            yield
        finally:
            self.used_bytes -= size

    def fetch_bytes_max(self, requested_bytes: int) -> int:
        """Return the largest size of a fetch response now, in bytes. The first batch may exceed it."""
        available_bytes = max(self._scarce_from_bytes - self.used_bytes, SCARCE_FETCH_BYTES)
        return max(0, min(requested_bytes, self._fetch_bytes_max, available_bytes))
