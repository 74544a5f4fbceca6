"""A proxy between clients and a broker that cuts connections at chosen requests, and delays and counts requests.

It reads whole frames in both directions, so it can identify a Produce request and drop exactly its response.
"""

import asyncio
import struct
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from threading import Event
from types import TracebackType
from typing import Self

from tests.interop.clients.loop_thread import LoopThread

PRODUCE = 0
JOIN_GROUP = 11
END_TXN = 26
_CLOSE_S_MAX = 10.0


class Moment(Enum):
    """The moment at which a connection is cut."""

    BEFORE_THE_REQUEST = "before-the-request"
    IN_THE_REQUEST = "in-the-request"
    BEFORE_THE_ANSWER = "before-the-answer"
    IN_THE_ANSWER = "in-the-answer"


class _CutError(Exception):
    """The proxy cuts this connection."""


@dataclass
class _Connection:
    """The connection of one client, and the matching one to the broker."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    # Unanswered requests, each with a flag: its response is to be lost.
    asked: deque[Moment | None] = field(default_factory=deque)

    def abort(self) -> None:
        self.client.transport.abort()
        self.broker.transport.abort()


class CuttingProxy:
    """Listens at `address` from the start; `upstream` is set when the broker is there."""

    def __init__(self) -> None:
        self.upstream = ""
        self.requests: Counter[int] = Counter()
        self.has_cut = Event()
        self._cuts: dict[int, Moment] = {}
        self._to_hold: int | None = None
        self._held = b""
        self._connections: list[_Connection] = []
        self._serving: set[asyncio.Task[None] | None] = set()
        self._loop = LoopThread("cutting-proxy")
        self._server = self._loop.run(asyncio.start_server(self._serve, "127.0.0.1", 0), _CLOSE_S_MAX)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    def cut(self, moment: Moment, *produce_requests: int) -> None:
        """Cut at the n-th of the Produce requests that are still to come."""
        self.has_cut.clear()
        for number in produce_requests:
            self._cuts[self.requests[PRODUCE] + number] = moment

    def hold(self, api_key: int) -> None:
        """Hold back the next such request and cut its connection, so that the client retries."""
        self.has_cut.clear()
        self._to_hold = api_key

    def release(self) -> bytes:
        """Forward the request that was held back, as if the network had delayed it. Returns the broker's response."""
        return self._loop.run(self._ask_with(self._held), _CLOSE_S_MAX)

    def close(self) -> None:
        self._loop.run(self._stop(), _CLOSE_S_MAX)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def _stop(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.abort()
        await asyncio.gather(*[task for task in self._serving if task is not None], return_exceptions=True)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._serving.add(task)
        try:
            await self._pass_on(from_client, to_client)
        finally:
            self._serving.discard(task)

    async def _pass_on(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        host, _, port = self.upstream.rpartition(":")
        try:
            from_broker, to_broker = await asyncio.open_connection(host, int(port))
        except OSError:
            to_client.transport.abort()
            return
        connection = _Connection(to_client, to_broker)
        self._connections.append(connection)
        pumps = [
            asyncio.create_task(self._pass_requests(from_client, connection)),
            asyncio.create_task(self._pass_answers(from_broker, connection)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        connection.abort()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._connections.remove(connection)

    async def _pass_requests(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while True:
            frame = await _read_frame(reader)
            (api_key,) = struct.unpack_from(">h", frame, 4)
            self.requests[api_key] += 1
            moment = self._cuts.pop(self.requests[PRODUCE], None) if api_key == PRODUCE else None
            connection.asked.append(moment)
            if api_key == self._to_hold:
                self._held, self._to_hold = frame, None
                self._cut()
            if moment is Moment.BEFORE_THE_REQUEST:
                self._cut()
            if moment is Moment.IN_THE_REQUEST:
                await _write(connection.broker, frame[: len(frame) // 2])
                self._cut()
            await _write(connection.broker, frame)

    async def _ask_with(self, frame: bytes) -> bytes:
        host, _, port = self.upstream.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            await _write(writer, frame)
            return await _read_frame(reader)
        finally:
            writer.transport.abort()

    async def _pass_answers(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while True:
            frame = await _read_frame(reader)
            moment = connection.asked.popleft()
            if moment is Moment.BEFORE_THE_ANSWER:
                self._cut()
            if moment is Moment.IN_THE_ANSWER:
                await _write(connection.client, frame[: len(frame) // 2])
                self._cut()
            await _write(connection.client, frame)

    def _cut(self) -> None:
        self.has_cut.set()
        raise _CutError


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """Raises IncompleteReadError or OSError at the end of the stream."""
    prefix = await reader.readexactly(4)
    (length,) = struct.unpack(">i", prefix)
    return prefix + await reader.readexactly(length)


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    with suppress(ConnectionError):
        await writer.drain()
