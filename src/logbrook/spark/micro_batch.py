"""Identity of a batch write, by which a repeated write is recognised: `app.id` and `batch.id`.

A streaming query repeats its last micro-batch after a failure, and calls the function of `foreachBatch` again. The
writes inside it are batch queries. Spark tells the tasks of such a write query id and batch id as local properties, so
neither option is required there. Spark Connect runs the function in another process and does not tell them.

A second write under the same identity is either the repetition of the first or another write of the same micro-batch.
The former must add nothing, the latter would lose rows if it added nothing. The id of the query's run tells them apart:
within a run Spark calls the function once per micro-batch. With a given `batch.id` the caller is responsible, as with
Delta's `txnAppId` and `txnVersion`.
"""

from typing import NamedTuple
from uuid import UUID

from pyspark import TaskContext

from logbrook.spark.errors import OptionError

# Local properties that a streaming query sets for its jobs. The job group is the id of the query's run.
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_JOB_GROUP = "spark.jobGroup.id"


class MicroBatch(NamedTuple):
    """The micro-batch of the running task. `run_id` is None if the job group was changed."""

    query_id: str
    run_id: str | None
    batch_id: int


class WriteIdentity(NamedTuple):
    """Identity of a batch write. `query_id` is None outside a streaming query, `run_id` if `batch.id` was given."""

    app_id: str
    batch_id: int
    query_id: str | None = None
    run_id: str | None = None


def current_micro_batch() -> MicroBatch | None:
    """Return the micro-batch of the running task, or None outside a streaming query."""
    context = TaskContext.get()
    if context is None:
        return None
    batch_id, query_id = context.getLocalProperty(_BATCH_ID), context.getLocalProperty(_QUERY_ID)
    if batch_id is None or query_id is None:
        return None
    return MicroBatch(query_id, _uuid_or_none(context.getLocalProperty(_JOB_GROUP)), int(batch_id))


def identify_write(app_id: str | None, batch_id: int | None) -> WriteIdentity | None:
    """Return the identity of the running batch write from its options and its micro-batch, or None if it has none.

    Raises OptionError if an option is missing that Spark does not tell.
    """
    micro_batch = current_micro_batch()
    if micro_batch is None:
        return _identity_by_options(app_id, batch_id)
    query_id = micro_batch.query_id
    if batch_id is not None:
        return WriteIdentity(app_id or query_id, batch_id, query_id)
    if micro_batch.run_id is None:
        raise OptionError("batch.id", "it is required in a foreachBatch that changes Spark's job group")
    return WriteIdentity(app_id or query_id, micro_batch.batch_id, query_id, micro_batch.run_id)


def _identity_by_options(app_id: str | None, batch_id: int | None) -> WriteIdentity | None:
    if app_id is None and batch_id is None:
        return None
    if app_id is None or batch_id is None:
        missing, given = ("app.id", "batch.id") if app_id is None else ("batch.id", "app.id")
        raise OptionError(missing, f"it is required with {given}, because this write is not part of a micro-batch")
    return WriteIdentity(app_id, batch_id)


def _uuid_or_none(text: str | None) -> str | None:
    try:
        return None if text is None else str(UUID(text))
    except ValueError:
        return None
