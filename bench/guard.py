"""Performance relative to raw system calls, to detect gross regressions in `make test`.

Both sides are measured in one process, in turns, and the best round of each counts, so the ratios depend little on the
machine and its load. The floors are a fifth of the values of an idle machine, or less where those vary: the guard is
for slowdowns by several times, `make bench` for the rest.
"""

import os
import socket
from functools import partial
from threading import Thread

from bench.append import against_raw, durable_against_raw
from bench.engine import batch_of, scratch
from bench.read import ratios
from bench.rows import Compare, Row, best_ratio
from logbrook import Broker
from logbrook.client import Client

_COMPARE = partial(best_ratio, rounds=7)
_BATCH_BYTES = 64 << 10
_REQUESTS = 40
_TOPIC = "guard"


def run(compare: Compare = _COMPARE) -> list[Row]:
    """Return the ratios; the goal of a row is its floor."""
    return [
        _with_floor(against_raw(_BATCH_BYTES, compare=compare), 0.16),
        _with_floor(durable_against_raw(_BATCH_BYTES, compare=compare), 0.15),
        *(_with_floor(row, 0.13) for row in ratios(compare)),
        _with_floor(_produce_ratio(compare), 0.04),
    ]


def _with_floor(row: Row, floor: float) -> Row:
    return Row(row.name, row.value, row.unit, goal=floor)


def _produce_ratio(compare: Compare) -> Row:
    """Compare Produce, one request in flight, with a thread that receives the same bytes, writes them and answers."""
    batch = bytes(batch_of(_BATCH_BYTES))
    with Broker(topics=[_TOPIC]) as broker, Client(broker.bootstrap_servers) as client, scratch() as path:
        echo = _Writer(f"{path}/raw", len(batch))

        def subject() -> None:
            for _ in range(_REQUESTS):
                client.produce(_TOPIC, 0, batch)

        ratio = compare(lambda: echo.send(batch, _REQUESTS), subject)
        echo.close()
    return Row("produce of 64 KiB batches, of a socket and a raw pwrite", ratio, "ratio")


class _Writer:
    """The reference: a server that only receives a batch, writes it and answers."""

    def __init__(self, path: str, size: int) -> None:
        self._size = size
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self._client, self._server = socket.socketpair()
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def send(self, batch: bytes, times: int) -> None:
        for _ in range(times):
            self._client.sendall(batch)
            assert self._client.recv(1) == b"k"

    def close(self) -> None:
        self._client.close()
        self._thread.join()
        self._server.close()
        os.close(self._fd)

    def _serve(self) -> None:
        buffer = memoryview(bytearray(self._size))
        position = 0
        while self._server.recv_into(buffer, self._size, socket.MSG_WAITALL):
            os.pwrite(self._fd, buffer, position)
            position += self._size
            self._server.sendall(b"k")
