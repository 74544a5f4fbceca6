"""Exactly-once topic sink: idempotent writes by one transaction per task and micro-batch, or per task and batch write.

Each task writes its rows in one transaction, which also commits the batch id as the offset of a consumer group without
members, one group per task number (the Spark partition id). Rows and batch id become visible together or not at all.

A task may run again: as a retry, or because the batch is replayed after a crash of the driver.

1. InitProducerId takes over the transactional id, which is also the group's name, and fences earlier attempts. Their
   open transaction is aborted, or completed if its commit was already decided.
2. The task reads the group's committed batch id. If it is the current batch, the rows are already written and the task
   does nothing. Another attempt that commits after this read must first have fenced this one, so that only one
   commits.

A replayed task must have the same rows. A different number of rows means that the batch was divided among tasks
differently, and writing would duplicate or lose rows. ReplayError is raised for that, for a later batch id, and for the
batch id of another query.

A batch write takes its batch id from the option `batch.id`, or inside `foreachBatch` from the query. In the latter case
the committed metadata also holds the run of the query and the stage of the task, so that a second write of the same
micro-batch is not taken for a repetition of the first (see `micro_batch`). A repetition by a later run records its id.

Connections are kept for the next task of the worker. Producers are not: another worker may have fenced them since.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

from pyspark import TaskContext

from logbrook.client import BrokerError, Client, ClientError, Coordinators, OffsetAndMetadata, TransactionalProducer
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.spark.errors import OptionError, SparkError, UnreachableError
from logbrook.spark.micro_batch import current_micro_batch, identify_write
from logbrook.spark.sending import RowSender, suggesting_batch_size
from logbrook.spark.write_options import WriteOptions

# Replaced in tests by producers that fail at chosen points.
PRODUCER = TransactionalProducer


class ReplayError(SparkError):
    """The task's batch cannot be written again: committed rows differ, or belong to a later batch or another query."""


class TaskBatch(NamedTuple):
    """Identity of the rows that one task writes of one batch.

    `query_id` is None outside a streaming query. `run_id` and `stage_id` are None unless the batch id of a write inside
    `foreachBatch` was taken from the query.
    """

    app_id: str
    query_id: str | None
    batch_id: int
    task: int
    run_id: str | None = None
    stage_id: int | None = None

    @property
    def name(self) -> str:
        """The transactional id, which is also the id of the group that holds the batch id."""
        return f"{self.app_id}-{self.task}"

    def __str__(self) -> str:
        return f"part {self.task} of batch {self.batch_id}"


def current_task_batch(options: WriteOptions) -> TaskBatch:
    """Return the identity of the running task of a streaming query's sink. Raises OptionError outside a query."""
    context, micro_batch = TaskContext.get(), current_micro_batch()
    if context is None or micro_batch is None:
        raise OptionError("delivery", "exactly-once needs a streaming query, and this task does not belong to one")
    query_id = micro_batch.query_id
    return TaskBatch(options.app_id or query_id, query_id, micro_batch.batch_id, context.partitionId())


def current_batch_write(options: WriteOptions) -> TaskBatch:
    """Return the identity of the running task of a batch write. Raises OptionError if it has none."""
    context, identity = TaskContext.get(), identify_write(options.app_id, options.batch_id)
    if context is None or identity is None:
        reason = "exactly-once needs app.id and batch.id, because this write is not part of a micro-batch"
        raise OptionError("delivery", reason)
    app_id, batch_id, query_id, run_id = identity
    stage_id = None if run_id is None else context.stageId()
    return TaskBatch(app_id, query_id, batch_id, context.partitionId(), run_id, stage_id)


def send_once(options: WriteOptions, part: TaskBatch, batches: Iterator[Any]) -> int:
    """Write the rows of `batches` (pyarrow.RecordBatch) unless they are already committed; return their number.

    Raises ReplayError, RecordError, OptionError, UnreachableError, or ClientError: ProducerFencedError if another
    attempt has taken over, TransactionTimedOutError.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    with _client(options) as client:
        if first is None:
            # A replay without rows is only valid if no rows were committed.
            coordinators = Coordinators(client)
            written = _find_written(part, options.retry.run(lambda: coordinators.committed(part.name)))
            if written is not None:
                _check_rows(part, written.rows, 0)
            return 0
        producer = _producer(options, client, part)
        try:
            with suggesting_batch_size(options):
                return _send(options, producer, part, chain([first], batches))
        finally:
            producer.close()


def _send(options: WriteOptions, producer: TransactionalProducer, part: TaskBatch, batches: Iterator[Any]) -> int:
    written = _find_written(part, producer.committed(part.name))
    rows = 0
    if written is not None:
        rows = sum(batch.num_rows for batch in batches)
        _check_rows(part, written.rows, rows)
        if written.run_id != part.run_id:
            with producer.transaction():
                producer.send_offsets(part.name, {written.partition: _batch_id_offset(part, rows)})
        return rows
    with producer.transaction():
        sending = RowSender(options, producer)
        for batch in batches:
            sending.send(batch)
            rows += batch.num_rows
        # The group's offsets are read for all partitions, so any partition of the transaction can hold the batch id.
        producer.send_offsets(part.name, {min(producer.partitions): _batch_id_offset(part, rows)})
    return rows


class _WrittenPart(NamedTuple):
    """The committed rows of a task, and the partition that holds their batch id."""

    rows: int
    run_id: str | None
    partition: TopicPartition


def _batch_id_offset(part: TaskBatch, rows: int) -> OffsetAndMetadata:
    """Return what `_find_written` reads."""
    metadata: dict[str, Any] = {"rows": rows, "query": part.query_id}
    if part.run_id is not None:
        metadata |= {"run": part.run_id, "stage": part.stage_id}
    return OffsetAndMetadata(Offset(part.batch_id), json.dumps(metadata))


def _find_written(part: TaskBatch, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> _WrittenPart | None:
    """Return what is committed of the batch, or None if it is not committed. Raises ReplayError."""
    if not committed:
        return None
    partition, last = max(committed.items(), key=lambda item: item[1])
    try:
        metadata = json.loads(last.metadata)
        rows, query_id = int(metadata["rows"]), metadata["query"]
    except (ValueError, TypeError, KeyError):
        raise ReplayError(
            f"group {part.name!r} has offsets that this sink did not commit; choose another app.id"
        ) from None
    if query_id != part.query_id:
        raise ReplayError(
            f"app.id {part.app_id!r} is in use by {_query(query_id)}, which has written batch {last.offset} with it; "
            f"this is {_query(part.query_id)}, and needs another"
        )
    if last.offset > part.batch_id:
        raise ReplayError(
            f"{part} cannot be written after batch {last.offset}: the query's checkpoint is older than what it has "
            "written, or this is a late attempt of an earlier batch"
        )
    if last.offset < part.batch_id:
        return None
    run_id = metadata.get("run")
    if part.run_id is not None and run_id == part.run_id and metadata.get("stage") != part.stage_id:
        raise ReplayError(
            f"batch {part.batch_id} was already written with app.id {part.app_id!r} in this run of the query; "
            "each write of a foreachBatch to a topic needs its own app.id"
        )
    return _WrittenPart(rows, run_id, partition)


def _query(query_id: str | None) -> str:
    return "a batch query" if query_id is None else f"query {query_id}"


def _check_rows(part: TaskBatch, committed: int, replayed: int) -> None:
    if committed != replayed:
        raise ReplayError(
            f"{part} was written with {committed} rows and has {replayed} now; a query that delivers exactly once must "
            "divide the same input among its tasks in the same way each time"
        )


# Clients are kept for the next task: a Spark worker runs its tasks one after the other.
_clients: dict[WriteOptions, Client] = {}


def close_clients() -> None:
    """Close the clients kept for later tasks."""
    while _clients:
        _clients.popitem()[1].close()


@contextmanager
def _client(options: WriteOptions) -> Iterator[Client]:
    """Provide a client for one task, and keep it for the next unless the block raises."""
    client = _clients.pop(options, None) or options.client()
    try:
        yield client
    except BaseException:
        client.close()
        raise
    if (other := _clients.pop(options, None)) is not None:
        other.close()
    _clients[options] = client


def _producer(options: WriteOptions, client: Client, part: TaskBatch) -> TransactionalProducer:
    """Create the producer, which fences earlier attempts. Raises OptionError or UnreachableError."""
    try:
        return PRODUCER(
            client,
            part.name,
            transaction_timeout_ms=options.transaction_timeout_ms,
            delivery_timeout_s=options.delivery_timeout_s,
            in_flight_bytes_max=options.in_flight_bytes_max,
            request_bytes_max=options.request_bytes_max,
            retry=options.retry,
        )
    except ClientError as error:
        if isinstance(error, BrokerError) and error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            reason = f"{options.transaction_timeout_ms} exceeds the cluster's transaction.max.timeout.ms"
            raise OptionError("transaction.timeout.ms", reason) from error
        raise UnreachableError(options.bootstrap_servers, str(error)) from error
