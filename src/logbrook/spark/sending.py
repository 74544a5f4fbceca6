"""Writing of Arrow batches to topics, in an executor's task, with an idempotent producer.

An Arrow batch is stably sorted by topic and partition, and each run of one partition is encoded as record batches.
Python code runs per run and per record batch, never per row.

A Spark worker runs its tasks one after the other, so the producer of a successful task is kept for the next one: a
producer id per task and micro-batch would fill the brokers' producer state. It is discarded if the cluster id at that
address has changed, because its producer id is then not valid or belongs to another producer.
"""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logbrook.client import BrokerError, Client, ClientError, Producer
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.batch import HEADER_BYTES
from logbrook.records.columns import encode
from logbrook.spark.errors import RecordError, UnreachableError
from logbrook.spark.partitioner import Ints, Longs, Partitioner
from logbrook.spark.write_options import WriteOptions

_ENCODED = ("key", "value", "headers", "timestamp")
# Upper bound of a record's framing in a batch of its own: three lengths and the header count of up to five bytes each,
# attributes and two deltas of one byte each. A header has two lengths.
_RECORD_OVERHEAD_BYTES = 23
_HEADER_OVERHEAD_BYTES = 10
# Below this number of groups their ids fit uint16, which numpy radix-sorts in linear time.
_RADIX_GROUPS_MAX = 1 << 16


def send_rows(options: WriteOptions, batches: Iterator[Any]) -> int:
    """Write the rows of `batches` (pyarrow.RecordBatch) and return their number once all are acknowledged.

    Raises RecordError for a row that cannot be written, UnreachableError, ClientError.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return 0
    rows = 0
    with suggesting_batch_size(options), _producer(options) as producer:
        sending = RowSender(options, producer)
        for batch in chain([first], batches):
            sending.send(batch)
            rows += batch.num_rows
        producer.flush()
    return rows


@contextmanager
def suggesting_batch_size(options: WriteOptions) -> Iterator[None]:
    """Add the option to change to the error of a batch that is larger than the topic permits."""
    try:
        yield
    except BrokerError as error:
        if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
            raise
        suggestion = f"batch.size is {options.batch_bytes_max}: set it to less than the topic's max.message.bytes"
        message = "; ".join(filter(None, (error.message, suggestion)))
        raise BrokerError(error.code, error.operation, message) from error


class RowSender:
    """Encodes the rows of one task and sends them with `producer`."""

    def __init__(self, options: WriteOptions, producer: Producer, partitioner: Partitioner | None = None) -> None:
        self._options = options
        self._producer = producer
        self._partitioner = partitioner or Partitioner(random.randrange)
        self._counts: dict[str, int] = {}

    def send(self, batch: Any) -> None:
        """Send the rows of `batch`. Raises RecordError before any of them is sent, and ClientError."""
        if not batch.num_rows:
            return
        if self._options.encoding is not None:
            # Compiles kernels, which a sink without a registry does not need.
            from logbrook.spark.schemas.encoding import with_encoded_values  # noqa: PLC0415

            batch = with_encoded_values(batch, self._options.encoding)
        rows = _RowBatch(batch)
        topics, topic_of = self._topics(rows)
        counts = np.array([self._count(rows, topics, topic_of, n) for n in range(len(topics))], np.int64)
        key, given = rows.column("key"), rows.column("partition")
        self._check_given(rows, topics, counts, topic_of, given)
        partitions = self._partitioner.assign(topics, counts, topic_of, key, given)
        self._check_headers(rows, topics, topic_of, partitions)
        self._check_sizes(rows, topics, topic_of, partitions)
        first_groups = np.cumsum(counts) - counts
        self._send_groups(rows, topics, topic_of, partitions, first_groups[topic_of] + partitions)

    def _topics(self, rows: "_RowBatch") -> tuple[list[str], Longs]:
        """Return the distinct topics, and for each row the index of its topic."""
        if self._options.topic is not None:
            return [self._options.topic], np.zeros(rows.count, np.int64)
        column = rows.column("topic")
        if column.null_count:
            row = int(np.argmax(np.asarray(column.is_null())))
            raise RecordError(None, None, rows.key_length(row), "its column 'topic' is null")
        encoded = column.dictionary_encode()
        return encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64)

    def _count(self, rows: "_RowBatch", topics: list[str], topic_of: Longs, number: int) -> int:
        """Return the number of partitions of `topics[number]`. Raises RecordError if it does not exist."""
        topic = topics[number]
        if topic not in self._counts:
            try:
                self._counts[topic] = self._producer.partition_count(topic)
            except BrokerError as error:
                reason = str(error)
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    servers = self._options.bootstrap_servers
                    reason = f"there is no such topic at {servers}; create it first, or correct the name"
                row = int(np.argmax(topic_of == number))
                raise RecordError(topic, rows.partition(row), rows.key_length(row), reason) from error
        return self._counts[topic]

    def _check_given(self, rows: "_RowBatch", topics: list[str], counts: Longs, topic_of: Longs, given: Any) -> None:
        if given is None or given.null_count == rows.count:
            return
        partitions = np.asarray(given.fill_null(0))
        is_wrong = (partitions < 0) | (partitions >= counts[topic_of])
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            number = int(topic_of[row])
            reason = f"the topic has {counts[number]} partitions, numbered from 0"
            raise RecordError(topics[number], int(partitions[row]), rows.key_length(row), reason)

    def _check_headers(self, rows: "_RowBatch", topics: list[str], topic_of: Longs, partitions: Ints) -> None:
        row = rows.row_with_keyless_header()
        if row is not None:
            reason = "it has a header without a key"
            raise RecordError(topics[int(topic_of[row])], int(partitions[row]), rows.key_length(row), reason)

    def _check_sizes(self, rows: "_RowBatch", topics: list[str], topic_of: Longs, partitions: Ints) -> None:
        bytes_max = self._options.request_bytes_max
        sizes = rows.sizes() + HEADER_BYTES + _RECORD_OVERHEAD_BYTES
        if sizes.max() > bytes_max:
            row = int(sizes.argmax())
            reason = f"it takes {sizes[row]} bytes, and max.request.size is {bytes_max}"
            raise RecordError(topics[int(topic_of[row])], int(partitions[row]), rows.key_length(row), reason)

    def _send_groups(
        self, rows: "_RowBatch", topics: list[str], topic_of: Longs, partitions: Ints, groups: npt.NDArray[Any]
    ) -> None:
        records = rows.encoded
        if (groups != groups[0]).any():
            order = np.argsort(groups.astype(np.uint16) if groups.max() < _RADIX_GROUPS_MAX else groups, kind="stable")
            records, groups = records.take(pa.array(order)), groups[order]
            topic_of, partitions = topic_of[order], partitions[order]
        starts = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist()]
        now_ms = round(time.time() * 1000)
        for first, end in zip(starts, [*starts[1:], rows.count], strict=True):
            topic, partition = topics[int(topic_of[first])], int(partitions[first])
            self._send_run(topic, partition, records.slice(first, end - first), now_ms)

    def _send_run(self, topic: str, partition: int, records: Any, now_ms: int) -> None:
        encoded = encode(
            records,
            now_ms=now_ms,
            codec=self._options.codec,
            level=self._options.level,
            batch_bytes_max=self._options.batch_bytes_max,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            base_sequence=self._producer.next_sequence(topic, partition),
            transactional=self._producer.is_transactional,
        )
        for batch in encoded:
            self._producer.send(topic, partition, batch)


class _RowBatch:
    """An Arrow batch whose optional columns may be absent."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self.count: int = batch.num_rows
        self.encoded = batch.select([name for name in _ENCODED if name in batch.schema.names])

    def column(self, name: str) -> Any:
        return self._batch.column(name) if name in self._batch.schema.names else None

    def key_length(self, row: int) -> int | None:
        key = self.column("key")
        return None if key is None or not key[row].is_valid else pc.binary_length(key[row]).as_py()

    def partition(self, row: int) -> int | None:
        column = self.column("partition")
        return None if column is None else column[row].as_py()

    def sizes(self) -> Longs:
        """Return the bytes of key, value and headers of each row."""
        sizes = np.zeros(self.count, np.int64)
        for name in ("key", "value"):
            if self.column(name) is not None:
                sizes += _lengths(self.column(name))
        if self._has_headers:
            keys, values = self.column("headers").values.flatten()
            sizes += self._sum_of_headers(_lengths(keys) + _lengths(values) + _HEADER_OVERHEAD_BYTES)
        return sizes

    def row_with_keyless_header(self) -> int | None:
        if not self._has_headers:
            return None
        keys, _ = self.column("headers").values.flatten()
        if not keys.null_count:
            return None
        keyless = self._sum_of_headers(np.asarray(keys.is_null()).astype(np.int64))
        return int(np.argmax(keyless)) if keyless.any() else None

    @property
    def _has_headers(self) -> bool:
        headers = self.column("headers")
        return headers is not None and headers.null_count < self.count

    def _sum_of_headers(self, numbers: Longs) -> Longs:
        """Sum the per-header `numbers` by row."""
        headers = self.column("headers")
        sums = np.concatenate([[0], np.cumsum(numbers)])
        bounds = np.asarray(headers.offsets)
        return np.where(np.asarray(headers.is_null()), 0, sums[bounds[1:]] - sums[bounds[:-1]])


def _lengths(column: Any) -> Longs:
    return np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64)


class _IdleProducer(NamedTuple):
    """A producer kept for the next task, with the id of the cluster it belongs to."""

    client: Client
    producer: Producer
    cluster_id: str | None

    def close(self) -> None:
        self.producer.close()
        self.client.close()


_idle: dict[WriteOptions, _IdleProducer] = {}


def close_idle() -> None:
    """Close the producers kept for later tasks."""
    while _idle:
        _idle.popitem()[1].close()


@contextmanager
def _producer(options: WriteOptions) -> Iterator[Producer]:
    """Provide a producer for one task, and keep it for the next unless the block raises."""
    entry = _take_idle(options) or _open(options)
    try:
        yield entry.producer
    except BaseException:
        entry.close()
        raise
    _idle[options] = entry


def _take_idle(options: WriteOptions) -> _IdleProducer | None:
    entry = _idle.pop(options, None)
    if entry is None:
        return None
    with suppress(ClientError):
        if entry.client.metadata([]).cluster_id == entry.cluster_id:
            return entry
    entry.close()
    return None


def _open(options: WriteOptions) -> _IdleProducer:
    """Raises UnreachableError."""
    client = options.client()
    try:
        producer = Producer(
            client,
            delivery_timeout_s=options.delivery_timeout_s,
            in_flight_bytes_max=options.in_flight_bytes_max,
            request_bytes_max=options.request_bytes_max,
            retry=options.retry,
        )
        return _IdleProducer(client, producer, options.retry.run(lambda: client.metadata([]).cluster_id))
    except ClientError as error:
        client.close()
        raise UnreachableError(options.bootstrap_servers, str(error)) from error
