"""The parts of the benchmarks of clusters that need no cluster: the proxies, and the choice of measurements."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from threading import Thread

import pytest

from bench.clusters.proxy import Proxies, Route
from bench.peers.__main__ import MEASUREMENTS, _parser
from logbrook.testing.processes import free_port


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


def is_answered(connection: socket.socket, timeout_s: float) -> bool:
    connection.settimeout(timeout_s)
    try:
        return connection.recv(10) == b"hello"
    except TimeoutError:
        return False


@pytest.mark.slow
def test_a_cut_holds_back_the_bytes_of_a_node_in_both_directions(echo_port: int) -> None:
    routes = [Route(node, free_port(), echo_port) for node in (1, 2)]
    with Proxies(routes) as proxies:
        connections = [socket.create_connection(("127.0.0.1", route.port)) for route in routes]
        with closing(connections[0]), closing(connections[1]):
            # Node 1, whose process is none of those that are connected.
            proxies.cut(1, os.getppid())
            for connection in connections:
                connection.sendall(b"hello")
            assert is_answered(connections[1], 10)
            assert not is_answered(connections[0], 0.2)
            with socket.create_connection(("127.0.0.1", routes[0].port)) as later:
                later.sendall(b"hello")
                assert not is_answered(later, 0.2)
                proxies.heal()
                assert is_answered(connections[0], 10)
                assert is_answered(later, 10)


@pytest.mark.slow
def test_a_cut_holds_back_what_the_process_of_a_node_sends_to_others(echo_port: int) -> None:
    route = Route(1, free_port(), echo_port)
    with Proxies([route]) as proxies, socket.create_connection(("127.0.0.1", route.port)) as connection:
        proxies.cut(2, os.getpid())
        connection.sendall(b"hello")
        assert not is_answered(connection, 0.2)
        with socket.create_connection(("127.0.0.1", route.port)) as later:
            later.sendall(b"hello")
            assert not is_answered(later, 0.2)
        proxies.heal()
        assert is_answered(connection, 10)


def test_the_beginning_of_names_chooses_measurements() -> None:
    names = [name for name in MEASUREMENTS if name.startswith("cluster")]
    assert _parser().parse_args(["--only", "cluster"]).only == names
    assert _parser().parse_args(["--only", "latency,cluster_load"]).only == ["latency", "cluster_load"]
    with pytest.raises(SystemExit):
        _parser().parse_args(["--only", "clusters"])
