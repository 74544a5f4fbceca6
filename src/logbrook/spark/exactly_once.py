"""Rows to topics, each once for those who read what is committed, however often Spark writes them.

Each task writes its part of a micro-batch in one transaction, and with it goes the word that it is written: the batch's
number as the offset of a group that nobody joins, one group for each task number. Both are there or none is.

A part may be written again, by a second attempt of the task or in a replay of the batch after the driver was killed.

1. It takes over the transactional id, which is the group's name. Earlier attempts cannot commit any more: what they
   have open is aborted, unless they had decided to commit it, and then that is waited for.
2. It reads which batch was written last. If it is this one, there is nothing to do. Nobody can commit it after this was
   read without taking over the transactional id, and then this attempt fails.

What is read must come from the same rows: when the number of rows is another than before, the batch was divided among
tasks in another way, and to go on would write some rows twice or never. Then, and when the number of a later batch is
there or that of another query, ReplayError is raised.

The producer of a task is not kept for the next, because another worker may have had its id since. Its connections are.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

from pyspark import TaskContext

from logbrook.client import BrokerError, Client, ClientError, CommittedOffset, Coordinators, TransactionalProducer
from logbrook.client.retrying import persist
from logbrook.protocol.error_codes import ErrorCode
from logbrook.spark.errors import OptionError, SparkError, UnreachableError
from logbrook.spark.sending import Sending
from logbrook.spark.write_options import WriteOptions

# Who writes; tests have theirs that die.
PRODUCER = TransactionalProducer
# What a streaming query tells its tasks.
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


class ReplayError(SparkError):
    """What was written before is not what would be written now."""


class Part(NamedTuple):
    """What one task writes of one micro-batch."""

    app_id: str
    query_id: str
    batch_id: int
    task: int

    @property
    def name(self) -> str:
        """Of the transactional id and of the group."""
        return f"{self.app_id}-{self.task}"

    def __str__(self) -> str:
        return f"part {self.task} of batch {self.batch_id}"


def current_part(options: WriteOptions) -> Part:
    """What the task that calls this is to write. Raises OptionError where there is no streaming query."""
    context = TaskContext.get()
    batch_id = context.getLocalProperty(_BATCH_ID) if context is not None else None
    query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
    if context is None or batch_id is None or query_id is None:
        raise OptionError("delivery", "exactly-once needs a streaming query, and Spark does not say that this is one")
    return Part(options.app_id or query_id, query_id, int(batch_id), context.partitionId())


def send_once(options: WriteOptions, part: Part, batches: Iterator[Any]) -> int:
    """Write the rows of these pyarrow.RecordBatch, unless they are written, and return their number.

    Raises ReplayError, RecordError, OptionError, UnreachableError, and ClientError: ProducerFencedError when another
    attempt has taken over, TransactionTimedOutError.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    with _client(options) as client:
        if first is None:
            # Nothing is to be written, and so nothing must have been.
            coordinators = Coordinators(client)
            committed = persist(lambda: coordinators.committed(part.name), options.delivery_timeout_s)
            if (rows := _rows_written(part, committed.values())) is not None:
                _check_rows(part, rows, 0)
            return 0
        producer = _producer(options, client, part)
        try:
            return _send(options, producer, part, chain([first], batches))
        finally:
            producer.close()


def _send(options: WriteOptions, producer: TransactionalProducer, part: Part, batches: Iterator[Any]) -> int:
    before = _rows_written(part, producer.committed(part.name).values())
    rows = 0
    if before is not None:
        rows = sum(batch.num_rows for batch in batches)
        _check_rows(part, before, rows)
        return rows
    with producer.transaction():
        sending = Sending(options, producer)
        for batch in batches:
            sending.send(batch)
            rows += batch.num_rows
        # Any partition will do that the transaction has written to; all of the group are read.
        note = json.dumps({"rows": rows, "query": part.query_id})
        producer.send_offsets(part.name, {min(producer.partitions): CommittedOffset(part.batch_id, note)})
    return rows


def _rows_written(part: Part, committed: Iterable[CommittedOffset]) -> int | None:
    """How many rows the part has that is there, None when it is not. Raises ReplayError."""
    last = max(committed, default=None)
    if last is None:
        return None
    try:
        note = json.loads(last.metadata)
        rows, query_id = int(note["rows"]), str(note["query"])
    except (ValueError, TypeError, KeyError):
        raise ReplayError(f"group {part.name!r} has offsets that are not of this sink; choose another app.id") from None
    if query_id != part.query_id:
        raise ReplayError(
            f"app.id {part.app_id!r} is in use by query {query_id}, which has written batch {last.offset} with it; "
            f"this is query {part.query_id}, and needs another"
        )
    if last.offset > part.batch_id:
        raise ReplayError(
            f"{part} cannot be written after batch {last.offset}: the query's checkpoint is older than what it has "
            "written, or this is an attempt that comes too late"
        )
    return rows if last.offset == part.batch_id else None


def _check_rows(part: Part, before: int, now: int) -> None:
    if before != now:
        raise ReplayError(
            f"{part} was written before with {before} rows and has {now} now; a query that delivers exactly once must "
            "divide the same input among its tasks in the same way each time"
        )


# A worker of Spark runs one task after the other, and they all write to the same cluster.
_clients: dict[WriteOptions, Client] = {}


def close_clients() -> None:
    """Hang up what is kept for later tasks."""
    while _clients:
        _clients.popitem()[1].close()


@contextmanager
def _client(options: WriteOptions) -> Iterator[Client]:
    """One with connections, kept for the next task unless an error ends this one."""
    client = _clients.pop(options, None) or options.client()
    try:
        yield client
    except BaseException:
        client.close()
        raise
    if (other := _clients.pop(options, None)) is not None:
        other.close()
    _clients[options] = client


def _producer(options: WriteOptions, client: Client, part: Part) -> TransactionalProducer:
    """Raises OptionError or UnreachableError."""
    try:
        return PRODUCER(
            client,
            part.name,
            transaction_timeout_ms=options.transaction_timeout_ms,
            delivery_timeout_s=options.delivery_timeout_s,
            request_bytes_max=options.request_bytes_max,
        )
    except ClientError as error:
        if isinstance(error, BrokerError) and error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            reason = f"{options.transaction_timeout_ms} is more than transaction.max.timeout.ms of the cluster"
            raise OptionError("transaction.timeout.ms", reason) from error
        raise UnreachableError(options.bootstrap_servers, str(error)) from error
