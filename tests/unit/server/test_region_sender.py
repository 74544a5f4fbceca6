"""Responses whose records are in files, over a real socket."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from logbrook.config import NetworkConfig
from logbrook.ports import FileRegion, OsFiles
from logbrook.ports.buffer_pool import BUFFER_BYTES, POOLED_BYTES_MIN, BufferPool
from logbrook.protocol.encoding import ResponsePieces
from logbrook.server.region_sender import RegionSender
from logbrook.server.response_memory import ResponseMemory
from logbrook.storage.errors import ReadFailedError

FILE = "records"
FILE_BYTES = 5 << 20
CONTENT = os.urandom(FILE_BYTES)


class Loader:
    """Loads at once, or fails; notes what it was asked for."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.loads: list[tuple[int, int]] = []
        self.failed: list[str] = []

    def load_region(self, region: FileRegion, start: int, length: int) -> "asyncio.Future[None]":
        self.loads.append((start, length))
        loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.error is None:
            loaded.set_result(None)
        else:
            loaded.set_exception(ReadFailedError(region.path, self.error))
        return loaded

    def note_failed_region(self, region: FileRegion) -> None:
        self.failed.append(region.path)


class ColdRegion:
    """A region that the page cache has only after a thread has loaded it."""

    def __init__(self, inner: FileRegion) -> None:
        self._inner = inner
        self.path = inner.path

    def __len__(self) -> int:
        return len(self._inner)

    def is_cached(self) -> bool:
        return True

    def read_cached_into(self, buffer: memoryview, start: int) -> int:
        return 0

    def read_into(self, buffer: memoryview, start: int) -> int:
        return self._inner.read_into(buffer, start)

    def load(self, start: int, length: int) -> int:
        return self._inner.load(start, length)


class Bench:
    """A sender on one end of a connection, and its client on the other."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.memory = ResponseMemory(NetworkConfig())
        self.is_sent = asyncio.Event()
        self.failures: list[OSError] = []
        self.sender: RegionSender
        self.transport: asyncio.Transport
        self.client, self._server = socket.socketpair()
        self.client.setblocking(False)

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        bench = self

        class Protocol(asyncio.Protocol):
            def pause_writing(self) -> None:
                bench.sender.pause()

            def resume_writing(self) -> None:
                bench.sender.resume()

        transport, _ = await loop.create_connection(Protocol, sock=self._server)
        self.transport = transport
        transport.set_write_buffer_limits(high=64 * 1024)
        self.sender = RegionSender(
            loop,
            transport,
            BufferPool(),
            self.loader,
            self.memory,
            lambda: None,
            self.is_sent.set,
            self.failures.append,
        )

    async def received(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        parts: list[bytes] = []
        while size:
            part = await asyncio.wait_for(loop.sock_recv(self.client, min(size, 100_000)), 30)
            assert part
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self.sender.close()
        self.transport.abort()
        self.client.close()


@pytest.fixture
def region_of(tmp_path: Path) -> Callable[[int, int], FileRegion]:
    files = OsFiles(tmp_path)
    file = files.create(FILE)
    file.pwrite(CONTENT, 0)

    def closed_region(position: int, length: int) -> FileRegion:
        # The handle is closed before the region is sent, as when it is evicted.
        opened = files.open(FILE)
        region = opened.region(position, length)
        opened.close()
        return region

    file.close()
    return closed_region


def run(loader: Loader, scene: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        bench = Bench(loader)
        await bench.connect()
        try:
            await scene(bench)
        finally:
            bench.close()

    asyncio.run(play())


def whole(pieces: ResponsePieces) -> int:
    return sum(map(len, pieces))


def test_regions_and_buffers_arrive_in_order_and_a_slow_client_holds_one_piece_in_memory(
    region_of: Callable[[int, int], FileRegion], tmp_path: Path
) -> None:
    pieces: ResponsePieces = [
        b"head",
        region_of(0, FILE_BYTES),
        b"middle",
        memoryview(b"view"),
        region_of(7, 300_000),
        b"tail",
    ]
    (tmp_path / FILE).unlink()

    async def scene(bench: Bench) -> None:
        bench.sender.send(pieces, whole(pieces))
        assert bench.sender.queued_bytes > 0
        later: ResponsePieces = [b"the next response"]
        bench.sender.send(later, whole(later))
        for _ in range(100):
            await asyncio.sleep(0)
            assert bench.transport.get_write_buffer_size() <= BUFFER_BYTES + 64 * 1024
        assert not bench.is_sent.is_set()
        expected = b"head" + CONTENT + b"middleview" + CONTENT[7:300_007] + b"tail" + b"the next response"
        assert await bench.received(len(expected)) == expected
        await asyncio.wait_for(bench.is_sent.wait(), 30)
        assert bench.sender.queued_bytes == 0
        assert bench.loader.loads == []

    run(Loader(), scene)


def test_bytes_that_were_evicted_are_loaded_in_a_thread_and_then_sent(
    region_of: Callable[[int, int], FileRegion],
) -> None:
    async def scene(bench: Bench) -> None:
        pieces: ResponsePieces = [b"head", ColdRegion(region_of(100, 2 << 20)), b"tail"]
        bench.sender.send(pieces, whole(pieces))
        expected = b"head" + CONTENT[100 : 100 + (2 << 20)] + b"tail"
        assert await bench.received(len(expected)) == expected
        # All of the region was loaded, every byte once.
        ends = [0, *(start + length for start, length in bench.loader.loads)]
        assert [start for start, _ in bench.loader.loads] == ends[:-1]
        assert ends[-1] == 2 << 20

    run(Loader(), scene)


def test_an_unreadable_region_is_reported_and_its_file_noted(region_of: Callable[[int, int], FileRegion]) -> None:
    async def scene(bench: Bench) -> None:
        pieces: ResponsePieces = [ColdRegion(region_of(0, 300_000))]
        bench.sender.send(pieces, whole(pieces))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [failure.filename for failure in bench.failures] == [FILE]
        assert bench.loader.failed == [FILE]
        assert not bench.is_sent.is_set()

    run(Loader(OSError(5, "Input/output error")), scene)


def test_a_truncated_region_is_reported(region_of: Callable[[int, int], FileRegion], tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        pieces: ResponsePieces = [b"head", region_of(0, FILE_BYTES)]
        os.truncate(tmp_path / FILE, 1000)
        bench.sender.send(pieces, whole(pieces))
        for _ in range(5):
            await asyncio.sleep(0)
        assert ["truncated" in str(failure) for failure in bench.failures] == [True]

    run(Loader(), scene)


def test_pieces_are_small_while_memory_is_scarce_and_wait_while_there_is_none(
    region_of: Callable[[int, int], FileRegion],
) -> None:
    async def scene(bench: Bench) -> None:
        pieces: ResponsePieces = [region_of(0, 2 << 20)]
        bound = NetworkConfig().answers_bytes_max
        bench.memory.used_bytes = bound
        bench.sender.send(pieces, whole(pieces))
        assert bench.sender.waits_for_memory
        assert bench.sender.queued_bytes == 2 << 20
        bench.memory.used_bytes = bound - 1
        assert await bench.received(10) == CONTENT[:10]
        assert not bench.sender.waits_for_memory
        assert bench.transport.get_write_buffer_size() <= 64 * 1024 + 64 * 1024
        assert await bench.received((2 << 20) - 10) == CONTENT[10 : 2 << 20]

    run(Loader(), scene)


def test_pieces_are_smaller_while_other_clients_are_served(region_of: Callable[[int, int], FileRegion]) -> None:
    async def first_piece(bench: Bench, small_response_s: float) -> int:
        bench.memory.small_response_s = small_response_s
        bench.is_sent.clear()
        pieces: ResponsePieces = [region_of(0, 2 << 20)]
        bench.sender.send(pieces, whole(pieces))
        piece_bytes = (2 << 20) - bench.sender.queued_bytes
        assert await bench.received(2 << 20) == CONTENT[: 2 << 20]
        await asyncio.wait_for(bench.is_sent.wait(), 30)
        return piece_bytes

    async def scene(bench: Bench) -> None:
        now_s = asyncio.get_running_loop().time()
        assert await first_piece(bench, float("-inf")) == BUFFER_BYTES
        assert await first_piece(bench, now_s + 60) == POOLED_BYTES_MIN
        assert await first_piece(bench, now_s - 1) == BUFFER_BYTES

    run(Loader(), scene)


def test_queued_responses_are_dropped_with_the_connection(region_of: Callable[[int, int], FileRegion]) -> None:
    async def scene(bench: Bench) -> None:
        pieces: ResponsePieces = [region_of(0, FILE_BYTES)]
        bench.sender.send(pieces, whole(pieces))
        bench.sender.close()
        assert bench.sender.queued_bytes == 0
        await asyncio.sleep(0)
        assert not bench.is_sent.is_set()

    run(Loader(), scene)
