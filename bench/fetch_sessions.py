"""Broker CPU per Fetch of a session (KIP-227): with many idle partitions, and with some that have records.

The cost of an idle partition is the difference between a session of 10,000 partitions and one of 16, none of which has
records. The cost of a partition with records is the difference between 16 of them and one; like a consumer that reads
on, every Fetch names them with their positions. The load is one raw socket, so that nearly all of the CPU time is the
broker's.
"""

import socket
import struct
from collections.abc import Sequence

from bench.broker_process import BrokerProcess, serving
from bench.rows import Row
from logbrook.client import Client
from logbrook.protocol.encoding import encode
from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

_VERSION = 12
_TOPIC = "wide"
_PARTITIONS = 10_000
_FEW = 16
_FETCHES = 4_000
_ROUNDS = 3
_TIMEOUT_S = 600.0
_IDLE_US_MAX = 0.5
_WITH_RECORDS_US_MAX = 8.0
_VALUE = bytes(100)
# Found in an encoded request, and replaced by the numbers of the session.
_MARKED_SESSION = 0x11223344
_MARKED_EPOCH = 0x55667788
# Where the id of the session is in a response: after length, correlation id, tags, throttle time and error code.
_SESSION_ID_AT = 4 + 4 + 1 + 4 + 2


def run() -> list[Row]:
    with serving("--durability", "interval") as broker, Client(broker.address, timeout_s=_TIMEOUT_S) as client:
        client.create_topic(_TOPIC, _PARTITIONS)
        wide, narrow = _Consumer(broker, _PARTITIONS), _Consumer(broker, _FEW)
        # By the number of partitions with records: the CPU time of a Fetch in each of the sessions.
        costs = {}
        for count in (0, 1, _FEW):
            for number in range(count):
                client.produce(_TOPIC, number, build_batch([Record(value=_VALUE, timestamp=1)]))
            costs[count] = _in_turns(broker, [wide, narrow], count)
        wide.close()
        narrow.close()
    title = f"Fetch in a session of {_PARTITIONS:,} partitions"
    per_idle = max(0.0, costs[0][0] - costs[0][1]) / (_PARTITIONS - _FEW)
    per_partition = (costs[_FEW][1] - costs[1][1]) / (_FEW - 1)
    return [
        *(Row(f"{title}, {count} with records: broker CPU", cost[0], "us") for count, cost in costs.items()),
        Row("idle partition of a session: broker CPU", per_idle, "us", _IDLE_US_MAX, higher_is_better=False),
        Row(
            "partition with records of a session: broker CPU",
            per_partition,
            "us",
            _WITH_RECORDS_US_MAX,
            higher_is_better=False,
        ),
    ]


def _in_turns(broker: BrokerProcess, consumers: "Sequence[_Consumer]", named: int) -> list[float]:
    """Return the CPU time per Fetch of each consumer in microseconds, the best of some rounds."""
    best = [float("inf")] * len(consumers)
    for _ in range(_ROUNDS):
        for number, consumer in enumerate(consumers):
            best[number] = min(best[number], consumer.cpu_us(broker, named))
    return best


class _Consumer:
    """A session over one connection."""

    def __init__(self, broker: BrokerProcess, partitions: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", broker.port), _TIMEOUT_S)
        self._epoch = 0
        self._session_id = 0
        self._ask(_frame(partitions))
        (self._session_id,) = struct.unpack_from(">i", self._response, _SESSION_ID_AT)
        assert self._session_id, "the broker keeps no session"

    def close(self) -> None:
        self._socket.close()

    def cpu_us(self, broker: BrokerProcess, named: int) -> float:
        """Fetch many times, naming the first `named` partitions. Return the broker's CPU time per Fetch."""
        frame = _frame(named)
        self._ask(frame)
        fetches = _FETCHES // max(1, named // 4)
        before_s = broker.cpu_s()
        for _ in range(fetches):
            self._ask(frame)
        return (broker.cpu_s() - before_s) / fetches * 1e6

    def _ask(self, frame: bytes) -> None:
        session = struct.pack(">ii", self._session_id, self._epoch)
        self._socket.sendall(frame.replace(struct.pack(">ii", _MARKED_SESSION, _MARKED_EPOCH), session))
        self._epoch += 1
        received = bytearray()
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            received += self._socket.recv(1 << 20)
        self._response = received


def _frame(partitions: int) -> bytes:
    """Return a request that names the first partitions, with the marks of a session."""
    wanted = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20) for number in range(partitions)
    ]
    request = FetchRequest(
        min_bytes=1,
        session_id=_MARKED_SESSION,
        session_epoch=_MARKED_EPOCH,
        topics=[FetchTopic(topic=_TOPIC, partitions=wanted)] if wanted else [],
    )
    return b"".join(
        frame_request(
            RequestStart(FetchRequest.API_KEY, _VERSION, 1), "bench", encode(request, _VERSION), has_tags=True
        )
    )
