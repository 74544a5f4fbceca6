"""Writes records to a topic: partitions them, builds batches and sends these. The counterpart of `RecordsReader`.

A record may name its partition. With a key it goes where Kafka's Java clients put it: murmur2 of the key, without the
sign bit, modulo the number of partitions. Records without a key all go to one partition until its batch is full, and
then to the next (Kafka's sticky partitioner).

`write_values` takes many records with the same headers at once, for a tenth of the CPU time of `write`.

With acks=all the producer is idempotent, so each record is written once however often it is sent. With fewer acks a
record may be lost or duplicated. With acks=0 the broker does not answer, so errors are not noticed.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from types import TracebackType

from logbrook.client.client import ACKS_ALL, Client
from logbrook.client.partitioner import exhaust, partition_of, partitions_of
from logbrook.client.producer import Producer
from logbrook.client.retry import RetryPolicy
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.records.batch import NO_PRODUCER_ID, NO_SEQUENCE, Codec, read_header
from logbrook.records.builder import NO_PRODUCER_EPOCH, build_batch
from logbrook.records.record import Header, Record
from logbrook.records.value_batches import ValueBatch, ValueRun

BATCH_BYTES = 512 << 10

_RECORDS_MAX = 50_000
# An upper bound of the bytes that a record or a header takes besides its key, value and headers.
_RECORD_EXTRA_BYTES = 24
_CHARACTER_BYTES_MAX = 4


class RecordWriter:
    """Writes records to one topic through `client`, which the caller owns. Belongs to one thread.

    Every call may raise ClientError or ProtocolError. Leaving a `with` block flushes, unless by an exception.
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
        """Raises BrokerError with UNKNOWN_TOPIC_OR_PARTITION if the topic does not exist."""
        self.topic = topic
        self.written = 0
        self._client = client
        self._acks = acks
        self._codec = codec
        self._batch_bytes = batch_bytes
        self.partition_count = client.partition_count(topic)
        self._producer = Producer(client) if acks == ACKS_ALL else None
        self._buffers: dict[int, _RecordBuffer] = {}
        # The partition of records without a key. Writers start at different ones as far as their producer ids differ.
        self._sticky = (self._producer.producer_id if self._producer else 0) % self.partition_count

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def write(self, record: Record, partition: int | None = None) -> None:
        """Buffer a record until a batch is full. Raises ValueError for a partition that does not exist."""
        if partition is None:
            partition = self._sticky if record.key is None else partition_of(record.key, self.partition_count)
        else:
            self.check_partition(partition)
        buffer = self._buffer(partition)
        size = _RECORD_EXTRA_BYTES + len(record.value or b"") + len(record.key or b"") + _headers_bytes(record.headers)
        if buffer.values.count or (buffer.count and buffer.bytes + size > self._batch_bytes):
            self._send(partition, buffer)
        buffer.records.append(record)
        buffer.count += 1
        buffer.bytes += size
        if buffer.bytes >= self._batch_bytes or buffer.count >= _RECORDS_MAX:
            self._send(partition, buffer)

    def check_partition(self, partition: int) -> None:
        """Raises ValueError if the topic does not have this partition."""
        if not 0 <= partition < self.partition_count:
            raise ValueError(f"partition {partition} does not exist: {self.topic} has {self.partition_count}")

    def write_values(
        self,
        values: Sequence[bytes],
        timestamp_ms: int,
        *,
        keys: Sequence[bytes] | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        empty_is_null: bool = False,
    ) -> None:
        """Buffer records; `keys` is as long as `values`, `headers` are those of every record.

        With `empty_is_null`, empty values are written as null. Raises ValueError as `write` does.
        """
        run = ValueRun(values, keys, timestamp_ms, headers, empty_is_null)
        if partition is not None:
            self.check_partition(partition)
        elif keys is not None and self.partition_count == 1:
            partition = 0
        elif keys is not None:
            for number, part in _by_partition(run, keys, self.partition_count):
                self._write_run(part, number)
            return
        self._write_run(run, partition)

    def _write_run(self, run: ValueRun, partition: int | None) -> None:
        """Divide `run` among batches. Without a partition, each batch goes to the next."""
        values, keys = run.values, run.keys
        extra_bytes = _RECORD_EXTRA_BYTES + _headers_bytes(run.headers)
        sizes = [*map(len, values)] if keys is None else [*map(add, map(len, values), map(len, keys))]
        # The bytes of the keys and values up to each record, once a batch ends inside the run.
        ends: list[int] = []
        rest_bytes = sum(sizes) + extra_bytes * len(sizes)
        start = start_bytes = 0
        while start < len(values):
            number = self._sticky if partition is None else partition
            buffer = self._buffer(number)
            if buffer.records:
                self._send(number, buffer)
                continue
            end = min(len(values), start + _RECORDS_MAX - buffer.count)
            room_bytes = self._batch_bytes - buffer.bytes
            if end < len(values) or rest_bytes > room_bytes:
                ends = ends or [*accumulate(map(extra_bytes.__add__, sizes))]
                end = min(end, bisect_right(ends, start_bytes + room_bytes, start))
            if not buffer.count:
                # A record that is larger than a batch gets one of its own.
                end = max(end, start + 1)
            if start < end:
                end_bytes = ends[end - 1] if ends else rest_bytes
                part = run if end - start == len(values) else _part(run, start, end)
                buffer.values.add(part)
                buffer.count += end - start
                buffer.bytes += end_bytes - start_bytes
                rest_bytes -= end_bytes - start_bytes
                start, start_bytes = end, end_bytes
            if start < len(values) or buffer.bytes >= self._batch_bytes or buffer.count >= _RECORDS_MAX:
                self._send(number, buffer)

    def flush(self) -> None:
        """Return when all records are written."""
        for partition, buffer in self._buffers.items():
            if buffer.count:
                self._send(partition, buffer)
        if self._producer is not None:
            self._producer.flush()

    def close(self) -> None:
        """Discard records that are not flushed."""
        self._buffers.clear()
        if self._producer is not None:
            self._producer.close()

    def _buffer(self, partition: int) -> "_RecordBuffer":
        buffer = self._buffers.get(partition)
        if buffer is None:
            buffer = self._buffers[partition] = _RecordBuffer()
        return buffer

    def _send(self, partition: int, buffer: "_RecordBuffer") -> None:
        if partition == self._sticky:
            self._sticky = (self._sticky + 1) % self.partition_count
        producer = self._producer
        if producer is not None:
            batch = buffer.take_batch(
                self._codec,
                producer.producer_id,
                producer.producer_epoch,
                producer.next_sequence(self.topic, partition),
            )
            producer.send(self.topic, partition, batch)
        else:
            batch = buffer.take_batch(self._codec)
            retry = RetryPolicy(timeout_s=self._client.timeout_s)
            retry.run(lambda: self._client.produce(self.topic, partition, batch, acks=self._acks))
        self.written += read_header(batch).count


@dataclass(slots=True)
class _RecordBuffer:
    """The records of the next batch of a partition, single or in encoded runs, and an estimate of the batch's bytes."""

    records: list[Record] = field(default_factory=list)
    values: ValueBatch = field(default_factory=ValueBatch)
    count: int = 0
    bytes: int = 0

    def take_batch(
        self,
        codec: Codec,
        producer_id: ProducerId = NO_PRODUCER_ID,
        producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
    ) -> bytearray:
        """Return the batch, and empty the buffer."""
        records, values = self.records, self.values
        self.records, self.values, self.count, self.bytes = [], ValueBatch(), 0, 0
        if records:
            return build_batch(
                records,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
            )
        return values.build(
            codec=codec, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
        )


def _part(run: ValueRun, start: int, end: int) -> ValueRun:
    keys = None if run.keys is None else run.keys[start:end]
    return run._replace(values=run.values[start:end], keys=keys)


def _headers_bytes(headers: Sequence[Header]) -> int:
    """Return an upper bound of the encoded size of headers."""
    return sum(_RECORD_EXTRA_BYTES + len(name) * _CHARACTER_BYTES_MAX + len(value or b"") for name, value in headers)


def _by_partition(run: ValueRun, keys: Sequence[bytes], count: int) -> Iterator[tuple[int, ValueRun]]:
    """Yield (partition, its part of `run`) in the order of the partitions."""
    partitions = partitions_of(keys, count)
    pairs: dict[int, list[bytes]] = {partition: [] for partition in sorted(set(partitions))}
    exhaust(map(list.extend, map(pairs.__getitem__, partitions), zip(keys, run.values, strict=True)))
    for partition, chosen in pairs.items():
        yield partition, run._replace(keys=chosen[::2], values=chosen[1::2])
