"""The output of a connection, over a real socket."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from logbrook.config import NetworkConfig
from logbrook.ports import FileRegion, OsFiles
from logbrook.ports.buffer_pool import BufferPool
from logbrook.protocol.encoding import ResponsePieces
from logbrook.server.response_memory import ResponseMemory
from logbrook.server.response_writer import ResponseWriter
from tests.unit.server.test_region_sender import Loader

REGION_BYTES = 1 << 20


def test_responses_follow_one_whose_last_piece_had_to_wait_for_the_client(tmp_path: Path) -> None:
    """The sender of regions stayed paused if the transport was congested by the last piece of its queue."""
    file = OsFiles(tmp_path).create("records")
    content = os.urandom(REGION_BYTES)
    file.pwrite(content, 0)

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        client, server = socket.socketpair()
        client.setblocking(False)
        memory = ResponseMemory(NetworkConfig())
        writable: list[bool] = []
        writer = ResponseWriter(loop, memory, lambda: writable.append(True), lambda error: None)

        class Protocol(asyncio.Protocol):
            def pause_writing(self) -> None:
                writer.pause()

            def resume_writing(self) -> None:
                writer.resume()

        transport, _ = await loop.create_connection(Protocol, sock=server)
        writer.connect(transport)

        async def answer() -> None:
            region: FileRegion = file.region(0, REGION_BYTES)
            pieces: ResponsePieces = [b"head", region, b"tail"]
            size = sum(map(len, pieces))
            writer.add(pieces, size, writer.count(pieces, size))
            writer.write(BufferPool(), Loader())
            received = b""
            while len(received) < size:
                received += await asyncio.wait_for(loop.sock_recv(client, 100_000), 10)
            assert received == b"head" + content + b"tail"

        for _ in range(3):
            await answer()
            assert writer.region_bytes == 0
            assert writer.is_writable
            assert memory.used_bytes == 0
        assert writable
        assert memory.small_response_s < 0
        writer.add([b"small"], 5, writer.count([b"small"], 5))
        writer.write(BufferPool(), Loader())
        assert memory.small_response_s == pytest.approx(loop.time(), abs=60)
        writer.close()
        transport.abort()
        client.close()

    asyncio.run(scene())
    file.close()
