"""An idempotent producer of raw record batches (KIP-98): each is written once and in order, or an error is raised.

    with Producer(client) as producer:
        sequence = producer.next_sequence("orders", 0)      # for the batch header, with producer_id and producer_epoch
        producer.send("orders", 0, batch)                   # queues the batch
        producer.flush()                                    # returns when all batches are acknowledged

The batches of a partition carry increasing sequence numbers. A retry carries the number of the first try, by which the
broker recognises a batch that it has already written and whose acknowledgement was lost.

- A connection has at most five unanswered requests, and a request at most one batch per partition. So at most five
  batches of a partition are in flight; a broker recognises duplicates among a producer's last five batches.
- A batch that fails is sent again together with the later ones of its partition (see `partition_queue`), which the
  broker has rejected as out of order. OUT_OF_ORDER_SEQUENCE_NUMBER is fatal only for the oldest batch.
- A batch is retried until the delivery timeout, counted from `send`. After an error the producer cannot be used any
  more, because the next batch would leave a gap in the sequence.

There is no background thread: `send` and `flush` send requests and poll the sockets. `send` only queues a batch until
`request_bytes_max` bytes are queued, so nothing is guaranteed to be sent before `flush`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from types import TracebackType
from typing import Self, TypeVar

from logbrook.client.client import ACKS_ALL, Address, Client
from logbrook.client.connection import Connection, InFlightRequest, poll_connections
from logbrook.client.errors import (
    BrokerError,
    ClientError,
    DeliveryTimedOutError,
    NetworkError,
    ProducerStateError,
    TimedOutError,
    check_code,
)
from logbrook.client.partition_queue import PartitionQueue, QueuedBatch
from logbrook.client.retry import RetryPolicy
from logbrook.model import LogbrookError
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_classes import ABORTABLE, FENCED, UNKNOWN_TOPIC
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

_REQUESTS_MAX = 5
# Minimum timeout for reading a response that has begun to arrive.
_RECEIVE_S_MIN = 0.1
# Required by InitProducerId, and ignored without a transactional id.
_TRANSACTION_TIMEOUT_MS = 60_000
_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class Producer:
    """Writes through `client`, which the caller owns. Belongs to one thread, as the client does.

    Every call may raise ClientError or ProtocolError, and raises the same error from then on: ProducerStateError if
    the broker has lost the producer's sequence or has fenced the producer, DeliveryTimedOutError, or the BrokerError
    with the reason why a batch cannot be written. They name the topic and the partition.

    Leaving a `with` block normally flushes; after an exception it only closes.
    """

    _transactional_id: str | None = None

    def __init__(
        self,
        client: Client,
        *,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Obtain a producer id. A batch larger than either limit is sent alone.

        `retry` has the waits of all retries. Its time limit, by default the client's timeout, is that of requests for
        producer ids and metadata.
        """
        self._client = client
        self._delivery_timeout_s = delivery_timeout_s
        self._in_flight_bytes_max = in_flight_bytes_max
        self._request_bytes_max = request_bytes_max
        self._retry = retry or RetryPolicy()
        self._lookup_timeout_s = client.timeout_s if self._retry.timeout_s is None else self._retry.timeout_s
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        # The queues that have batches.
        self._pending: dict[tuple[str, int], PartitionQueue] = {}
        self._connections: dict[Address, _ProduceConnection] = {}
        # Bytes of the batches that are queued or sent, and not acknowledged.
        self.in_flight_bytes = 0
        # Bytes queued since the last attempt to send.
        self._unsent_bytes = 0
        self._failure: LogbrookError | None = None
        self.producer_id, self.producer_epoch = self._run_retrying(self._init_producer_id, self._lookup_timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    @property
    def is_transactional(self) -> bool:
        """True if batches must be transactional."""
        return self._transactional_id is not None

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions. An unknown topic is final, other errors are retried."""
        timeout_s = self._lookup_timeout_s
        return self._run_retrying(lambda: self._client.partition_count(topic), timeout_s, final=UNKNOWN_TOPIC)

    def next_sequence(self, topic: str, partition: int) -> int:
        """Return the base sequence that the next batch for the partition must have."""
        return self._queue(topic, partition).next_sequence

    def send(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> None:
        """Queue a batch, which must not be changed afterwards. Blocks while `in_flight_bytes_max` is exceeded.

        Raises ValueError unless the batch has this producer's id and epoch and the partition's next sequence.
        """
        queue = self._queue(topic, partition)
        header = read_header(batch)
        expected = (self.producer_id, self.producer_epoch, queue.next_sequence)
        if (header.producer_id, header.producer_epoch, header.base_sequence) != expected:
            raise ValueError(f"the next batch for {queue} has to have producer id, epoch and sequence {expected}")
        size = len(batch)
        with self._recording_failure():
            while self.in_flight_bytes and self.in_flight_bytes + size > self._in_flight_bytes_max:
                self._step()
            queue.batches.append(QueuedBatch(queue, batch, monotonic() + self._delivery_timeout_s))
            queue.next_sequence = advance_sequence(header.base_sequence, header.count)
            self._pending[topic, partition] = queue
            self.in_flight_bytes += size
            self._unsent_bytes += size
            if self._unsent_bytes >= self._request_bytes_max:
                self._poll(monotonic())
                self._send_pending()

    def flush(self) -> None:
        """Return when all batches are acknowledged."""
        with self._recording_failure():
            while self.in_flight_bytes:
                self._step()

    def close(self) -> None:
        """Close the connections. Batches that are not acknowledged may have been written or not."""
        for connection in self._connections.values():
            connection.broker.close()
        self._connections.clear()
        self._failure = self._failure or ClientError("the producer is closed")

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = PartitionQueue(topic, partition, self._retry)
        return queue

    @contextmanager
    def _recording_failure(self) -> Iterator[None]:
        """Raise the recorded failure if there is one, else record the first that the block raises."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except LogbrookError as error:
            self._failure = error
            raise

    def _init_producer_id(self) -> tuple[ProducerId, ProducerEpoch]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        response = self._client.request(request, InitProducerIdResponse)
        check_code(response.error_code, "getting a producer id")
        return ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch)

    def _run_retrying(
        self, operation: Callable[[], T], timeout_s: float, *, final: frozenset[ErrorCode] = frozenset()
    ) -> T:
        """Run `operation` under the retry policy, receiving responses to batches while it waits."""

        def wait(until_s: float) -> None:
            with self._recording_failure():
                while monotonic() < until_s:
                    self._poll(until_s)

        return replace(self._retry, timeout_s=timeout_s, final=final).run(operation, wait=wait)

    def _step(self) -> None:
        """Send the batches that may be sent, then wait for a response, the next timeout or the next retry."""
        # Before the batches are sent: what becomes due meanwhile is sent in the next step, at once.
        began_s = monotonic()
        self._send_pending()
        now_s = monotonic()
        for queue in self._pending.values():
            if queue.batches[0].give_up_at_s <= now_s:
                raise DeliveryTimedOutError(queue.topic, queue.partition, self._delivery_timeout_s, queue.last_error)
        self._poll(self._next_due_s(began_s))

    def _send_pending(self) -> None:
        self._unsent_bytes = 0
        while self._send_one_per_partition():
            pass

    def _send_one_per_partition(self) -> bool:
        """Send the next batch of each partition that has one to send. Return True if any was sent."""
        now_s = monotonic()
        by_leader: dict[Address, list[QueuedBatch]] = {}
        for queue in self._pending.values():
            batch = queue.next_to_send(now_s)
            leader = self._leader(queue) if batch is not None else None
            # Batches in flight to a former leader have to be answered first.
            if batch is not None and leader is not None and (not queue.in_flight or leader == queue.leader):
                by_leader.setdefault(leader, []).append(batch)
        has_sent = False
        for leader, batches in by_leader.items():
            for chunk in _chunks(batches, self._request_bytes_max):
                # A lost connection has requeued batches that precede the remaining chunks.
                if not self._send_request(leader, chunk):
                    break
                has_sent = True
        return has_sent

    def _leader(self, queue: PartitionQueue) -> Address | None:
        try:
            return self._client.leader(queue.topic, queue.partition)
        except ClientError as error:
            if not error.is_retriable:
                raise
            # The topic's other partitions would repeat the same lookup.
            for other in self._pending.values():
                if other.topic == queue.topic:
                    other.back_off(error, monotonic())
            return None

    def _send_request(self, leader: Address, batches: Sequence[QueuedBatch]) -> bool:
        """Return True if the request was sent: not if the connection fails, is throttled or has enough in flight."""
        connection = self._connections.get(leader)
        if connection is not None and not connection.can_send(monotonic()):
            return False
        try:
            with _noting_partitions(batches):
                message = self._request_of(batches)
                if connection is None:
                    connection = self._connections[leader] = _ProduceConnection(self._client.connect(*leader))
                version = self._produce_version(connection.broker)
                sent = connection.broker.send(message, ProduceResponse, version)
        except ClientError as error:
            if not error.is_retriable:
                raise
            if connection is not None and connection.broker.is_closed:
                self._drop_connection(leader, connection, error)
            for batch in batches:
                self._client.invalidate(batch.queue.topic)
                batch.queue.back_off(error, monotonic())
            return False
        expires_at_s = monotonic() + self._client.timeout_s
        connection.in_flight.append(_ProduceInFlight(sent, batches, message.topic_data, expires_at_s))
        for batch in batches:
            batch.queue.mark_sent(leader)
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
            acks=ACKS_ALL,
            timeout_ms=self._client.timeout_ms,
            topic_data=[
                TopicProduceData(name=topic, topic_id=self._client.topic_id(topic), partition_data=data)
                for topic, data in by_topic.items()
            ],
        )

    def _next_due_s(self, after_s: float) -> float:
        """Return when the next timeout is due, or the next retry or end of a throttle after `after_s`."""
        timeouts = [queue.batches[0].give_up_at_s for queue in self._pending.values()]
        timeouts += [conn.in_flight[0].expires_at_s for conn in self._connections.values() if conn.in_flight]
        resumes = [queue.retry_at_s for queue in self._pending.values()]
        resumes += [connection.resume_at_s for connection in self._connections.values()]
        return min(timeouts + [resume_s for resume_s in resumes if resume_s > after_s], default=after_s)

    def _poll(self, until_s: float) -> None:
        """Wait until `until_s` for responses, receive one from each broker that has any, and check timeouts."""
        leaders = {
            connection.broker: leader for leader, connection in self._connections.items() if connection.in_flight
        }
        for broker in poll_connections(leaders, until_s - monotonic()):
            leader = leaders[broker]
            self._receive(leader, self._connections[leader])
        now_s = monotonic()
        for leader, connection in list(self._connections.items()):
            if connection.in_flight and connection.in_flight[0].expires_at_s <= now_s:
                self._drop_connection(leader, connection, TimedOutError(*leader, self._client.timeout_s))

    def _receive(self, leader: Address, connection: "_ProduceConnection") -> None:
        request = connection.in_flight[0]
        try:
            with _noting_partitions(request.batches):
                response = connection.receive_oldest()
        except NetworkError as error:
            self._drop_connection(leader, connection, error)
            return
        connection.in_flight.popleft()
        connection.throttle(response.throttle_time_ms / 1000)
        answers = {
            (topic.name or topic.topic_id, answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        ids = {topic.name: topic.topic_id for topic in request.topics}
        for batch in request.batches:
            topic, partition = batch.queue.topic, batch.queue.partition
            answer = answers.get((topic, partition)) or answers.get((ids[topic], partition))
            if answer is None:
                raise ClientError(f"producing to {batch.queue}: the response has no entry for it")
            self._complete(batch, answer)

    def _complete(self, batch: QueuedBatch, answer: PartitionProduceResponse) -> None:
        """Remove an acknowledged batch, or requeue one that failed. Raises BrokerError if it cannot be retried."""
        queue = batch.queue
        if answer.error_code in _WRITTEN:
            queue.mark_written(batch)
            self.in_flight_bytes -= len(batch.data)
            if not queue.batches:
                del self._pending[queue.topic, queue.partition]
            return
        error = BrokerError(answer.error_code, f"producing to {queue}", answer.error_message)
        is_behind_failed = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch is not queue.batches[0]
        if error.code in ABORTABLE | FENCED and not is_behind_failed:
            raise ProducerStateError(answer.error_code, f"producing to {queue}", answer.error_message)
        if not error.is_retriable and not is_behind_failed:
            raise error
        self._requeue(batch, error)

    def _discard_batches(self) -> None:
        """Receive or abandon the responses in flight, then drop all batches."""
        for leader, connection in list(self._connections.items()):
            try:
                while connection.in_flight:
                    connection.receive_oldest()
                    connection.in_flight.popleft()
            except LogbrookError:
                connection.broker.close()
                del self._connections[leader]
        self._restart_as(self.producer_id, self.producer_epoch)

    def _restart_as(self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> None:
        """Restart all sequences at 0, under this id and epoch. Nothing may be in flight."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._queues.clear()
        self._pending.clear()
        self.in_flight_bytes = self._unsent_bytes = 0

    def _drop_connection(self, leader: Address, connection: "_ProduceConnection", error: ClientError) -> None:
        """Close a connection, and requeue the batches that were sent on it."""
        connection.broker.close()
        del self._connections[leader]
        for request in connection.in_flight:
            for batch in request.batches:
                self._requeue(batch, error)

    def _requeue(self, batch: QueuedBatch, error: ClientError) -> None:
        batch.queue.mark_failed(error, monotonic())
        if error.needs_metadata_refresh:
            self._client.invalidate(batch.queue.topic)


@dataclass(slots=True, eq=False)
class _ProduceInFlight:
    sent: InFlightRequest[ProduceResponse]
    batches: Sequence[QueuedBatch]
    topics: Sequence[TopicProduceData]
    expires_at_s: float


@dataclass(slots=True, eq=False)
class _ProduceConnection:
    """A connection for Produce requests only, with those that are unanswered, oldest first."""

    broker: Connection
    in_flight: deque[_ProduceInFlight] = field(default_factory=deque)
    # End of the throttle time of the last response (KIP-219).
    resume_at_s: float = 0.0

    def can_send(self, now_s: float) -> bool:
        return len(self.in_flight) < _REQUESTS_MAX and self.resume_at_s <= now_s

    def throttle(self, for_s: float) -> None:
        """Send nothing for this time. Responses in flight may be late by as much."""
        self.resume_at_s = monotonic() + for_s
        for request in self.in_flight:
            request.expires_at_s += for_s

    def receive_oldest(self) -> ProduceResponse:
        """Return the response to the oldest request, which stays in flight. Raises NetworkError."""
        request = self.in_flight[0]
        remaining_s = request.expires_at_s - monotonic()
        return self.broker.receive(request.sent, timeout_s=max(remaining_s, _RECEIVE_S_MIN))


def _chunks(batches: Sequence[QueuedBatch], bytes_max: int) -> Iterator[list[QueuedBatch]]:
    """Split the batches into lists of at most `bytes_max`, or of one larger batch."""
    chunk: list[QueuedBatch] = []
    size = 0
    for batch in batches:
        if chunk and size + len(batch.data) > bytes_max:
            yield chunk
            chunk, size = [], 0
        chunk.append(batch)
        size += len(batch.data)
    if chunk:
        yield chunk


@contextmanager
def _noting_partitions(batches: Sequence[QueuedBatch]) -> Iterator[None]:
    """Add the partitions of these batches to errors that the block raises."""
    try:
        yield
    except LogbrookError as error:
        error.add_note(f"while producing to {', '.join(str(batch.queue) for batch in batches)}")
        raise
