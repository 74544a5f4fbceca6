"""The parts of the benchmarks of clusters that need no cluster: the network, and the choice of measurements."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from bench.clusters.network import ClusterNetwork
from bench.peers.__main__ import _parser
from bench.peers.plan import MEASUREMENTS
from logbrook.testing.processes import wait_until


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        # A proxy resets a connection whose client has not read everything.
        with connection, suppress(ConnectionResetError):
            while data := connection.recv(1000):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            Thread(target=serve, args=(connection,), daemon=True).start()

    thread = Thread(target=accept, daemon=True)
    thread.start()
    yield int(server.getsockname()[1])
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)


def is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def is_answered(connection: socket.socket, timeout_s: float, answer: bytes = b"hello") -> bool:
    connection.settimeout(timeout_s)
    try:
        return connection.recv(100) == answer
    except TimeoutError:
        return False


def request_of(client_id: str) -> bytes:
    """Return the start of a request, by which the proxy knows who has connected."""
    return struct.pack(">ihhih", 10 + len(client_id), 18, 0, 1, len(client_id)) + client_id.encode()


@contextmanager
def connected(port: int, client_id: str) -> Iterator[socket.socket]:
    """A connection whose first request was forwarded."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        request = request_of(client_id)
        connection.sendall(request)
        assert is_answered(connection, 10, request)
        yield connection


@pytest.mark.slow
def test_a_cut_holds_back_what_a_node_sends_and_gets(echo_port: int) -> None:
    with ClusterNetwork((1, 2)) as network:
        first, second = network.port_of(1, echo_port), network.port_of(2, echo_port)
        assert wait_until(lambda: is_open(first) and is_open(second), 10)
        with (
            connected(first, "rdkafka") as client_of_first,
            connected(second, "rdkafka") as client_of_second,
            connected(second, "broker-1-fetcher-0") as first_of_second,
        ):
            network.cut(1)
            for connection in (client_of_first, client_of_second, first_of_second):
                connection.sendall(b"hello")
            assert is_answered(client_of_second, 10)
            assert not is_answered(client_of_first, 0.2)
            assert not is_answered(first_of_second, 0.2)
            network.heal()
            assert is_answered(client_of_first, 10)
            assert is_answered(first_of_second, 10)


@pytest.mark.slow
def test_a_cut_holds_back_what_is_sent_by_a_port_of_the_node(echo_port: int) -> None:
    with ClusterNetwork((1, 2)) as network:
        ports = [network.store_port_of(1, echo_port), network.port_of(2, echo_port, source=1)]
        assert wait_until(lambda: all(map(is_open, ports)), 10)
        for port in ports:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                network.cut(1)
                connection.sendall(b"hello")
                assert not is_answered(connection, 0.2)
                network.heal()
                assert is_answered(connection, 10)


def test_the_beginning_of_names_chooses_measurements() -> None:
    names = [name for name in MEASUREMENTS if name.startswith("cluster")]
    assert _parser().parse_args(["--only", "cluster"]).only == names
    assert _parser().parse_args(["--only", "latency,cluster_load"]).only == ["latency", "cluster_load"]
    with pytest.raises(SystemExit):
        _parser().parse_args(["--only", "clusters"])
