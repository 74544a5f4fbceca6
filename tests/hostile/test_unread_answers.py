"""A response of which a part is never read makes the connection stall, however small the part.

Tested inside the process: the unsent bytes of a response cannot be observed from outside.
"""

import socket

import pytest

from logbrook import Broker
from logbrook.client import Client
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.connection import ServerConnection
from logbrook.testing.processes import wait_until
from tests.hostile.victim import MIB
from tests.hostile.wire import request_frame

STALLED_MS = 300
TIMEOUT_S = 5.0
# More than the kernel buffers for a client that does not read.
ANSWERS_MAX = 200


@pytest.fixture
def victim() -> None:
    """Replace the fixture of the folder: the test has its own broker."""


@pytest.fixture(autouse=True)
def unharmed() -> None:
    """Replace the check of the folder."""


def held_by(connection: ServerConnection) -> int:
    return connection._transport.get_write_buffer_size()


def ask_until_something_is_held(connected: socket.socket, connection: ServerConnection, request: bytes) -> None:
    """Send requests until the broker holds unsent bytes of a response."""
    for _ in range(ANSWERS_MAX):
        sent = connection._output.sent_bytes
        connected.sendall(request)
        assert wait_until(lambda sent=sent: connection._output.sent_bytes > sent, TIMEOUT_S)  # type: ignore[misc]
        if wait_until(lambda: held_by(connection) > 0, 0.02):
            return
    raise AssertionError("the system has taken everything")


def test_a_client_that_stops_reading_a_response_is_disconnected() -> None:
    batch = build_batch([Record(value=bytes(100_000))])
    partition = FetchPartition(partition_max_bytes=len(batch))
    request = request_frame(FetchRequest(topics=[FetchTopic(topic="t", partitions=[partition])]), 11)
    with Broker(["t"], settings={"network": {"connection_stalled_ms": STALLED_MS}}) as broker:
        with Client(broker.bootstrap_servers) as client:
            client.produce("t", 0, batch)
        listener = broker._running.listener
        assert wait_until(lambda: not listener.connections, TIMEOUT_S)
        with socket.socket() as connected:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            host, port = broker.bootstrap_servers.split(":")
            connected.connect((host, int(port)))
            assert wait_until(lambda: len(listener.connections) == 1, TIMEOUT_S)
            (connection,) = listener.connections
            ask_until_something_is_held(connected, connection, request)
            assert 0 < held_by(connection) < MIB
            assert wait_until(lambda: not listener.connections, TIMEOUT_S), f"it holds {held_by(connection)} bytes"
