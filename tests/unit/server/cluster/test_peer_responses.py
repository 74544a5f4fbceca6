"""Responses of other brokers, however their bytes arrive."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from struct import pack
from typing import cast

import pytest

from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.server.cluster.peer_security import PeerAuthentication


class SilentTransport(asyncio.Transport):
    """Takes everything and sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._is_closed = False

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        pass

    def close(self) -> None:
        self._is_closed = True

    def is_closing(self) -> bool:
        return self._is_closed


def connected() -> PeerConnection:
    connection = PeerConnection("broker-1")
    connection.connection_made(SilentTransport())
    return connection


def response(correlation_id: int, error_code: int) -> bytes:
    body = pack(">iih", correlation_id, 0, error_code)
    return pack(">i", len(body)) + body


def receive(connection: PeerConnection, data: bytes) -> None:
    """Deliver bytes as a transport does: as many at a time as the protocol has room for."""
    while data:
        buffer = connection.get_buffer(-1)
        assert len(buffer), "the protocol has room for a byte at least"
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


async def heartbeats(connection: PeerConnection, count: int) -> list[asyncio.Task[HeartbeatResponse]]:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    tasks = [asyncio.create_task(connection.request(request, HeartbeatResponse, 1)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("size", [1, 3, 7, 14, 1_000])
def test_responses_arrive_in_parts_of_any_size(size: int) -> None:
    async def check() -> None:
        connection = connected()
        tasks = await heartbeats(connection, 600)
        data = b"".join(response(number + 1, number % 100) for number in range(600))
        for position in range(0, len(data), size):
            receive(connection, data[position : position + size])
        answers = await asyncio.gather(*tasks)
        assert [answer.error_code for answer in answers] == [number % 100 for number in range(600)]

    asyncio.run(check())


def test_a_large_response_is_received_into_memory_that_the_one_after_the_next_reuses() -> None:
    async def check() -> None:
        connection = connected()
        connection.reuses_memory = True
        frames: list[memoryview] = []
        for byte in (b"a", b"b", b"c"):
            future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
            connection._responses.append(future)
            receive(connection, pack(">i", 100_000) + byte * 100_000)
            frames.append(await future)
        assert bytes(frames[1]) == b"b" * 100_000
        assert bytes(frames[2]) == b"c" * 100_000
        assert frames[0].obj is frames[2].obj

    asyncio.run(check())


class TwoStepAuthentication:
    """A new authentication of two requests before each request."""

    async def renew_if_due(self, send: Callable[..., Awaitable[HeartbeatResponse]]) -> None:
        for _ in range(2):
            await send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse, 1)


def test_an_authentication_leaves_the_last_response_as_it_is() -> None:
    """Its records may not be in the write-ahead log yet."""

    async def check() -> None:
        connection = connected()
        connection.reuses_memory = True
        for byte in (b"a", b"b"):
            future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
            connection._responses.append(future)
            receive(connection, pack(">i", 100_000) + byte * 100_000)
            last = await future
        connection._authentication = cast(PeerAuthentication, TwoStepAuthentication())
        (task,) = await heartbeats(connection, 1)
        for number in (1, 2, 3):
            receive(connection, response(number, 0))
            while not connection._responses and not task.done():
                # The next request is sent.
                await asyncio.sleep(0)
        assert (await task).error_code == 0
        assert bytes(last) == b"b" * 100_000

    asyncio.run(check())


def test_responses_have_memory_of_their_own_by_default() -> None:
    async def check() -> None:
        connection = connected()
        futures: list[asyncio.Future[memoryview]] = []
        for _ in range(2):
            futures.append(asyncio.get_running_loop().create_future())
            connection._responses.append(futures[-1])
        receive(connection, b"".join(pack(">i", 10_000) + byte * 10_000 for byte in (b"a", b"b")))
        assert [bytes(await future) for future in futures] == [b"a" * 10_000, b"b" * 10_000]

    asyncio.run(check())


@pytest.mark.parametrize("length", [-1, 2**31 - 1])
def test_an_invalid_length_closes_the_connection(length: int) -> None:
    async def check() -> None:
        connection = connected()
        receive(connection, pack(">i", length))
        assert connection.is_closed

    asyncio.run(check())
