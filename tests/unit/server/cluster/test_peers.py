"""The connections for short requests to other brokers."""

import asyncio
from contextlib import suppress
from struct import Struct

import pytest

from logbrook.model.identifiers import BrokerId
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataResponse
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.server.cluster.peers import Peers
from logbrook.server.cluster_view import BrokerAddress

START = Struct(">ihhi")
# No error, no API, no throttling.
EMPTY_API_VERSIONS = b"\0\0" + b"\0\0\0\0" + b"\0\0\0\0"


def test_a_request_that_is_not_answered_delays_none_of_another_api() -> None:
    """A marker of a partition with too few replicas to commit it held up the questions of all transactions."""

    handlers: list[asyncio.Task[None] | None] = []

    async def answer_api_versions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        while True:
            try:
                length, api_key, _, correlation_id = START.unpack(await reader.readexactly(START.size))
                await reader.readexactly(length + 4 - START.size)
            except (asyncio.IncompleteReadError, ConnectionResetError):
                writer.close()
                with suppress(ConnectionResetError):
                    await writer.wait_closed()
                return
            if api_key == ApiVersionsRequest.API_KEY:
                response = correlation_id.to_bytes(4) + EMPTY_API_VERSIONS
                writer.write(len(response).to_bytes(4) + response)

    async def ask() -> None:
        server = await asyncio.start_server(answer_api_versions, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        peers = Peers(lambda host, port: PeerConnection.connect(host, port, "test"))
        broker = BrokerAddress(BrokerId(2), host, port, None)
        waiting = asyncio.ensure_future(peers.request(broker, MetadataRequest(), MetadataResponse, 8))
        await asyncio.sleep(0)
        for _ in range(2):
            answer = await peers.request(broker, ApiVersionsRequest(), ApiVersionsResponse, 1, timeout_s=2.0)
            assert answer.error_code == 0
        assert len(peers._connections) == 2
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        peers.close()
        server.close()
        for handler in handlers:
            assert handler is not None
            await handler

    asyncio.run(ask())
