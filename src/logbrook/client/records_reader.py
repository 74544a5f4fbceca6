"""Decoded records of several partitions, as they come: for people to look at, not for moving much.

All partitions that a broker leads are asked for in one request, so a reader waits for all of them at once, and each
time the request begins with another partition, so that none is left behind. A request stays with its broker until it
has an answer; meanwhile the answers of others are taken. An error that may pass makes the reader look up the leaders
again, and try again for as long as the client waits for an answer.

Records of aborted transactions are left out if only committed ones are wanted, and control records always are.
"""

import select
from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic
from types import TracebackType
from typing import NamedTuple

from logbrook.client.aborted_batches import AbortedBatches
from logbrook.client.client import EARLIEST, LATEST, Address, Client
from logbrook.client.cluster import Cluster
from logbrook.client.connection import Connection, Sent
from logbrook.client.errors import BrokerError, ClientError, TimedOutError
from logbrook.client.partition_queue import backoff_s
from logbrook.client.retrying import is_retriable
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from logbrook.records.batch import TimestampType, check_batch, iter_headers
from logbrook.records.errors import RecordsError
from logbrook.records.reader import iter_records
from logbrook.records.record import RawRecord

FETCH_BYTES_MAX = 1 << 20
WAIT_MS_MAX = 500
# What a batch may become when it is decompressed.
BATCH_BYTES_MAX = 256 << 20

_CONSUMER = -1


class RecordRun(NamedTuple):
    """Records of one batch, in order; `next_offset` is where reading goes on when they have been dealt with."""

    partition: TopicPartition
    records: list[RawRecord]
    timestamp_type: TimestampType
    next_offset: int


class RecordsReader:
    """Reads through `client`, which stays the caller's. Belongs to one thread, as the client does.

    Every call may raise ClientError, ProtocolError or, for bytes that are no records, RecordsError.
    """

    def __init__(
        self,
        client: Client,
        starts: Mapping[TopicPartition, int],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
        committed_only: bool = True,
        bytes_max: int = FETCH_BYTES_MAX,
    ) -> None:
        """From each partition's start up to, and without, its end; those without an end are read for ever."""
        self._client = client
        self._positions = dict(starts)
        self._ends = dict(ends or {})
        self._committed_only = committed_only
        self._bytes_max = bytes_max
        self._order = deque(sorted(starts))
        self._links: dict[Address, _Link] = {}
        self._tries = 0
        self._failing_since_s: float | None = None
        self._damage: RecordsError | None = None
        # What was skipped because it is not there any more, for whoever wants to say so.
        self.lost: dict[TopicPartition, int] = {}

    def __enter__(self) -> "RecordsReader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too, for ever."""
        self._positions |= starts
        self._order.extend(sorted(starts))

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset from which each partition is read next."""
        return dict(self._positions)

    @property
    def is_done(self) -> bool:
        """Whether every partition has an end and is there."""
        return not any(self._is_wanted(one) for one in self._positions)

    def read(self, wait_ms: int = WAIT_MS_MAX) -> list[RecordRun]:
        """What has come, once something has or the time is up; empty then, and when all is done."""
        if self._damage is not None:
            raise self._damage
        until_s = monotonic() + wait_ms / 1000
        runs: list[RecordRun] = []
        try:
            self._send_requests(wait_ms)
            self._receive(until_s, runs)
        except ClientError as error:
            self._endure(error, until_s if not runs else monotonic())
        except RecordsError as error:
            # What came before the damage is not to be lost with it.
            self._damage = error
            if not runs:
                raise
        else:
            self._tries, self._failing_since_s = 0, None
        return runs

    def _is_wanted(self, partition: TopicPartition) -> bool:
        end = self._ends.get(partition)
        return end is None or self._positions[partition] < end

    def _send_requests(self, wait_ms: int) -> None:
        asked = {one for link in self._links.values() for one in link.asked}
        by_leader: dict[Address, list[TopicPartition]] = {}
        for one in self._order:
            if one not in asked and self._is_wanted(one):
                by_leader.setdefault(self._client.leader(one.topic, one.partition), []).append(one)
        self._order.rotate(-1)
        for leader, partitions in by_leader.items():
            link = self._links.get(leader)
            if link is None:
                link = self._links[leader] = _Link(self._client.connect(*leader))
            if not link.asked:
                names = {self._client.topic_id(one.topic): one.topic for one in partitions}
                link.send(self._request(partitions, wait_ms), partitions, names)

    def _request(self, partitions: Sequence[TopicPartition], wait_ms: int) -> FetchRequest:
        by_topic: dict[str, list[FetchPartition]] = {}
        for one in partitions:
            wanted = FetchPartition(
                partition=one.partition, fetch_offset=self._positions[one], partition_max_bytes=self._bytes_max
            )
            by_topic.setdefault(one.topic, []).append(wanted)
        return FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self._bytes_max,
            isolation_level=int(self._committed_only),
            topics=[
                FetchTopic(topic=name, topic_id=self._client.topic_id(name), partitions=wanted)
                for name, wanted in by_topic.items()
            ],
        )

    def _receive(self, until_s: float, runs: list[RecordRun]) -> None:
        waiting = {link.connection.fileno(): link for link in self._links.values() if link.asked}
        if not waiting:
            return
        poller = select.poll()
        for descriptor in waiting:
            poller.register(descriptor, select.POLLIN)
        # The broker waits as long before it says that there is nothing, so a little more than that is waited for it.
        left_ms = max(0.0, until_s - monotonic()) * 1000 + WAIT_MS_MAX
        for descriptor, _ in poller.poll(left_ms):
            link = waiting[descriptor]
            self._take(link.receive(), link.names, runs)
        for link in waiting.values():
            if link.asked and link.sent_at_s < monotonic() - self._client.timeout_s:
                raise TimedOutError(link.connection.host, link.connection.port, self._client.timeout_s)

    def _take(self, response: FetchResponse, names: Mapping[bytes, str], runs: list[RecordRun]) -> None:
        """Adds to `runs` one by one: those that are there have moved the positions, whatever goes wrong behind them."""
        if response.error_code:
            raise BrokerError(response.error_code, f"fetching from {', '.join(sorted(names.values()))}")
        for topic in response.responses:
            name = topic.topic or names[topic.topic_id]
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._find_again(partition)
                elif data.error_code:
                    raise BrokerError(data.error_code, f"fetching from {partition}")
                else:
                    self._take_partition(partition, data, runs)

    def _take_partition(self, partition: TopicPartition, data: PartitionData, runs: list[RecordRun]) -> None:
        view = memoryview(b"") if data.records is None else data.records
        assert isinstance(view, memoryview)
        aborted = AbortedBatches([(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()])
        end = self._ends.get(partition)
        for position, _ in iter_headers(view):
            header = check_batch(view, position, len(view))
            first = self._positions[partition]
            is_left_out = aborted.includes(header, view[position : position + header.size])
            # A batch that begins before the place that was asked for may end there too.
            if header.next_offset <= first:
                continue
            if end is not None and first >= end:
                return
            records: list[RawRecord] = []
            if not is_left_out and not header.is_control:
                every = iter_records(view, position, bytes_max=BATCH_BYTES_MAX)
                records = [one for one in every if one.offset >= first and (end is None or one.offset < end)]
            self._positions[partition] = header.next_offset
            if records:
                runs.append(RecordRun(partition, records, header.timestamp_type, header.next_offset))

    def _find_again(self, partition: TopicPartition) -> None:
        """The log does not have the offset: its start has moved past it, or its end back before it."""
        cluster, offset = Cluster(self._client), self._positions[partition]
        start = cluster.list_offsets({partition: EARLIEST})[partition]
        if offset < start:
            self.lost[partition] = self.lost.get(partition, 0) + start - offset
            self._positions[partition] = start
        else:
            self._positions[partition] = cluster.list_offsets({partition: LATEST})[partition]

    def _endure(self, error: ClientError, until_s: float) -> None:
        """Wait a little and be ready to ask again, unless that is of no use or has been tried for long enough."""
        now_s = monotonic()
        self._failing_since_s = self._failing_since_s or now_s
        if not is_retriable(error) or now_s - self._failing_since_s > self._client.timeout_s:
            raise error
        self.close()
        for topic in {one.topic for one in self._positions}:
            self._client.forget(topic)
        self._tries += 1
        select.poll().poll(max(0.0, min(backoff_s(self._tries), until_s - now_s)) * 1000)


class _Link:
    """A connection for Fetch requests only, with one of them under way at most."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.asked: Sequence[TopicPartition] = ()
        # Of the topics that were asked for, by their ids, which is all that newer brokers answer with.
        self.names: Mapping[bytes, str] = {}
        self.sent_at_s = 0.0
        self._sent: Sent[FetchResponse]

    def send(self, request: FetchRequest, asked: Sequence[TopicPartition], names: Mapping[bytes, str]) -> None:
        self._sent = self.connection.send(request, FetchResponse)
        self.asked, self.names, self.sent_at_s = asked, names, monotonic()

    def receive(self) -> FetchResponse:
        self.asked = ()
        return self.connection.receive(self._sent)
