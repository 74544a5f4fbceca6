"""An idempotent producer of raw record batches (KIP-98): each is written once and in order, or an error is raised.

The batches of a partition have increasing sequence numbers. One that is tried again has the number that it had, so the
broker knows what it has written already; the answer to say so may have been lost with a connection.

- A connection has at most five requests without an answer, and a request one batch of a partition at most. So no more
  than five batches of a partition are under way, which is how many a broker remembers.
- A batch that fails is sent again with those behind it, as `partition_queue` says. They fail as out of order, which is
  an error only of the oldest.
- A batch is tried again until its time is up, counted from `send`. After an error the producer is of no use any more,
  because the next batch would follow a gap.

There is no thread: the producer does its work in `send`, which may keep a batch back to send it with others, and in
`flush`. It waits for its sockets and for the next moment at which there is something to do.
"""

import select
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from time import monotonic
from types import TracebackType
from typing import TypeVar

from logbrook.client.client import Address, Client
from logbrook.client.connection import Connection, Sent
from logbrook.client.errors import (
    BrokerError,
    ClientError,
    DeliveryTimedOutError,
    ProducerStateError,
    TimedOutError,
)
from logbrook.client.partition_queue import PartitionQueue, QueuedBatch
from logbrook.client.retrying import LOST, is_retriable, persist
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.records.batch import advance_sequence, read_header

T = TypeVar("T")

DELIVERY_TIMEOUT_S = 120.0
IN_FLIGHT_BYTES_MAX = 32 << 20
REQUEST_BYTES_MAX = 1 << 20

_ACKS_ALL = -1
_REQUESTS_MAX = 5
# An answer that has begun to arrive is read to its end.
_ANSWER_S_MIN = 0.1
_NO_TRANSACTION_MS = 60_000
_THERE_IS_NONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_DONE = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_FATAL = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    }
)


class Producer:
    """Writes through `client`, which stays the caller's. Belongs to one thread, as the client does.

    Every call may raise ClientError or ProtocolError, from then on always the same one: ProducerStateError when the
    broker and the producer disagree about what was written, DeliveryTimedOutError, or the BrokerError that says why a
    batch cannot be written; they name the topic and the partition.

    Leaving `with` flushes, unless an error is the reason.
    """

    _transactional_id: str | None = None

    def __init__(
        self,
        client: Client,
        *,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
        request_bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        """Gets a producer id. A batch may be larger than either limit, and then goes alone."""
        self._client = client
        self._delivery_timeout_s = delivery_timeout_s
        self._in_flight_bytes_max = in_flight_bytes_max
        self._request_bytes_max = request_bytes_max
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        # Those of them that have batches.
        self._busy: dict[tuple[str, int], PartitionQueue] = {}
        self._links: dict[Address, _Link] = {}
        self._bytes = 0
        self._new_bytes = 0
        self._failure: LogbrookError | None = None
        self.producer_id, self.producer_epoch = self._persist(self._init_producer_id, client.timeout_s)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    @property
    def is_transactional(self) -> bool:
        """Whether its batches have to be."""
        return self._transactional_id is not None

    @property
    def in_flight_bytes(self) -> int:
        """What was sent and is not known to be written."""
        return self._bytes

    def partition_count(self, topic: str) -> int:
        """As `Client.partition_count`, and patient with a cluster that cannot be asked just now."""
        return self._persist(lambda: self._client.partition_count(topic), self._client.timeout_s, final=_THERE_IS_NONE)

    def next_sequence(self, topic: str, partition: int) -> int:
        """The base sequence that the next batch for the partition has to have."""
        return self._queue(topic, partition).next_sequence

    def send(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> None:
        """Take a batch with this producer's id and epoch and the partition's next sequence, to be left unchanged.

        Waits while too many bytes are in flight. Raises ValueError for a batch of another producer or sequence.
        """
        queue = self._queue(topic, partition)
        header = read_header(batch)
        expected = (self.producer_id, self.producer_epoch, queue.next_sequence)
        if (header.producer_id, header.producer_epoch, header.base_sequence) != expected:
            raise ValueError(f"the next batch for {queue} has to have producer id, epoch and sequence {expected}")
        size = len(batch)
        with self._remembering_failure():
            while self._bytes and self._bytes + size > self._in_flight_bytes_max:
                self._step()
            queue.batches.append(QueuedBatch(queue, batch, monotonic() + self._delivery_timeout_s))
            queue.next_sequence = advance_sequence(header.base_sequence, header.count)
            self._busy[topic, partition] = queue
            self._bytes += size
            self._new_bytes += size
            if self._new_bytes >= self._request_bytes_max:
                self._wait(monotonic())
                self._dispatch()

    def flush(self) -> None:
        """Returns when everything is written."""
        with self._remembering_failure():
            while self._bytes:
                self._step()

    def close(self) -> None:
        """Hang up. What is not flushed is given up: it may be written or not."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()
        self._failure = self._failure or ClientError("the producer is closed")

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        known = self._queues.get((topic, partition))
        if known is None:
            known = self._queues[topic, partition] = PartitionQueue(topic, partition)
        return known

    @contextmanager
    def _remembering_failure(self) -> Iterator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except LogbrookError as error:
            self._failure = error
            raise

    def _init_producer_id(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_MS)
        answer = self._client.request(request, InitProducerIdResponse)
        if answer.error_code:
            raise BrokerError(answer.error_code, "getting a producer id")
        return answer.producer_id, answer.producer_epoch

    def _persist(self, ask: Callable[[], T], within_s: float, *, final: frozenset[ErrorCode] = frozenset()) -> T:
        """As `persist`, with an ear for the answers to batches meanwhile."""

        def wait(until_s: float) -> None:
            with self._remembering_failure():
                while monotonic() < until_s:
                    self._wait(until_s)

        return persist(ask, within_s, wait=wait, final=final)

    def _step(self) -> None:
        """Send what may be sent, and wait until there is more to do."""
        self._dispatch()
        now_s = monotonic()
        for queue in self._busy.values():
            if queue.batches[0].give_up_at_s <= now_s:
                raise DeliveryTimedOutError(queue.topic, queue.partition, self._delivery_timeout_s, queue.last_error)
        self._wait(self._next_moment_s(now_s))

    def _dispatch(self) -> None:
        self._new_bytes = 0
        while self._dispatch_one_each():
            pass

    def _dispatch_one_each(self) -> bool:
        """Send the next batch of each partition that has one to send; whether any was sent."""
        now_s = monotonic()
        by_leader: dict[Address, list[QueuedBatch]] = {}
        for queue in self._busy.values():
            batch = queue.next_to_send(now_s)
            leader = self._leader(queue) if batch is not None else None
            # What is under way to another broker is waited for.
            if batch is not None and leader is not None and (not queue.in_flight or leader == queue.leader):
                by_leader.setdefault(leader, []).append(batch)
        has_sent = False
        for leader, batches in by_leader.items():
            for some in _split(batches, self._request_bytes_max):
                # A connection that was lost has put batches back that go before the rest of these.
                if not self._send_request(leader, some):
                    break
                has_sent = True
        return has_sent

    def _leader(self, queue: PartitionQueue) -> Address | None:
        try:
            return self._client.leader(queue.topic, queue.partition)
        except ClientError as error:
            if not is_retriable(error):
                raise
            # The others of the topic would wait as long for the same answer.
            for one in self._busy.values():
                if one.topic == queue.topic:
                    one.delay(error, monotonic())
            return None

    def _send_request(self, leader: Address, batches: Sequence[QueuedBatch]) -> bool:
        """Whether it was sent: not when the connection fails, or has enough to do."""
        link = self._links.get(leader)
        if link is not None and (len(link.requests) >= _REQUESTS_MAX or link.resume_at_s > monotonic()):
            return False
        try:
            with _naming(batches):
                message = self._request_of(batches)
                if link is None:
                    link = self._links[leader] = _Link(self._client.connect(*leader))
                sent = link.connection.send(message, ProduceResponse, self._produce_version(link.connection))
        except ClientError as error:
            if not is_retriable(error):
                raise
            if link is not None and link.connection.is_closed:
                self._lose(leader, link, error)
            for batch in batches:
                self._client.forget(batch.queue.topic)
                batch.queue.delay(error, monotonic())
            return False
        link.requests.append(_Request(sent, batches, message.topic_data, monotonic() + self._client.timeout_s))
        for batch in batches:
            batch.queue.sent(leader)
        return True

    def _produce_version(self, connection: Connection) -> int:
        return connection.version_of(ProduceRequest)

    def _request_of(self, batches: Sequence[QueuedBatch]) -> ProduceRequest:
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            data = PartitionProduceData(index=batch.queue.partition, records=batch.data)
            by_topic.setdefault(batch.queue.topic, []).append(data)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=round(self._client.timeout_s * 1000),
            topic_data=[
                TopicProduceData(name=topic, topic_id=self._client.topic_id(topic), partition_data=data)
                for topic, data in by_topic.items()
            ],
        )

    def _next_moment_s(self, now_s: float) -> float:
        """When there is something to do though nothing is answered."""
        moments = [queue.batches[0].give_up_at_s for queue in self._busy.values()]
        moments += [link.requests[0].expires_at_s for link in self._links.values() if link.requests]
        resumed = [queue.try_at_s for queue in self._busy.values()]
        resumed += [link.resume_at_s for link in self._links.values()]
        return min(moments + [moment for moment in resumed if moment > now_s], default=now_s)

    def _wait(self, until_s: float) -> None:
        """Take an answer of each broker that has one, once there is one or the time has come."""
        waiting = {link.connection.fileno(): leader for leader, link in self._links.items() if link.requests}
        poller = select.poll()
        for descriptor in waiting:
            poller.register(descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(ceil(max(0.0, until_s - monotonic()) * 1000)):
            self._receive(waiting[descriptor], self._links[waiting[descriptor]])
        now_s = monotonic()
        for leader, link in list(self._links.items()):
            if link.requests and link.requests[0].expires_at_s <= now_s:
                self._lose(leader, link, TimedOutError(*leader, self._client.timeout_s))

    def _receive(self, leader: Address, link: "_Link") -> None:
        request = link.requests[0]
        try:
            left_s = request.expires_at_s - monotonic()
            with _naming(request.batches):
                response = link.connection.receive(request.sent, timeout_s=max(left_s, _ANSWER_S_MIN))
        except LOST as error:
            self._lose(leader, link, error)
            return
        link.requests.popleft()
        link.pause(response.throttle_time_ms / 1000)
        answers = {
            (topic.name or topic.topic_id, one.index): one
            for topic in response.responses
            for one in topic.partition_responses
        }
        ids = {topic.name: topic.topic_id for topic in request.topics}
        for batch in request.batches:
            topic, partition = batch.queue.topic, batch.queue.partition
            answer = answers.get((topic, partition)) or answers.get((ids[topic], partition))
            if answer is None:
                raise ClientError(f"producing to {batch.queue}: there is no answer for it")
            self._settle(batch, answer)

    def _settle(self, batch: QueuedBatch, answer: PartitionProduceResponse) -> None:
        queue = batch.queue
        if answer.error_code in _DONE:
            queue.written(batch)
            self._bytes -= len(batch.data)
            if not queue.batches:
                del self._busy[queue.topic, queue.partition]
            return
        error = BrokerError(answer.error_code, f"producing to {queue}", answer.error_message)
        is_behind = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch is not queue.batches[0]
        if error.code in _FATAL and not is_behind:
            raise ProducerStateError(answer.error_code, f"producing to {queue}", answer.error_message)
        if not error.is_retriable and not is_behind:
            raise error
        self._put_back(batch, error)

    def _drop(self) -> None:
        """Give up what is not written, once nothing of it is under way any more."""
        for leader, link in list(self._links.items()):
            try:
                for request in link.requests:
                    left_s = request.expires_at_s - monotonic()
                    link.connection.receive(request.sent, timeout_s=max(left_s, _ANSWER_S_MIN))
            except LogbrookError:
                link.connection.close()
                del self._links[leader]
            link.requests.clear()
        self._go_on_as(self.producer_id, self.producer_epoch)

    def _go_on_as(self, producer_id: int, producer_epoch: int) -> None:
        """Count anew, with nothing under way."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._queues.clear()
        self._busy.clear()
        self._bytes = self._new_bytes = 0

    def _lose(self, leader: Address, link: "_Link", error: ClientError) -> None:
        """Nothing more will be heard from there."""
        link.connection.close()
        del self._links[leader]
        for request in link.requests:
            for batch in request.batches:
                self._put_back(batch, error)

    def _put_back(self, batch: QueuedBatch, error: ClientError) -> None:
        batch.queue.failed(error, monotonic())
        self._client.forget(batch.queue.topic)


@dataclass(slots=True, eq=False)
class _Request:
    sent: Sent[ProduceResponse]
    batches: Sequence[QueuedBatch]
    topics: Sequence[TopicProduceData]
    expires_at_s: float


@dataclass(slots=True, eq=False)
class _Link:
    """A connection for Produce requests only, whose answers may be waited for."""

    connection: Connection
    requests: deque[_Request] = field(default_factory=deque)
    # A broker that is over its quota says for how long to leave it alone (KIP-219).
    resume_at_s: float = 0.0

    def pause(self, for_s: float) -> None:
        """The answers that are still to come are late by as much."""
        self.resume_at_s = monotonic() + for_s
        for request in self.requests:
            request.expires_at_s += for_s


def _split(batches: Sequence[QueuedBatch], bytes_max: int) -> Iterator[list[QueuedBatch]]:
    """The batches in lists of at most so many bytes, or of one batch."""
    part: list[QueuedBatch] = []
    size = 0
    for batch in batches:
        if part and size + len(batch.data) > bytes_max:
            yield part
            part, size = [], 0
        part.append(batch)
        size += len(batch.data)
    if part:
        yield part


@contextmanager
def _naming(batches: Sequence[QueuedBatch]) -> Iterator[None]:
    """An error on the way does not know what it is about."""
    try:
        yield
    except LogbrookError as error:
        error.add_note(f"while producing to {', '.join(str(batch.queue) for batch in batches)}")
        raise
