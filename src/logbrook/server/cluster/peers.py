"""Connections to other brokers for short requests, one per broker and API, made when they are first needed.

Responses come in the order of the requests. WriteTxnMarkers is answered when the markers are committed, which may take
long; AddPartitionsToTxn of other transactions must not wait for that.
"""

import asyncio
from typing import TypeVar

from logbrook.protocol.schema import ApiMessage
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.server.cluster.replica_fetcher import Connect
from logbrook.server.cluster_view import BrokerAddress

R = TypeVar("R", bound=ApiMessage)


class Peers:
    """One per broker, on the event loop."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        # By host, port and API key.
        self._connections: dict[tuple[str, int, int], PeerConnection] = {}
        self._connecting: dict[tuple[str, int, int], asyncio.Lock] = {}

    async def request(
        self, broker: BrokerAddress, message: ApiMessage, response: type[R], version: int, timeout_s: float = 5.0
    ) -> R:
        """Send a request to a broker. Raises OSError or ProtocolError."""
        key = (broker.host, broker.port, message.API_KEY)
        async with asyncio.timeout(timeout_s):
            async with self._connecting.setdefault(key, asyncio.Lock()):
                connection = self._connections.get(key)
                if connection is None or connection.is_closed:
                    connection = self._connections[key] = await self._connect(broker.host, broker.port)
            return await connection.request(message, response, version, timeout_s)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
