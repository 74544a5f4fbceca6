"""Broker CPU per small request: single-record Produce requests, and long-poll Fetch round trips.

The load is raw sockets and frames encoded beforehand, one request in flight per connection, so that nearly all of the
CPU time is the broker's. CPU time counts, not wall time: it is the same on a machine that is busy with other work.
"""

import selectors
import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from bench.broker_process import BrokerProcess, serving
from bench.rows import Row
from logbrook.protocol.encoding import encode
from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from logbrook.protocol.schema import ApiMessage
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

_CONNECTIONS = 8
_WARM_UP = 4_000
_REQUESTS = 32_000
_ROUND_TRIPS = 8_000
_VALUE = bytes(100)
_CPU_US_MAX = {"interval": 100.0, "fsync": 150.0}
_PRODUCE_VERSION = 11
_FETCH_VERSION = 12
_METADATA_VERSION = 12
_MARKED_OFFSET = 0x0102030405060708
_RESPONSE_BYTES_MAX = 1 << 16


class Cost(NamedTuple):
    """Broker CPU time per request, and requests per second of wall time."""

    cpu_us: float
    per_s: float


def run() -> list[Row]:
    rows = []
    for durability, goal in _CPU_US_MAX.items():
        with serving("--durability", durability) as broker:
            produce = measure_produce(broker)
            fetch = measure_fetch(broker)
        name = f"single-record Produce, {_CONNECTIONS} connections, durability {durability}"
        rows += [
            Row(f"{name}: broker CPU", produce.cpu_us, "us", goal, higher_is_better=False),
            Row(f"{name}: rate", produce.per_s, "requests/s"),
            Row(f"Produce and the Fetch it wakes, durability {durability}: broker CPU", fetch.cpu_us, "us"),
        ]
    return rows


def measure_produce(broker: BrokerProcess, requests: int = _REQUESTS) -> Cost:
    """Every connection produces to the same partition and waits for each acknowledgement."""
    with ExitStack() as stack:
        connections = [stack.enter_context(_connect(broker)) for _ in range(_CONNECTIONS)]
        _create_topic(connections[0], "small")
        frame = _produce_frame("small")

        def send(connection: socket.socket) -> None:
            connection.sendall(frame)

        _exchange(connections, send, _WARM_UP)
        return _cost(broker, lambda: _exchange(connections, send, requests), requests)


def measure_fetch(broker: BrokerProcess, round_trips: int = _ROUND_TRIPS) -> Cost:
    """Each pair of connections has a partition: a Fetch waits at its end, a Produce wakes it, then the next Fetch."""
    with ExitStack() as stack:
        pairs = [_Pair(stack, broker, f"poll-{number}") for number in range(_CONNECTIONS)]

        def run_round_trips(count: int) -> None:
            for _ in range(count // len(pairs)):
                for pair in pairs:
                    pair.send()
                for pair in pairs:
                    pair.receive()

        run_round_trips(_WARM_UP // 4)
        return _cost(broker, lambda: run_round_trips(round_trips), round_trips)


class _Pair:
    """A producer and a consumer of one topic."""

    def __init__(self, stack: ExitStack, broker: BrokerProcess, topic: str) -> None:
        self._producer = stack.enter_context(_connect(broker))
        self._consumer = stack.enter_context(_connect(broker))
        _create_topic(self._producer, topic)
        self._produce = _produce_frame(topic)
        self._fetch = bytearray(_fetch_frame(topic))
        self._offset_at = self._fetch.index(struct.pack(">q", _MARKED_OFFSET))
        self._next_offset = 0

    def send(self) -> None:
        struct.pack_into(">q", self._fetch, self._offset_at, self._next_offset)
        self._next_offset += 1
        self._consumer.sendall(self._fetch)
        self._producer.sendall(self._produce)

    def receive(self) -> None:
        _receive(self._producer)
        _receive(self._consumer)


def _exchange(connections: list[socket.socket], send: Callable[[socket.socket], None], requests: int) -> None:
    """Send and receive `requests` in all, one in flight per connection."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
            send(connection)
        unsent, unanswered = requests - len(connections), requests
        while unanswered:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                _receive(key.fileobj)
                unanswered -= 1
                if unsent:
                    unsent -= 1
                    send(key.fileobj)


def _receive(connection: socket.socket) -> None:
    """Receive one response. It is the only one in flight, so one receive has all of it, or nearly always."""
    data = connection.recv(_RESPONSE_BYTES_MAX)
    (size,) = struct.unpack_from(">i", data)
    remaining = size + 4 - len(data)
    while remaining > 0:
        remaining -= len(connection.recv(remaining))


def _cost(broker: BrokerProcess, load: Callable[[], None], requests: int) -> Cost:
    cpu_s, started_s = broker.cpu_s(), time.perf_counter()
    load()
    took_s = time.perf_counter() - started_s
    return Cost(1e6 * (broker.cpu_s() - cpu_s) / requests, requests / took_s)


def _connect(broker: BrokerProcess) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", broker.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _create_topic(connection: socket.socket, topic: str) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    connection.sendall(_frame(request, _METADATA_VERSION))
    _receive(connection)


def _produce_frame(topic: str) -> bytes:
    batch = bytes(build_batch([Record(value=_VALUE, timestamp=0)]))
    partition = PartitionProduceData(index=0, records=batch)
    data = [TopicProduceData(name=topic, partition_data=[partition])]
    return _frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), _PRODUCE_VERSION)


def _fetch_frame(topic: str) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=_MARKED_OFFSET, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=30_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    return _frame(request, _FETCH_VERSION)


def _frame(request: ApiMessage, version: int) -> bytes:
    start = RequestStart(request.API_KEY, version, 1)
    has_tags = version >= request.FLEXIBLE_SINCE
    return b"".join(frame_request(start, "bench", encode(request, version), has_tags=has_tags))
