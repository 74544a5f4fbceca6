"""Records into batches, and batches to partitions: the writing side of `RecordsReader`.

A record that names its partition goes there. One with a key goes where Kafka's clients in Java put it: to the murmur2
hash of the key, without the sign, modulo the number of partitions. The others go to one partition together, until a
batch is full, and then to the next.

With acks=all the producer is idempotent, so that each record is written once however often it is sent. With less there
is no use in that: a record may be lost or doubled, and what a broker refuses is raised, except with acks=0, where it
does not answer.
"""

from collections.abc import Sequence
from functools import lru_cache
from types import TracebackType

from logbrook.client.client import Client
from logbrook.client.coordinators import check
from logbrook.client.errors import BrokerError, ClientError
from logbrook.client.producer import Producer
from logbrook.client.retrying import persist
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0
BATCH_BYTES = 512 << 10

_RECORDS_MAX = 50_000
# More than the fields of a record take besides its key, its value and its headers.
_RECORD_EXTRA_BYTES = 24
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


class RecordWriter:
    """Writes records of one topic through `client`, which stays the caller's. Belongs to one thread.

    Every call may raise ClientError or ProtocolError. Leaving `with` flushes, unless an error is the reason.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        acks: int = ACKS_ALL,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """Raises BrokerError with UNKNOWN_TOPIC_OR_PARTITION when there is no such topic."""
        self.topic = topic
        self.written = 0
        self._client = client
        self._acks = acks
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._count = client.partition_count(topic)
        self._producer = Producer(client) if acks == ACKS_ALL else None
        self._pending: dict[int, _Pending] = {}
        # A new writer begins somewhere else than the last one did, as far as ids differ.
        self._together = (self._producer.producer_id if self._producer else 0) % self._count

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    @property
    def partition_count(self) -> int:
        return self._count

    def write(self, record: Record, partition: int | None = None) -> None:
        """Take a record, to be sent with others. Raises ValueError for a partition that is not there."""
        if partition is None:
            partition = self._together if record.key is None else partition_of(record.key, self._count)
        elif not 0 <= partition < self._count:
            raise ValueError(f"partition {partition} does not exist: {self.topic} has {self._count}")
        pending = self._pending.get(partition)
        if pending is None:
            pending = self._pending[partition] = _Pending()
        size = _RECORD_EXTRA_BYTES + len(record.value or b"") + len(record.key or b"")
        for name, value in record.headers:
            size += _RECORD_EXTRA_BYTES + len(name) + len(value or b"")
        if pending.records and pending.bytes + size > self._batch_bytes:
            self._send(partition, pending)
        pending.records.append(record)
        pending.bytes += size
        if pending.bytes >= self._batch_bytes or len(pending.records) >= _RECORDS_MAX:
            self._send(partition, pending)

    def write_values(self, values: Sequence[bytes], timestamp_ms: int) -> None:
        """The same for many records that are nothing but a value."""
        for value in values:
            self.write(Record(value=value, timestamp=timestamp_ms))

    def flush(self) -> None:
        """Returns when all that was taken is written."""
        for partition, pending in self._pending.items():
            if pending.records:
                self._send(partition, pending)
        if self._producer is not None:
            self._producer.flush()

    def close(self) -> None:
        """Give up what is not flushed."""
        self._pending.clear()
        if self._producer is not None:
            self._producer.close()

    def _send(self, partition: int, pending: "_Pending") -> None:
        records, pending.records, pending.bytes = pending.records, [], 0
        if partition == self._together:
            self._together = (self._together + 1) % self._count
        if self._producer is not None:
            batch = build_batch(
                records,
                codec=self._codec,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.producer_epoch,
                base_sequence=self._producer.next_sequence(self.topic, partition),
            )
            self._producer.send(self.topic, partition, batch)
        else:
            self._send_plainly(partition, build_batch(records, codec=self._codec))
        self.written += len(records)

    def _send_plainly(self, partition: int, batch: bytearray) -> None:
        def ask() -> None:
            connection = self._client.connection(self._client.leader(self.topic, partition))
            data = TopicProduceData(
                name=self.topic,
                topic_id=self._client.topic_id(self.topic),
                partition_data=[PartitionProduceData(index=partition, records=batch)],
            )
            timeout_ms = round(self._client.timeout_s * 1000)
            request = ProduceRequest(acks=self._acks, timeout_ms=timeout_ms, topic_data=[data])
            if self._acks == ACKS_NONE:
                connection.send_unanswered(request)
                return
            for topic in connection.request(request, ProduceResponse).responses:
                for one in topic.partition_responses:
                    check(one.error_code, f"producing to {self.topic}-{partition}", one.error_message)

        def ask_the_leader() -> None:
            try:
                ask()
            except ClientError as error:
                if not isinstance(error, BrokerError) or error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self._client.forget(self.topic)
                raise

        persist(ask_the_leader, self._client.timeout_s)


class _Pending:
    __slots__ = ("bytes", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.bytes = 0


@lru_cache(maxsize=65_536)
def partition_of(key: bytes, count: int) -> int:
    """Where records of this key go, in a topic of so many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner: murmur2 with its seed, as an unsigned number."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ k
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15
