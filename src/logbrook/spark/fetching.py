"""Reading of an offset range into Arrow batches, in an executor's task.

A second thread fetches while the task's thread decodes. It sends the next fetch as soon as a response is complete,
until `_RESPONSES_MAX` responses wait to be decoded. Memory is bounded by as many receive buffers, which are reused.
Python code runs once per record batch, to parse its header, and never per record.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import monotonic
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logbrook.client import EARLIEST, LATEST, BrokerError, Client, ClientError, Fetched
from logbrook.client.fetched import AbortedBatches
from logbrook.client.retry import Retries
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_classes import UNKNOWN_TOPIC
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import ProtocolError
from logbrook.records.batch import BatchHeader, iter_headers
from logbrook.records.columns import decode
from logbrook.records.errors import CorruptBatchError, RecordsError
from logbrook.spark.arrow_batches import BYTES_MAX, ROWS_MAX, split_batch
from logbrook.spark.errors import CorruptRecordsError, MissingTopicError, UnreachableError
from logbrook.spark.json_values import with_json_values
from logbrook.spark.offset_ranges import OffsetRange
from logbrook.spark.planner import connect, report_data_loss
from logbrook.spark.read_options import ConnectionOptions, ReadOptions
from logbrook.spark.schema import DECODING_COLUMNS
from logbrook.spark.worker_memory import freeze_imports

_DECODED_BYTES_MAX = 256 << 20
_RESPONSES_MAX = 3
# A receive buffer that one large batch has grown beyond this is not reused.
_MEMORY_BYTES_MAX = 16 << 20
# Empty responses within the range before that is an error.
_EMPTY_MAX = 30

# Retriable, but not explained by a broker that restarts or a leader that moves: the topic or its data have changed.
_NO_OUTAGE = UNKNOWN_TOPIC | {ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.CORRUPT_MESSAGE}

# Clients are kept for the next task: a Spark worker runs its tasks one after the other.
_clients: dict[ConnectionOptions, Client] = {}


class BatchRun(NamedTuple):
    """Consecutive complete record batches. `data` is valid until the next run is requested; its buffer is reused."""

    data: memoryview
    first_offset: Offset


class _FetchedBatches(NamedTuple):
    """A fetch response, and position and header of each record batch in it."""

    fetched: Fetched
    headers: list[tuple[int, BatchHeader]]
    # Data losses noticed before these batches.
    losses: tuple[str, ...] = ()


class _LogBounds(NamedTuple):
    """Log start offset and log end offset."""

    start: int
    end: int


_NO_BATCHES = _FetchedBatches(Fetched(memoryview(b""), Offset(0), Offset(0), Offset(0)), [])


def read_range(options: ReadOptions, columns: tuple[str, ...], range_: OffsetRange) -> Iterator[Any]:
    """Yield the rows of `range_` as pyarrow.RecordBatch. Raises SparkError."""
    freeze_imports()
    # Columns that are made from the value are not in the records.
    fetched = tuple(dict.fromkeys("value" if name in DECODING_COLUMNS else name for name in columns))
    for run in RangeFetcher(options, range_).runs():
        for batch in _decode(run, fetched, range_):
            for part in split_batch(with_null_headers(batch)):
                yield _with_values(part, columns, options)


def _with_values(batch: Any, columns: tuple[str, ...], options: ReadOptions) -> Any:
    if options.registered is not None:
        # Compiles kernels, which reads without a registry do not need.
        from logbrook.spark.schemas.decoding import with_decoded_values  # noqa: PLC0415

        assert options.reader_schema is not None
        return with_decoded_values(batch, columns, options.registered, options.reader_schema)
    return batch if options.value_schema is None else with_json_values(batch, options.value_schema)


def _decode(run: BatchRun, columns: tuple[str, ...], range_: OffsetRange) -> list[Any]:
    """Decode a run to one Arrow batch, or to one per record batch if together they exceed `_DECODED_BYTES_MAX`."""
    try:
        return [decode_range(run.data, columns, range_)]
    except RecordsError as error:
        batches = [
            BatchRun(run.data[at : at + header.size], header.base_offset) for at, header in iter_headers(run.data)
        ]
        if len(batches) > 1:
            # One at a time they fit, or the error names the corrupt one.
            return [batch for single in batches for batch in _decode(single, columns, range_)]
        raise CorruptRecordsError(str(range_.partition), run.first_offset, str(error)) from error


def decode_range(data: memoryview, columns: tuple[str, ...], range_: OffsetRange) -> Any:
    """Decode the records of `range_` in whole record batches to an Arrow batch. Raises RecordsError."""
    return decode(
        data,
        topic=range_.partition.topic,
        partition=range_.partition.partition,
        start_offset=Offset(range_.start),
        end_offset=Offset(range_.end),
        columns=columns,
        bytes_max=_DECODED_BYTES_MAX,
    )


def with_null_headers(batch: Any) -> Any:
    """Replace empty header lists by null, as Spark's Kafka source has it."""
    index = batch.schema.get_field_index("headers")
    if index < 0 or not batch.num_rows:
        return batch
    headers = batch.column(index)
    is_empty = pc.equal(pc.list_value_length(headers), 0)
    nulled = pa.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=is_empty)
    return batch.set_column(index, batch.schema.field(index), nulled)


class RangeFetcher:
    """Fetches one offset range. `runs` is called once, from the task's thread."""

    def __init__(self, options: ReadOptions, range_: OffsetRange) -> None:
        self._options = options
        self._range = range_
        self._partition: TopicPartition = range_.partition
        # Used by the fetching thread only.
        self._next = range_.start
        # Set when the task stops reading, possibly before the end of the range.
        self._is_stopped = Event()

    def runs(self) -> Iterator[BatchRun]:
        """Yield the range's record batches, with fetches in flight while the caller decodes. Raises SparkError."""
        with ThreadPoolExecutor(1, thread_name_prefix="logbrook-fetch") as executor:
            in_flight = deque(executor.submit(self._fetch_next, bytearray()) for _ in range(_RESPONSES_MAX))
            try:
                while True:
                    response = in_flight.popleft().result()
                    for loss in response.losses:
                        # Here, not in the fetching thread: warning filters belong to the task's thread.
                        report_data_loss(self._options, loss)
                    if not response.headers:
                        return
                    yield from self._split(response)
                    memory = response.fetched.memory
                    if len(memory) > _MEMORY_BYTES_MAX:
                        memory = bytearray()
                    in_flight.append(executor.submit(self._fetch_next, memory))
            except RecordsError as error:
                raise self._corrupt(response.headers[0][1].base_offset, error) from error
            finally:
                self._is_stopped.set()

    def _fetch_next(self, memory: bytearray) -> _FetchedBatches:
        """Fetch from where the last response ended; no batches at the end of the range or after an error."""
        offset, self._next = self._next, self._range.end
        response = self._fetch(Offset(offset), memory)
        if response.headers:
            self._next = response.headers[-1][1].next_offset
        return response

    def _split(self, response: _FetchedBatches) -> Iterator[BatchRun]:
        """Split a response into runs of limited size, without batches of aborted transactions. Raises RecordsError."""
        fetched, headers, _ = response
        aborted = AbortedBatches(fetched.aborted)
        start = position = rows = 0
        first_offset = self._range.start
        for position, header in headers:
            if header.base_offset >= self._range.end:
                break
            is_skipped = aborted.includes(header, fetched.records[position : position + header.size])
            if rows and (is_skipped or rows + header.count > ROWS_MAX or position - start + header.size > BYTES_MAX):
                yield BatchRun(fetched.records[start:position], Offset(first_offset))
                rows = 0
            if is_skipped:
                continue
            if not rows:
                start, first_offset = position, header.base_offset
            rows += header.count
            end = position + header.size
        if rows:
            yield BatchRun(fetched.records[start:end], Offset(first_offset))

    def _fetch(self, offset: Offset, memory: bytearray) -> _FetchedBatches:
        """Fetch from `offset` with retries. No batches means that the rest of the range no longer exists."""
        options = self._options.cluster
        client = _client(options)
        retries, empty = _FetchRetries(options), 0
        losses: tuple[str, ...] = ()
        while offset < self._range.end and not self._is_stopped.is_set():
            try:
                fetched = self._ask(client, offset, memory)
            except ProtocolError as error:
                raise UnreachableError(options.bootstrap_servers, str(error)) from error
            except ClientError as error:
                try:
                    retry_at_s = retries.next_try_at_s(error)
                except ClientError:
                    return _NO_BATCHES._replace(losses=(*losses, self._loss_by(error)))
                self._is_stopped.wait(max(0.0, retry_at_s - monotonic()))
                continue
            if isinstance(fetched, _LogBounds):
                losses = (*losses, self._loss(offset, fetched))
                offset = Offset(fetched.start if offset < fetched.start else self._range.end)
                continue
            headers = self._headers(fetched, offset)
            if headers:
                return _FetchedBatches(fetched, headers, losses)
            empty += 1
            if empty > _EMPTY_MAX:
                reason = (
                    f"{self._partition} has nothing at offset {offset}, though it should go on to {self._range.end}"
                )
                raise UnreachableError(options.bootstrap_servers, reason)
        return _NO_BATCHES._replace(losses=losses)

    def _loss_by(self, error: ClientError) -> str:
        """Describe the data loss behind an error that is not retried. Raises SparkError if it is not a data loss."""
        servers = self._options.cluster.bootstrap_servers
        if isinstance(error, BrokerError) and error.code is ErrorCode.INCONSISTENT_TOPIC_ID:
            return f"topic {self._partition.topic!r} was deleted and created again since the query was planned"
        if isinstance(error, BrokerError) and error.code in UNKNOWN_TOPIC:
            raise MissingTopicError(f"topic {self._partition.topic!r}", servers) from error
        raise UnreachableError(servers, str(error)) from error

    def _ask(self, client: Client, offset: Offset, memory: bytearray) -> Fetched | _LogBounds:
        """Send one fetch. Returns the log's bounds if `offset` is out of range."""
        topic, partition = self._partition
        try:
            return client.fetch(
                topic,
                partition,
                offset,
                bytes_max=self._options.fetch.bytes_max,
                max_wait_ms=self._options.fetch.wait_ms,
                committed_only=self._options.is_committed_only,
                topic_id=self._range.topic_id,
                memory=memory,
            )
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            ends = (client.list_offset(topic, partition, time) for time in (EARLIEST, LATEST))
            return _LogBounds(*ends)

    def _headers(self, fetched: Fetched, offset: Offset) -> list[tuple[int, BatchHeader]]:
        """Return position and header of each record batch. Raises CorruptRecordsError."""
        try:
            headers = list(iter_headers(fetched.records))
        except RecordsError as error:
            raise self._corrupt(offset, error) from error
        if headers and headers[-1][1].next_offset <= offset:
            last_offset = headers[-1][1].last_offset
            raise self._corrupt(
                offset, CorruptBatchError(f"the broker returned batches that end at offset {last_offset}")
            )
        return headers

    def _loss(self, offset: Offset, log: _LogBounds) -> str:
        """Describe why `offset` is out of range."""
        if offset < log.start:
            return f"offset {offset} of {self._partition} is gone; the log now starts at {log.start}"
        return f"offset {offset} of {self._partition} is not there; the log ends at {log.end}"

    def _corrupt(self, offset: Offset, error: RecordsError) -> CorruptRecordsError:
        return CorruptRecordsError(str(self._partition), offset, str(error))


class _FetchRetries:
    """The retries of one fetch: an outage is waited for, and other errors are retried a few times."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._of_outage = Retries(options.retry)
        self._of_others = Retries(options.brief_retry)

    def next_try_at_s(self, error: ClientError) -> float:
        """Return what `Retries.next_try_at_s` does. Raises `error` if there are no further tries."""
        is_outage = not (isinstance(error, BrokerError) and error.code in _NO_OUTAGE)
        return (self._of_outage if is_outage else self._of_others).next_try_at_s(error)


def _client(options: ConnectionOptions) -> Client:
    client = _clients.get(options)
    if client is None:
        client = _clients[options] = connect(options)
    return client
