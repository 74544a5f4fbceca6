"""The memory of requests, of all connections: bounded, and shared fairly between addresses and connections.

Counted is the memory of a request that has arrived in part, of requests that are handled, and of responses that are
not written; not that of complete requests which wait to be started. A request that arrives in parts gets memory as its
bytes arrive: it doubles, each time its memory is full. It may do so while

- the connection then holds no more than a quarter of what its address has left of half of the bound,
- the address then holds no more than what is left of the bound, and
- for a request larger than 1/32 of the bound, both hold with three quarters of the half and of the bound.

So one address never takes more than half, several take equal shares, and there is room for smaller requests of others,
however many connections hold a large request that never ends. Other connections wait, and are tried again in the order
in which they began to. So that they get on at all, one connection at a time is exempt, until its request is complete,
it stops reading for another reason, or it is disconnected as stalled. None of its memory counts for the shares of
others, so the bound may be exceeded by one request and the requests of one connection that are handled.
"""

from collections.abc import Callable

from logbrook.server.connection import ServerConnection

# A connection may take this part of the memory that its address has left.
_PARTS = 4
# Requests up to this part of the bound have memory that larger ones cannot take. It is also what a connection gets when
# larger requests hold all they can: a quarter of the last quarter of half of the bound.
_SMALL_PARTS = 32


class ReceiveMemory:
    """One per listener, on the event loop. `on_scarce(is_scarce)` is called when half of the bound is crossed."""

    def __init__(self, bytes_max: int, on_scarce: Callable[[bool], None]) -> None:
        self.held_bytes = 0
        self._bytes_max = bytes_max
        self._bytes_per_address_max = bytes_max // 2
        self._small_bytes_max = bytes_max // _SMALL_PARTS
        self._by_address: dict[str, int] = {}
        # Connections that do not read, the longest waiting first.
        self.waiting: dict[ServerConnection, None] = {}
        # The connection that may exceed its share.
        self._exempt: ServerConnection | None = None
        self._on_scarce = on_scarce
        self._is_scarce = False

    def set_held_bytes(self, connection: ServerConnection, held_bytes: int) -> None:
        """Set the memory that a connection holds now."""
        more_bytes, connection.held_bytes = held_bytes - connection.held_bytes, held_bytes
        self.held_bytes += more_bytes
        address_bytes = self._by_address.get(connection.peer, 0) + more_bytes
        if address_bytes:
            self._by_address[connection.peer] = address_bytes
        else:
            self._by_address.pop(connection.peer, None)
        is_scarce = self.held_bytes >= self._bytes_per_address_max
        if is_scarce != self._is_scarce:
            self._is_scarce = is_scarce
            self._on_scarce(is_scarce)

    def reserve(self, connection: ServerConnection, more_bytes: int) -> bool:
        """Count memory that a connection is about to take. False if it has to wait; it is resumed later."""
        if not self._has_share(connection, more_bytes):
            if self._exempt is None and not self.waiting:
                self._set_exempt(connection)
            elif self._exempt is not connection:
                self.waiting[connection] = None
                return False
        self.set_held_bytes(connection, connection.held_bytes + more_bytes)
        return True

    def end_exemption(self, connection: ServerConnection) -> None:
        """Note that the request of a connection is complete."""
        if self._exempt is connection:
            self._set_exempt(None)

    def end_unused_exemption(self) -> None:
        """Let another connection exceed its share if the exempt one does not read, for a reason of its own."""
        if self._exempt is not None and not self._exempt.is_reading:
            self._set_exempt(None)

    def remove(self, connection: ServerConnection) -> None:
        """Forget a connection that is closed."""
        self.set_held_bytes(connection, 0)
        self.waiting.pop(connection, None)
        self.end_exemption(connection)

    def take_resumable(self) -> list[ServerConnection]:
        """Return the waiting connections that may read again, with memory reserved for them."""
        waiting, self.waiting = self.waiting, {}
        return [connection for connection in waiting if self.reserve(connection, connection.growth_bytes)]

    def _set_exempt(self, connection: ServerConnection | None) -> None:
        if self._exempt is not None:
            self._exempt.is_exempt = False
        self._exempt = connection
        if connection is not None:
            connection.is_exempt = True

    def _has_share(self, connection: ServerConnection, more_bytes: int) -> bool:
        address_bytes, held_bytes = self._by_address.get(connection.peer, 0), self.held_bytes
        exempt = self._exempt
        if exempt is not None:
            held_bytes -= exempt.held_bytes
            address_bytes -= exempt.held_bytes if exempt.peer == connection.peer else 0
        address_max, bytes_max = self._bytes_per_address_max, self._bytes_max
        if connection.frame_bytes > self._small_bytes_max:
            address_max, bytes_max = 3 * address_max // 4, 3 * bytes_max // 4
        return (
            _PARTS * (connection.held_bytes + more_bytes) <= address_max - address_bytes
            and address_bytes + more_bytes <= bytes_max - held_bytes
        )
