"""A range of offsets as Arrow batches: what a task does.

One thread fetches, and this one decodes. The first does not wait for the second: it asks for what follows as soon as it
has an answer, until `_ANSWERS_MAX` of them are there and not decoded yet. That also bounds the memory, because each
answer stands in one of as many pieces of it, which are filled again and again. Python runs once for each record batch
that the broker sends, to see where it ends, and never for a record.
"""

import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logbrook.client import EARLIEST, LATEST, BrokerError, Client, ClientError, Fetched
from logbrook.client.aborted_batches import AbortedBatches
from logbrook.client.cluster import retriable
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import ProtocolError
from logbrook.records.batch import BatchHeader, iter_headers
from logbrook.records.columns import decode
from logbrook.records.errors import CorruptBatchError, RecordsError
from logbrook.spark.errors import CorruptRecordsError, DataLossError, TopicMissingError, UnreachableError
from logbrook.spark.planner import DataLossWarning, connect
from logbrook.spark.read_options import ClusterOptions, ReadOptions
from logbrook.spark.splits import OffsetRange
from logbrook.spark.values import with_json_values

# Spark takes batches of about this size fastest.
_ROWS_MAX = 65_536
_BYTES_MAX = 16 << 20
_DECODED_BYTES_MAX = 256 << 20
_FETCH_BYTES = 8 << 20
_ANSWERS_MAX = 3
# What one batch has made larger than this is not kept for others.
_MEMORY_BYTES_MAX = 16 << 20
_WAIT_MS = 1_000
# So often nothing may come, though the broker has it, before that is an error.
_EMPTY_MAX = 30
_TOPIC_RENEWED = ErrorCode.INCONSISTENT_TOPIC_ID
_TOPIC_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

# A Spark worker runs one task after the other, and they all ask the same cluster.
_clients: dict[ClusterOptions, Client] = {}


class Run(NamedTuple):
    """Record batches that follow one another, whole. Their memory is used again once the next run is asked for."""

    data: memoryview
    first_offset: int


class _Answer(NamedTuple):
    """What was fetched, and where each batch of it begins."""

    fetched: Fetched
    headers: list[tuple[int, BatchHeader]]


class _Bounds(NamedTuple):
    """The first offset of a log, and the one after its last."""

    start: int
    end: int


_NOTHING = _Answer(Fetched(memoryview(b""), 0, 0, 0), [])


def read_range(options: ReadOptions, columns: tuple[str, ...], range_: OffsetRange) -> Iterator[Any]:
    """The rows of `range_` as pyarrow.RecordBatch. Raises SparkError."""
    for run in Fetching(options, range_).runs():
        for batch in _decode(run, columns, range_):
            for part in _slices(with_null_headers(batch)):
                yield part if options.value_schema is None else with_json_values(part, options.value_schema)


def _decode(run: Run, columns: tuple[str, ...], range_: OffsetRange) -> list[Any]:
    """One Arrow batch, or one for each batch of the run where all of them together take too much memory."""
    try:
        return [
            decode(
                run.data,
                topic=range_.partition.topic,
                partition=range_.partition.partition,
                start_offset=range_.start,
                end_offset=range_.end,
                columns=columns,
                bytes_max=_DECODED_BYTES_MAX,
            )
        ]
    except RecordsError as error:
        batches = [Run(run.data[at : at + header.size], header.base_offset) for at, header in iter_headers(run.data)]
        if len(batches) > 1:
            # One by one they fit, or the one that is damaged can be named.
            return [batch for one in batches for batch in _decode(one, columns, range_)]
        raise CorruptRecordsError(str(range_.partition), run.first_offset, str(error)) from error


def with_null_headers(batch: Any) -> Any:
    """Records without headers have null there, as with Spark's Kafka source."""
    number = batch.schema.get_field_index("headers")
    if number < 0 or not batch.num_rows:
        return batch
    headers = batch.column(number)
    is_empty = pc.equal(pc.list_value_length(headers), 0)
    nulled = pa.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=is_empty)
    return batch.set_column(number, batch.schema.field(number), nulled)


def _slices(batch: Any) -> Iterator[Any]:
    if not batch.num_rows:
        return
    rows = min(_ROWS_MAX, max(1, batch.num_rows * _BYTES_MAX // max(1, batch.nbytes)))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


class Fetching:
    """One range while it is read."""

    def __init__(self, options: ReadOptions, range_: OffsetRange) -> None:
        self._options = options
        self._range = range_
        self._partition: TopicPartition = range_.partition
        # The fetching thread's own.
        self._next = range_.start
        # Nobody wants the rest any more.
        self._is_left = Event()

    def runs(self) -> Iterator[Run]:
        """Fetches are under way while rows are made of what came before."""
        with ThreadPoolExecutor(1, thread_name_prefix="logbrook-fetch") as ahead:
            under_way = deque(ahead.submit(self._fetch_next, bytearray()) for _ in range(_ANSWERS_MAX))
            try:
                while (answer := under_way.popleft().result()).headers:
                    yield from self._cut(answer)
                    memory = answer.fetched.memory
                    if len(memory) > _MEMORY_BYTES_MAX:
                        memory = bytearray()
                    under_way.append(ahead.submit(self._fetch_next, memory))
            except RecordsError as error:
                raise self._corrupt(answer.headers[0][1].base_offset, error) from error
            finally:
                self._is_left.set()

    def _fetch_next(self, memory: bytearray) -> _Answer:
        """What follows the last answer; nothing after the last one, or after an error."""
        offset, self._next = self._next, self._range.end
        answer = self._fetch(offset, memory)
        if answer.headers:
            self._next = answer.headers[-1][1].next_offset
        return answer

    def _cut(self, answer: _Answer) -> Iterator[Run]:
        """Runs that are small enough, without the batches of transactions that were aborted. Raises RecordsError."""
        fetched, headers = answer
        aborted = AbortedBatches(fetched.aborted)
        start = position = rows = 0
        first_offset = self._range.start
        for position, header in headers:
            if header.base_offset >= self._range.end:
                break
            is_skipped = aborted.includes(header, fetched.records[position : position + header.size])
            if rows and (is_skipped or rows + header.count > _ROWS_MAX or position - start + header.size > _BYTES_MAX):
                yield Run(fetched.records[start:position], first_offset)
                rows = 0
            if is_skipped:
                continue
            if not rows:
                start, first_offset = position, header.base_offset
            rows += header.count
            end = position + header.size
        if rows:
            yield Run(fetched.records[start:end], first_offset)

    def _fetch(self, offset: int, memory: bytearray) -> _Answer:
        """Whatever the broker has from `offset` on, which is something unless what was in the range is gone."""
        options = self._options.cluster
        client = _client(options)
        failures = empty = 0
        while offset < self._range.end and not self._is_left.is_set():
            try:
                found = self._ask(client, offset, memory)
            except ProtocolError as error:
                raise UnreachableError(options.bootstrap_servers, str(error)) from error
            except ClientError as error:
                failures += 1
                if failures <= options.retries and retriable(error):
                    self._is_left.wait(options.retry_interval_ms / 1000)
                    continue
                if isinstance(error, BrokerError) and error.code is _TOPIC_RENEWED:
                    self._lose(
                        f"topic {self._partition.topic!r} was deleted and created again since the query was planned"
                    )
                    return _NOTHING
                if isinstance(error, BrokerError) and error.code in _TOPIC_MISSING:
                    raise TopicMissingError(f"topic {self._partition.topic!r}", options.bootstrap_servers) from error
                raise UnreachableError(options.bootstrap_servers, str(error)) from error
            if isinstance(found, _Bounds):
                offset = self._go_on_after_loss(offset, found)
                continue
            headers = self._headers(found, offset)
            if headers:
                return _Answer(found, headers)
            empty += 1
            if empty > _EMPTY_MAX:
                reason = (
                    f"{self._partition} has nothing at offset {offset}, though it should go on to {self._range.end}"
                )
                raise UnreachableError(options.bootstrap_servers, reason)
        return _NOTHING

    def _ask(self, client: Client, offset: int, memory: bytearray) -> Fetched | _Bounds:
        """What there is from `offset` on; where there is no such offset, between which there are some."""
        topic, partition = self._partition
        try:
            return client.fetch(
                topic,
                partition,
                offset,
                bytes_max=_FETCH_BYTES,
                max_wait_ms=_WAIT_MS,
                committed_only=self._options.is_committed_only,
                topic_id=self._range.topic_id,
                memory=memory,
            )
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            ends = (client.list_offset(topic, partition, time) for time in (EARLIEST, LATEST))
            return _Bounds(*ends)

    def _headers(self, fetched: Fetched, offset: int) -> list[tuple[int, BatchHeader]]:
        """Where each batch begins. Raises CorruptRecordsError."""
        try:
            headers = list(iter_headers(fetched.records))
        except RecordsError as error:
            raise self._corrupt(offset, error) from error
        if headers and headers[-1][1].next_offset <= offset:
            last_offset = headers[-1][1].last_offset
            raise self._corrupt(offset, CorruptBatchError(f"the broker sends batches that end at offset {last_offset}"))
        return headers

    def _go_on_after_loss(self, offset: int, there: _Bounds) -> int:
        """The first offset that is there, or the end of the range if the log ends before. Raises DataLossError."""
        is_past_the_end = offset >= there.start
        what = f"offset {offset} of {self._partition} is gone; the log now starts at {there.start}"
        if is_past_the_end:
            what = f"offset {offset} of {self._partition} is not there; the log ends at {there.end}"
        self._lose(what)
        return self._range.end if is_past_the_end else there.start

    def _lose(self, what: str) -> None:
        """Raises DataLossError, or warns where the query was told not to mind."""
        if self._options.fail_on_data_loss:
            raise DataLossError(what)
        warnings.warn(what, DataLossWarning, stacklevel=2)

    def _corrupt(self, offset: int, error: RecordsError) -> CorruptRecordsError:
        return CorruptRecordsError(str(self._partition), offset, str(error))


def _client(options: ClusterOptions) -> Client:
    client = _clients.get(options)
    if client is None:
        client = _clients[options] = connect(options)
    return client
