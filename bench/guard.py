"""Performance relative to raw system calls and other references, to detect gross regressions in `make test`.

Both sides are measured in one process, in turns, and the best round of each counts, so the ratios depend little on the
machine and its load. The floors are a fifth of the values of an idle machine, or less where those vary: the guard is
for slowdowns by several times, `make bench` for the rest.
"""

import os
import socket
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Self

from bench.append import against_raw, durable_against_raw
from bench.engine import batch_of, scratch
from bench.read import ratios
from bench.rows import Compare, Row, best_ratio
from logbrook import Broker
from logbrook.client import Client
from logbrook.config.network import split_address
from logbrook.protocol.encoding import encode
from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

_COMPARE = partial(best_ratio, rounds=7)
_BATCH_BYTES = 64 << 10
_REQUESTS = 40
_TOPIC, _SPREAD = "guard", "spread"
_BATCHES = 16
_PARTITIONS = 16
_FETCHES = 20
_SMALL_REQUESTS = 200
_FETCH_VERSION = 12


def run(compare: Compare = _COMPARE) -> list[Row]:
    """Return the ratios; the goal of a row is its floor."""
    return [
        _with_floor(against_raw(_BATCH_BYTES, compare=compare), 0.16),
        _with_floor(durable_against_raw(_BATCH_BYTES, compare=compare), 0.15),
        *(_with_floor(row, 0.13) for row in ratios(compare)),
        _with_floor(_produce_ratio(compare), 0.04),
        *_request_ratios(compare),
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


def _request_ratios(compare: Compare) -> list[Row]:
    """Compare Fetch with sendfile, a Fetch of many partitions with that of one, and a small Produce with Metadata."""
    batch = bytes(batch_of(_BATCH_BYTES))
    with (
        Broker(topics=[_TOPIC]) as broker,
        Client(broker.bootstrap_servers) as client,
        scratch() as path,
        _Sender(f"{path}/raw", batch * _BATCHES) as sender,
    ):
        client.create_topic(_SPREAD, _PARTITIONS)
        for number in range(_BATCHES):
            client.produce(_TOPIC, 0, batch)
            client.produce(_SPREAD, number % _PARTITIONS, batch)
        record = bytes(build_batch([Record(value=bytes(100))]))
        fetchers = [_Fetcher(broker.bootstrap_servers, *topic) for topic in ((_TOPIC, 1), (_SPREAD, _PARTITIONS))]
        single, many = (partial(_repeat, fetcher.fetch, _FETCHES) for fetcher in fetchers)
        small = partial(_repeat, lambda: client.produce(_TOPIC, 0, record), _SMALL_REQUESTS)
        sent = compare(partial(_repeat, sender.send, _FETCHES), single)
        spread = compare(single, many)
        answered = compare(partial(_repeat, lambda: client.metadata([]), _SMALL_REQUESTS), small)
        for fetcher in fetchers:
            fetcher.close()
    return [
        Row("fetch of 1 MiB, of sendfile over a socket", sent, "ratio", 0.05),
        Row("fetch of 1 MiB from 16 partitions, of that from one", spread, "ratio", 0.1),
        Row("produce of one small record, of a Metadata request", answered, "ratio", 0.08),
    ]


def _repeat(call: Callable[[], object], times: int) -> None:
    for _ in range(times):
        call()


class _Fetcher:
    """Fetches 1 MiB in one request, from the beginning of each partition, without decoding the response."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        wanted = [
            FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=2 * _BATCHES * _BATCH_BYTES)
            for number in range(partitions)
        ]
        topics = [FetchTopic(topic=topic, partitions=wanted)]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 30, session_epoch=-1, topics=topics)
        start = RequestStart(request.API_KEY, _FETCH_VERSION, 1)
        self._frame = b"".join(frame_request(start, "guard", encode(request, _FETCH_VERSION), has_tags=True))
        self._memory = memoryview(bytearray(4 * _BATCHES * _BATCH_BYTES))
        self._socket = socket.create_connection(split_address(address))

    def fetch(self) -> None:
        self._socket.sendall(self._frame)
        size = int.from_bytes(self._socket.recv(4, socket.MSG_WAITALL), "big")
        assert size > _BATCHES * _BATCH_BYTES
        assert self._socket.recv_into(self._memory, size, socket.MSG_WAITALL) == size

    def close(self) -> None:
        self._socket.close()


class _Sender:
    """The reference of Fetch: a thread that sends a file with sendfile whenever it is asked to."""

    def __init__(self, path: str, content: bytes) -> None:
        self._size = len(content)
        self._memory = memoryview(bytearray(self._size))
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.pwrite(self._fd, content, 0)
        self._client, self._server = _tcp_pair()
        self._thread = Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._thread.join()
        self._server.close()
        os.close(self._fd)

    def send(self) -> None:
        self._client.sendall(b"?")
        assert self._client.recv_into(self._memory, self._size, socket.MSG_WAITALL) == self._size

    def _serve(self) -> None:
        while self._server.recv(1):
            sent = 0
            while sent < self._size:
                sent += os.sendfile(self._server.fileno(), self._fd, sent, self._size - sent)


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    for end in (client, server):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


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
