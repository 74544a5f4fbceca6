"""Connections between brokers."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import uvloop

from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.server.cluster.peer_connection import PeerConnection

WAIT_S_MAX = 20


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port whose queue of connections is full: the kernel drops further ones, as a network that is cut does."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_an_attempt_to_connect_ends_if_nothing_answers(silent_port: int) -> None:
    """The kernel would try for two minutes, at longer and longer intervals, and go on for as long after the end of a
    cut."""

    async def connect() -> None:
        attempt = asyncio.ensure_future(PeerConnection.connect("127.0.0.1", silent_port, "test", timeout_s=0.1))
        ended, _ = await asyncio.wait([attempt], timeout=WAIT_S_MAX)
        assert ended, "it did not end by itself"
        assert isinstance(attempt.exception(), TimeoutError)

    asyncio.run(connect())


def test_an_address_without_a_listener_refuses_connections() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            asyncio.run(PeerConnection.connect("127.0.0.1", unused.getsockname()[1], "test"))


def test_a_connection_is_reset_if_a_request_gets_no_answer() -> None:
    """The request may be a marker of a transaction, which ends the next one if it arrives after that has begun."""

    async def ask(listener: socket.socket) -> None:
        connection = await PeerConnection.connect("127.0.0.1", listener.getsockname()[1], "test")
        with pytest.raises(TimeoutError):
            await connection.request(ApiVersionsRequest(), ApiVersionsResponse, 3, timeout_s=0.05)

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        asyncio.run(ask(listener))
        accepted, _ = listener.accept()
        accepted.settimeout(WAIT_S_MAX)
        with accepted:
            assert accepted.recv(1000)
            with pytest.raises(ConnectionResetError):
                accepted.recv(1000)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_requests_that_share_a_connection_fail_with_os_errors_if_one_gets_no_answer(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The second one failed with a ValueError of the closed socket, and its transaction stayed prepared forever."""

    async def ask(listener: socket.socket) -> None:
        connection = await PeerConnection.connect("127.0.0.1", listener.getsockname()[1], "test")
        requests = [
            connection.request(ApiVersionsRequest(), ApiVersionsResponse, 3, timeout_s=timeout_s)
            for timeout_s in (0.05, WAIT_S_MAX)
        ]
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(result) for result in results] == [TimeoutError, ConnectionResetError]

    with socket.socket() as listener, asyncio.Runner(loop_factory=new_loop) as runner:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        runner.run(ask(listener))
