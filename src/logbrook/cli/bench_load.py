"""What makes load: a producer that keeps requests under way, and a consumer that reads what comes.

Both belong to a process of their own. Nothing is done per record: a producer sends one batch again and again, with
other timestamps, and a consumer looks at the headers of batches.

With a rate, batches are due at fixed times, and a batch's latency counts from when it was due. So a broker that stalls
is charged for all that had to wait meanwhile, and not only for the one request that it answered late.
"""

import random
import select
import string
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from time import monotonic, time

from logbrook.cli.bench_latency import Latencies
from logbrook.client import BrokerError, Client
from logbrook.client.client import Address
from logbrook.client.connection import Connection, Sent
from logbrook.client.record_writer import ACKS_NONE
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from logbrook.records.batch import Codec, iter_headers, renew_crc
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

_BASE_AND_MAX_TIMESTAMP = Struct(">qq")
_TIMESTAMPS_POSITION = 27
_FETCH_BYTES = 8 << 20
_FETCH_WAIT_MS = 200
_CONSUMER = -1
# Nobody waits longer than this without looking whether it is time to stop.
_PATIENCE_S = 0.2


@dataclass(frozen=True)
class Load:
    """What a producer sends: `rate` records a second, or as many as go; `count` records, or until it is stopped."""

    servers: str
    topic: str
    record_bytes: int
    batch_records: int
    codec: Codec
    acks: int
    in_flight: int
    timeout_s: float
    rate: float | None = None
    count: int | None = None


@dataclass
class Tally:
    """What was done since the last report."""

    records: int = 0
    bytes: int = 0
    latencies: Latencies = field(default_factory=Latencies)
    last_s: float = 0.0

    def add(self, records: int, size: int, latency_s: float | None) -> None:
        self.last_s = monotonic()
        self.records += records
        self.bytes += size
        if latency_s is not None:
            self.latencies.add(latency_s, records)


def produce(load: Load, partitions: Sequence[int], tally: Callable[[], Tally], is_stopped: Callable[[], bool]) -> None:
    """Send until it is enough or somebody says stop, and wait for the answers. Raises ClientError."""
    with Client(load.servers, client_id="logbrook-bench", timeout_s=load.timeout_s) as client:
        _Sender(client, load, partitions, tally).run(is_stopped)


def consume(
    load: Load,
    offsets: Mapping[int, int],
    is_timed: bool,
    tally: Callable[[], Tally],
    is_stopped: Callable[[], bool],
) -> None:
    """Read partitions from these offsets on until somebody says stop. Raises ClientError.

    With `is_timed` latency is how old a batch is by its timestamp, which has to be of a clock that is right.
    """
    positions = dict(offsets)
    memory: bytearray = bytearray()
    with Client(load.servers, client_id="logbrook-bench", timeout_s=load.timeout_s) as client:
        while not is_stopped():
            # What was counted is told even when nothing more comes.
            tally()
            by_leader: dict[Address, list[int]] = {}
            for partition in positions:
                by_leader.setdefault(client.leader(load.topic, partition), []).append(partition)
            for leader, led in by_leader.items():
                answer = _fetch(client, leader, load.topic, {one: positions[one] for one in led}, memory)
                now_s = time()
                for one in (each for topic in answer.responses for each in topic.partitions):
                    _check(one.error_code, f"fetching from {load.topic}-{one.partition_index}")
                    if one.records is None:
                        continue
                    view = one.records
                    assert isinstance(view, memoryview)
                    memory = view.obj if isinstance(view.obj, bytearray) else memory
                    for _, header in iter_headers(view):
                        latency_s = now_s - header.max_timestamp / 1000 if is_timed else None
                        tally().add(header.count, header.size, latency_s)
                        positions[one.partition_index] = header.next_offset


class _Sender:
    def __init__(self, client: Client, load: Load, partitions: Sequence[int], tally: Callable[[], Tally]) -> None:
        self._client = client
        self._load = load
        self._partitions = partitions
        self._tally = tally
        self._batch = _batch_of(load, load.batch_records)
        self._links: dict[Address, _Link] = {}
        self._sent_records = 0

    def run(self, is_stopped: Callable[[], bool]) -> None:
        load, number = self._load, 0
        for partition in self._partitions:
            # Connecting is no part of what is measured.
            self._link(partition)
        started_s = monotonic()
        while not is_stopped():
            records = (
                load.batch_records if load.count is None else min(load.batch_records, load.count - self._sent_records)
            )
            if records <= 0:
                break
            due_s = None if load.rate is None else started_s + self._sent_records / load.rate
            if due_s is not None and due_s > monotonic():
                self._receive_until(min(due_s, monotonic() + _PATIENCE_S))
                continue
            if records < load.batch_records:
                self._batch = _batch_of(load, records)
            self._send(self._partitions[number % len(self._partitions)], records, due_s)
            number += 1
        for link in self._links.values():
            while link.waiting:
                self._receive(link)

    def _send(self, partition: int, records: int, due_s: float | None) -> None:
        """Without a time at which it is due, it is due when there is room for it."""
        link = self._link(partition)
        while len(link.waiting) >= self._load.in_flight:
            self._receive(link)
        batch, load = self._batch, self._load
        now_s = monotonic()
        due_s = now_s if due_s is None else due_s
        due_ms = round((time() - (now_s - due_s)) * 1000)
        _BASE_AND_MAX_TIMESTAMP.pack_into(batch, _TIMESTAMPS_POSITION, due_ms, due_ms)
        renew_crc(memoryview(batch), 0, len(batch))
        data = TopicProduceData(
            name=load.topic,
            topic_id=self._client.topic_id(load.topic),
            partition_data=[PartitionProduceData(index=partition, records=batch)],
        )
        request = ProduceRequest(acks=load.acks, timeout_ms=round(load.timeout_s * 1000), topic_data=[data])
        if load.acks == ACKS_NONE:
            link.connection.send_unanswered(request)
            self._tally().add(records, len(batch), monotonic() - due_s)
        else:
            # It is sent in full when this returns, so that the batch may be changed for the next one.
            sent = link.connection.send(request, ProduceResponse)
            link.waiting.append(_Waiting(sent, records, len(batch), due_s))
        self._sent_records += records

    def _receive(self, link: "_Link") -> None:
        one = link.waiting.popleft()
        answer = link.connection.receive(one.sent)
        for topic in answer.responses:
            for each in topic.partition_responses:
                what = f"producing to {self._load.topic}-{each.index}"
                _check(each.error_code, what, each.error_message)
        self._tally().add(one.records, one.size, monotonic() - one.due_s)

    def _receive_until(self, until_s: float) -> None:
        """Take answers as they come."""
        by_fileno = {link.connection.fileno(): link for link in self._links.values() if link.waiting}
        readable, _, _ = select.select(list(by_fileno), [], [], max(0.0, until_s - monotonic()))
        for fileno in readable:
            self._receive(by_fileno[fileno])

    def _link(self, partition: int) -> "_Link":
        leader = self._client.leader(self._load.topic, partition)
        if leader not in self._links:
            connection = self._client.connection(leader)
            # Asked for now, before anything is under way.
            connection.version_of(ProduceRequest)
            self._links[leader] = _Link(connection)
        return self._links[leader]


@dataclass
class _Waiting:
    sent: Sent[ProduceResponse]
    records: int
    size: int
    due_s: float


@dataclass
class _Link:
    connection: Connection
    waiting: deque[_Waiting] = field(default_factory=deque)


def _batch_of(load: Load, records: int) -> bytearray:
    # Text compresses about as well as what people send; the same seed makes runs comparable.
    letters = random.Random(records).choices(string.ascii_letters + string.digits + " ", k=load.record_bytes)
    value = "".join(letters).encode()
    return build_batch([Record(value=value, timestamp=0)] * records, codec=load.codec)


def _fetch(client: Client, leader: Address, topic: str, offsets: Mapping[int, int], memory: bytearray) -> FetchResponse:
    wanted = [
        FetchPartition(partition=one, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        for one, offset in offsets.items()
    ]
    request = FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=_FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        topics=[FetchTopic(topic=topic, topic_id=client.topic_id(topic), partitions=wanted)],
    )
    answer = client.connection(leader).request(request, FetchResponse, memory=memory)
    _check(answer.error_code, f"fetching from {topic}")
    return answer


def _check(code: int, what: str, message: str | None = None) -> None:
    if code:
        raise BrokerError(code, what, message)
