"""The proxy of the chaos test: it forwards, knows who connects, holds bytes in one direction, and refuses."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Thread

import pytest

from logbrook.testing.chaos.network import CLIENT, ChaosNetwork, links_between
from logbrook.testing.processes import free_port, wait_until

WAIT_S = 20.0
QUIET_S = 0.2


@pytest.fixture
def network() -> Iterator[ChaosNetwork]:
    with ChaosNetwork() as network:
        yield network


class Node:
    """A listener that a test serves by hand."""

    def __init__(self, stack: ExitStack, port: int = 0) -> None:
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", port)))
        self._listener.settimeout(WAIT_S)
        self._stack = stack
        self.port = self._listener.getsockname()[1]

    def accept(self) -> socket.socket:
        """Return the next connection that sends something."""
        while True:
            connection = self._stack.enter_context(self._listener.accept()[0])
            connection.settimeout(WAIT_S)
            # The proxy connects and disconnects to see whether the node listens.
            if connection.recv(1, socket.MSG_PEEK):
                return connection

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def wait_until_open(port: int) -> None:
    assert wait_until(lambda: is_open(port), WAIT_S)


def connect(stack: ExitStack, port: int) -> socket.socket:
    """Connect as soon as the proxy listens."""
    wait_until_open(port)
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    connection.settimeout(WAIT_S)
    return connection


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def is_quiet(connection: socket.socket) -> bool:
    """True if nothing arrives for a while."""
    connection.settimeout(QUIET_S)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(WAIT_S)
    return False


def opened(network: ChaosNetwork, stack: ExitStack, source: str = CLIENT) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection through the proxy, to the node `broker-1`."""
    node = Node(stack)
    near = connect(stack, network.listen("broker-1", node.port, source))
    near.sendall(b"1")
    far = node.accept()
    assert far.recv(1) == b"1"
    far.sendall(b"2")
    assert near.recv(1) == b"2"
    return near, far


@pytest.mark.parametrize("is_forward", [True, False])
def test_more_than_all_buffers_hold_is_forwarded(network: ChaosNetwork, stack: ExitStack, is_forward: bool) -> None:
    near, far = opened(network, stack)
    sender, receiver = (near, far) if is_forward else (far, near)
    data = os.urandom(32 << 20)
    sending = Thread(target=sender.sendall, args=(data,))
    sending.start()
    with receiver.makefile("rb") as file:
        assert file.read(len(data)) == data
    sending.join()


def test_a_cut_holds_the_bytes_of_one_direction_and_a_healed_link_delivers_them(
    network: ChaosNetwork, stack: ExitStack
) -> None:
    near, far = opened(network, stack)
    network.cut(CLIENT, "broker-1")
    near.sendall(b"held")
    assert is_quiet(far)
    far.sendall(b"not held")
    assert near.recv(100) == b"not held"
    network.heal(CLIENT, "broker-1")
    assert far.recv(100) == b"held"


def test_the_end_of_a_connection_is_held_too(network: ChaosNetwork, stack: ExitStack) -> None:
    near, far = opened(network, stack)
    network.cut("broker-1", CLIENT)
    far.close()
    assert is_quiet(near)
    network.heal("broker-1", CLIENT)
    assert near.recv(1) == b""


def test_new_connections_over_a_cut_link_are_held(network: ChaosNetwork, stack: ExitStack) -> None:
    node = Node(stack)
    port = network.listen("broker-1", node.port, CLIENT)
    wait_until_open(port)
    network.cut(CLIENT, "broker-1")
    near = connect(stack, port)
    near.sendall(b"held")
    assert is_quiet(near)
    network.heal(CLIENT, "broker-1")
    assert node.accept().recv(100) == b"held"


def test_a_healed_link_may_be_reset(network: ChaosNetwork, stack: ExitStack) -> None:
    near, far = opened(network, stack)
    network.cut(CLIENT, "broker-1")
    near.sendall(b"lost")
    network.heal(CLIENT, "broker-1", is_reset=True)
    for end in (near, far):
        with pytest.raises(ConnectionResetError):
            end.recv(1)


def test_other_links_are_not_cut(network: ChaosNetwork, stack: ExitStack) -> None:
    near, far = opened(network, stack, "broker-2")
    network.cut("broker-3", "broker-1")
    near.sendall(b"forwarded")
    assert far.recv(100) == b"forwarded"


def request(client_id: str) -> bytes:
    """The start of a request of Kafka's protocol."""
    return struct.pack(">ihhih", 100, 3, 12, 1, len(client_id)) + client_id.encode()


def test_the_client_id_of_the_first_request_decides_which_link_it_is(network: ChaosNetwork, stack: ExitStack) -> None:
    node = Node(stack)
    port = network.listen("broker-1", node.port)
    network.listen("broker-2", free_port())
    network.cut("broker-2", "broker-1")
    broker = connect(stack, port)
    # In two parts: the name is complete with the second one.
    broker.sendall(request("broker-2")[:16])
    broker.sendall(request("broker-2")[16:])
    client = connect(stack, port)
    client.sendall(request("broker-3, but not a node"))
    assert node.accept().recv(100) == request("broker-3, but not a node")
    assert is_quiet(broker)
    network.heal("broker-2", "broker-1")
    accepted = node.accept()
    with accepted.makefile("rb") as file:
        assert file.read(len(request("broker-2"))) == request("broker-2")
    accepted.sendall(b"answer")
    assert broker.recv(100) == b"answer"
    network.cut("broker-1", "broker-2")
    accepted.sendall(b"held")
    assert is_quiet(broker)


def test_a_port_refuses_connections_while_its_node_does_not_listen(network: ChaosNetwork, stack: ExitStack) -> None:
    node_port = free_port()
    port = network.listen("broker-1", node_port, CLIENT)
    assert not is_open(port)
    node = Node(stack, node_port)
    wait_until_open(port)
    node.close()
    network.refuse("broker-1")
    assert not is_open(port)
    Node(stack, node_port)
    wait_until_open(port)


def test_a_group_of_nodes_is_cut_off_in_both_directions() -> None:
    assert set(links_between({"a"}, {"a", "b", "c"})) == {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}
