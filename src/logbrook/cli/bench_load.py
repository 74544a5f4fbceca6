"""Work of a benchmark's processes: a producer that keeps requests in flight, a consumer, and latency histograms.

Nothing is done per record, so that the benchmark does not measure itself: a producer sends the same batch again with
new timestamps, and a consumer parses batch headers only.

With a rate, batches are due at fixed times, and the latency of a batch counts from its due time. A broker that stalls
is thus charged for every batch that had to wait, not only for the one request that it answered late (coordinated
omission).
"""

import random
import string
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from time import monotonic, time

from logbrook.client import BrokerError, Client
from logbrook.client.client import ACKS_NONE, Address
from logbrook.client.connection import Connection, InFlightRequest, poll_connections
from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from logbrook.records.batch import Codec, iter_headers, renew_crc
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

# Buckets keep this many leading bits of a duration: exact below 128 us, within 2 % above.
_LEADING_BITS = 7
_STEPS = 1 << (_LEADING_BITS - 1)
_BARS = "▏▎▍▌▋▊▉█"
_EDGES_MS = [unit * step for unit in (0.01, 0.1, 1, 10, 100, 1_000, 10_000) for step in (1, 2, 5)]
_BASE_AND_MAX_TIMESTAMP = Struct(">qq")
_TIMESTAMPS_POSITION = 27
_FETCH_BYTES = 8 << 20
_FETCH_WAIT_MS = 200
_CONSUMER = -1
# Longest wait between two checks for a stop.
_WAIT_S_MAX = 0.2


class LatencyHistogram:
    """Counts of durations in buckets; histograms of several processes are merged."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.max_us = 0

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, seconds: float, times: int = 1) -> None:
        us = max(0, round(seconds * 1e6))
        self.counts[_bucket(us)] += times
        self.max_us = max(self.max_us, us)

    def merge(self, other: "LatencyHistogram") -> None:
        self.counts.update(other.counts)
        self.max_us = max(self.max_us, other.max_us)

    def quantile_ms(self, share: float) -> float | None:
        """Return the duration that `share` of all did not exceed, None without any."""
        remaining = self.total * share
        for bucket in sorted(self.counts):
            remaining -= self.counts[bucket]
            if remaining <= 0:
                return min(_upper_us(bucket), self.max_us) / 1000
        return None

    def rows(self) -> list[tuple[float, int]]:
        """Return (upper bound in ms, count) from the first non-empty row to the last, on a 1-2-5 scale.

        Durations beyond the scale are in the last row, whose bound is the longest of them.
        """
        counts: Counter[float] = Counter()
        for bucket, count in self.counts.items():
            upper_ms = _upper_us(bucket) / 1000
            counts[next((edge for edge in _EDGES_MS if upper_ms <= edge), self.max_us / 1000)] += count
        if not counts:
            return []
        edges = [edge for edge in _EDGES_MS if min(counts) <= edge <= max(counts)]
        return [(edge, counts[edge]) for edge in sorted({*edges, *counts})]


@dataclass(frozen=True)
class BenchLoad:
    """Load of a producer: `rate` records per second (None: full speed) and `count` records (None: until stopped)."""

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
    security: ClientSecurity = PLAINTEXT_SECURITY


@dataclass
class BenchCounters:
    """Work that a process has done since `from_s`, the time of its last report."""

    from_s: float = field(default_factory=monotonic)
    records: int = 0
    bytes: int = 0
    latencies: LatencyHistogram = field(default_factory=LatencyHistogram)
    last_s: float = 0.0

    def add(self, records: int, size: int, latency_s: float | None) -> None:
        self.last_s = monotonic()
        self.records += records
        self.bytes += size
        if latency_s is not None:
            self.latencies.add(latency_s, records)


def produce(
    load: BenchLoad,
    partitions: Sequence[int],
    counters: Callable[[], BenchCounters],
    is_stopped: Callable[[], bool],
) -> None:
    """Send batches until the count is reached or `is_stopped`, and wait for their responses. Raises ClientError."""
    with Client(load.servers, client_id="logbrook-bench", timeout_s=load.timeout_s, security=load.security) as client:
        _BenchProducer(client, load, partitions, counters).run(is_stopped)


def consume(
    load: BenchLoad,
    offsets: Mapping[int, int],
    is_timed: bool,
    counters: Callable[[], BenchCounters],
    is_stopped: Callable[[], bool],
) -> None:
    """Read partitions from these offsets until `is_stopped`. Raises ClientError.

    With `is_timed`, the latency of a batch is its age by its timestamp; it requires synchronized clocks.
    """
    positions = dict(offsets)
    memory: bytearray = bytearray()
    with Client(load.servers, client_id="logbrook-bench", timeout_s=load.timeout_s, security=load.security) as client:
        while not is_stopped():
            # Report even if no more records come.
            counters()
            by_leader: dict[Address, list[int]] = {}
            for partition in positions:
                by_leader.setdefault(client.leader(load.topic, partition), []).append(partition)
            for leader, partitions in by_leader.items():
                starts = {partition: positions[partition] for partition in partitions}
                response = _fetch(client, leader, load.topic, starts, memory)
                now_s = time()
                for data in (data for topic in response.responses for data in topic.partitions):
                    _check(data.error_code, f"fetching from {load.topic}-{data.partition_index}")
                    if data.records is None:
                        continue
                    view = data.records
                    assert isinstance(view, memoryview)
                    memory = view.obj if isinstance(view.obj, bytearray) else memory
                    for _, header in iter_headers(view):
                        latency_s = now_s - header.max_timestamp / 1000 if is_timed else None
                        counters().add(header.count, header.size, latency_s)
                        positions[data.partition_index] = header.next_offset


class _BenchProducer:
    """Sends batches to partitions in turn, with up to `in_flight` requests per broker."""

    def __init__(
        self, client: Client, load: BenchLoad, partitions: Sequence[int], counters: Callable[[], BenchCounters]
    ) -> None:
        self._client = client
        self._load = load
        self._partitions = partitions
        self._counters = counters
        self._batch = _build(load, load.batch_records)
        self._connections: dict[Address, _LeaderConnection] = {}
        self._sent_records = 0

    def run(self, is_stopped: Callable[[], bool]) -> None:
        load, batch_number = self._load, 0
        for partition in self._partitions:
            # Connect before the measurement starts.
            self._connection(partition)
        started_s = self._counters().from_s = monotonic()
        while not is_stopped():
            records = (
                load.batch_records if load.count is None else min(load.batch_records, load.count - self._sent_records)
            )
            if records <= 0:
                break
            due_s = None if load.rate is None else started_s + self._sent_records / load.rate
            if due_s is not None and due_s > monotonic():
                self._receive_until(min(due_s, monotonic() + _WAIT_S_MAX))
                continue
            if records < load.batch_records:
                self._batch = _build(load, records)
            self._send(self._partitions[batch_number % len(self._partitions)], records, due_s)
            batch_number += 1
        for connection in self._connections.values():
            while connection.in_flight:
                self._receive(connection)

    def _send(self, partition: int, records: int, due_s: float | None) -> None:
        """Send the batch. Without `due_s` it is due as soon as a request slot is free."""
        connection = self._connection(partition)
        while len(connection.in_flight) >= self._load.in_flight:
            self._receive(connection)
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
            connection.connection.send_unanswered(request)
            self._counters().add(records, len(batch), monotonic() - due_s)
        else:
            # `send` returns after all bytes are sent, so the batch can be modified for the next request.
            sent = connection.connection.send(request, ProduceResponse)
            connection.in_flight.append(_SentBatch(sent, records, len(batch), due_s))
        self._sent_records += records

    def _receive(self, connection: "_LeaderConnection") -> None:
        batch = connection.in_flight.popleft()
        response = connection.connection.receive(batch.sent)
        for topic in response.responses:
            for partition in topic.partition_responses:
                operation = f"producing to {self._load.topic}-{partition.index}"
                _check(partition.error_code, operation, partition.error_message)
        self._counters().add(batch.records, batch.size, monotonic() - batch.due_s)

    def _receive_until(self, until_s: float) -> None:
        """Receive responses that arrive before `until_s`, at most one per connection."""
        leaders = {leader.connection: leader for leader in self._connections.values() if leader.in_flight}
        for connection in poll_connections(leaders, until_s - monotonic()):
            self._receive(leaders[connection])

    def _connection(self, partition: int) -> "_LeaderConnection":
        leader = self._client.leader(self._load.topic, partition)
        if leader not in self._connections:
            connection = self._client.connection(leader)
            # Negotiate the version now, while no request is in flight.
            connection.version_of(ProduceRequest)
            self._connections[leader] = _LeaderConnection(connection)
        return self._connections[leader]


@dataclass
class _SentBatch:
    sent: InFlightRequest[ProduceResponse]
    records: int
    size: int
    due_s: float


@dataclass
class _LeaderConnection:
    connection: Connection
    in_flight: deque[_SentBatch] = field(default_factory=deque)


def draw_histogram(rows: list[tuple[float, int]], width: int = 40) -> list[str]:
    """Return a line with a bar for each row."""
    total = sum(count for _, count in rows)
    largest = max((count for _, count in rows), default=0)
    return [
        f"{f'<= {edge:g} ms':>14}  {_bar(count / largest * width):<{width}}  {count / total:7.2%}  {count:,}".rstrip()
        for edge, count in rows
    ]


def _bar(length: float) -> str:
    eighths = round(length * 8)
    return "█" * (eighths // 8) + (_BARS[eighths % 8 - 1] if eighths % 8 else "")


def _bucket(us: int) -> int:
    shift = max(0, us.bit_length() - _LEADING_BITS)
    return shift * _STEPS + (us >> shift)


def _upper_us(bucket: int) -> int:
    """Return the longest duration that falls into a bucket."""
    if bucket < 2 * _STEPS:
        return bucket
    shift = bucket // _STEPS - 1
    return ((bucket - shift * _STEPS + 1) << shift) - 1


def _build(load: BenchLoad, records: int) -> bytearray:
    # Random text compresses about as well as typical payloads; the fixed seed makes runs comparable.
    characters = random.Random(records).choices(string.ascii_letters + string.digits + " ", k=load.record_bytes)
    value = "".join(characters).encode()
    return build_batch([Record(value=value, timestamp=0)] * records, codec=load.codec)


def _fetch(client: Client, leader: Address, topic: str, offsets: Mapping[int, int], memory: bytearray) -> FetchResponse:
    partitions = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        for partition, offset in offsets.items()
    ]
    request = FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=_FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        topics=[FetchTopic(topic=topic, topic_id=client.topic_id(topic), partitions=partitions)],
    )
    response = client.connection(leader).request(request, FetchResponse, memory=memory)
    _check(response.error_code, f"fetching from {topic}")
    return response


def _check(code: int, operation: str, message: str | None = None) -> None:
    if code:
        raise BrokerError(code, operation, message)
