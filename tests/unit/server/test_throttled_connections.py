"""Connections of clients above a quota: they are muted, not closed, and new ones are refused (KIP-219, KIP-612)."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from logbrook.core.client_quotas import QuotaAlteration
from logbrook.protocol.decoding import decode
from logbrook.protocol.messages.api_versions import ApiVersionsRequest
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.protocol.reader import Reader
from logbrook.server.peer_progress import ConnectionTimeouts
from logbrook.server.probe import QuotaKind
from logbrook.testing.clock import FakeClock
from tests.unit.server.shell_kit import (
    PRODUCE_VERSION,
    Shell,
    batch_of,
    correlation_id_of,
    is_hung_up_on,
    produce_request,
    receive_frame,
    request_frame,
)

RATE = 100_000
THROTTLED_S = 0.2
LONG_S = 10.0


def limit(shell: Shell, kind: str, key: str, rate: float) -> None:
    quotas = shell.services.security.quotas
    alteration = QuotaAlteration([(kind, None)], [(key, rate)])
    shell.run(shell.services.topics.change_security(lambda: quotas.alter([alteration]).records))


@pytest.fixture
def shell() -> Iterator[Shell]:
    # The clock does not move, so a bucket does not fill again; connections are muted by the event loop's own time.
    with Shell({"network": {"quota_windows": 2, "quota_window_ms": 100}}, clock=FakeClock()) as shell:
        shell.create("t")
        limit(shell, "client-id", "producer_byte_rate", RATE)
        yield shell


def produce_frame(size: int, correlation_id: int, acks: int = -1) -> bytes:
    return request_frame(produce_request("t", batch_of(size), acks=acks), PRODUCE_VERSION, correlation_id)


def versions_frame(correlation_id: int) -> bytes:
    return request_frame(ApiVersionsRequest(), 3, correlation_id)


def answered(connected: socket.socket) -> int:
    return correlation_id_of(receive_frame(connected))


def exceeding_bytes(throttled_s: float) -> int:
    """Return the size of a request after which a client with a full bucket has to wait."""
    return int(RATE * (0.1 + throttled_s))


def test_the_response_comes_at_once_with_the_throttle_time(shell: Shell) -> None:
    with shell.connect() as client, shell.connect() as other:
        started_s = time.monotonic()
        client.sendall(produce_frame(exceeding_bytes(LONG_S), 1))
        frame = receive_frame(client)
        response = decode(ProduceResponse, PRODUCE_VERSION, Reader(memoryview(frame)[5:]))
        assert 0 < response.throttle_time_ms <= LONG_S * 1000 + 10
        other.sendall(versions_frame(1))
        assert answered(other) == 1
        assert time.monotonic() - started_s < LONG_S


@pytest.mark.parametrize("acks", [-1, 0])
def test_requests_that_follow_are_served_when_the_time_has_passed(shell: Shell, acks: int) -> None:
    with shell.connect() as client:
        started_s = time.monotonic()
        frames = [produce_frame(exceeding_bytes(THROTTLED_S), 1, acks), versions_frame(2), versions_frame(3)]
        client.sendall(b"".join(frames))
        if acks:
            assert answered(client) == 1
        assert [answered(client), answered(client)] == [2, 3]
        client.sendall(versions_frame(4))
        assert answered(client) == 4
        assert time.monotonic() - started_s >= THROTTLED_S - 0.01


def test_a_muted_connection_is_neither_idle_nor_stalled(shell: Shell) -> None:
    limits = ConnectionTimeouts(1.0, 1.0, 1.0, 1.0)
    with shell.connect() as client:
        client.sendall(produce_frame(exceeding_bytes(LONG_S), 1) + versions_frame(2)[:6])
        assert answered(client) == 1
        (connection,) = shell.connections()
        now_s = shell.call(shell.services.loop.time)
        for at_s in (now_s + 5, now_s + 9):
            assert shell.call(partial(connection.check, at_s, limits)) is None
        assert not connection.is_reading


def test_a_muted_connection_does_not_delay_the_stop(shell: Shell) -> None:
    with shell.connect() as client:
        client.sendall(produce_frame(exceeding_bytes(LONG_S), 1) + versions_frame(2))
        assert answered(client) == 1
        started_s = time.monotonic()
        shell.stop()
        assert time.monotonic() - started_s < LONG_S
        assert is_hung_up_on(client)


def test_connections_above_the_rate_of_their_address_are_closed_after_some_time() -> None:
    clock = FakeClock()
    with Shell({"network": {"quota_windows": 2, "quota_window_ms": 200}}, clock=clock) as shell, ExitStack() as stack:
        limit(shell, "ip", "connection_creation_rate", 20)
        started_s = time.monotonic()
        clients = [stack.enter_context(shell.connect()) for _ in range(8)]
        for client in clients:
            client.sendall(versions_frame(1))
        assert [answered(client) for client in clients[:4]] == [1] * 4
        assert all(is_hung_up_on(client) for client in clients[4:])
        assert time.monotonic() - started_s >= 0.04
        assert shell.services.probe.throttled[QuotaKind.CONNECTION] == 4
        clock.advance(50)
        with shell.connect() as another:
            another.sendall(versions_frame(1))
            assert answered(another) == 1
