"""Reads and decodes the records of several partitions, for people and tools rather than for bulk transfer.

All partitions that a broker leads are fetched in one request, and each request begins with another partition, so that
none is starved. Requests to several brokers are in flight at once, one per broker. After a retriable error the leaders
are looked up again, and reading is retried for as long as a request may take. With `outages`, it is retried
indefinitely while no broker answers.

Control records are left out, and with `committed_only` the records of aborted transactions too.

`read` returns decoded records. `read_batches` returns the batches as they are, checked but not decoded, for callers
that decode many at once.
"""

import select
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from logbrook.client.client import CONSUMER_REPLICA_ID, EARLIEST, LATEST, Address, Client, group_by_topic
from logbrook.client.connection import Connection, InFlightRequest, poll_connections
from logbrook.client.errors import ClientError, NetworkError, TimedOutError, check_code
from logbrook.client.fetched import AbortedBatches
from logbrook.client.partition_requests import PartitionRequests
from logbrook.client.retry import Retries, RetryPolicy
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from logbrook.records.batch import BatchHeader, TimestampType, check_batch, iter_headers
from logbrook.records.errors import RecordsError
from logbrook.records.reader import iter_records
from logbrook.records.record import RawRecord

FETCH_BYTES_MAX = 1 << 20
WAIT_MS_MAX = 500
# Bound of a batch's decompressed size.
BATCH_BYTES_MAX = 256 << 20


class FetchedRun(NamedTuple):
    """Whole batches of one partition with valid checksums, in order, perhaps with control batches among them.

    Only the records with offsets in [start, end) are wanted. `next_offset` is the offset to commit after them.
    """

    partition: TopicPartition
    batches: memoryview
    start: Offset
    end: Offset | None
    next_offset: Offset


class RecordRun(NamedTuple):
    """Records of one batch, in order; `next_offset` is the offset to commit when they have been processed."""

    partition: TopicPartition
    records: list[RawRecord]
    timestamp_type: TimestampType
    next_offset: Offset


class OutageListener(Protocol):
    """Is told when no broker answers any more, and when one answers again; both once per outage."""

    def begin(self, error: NetworkError) -> None: ...

    def end(self) -> None: ...


class RecordsReader:
    """Reads through `client`, which the caller owns. Belongs to one thread, as the client does.

    Every call may raise ClientError, ProtocolError, or RecordsError for batches that cannot be decoded.
    """

    def __init__(
        self,
        client: Client,
        starts: Mapping[TopicPartition, int],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
        committed_only: bool = True,
        bytes_max: int = FETCH_BYTES_MAX,
        outages: OutageListener | None = None,
    ) -> None:
        """Read each partition from its start to its end, exclusive. Those without an end are read indefinitely."""
        self._client = client
        self._positions = dict(starts)
        self._ends = dict(ends or {})
        self._committed_only = committed_only
        self._bytes_max = bytes_max
        self._order = deque(sorted(starts))
        self._connections: dict[Address, _FetchConnection] = {}
        self._outages = outages
        # Counts the failures since the last success.
        self._retries: Retries | None = None
        # The same during an outage, without a time limit.
        self._reconnects: Retries | None = None
        self._is_outage_reported = False
        self._damage: RecordsError | None = None
        # Offsets that were skipped because the log start offset has moved past them, by partition.
        self.lost: dict[TopicPartition, int] = {}

    def __enter__(self) -> "RecordsReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.broker.close()
        self._connections.clear()

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too, without an end."""
        self._positions |= starts
        self._order.extend(sorted(starts))

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition."""
        return dict(self._positions)

    @property
    def is_done(self) -> bool:
        """True if every partition has an end and has reached it."""
        return not any(self._is_wanted(partition) for partition in self._positions)

    @property
    def is_reconnecting(self) -> bool:
        """True during an outage, if there is a listener for outages."""
        return self._reconnects is not None

    def read(self, wait_ms: int = WAIT_MS_MAX) -> list[RecordRun]:
        """Return records as soon as there are any; an empty list after `wait_ms`, or when the reader is done."""
        runs: list[RecordRun] = []
        try:
            for batch_run in self.read_batches(wait_ms):
                runs.extend(decode_records(batch_run))
        except RecordsError as error:
            # Return the records before the damage first; the next call raises.
            self._damage = error
            if not runs:
                raise
        return runs

    def read_batches(self, wait_ms: int = WAIT_MS_MAX) -> list[FetchedRun]:
        """Return batches as soon as there are any; an empty list after `wait_ms`, or when the reader is done."""
        if self._damage is not None:
            raise self._damage
        until_s = monotonic() + wait_ms / 1000
        runs: list[FetchedRun] = []
        try:
            self._send_requests(wait_ms)
            has_answer = self._receive(until_s, runs)
        except ClientError as error:
            self._back_off(error, until_s if not runs else monotonic())
        except RecordsError as error:
            self._damage = error
            if not runs:
                raise
        else:
            # No answer is no success: the broker may accept requests and process none.
            if has_answer:
                self._retries = None
                self._end_outage()
        return runs

    def _is_wanted(self, partition: TopicPartition) -> bool:
        end = self._ends.get(partition)
        return end is None or self._positions[partition] < end

    def _send_requests(self, wait_ms: int) -> None:
        in_flight = {partition for connection in self._connections.values() for partition in connection.in_flight}
        by_leader: dict[Address, list[TopicPartition]] = {}
        for partition in self._order:
            if partition not in in_flight and self._is_wanted(partition):
                by_leader.setdefault(self._client.leader(*partition), []).append(partition)
        self._order.rotate(-1)
        for leader, partitions in by_leader.items():
            connection = self._connections.get(leader)
            if connection is None:
                connection = self._connections[leader] = _FetchConnection(self._client.connect(*leader))
            if not connection.in_flight:
                names = {self._client.topic_id(partition.topic): partition.topic for partition in partitions}
                connection.send(self._request(partitions, wait_ms), partitions, names)

    def _request(self, partitions: Sequence[TopicPartition], wait_ms: int) -> FetchRequest:
        entries = [
            FetchPartition(
                partition=partition.partition,
                fetch_offset=self._positions[partition],
                partition_max_bytes=self._bytes_max,
            )
            for partition in partitions
        ]
        by_topic = group_by_topic(zip(partitions, entries, strict=True))
        return FetchRequest(
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self._bytes_max,
            isolation_level=int(self._committed_only),
            topics=[
                FetchTopic(topic=name, topic_id=self._client.topic_id(name), partitions=entries)
                for name, entries in by_topic.items()
            ],
        )

    def _receive(self, until_s: float, runs: list[FetchedRun]) -> bool:
        """Return True if a broker has answered."""
        waiting = {connection.broker: connection for connection in self._connections.values() if connection.in_flight}
        if not waiting:
            return False
        # The broker itself waits until `until_s` before it sends an empty response, which then has to arrive.
        ready = poll_connections(waiting, max(0.0, until_s - monotonic()) + WAIT_MS_MAX / 1000)
        for broker in ready:
            connection = waiting[broker]
            self._take(connection.receive(), connection.names, runs)
        for connection in waiting.values():
            if connection.in_flight and connection.sent_at_s < monotonic() - self._client.timeout_s:
                raise TimedOutError(connection.broker.host, connection.broker.port, self._client.timeout_s)
        return bool(ready)

    def _take(self, response: FetchResponse, names: Mapping[bytes, str], runs: list[FetchedRun]) -> None:
        """Append to `runs` as positions advance, so that an error does not lose the runs before it."""
        check_code(response.error_code, f"fetching from {', '.join(sorted(names.values()))}")
        for topic in response.responses:
            name = topic.topic or names[topic.topic_id]
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._reset_position(partition)
                    continue
                check_code(data.error_code, f"fetching from {partition}")
                self._take_partition(partition, data, runs)

    def _take_partition(self, partition: TopicPartition, data: PartitionData, runs: list[FetchedRun]) -> None:
        view = memoryview(b"") if data.records is None else data.records
        assert isinstance(view, memoryview)
        aborted = AbortedBatches(
            [(aborted.producer_id, aborted.first_offset) for aborted in data.aborted_transactions or ()]
        )
        run = _GrowingRun(partition, view, self._ends.get(partition))
        try:
            for position, _ in iter_headers(view):
                header = check_batch(view, position, len(view))
                first = self._positions[partition]
                is_aborted = aborted.includes(header, view[position : position + header.size])
                # A compressed batch is sent whole, and may end before the position.
                if header.next_offset <= first:
                    continue
                if not self._is_wanted(partition):
                    return
                if is_aborted:
                    runs.extend(run.take())
                else:
                    run.add(position, header, Offset(first))
                self._positions[partition] = header.next_offset
        finally:
            runs.extend(run.take())

    def _reset_position(self, partition: TopicPartition) -> None:
        """Move a position that is out of range to the log start or the log end, whichever it has passed."""
        cluster, offset = PartitionRequests(self._client), self._positions[partition]
        start = cluster.list_offsets({partition: EARLIEST})[partition]
        if offset < start:
            self.lost[partition] = self.lost.get(partition, 0) + start - offset
            self._positions[partition] = start
        else:
            self._positions[partition] = cluster.list_offsets({partition: LATEST})[partition]

    def _back_off(self, error: ClientError, until_s: float) -> None:
        """Prepare a retry and wait for it, but not past `until_s`. Raises `error` if the policy gives up."""
        if isinstance(error, NetworkError) and self._outages is not None:
            retry_at_s = self._reconnect_at_s(error, self._outages)
        else:
            if self._retries is None:
                self._retries = Retries(RetryPolicy(timeout_s=self._client.timeout_s))
            retry_at_s = self._retries.next_try_at_s(error)
        self.close()
        for topic in {partition.topic for partition in self._positions}:
            self._client.invalidate(topic)
        select.poll().poll(max(0.0, min(retry_at_s, until_s) - monotonic()) * 1000)

    def _reconnect_at_s(self, error: NetworkError, outages: OutageListener) -> float:
        # Other errors are given their time anew when a broker answers again.
        self._retries = None
        is_first = self._reconnects is None
        if self._reconnects is None:
            self._reconnects = Retries(RetryPolicy())
        # A single slow response is no outage yet.
        if not self._is_outage_reported and not (is_first and isinstance(error, TimedOutError)):
            self._is_outage_reported = True
            outages.begin(error)
        return self._reconnects.next_try_at_s(error)

    def _end_outage(self) -> None:
        self._reconnects = None
        if self._is_outage_reported and self._outages is not None:
            self._is_outage_reported = False
            self._outages.end()


def decode_records(run: FetchedRun) -> Iterator[RecordRun]:
    """Decode the batches of a run one by one. Raises RecordsError, after the batches before the damaged one."""
    for position, header in iter_headers(run.batches):
        if not header.is_control and (records := decode_batch(run, position)):
            yield RecordRun(run.partition, records, header.timestamp_type, header.next_offset)


def decode_batch(run: FetchedRun, position: int) -> list[RawRecord]:
    """Return the wanted records of the batch at `position` in a run. Raises RecordsError."""
    return [
        record
        for record in iter_records(run.batches, position, bytes_max=BATCH_BYTES_MAX)
        if record.offset >= run.start and (run.end is None or record.offset < run.end)
    ]


class _GrowingRun:
    """Collects consecutive batches of a response into one run."""

    def __init__(self, partition: TopicPartition, view: memoryview, end: int | None) -> None:
        self._partition = partition
        self._view = view
        self._end = None if end is None else Offset(end)
        self._range: tuple[int, int] | None = None
        self._start = self._next_offset = Offset(0)

    def add(self, position: int, header: BatchHeader, first: Offset) -> None:
        """Add the batch at `position`, of which the records from offset `first` on are wanted."""
        if self._range is None:
            self._range, self._start = (position, position), first
        self._range = self._range[0], position + header.size
        self._next_offset = header.next_offset

    def take(self) -> Iterator[FetchedRun]:
        """Yield the run, if it has batches, and begin another."""
        if self._range is not None:
            start, end = self._range
            self._range = None
            yield FetchedRun(self._partition, self._view[start:end], self._start, self._end, self._next_offset)


class _FetchConnection:
    """A connection for Fetch requests only, with at most one in flight."""

    def __init__(self, broker: Connection) -> None:
        self.broker = broker
        # The partitions of the request in flight; empty if there is none.
        self.in_flight: Sequence[TopicPartition] = ()
        # Topic names by id: from version 13 on, Fetch responses have ids only.
        self.names: Mapping[bytes, str] = {}
        self.sent_at_s = 0.0
        self._sent: InFlightRequest[FetchResponse]

    def send(self, request: FetchRequest, partitions: Sequence[TopicPartition], names: Mapping[bytes, str]) -> None:
        self._sent = self.broker.send(request, FetchResponse)
        self.in_flight, self.names, self.sent_at_s = partitions, names, monotonic()

    def receive(self) -> FetchResponse:
        self.in_flight = ()
        return self.broker.receive(self._sent)
