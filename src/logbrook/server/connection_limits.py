"""Limits for the number of connections: of all clients, and per address.

A connection is silent until its first request has arrived; on a listener with SASL, until the first one after the
authentication. At a limit, the oldest silent connection gives way to a new one (at the limit per address: the oldest
silent one of that address), so that clients which connect and send nothing cannot lock out others. If no connection is
silent, the new one is refused.
"""

from enum import StrEnum

from logbrook.server.connection import ServerConnection


class ConnectionLimit(StrEnum):
    """The names of the settings."""

    ALL = "connections_max"
    PER_ADDRESS = "connections_per_address_max"


class ConnectionLimits:
    """The open connections of a listener, with those that are silent. Used on the event loop."""

    def __init__(self, connections_max: int, connections_per_address_max: int) -> None:
        # In the order of their arrival; a set would be iterated in another order in each run.
        self.connections: dict[ServerConnection, None] = {}
        self._connections_max = connections_max
        self._connections_per_address_max = connections_per_address_max
        self._counts: dict[str, int] = {}
        # The oldest first; all, and by address.
        self._silent: dict[ServerConnection, None] = {}
        self._silent_by_address: dict[str, dict[ServerConnection, None]] = {}

    def reached_by(self, address: str) -> ConnectionLimit | None:
        """Return the limit that does not permit another connection from this address, None if there is room."""
        if self._counts.get(address, 0) >= self._connections_per_address_max:
            return ConnectionLimit.PER_ADDRESS
        return ConnectionLimit.ALL if len(self.connections) >= self._connections_max else None

    def oldest_silent(self, address: str, limit: ConnectionLimit) -> ServerConnection | None:
        """Return the connection to close so that there is room below `limit` for another one from this address."""
        silent = self._silent if limit is ConnectionLimit.ALL else self._silent_by_address.get(address, {})
        return next(iter(silent), None)

    def add(self, connection: ServerConnection) -> None:
        address = connection.peer
        self.connections[connection] = None
        self._counts[address] = self._counts.get(address, 0) + 1
        self._silent[connection] = None
        self._silent_by_address.setdefault(address, {})[connection] = None

    def heard_from(self, connection: ServerConnection) -> None:
        """Note that the first request of a connection has arrived."""
        self._silent.pop(connection, None)
        of_address = self._silent_by_address.get(connection.peer)
        if of_address is not None:
            of_address.pop(connection, None)
            if not of_address:
                del self._silent_by_address[connection.peer]

    def remove(self, connection: ServerConnection) -> None:
        """Remove a connection that is closed; one that gave way is removed already."""
        if connection not in self.connections:
            return
        del self.connections[connection]
        self.heard_from(connection)
        count = self._counts[connection.peer] - 1
        if count:
            self._counts[connection.peer] = count
        else:
            del self._counts[connection.peer]
