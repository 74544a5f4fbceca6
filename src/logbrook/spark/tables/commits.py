"""Idempotent commits: publish the files of a write once, with the batch id and the source offsets.

Optimistic concurrency: load the newest version, check if the batch is in it, and commit on top of exactly that version.
On a conflict start again; of the competing writers one always succeeds.

A commit can take effect and still report a failure, if the answer of a store or a catalog is lost. Every change
therefore has a write id, and `commit_change` looks for it in the newer versions before it lets a commit be repeated. A
request that arrives late is no danger: it asks for the version that the repeated one asks for, and only one of them
gets it.

Batch ids increase within a query's checkpoint. A query with a new checkpoint and an old `app.id` would find its first
batches committed and lose their rows, so the table also records the query id of each `app.id`.

Inside `foreachBatch` a second write of the same micro-batch must not be taken for a repetition of the first, so the
table also records the query's run that last wrote or repeated a batch (see `micro_batch`). For a repetition that is a
commit without files.

With `source.offsets=auto` the commit also holds the next offset of each topic partition, taken from the rows written.
They are exact for a filtered stream, too: the tail then starts after the last row that was kept.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Event
from uuid import uuid4

import pyarrow as pa

from logbrook.spark.errors import CommitConflictError, CommitUnknownError, TableError
from logbrook.spark.tables.files import delete_files
from logbrook.spark.tables.format import ChangeKind, DataFile, TableChange, TableFormat, TableVersion
from logbrook.spark.tables.merging import MergedFiles, UpsertWrite, merge_changes
from logbrook.spark.tables.upsert import OFFSET_COLUMNS, offset_columns

QUERIES_KEY = "logbrook.queries"
# Run id and batch id of the last write inside `foreachBatch`, by app id.
RUNS_KEY = "logbrook.runs"
# Key columns of a table whose rows are upserted, as a JSON list.
KEYS_KEY = "logbrook.keys"
ATTEMPTS_MAX = 100
# Tries of a commit whose outcome is unknown, which the clients of the stores have retried before, and the first wait
# between them; it doubles. The retry policy of the Kafka client is not used: importing it would slow each process down.
UNKNOWN_TRIES_MAX = 5
UNKNOWN_WAIT_S = 0.2


OFFSETS_KEY = "logbrook.offsets"

# Next offset by topic and partition.
TableOffsets = dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class TableWrite:
    """The files of one write. A batch query without app and batch id is not idempotent.

    `query_id` is None outside a streaming query, `run_id` outside `foreachBatch` and if the batch id was given. With
    `upsert` the files contain changes and never become part of the table; the commit merges them into it.
    """

    files: Sequence[DataFile]
    overwrite: bool = False
    app_id: str | None = None
    batch_id: int | None = None
    query_id: str | None = None
    offsets: TableOffsets = field(default_factory=dict)
    run_id: str | None = None
    upsert: UpsertWrite | None = None


def publish(table: TableFormat, write: TableWrite) -> bool:
    """Commit `write` and return True, or return False if its batch is already in the table.

    Raises TableError if another query committed the batch id, if this is a second write of a micro-batch, or after
    `ATTEMPTS_MAX` conflicts.
    """
    if not write.files and not write.overwrite:
        return False
    merged: Sequence[DataFile] = ()
    write_id = str(uuid4())
    for attempt in range(ATTEMPTS_MAX):
        version = load_existing(table)
        if _is_committed(table, version, write):
            # After a failed attempt the files stay for vacuum: nothing is gained by being sure that they are not
            # needed.
            if attempt == 0:
                _check_run(table, version, write)
            if attempt == 0 or write.upsert is not None:
                delete_files([file.path for file in write.files], table.storage)
            _record_run(table, write)
            return False
        # The last attempt has failed, so the files that it merged are not part of the table.
        delete_files([file.path for file in merged], table.storage)
        change = replace(_change(table, version, write), write_id=write_id)
        try:
            commit_change(table, version, change)
        except CommitConflictError:
            merged = change.added if write.upsert is not None else ()
            continue
        if write.upsert is not None:
            delete_files([file.path for file in write.files], table.storage)
        return True
    raise TableError(table.root, f"{ATTEMPTS_MAX} attempts to commit failed because other commits came first")


def commit_change(table: TableFormat, version: TableVersion, change: TableChange) -> None:
    """Commit `change` on top of `version`, once.

    Raises CommitConflictError if another commit came first, and CommitUnknownError if the outcome stays unknown.
    """
    for failures in range(UNKNOWN_TRIES_MAX):
        unknown: CommitUnknownError | None = None
        try:
            version.commit(change)
        except CommitConflictError:
            pass
        except CommitUnknownError as error:
            unknown = error
        else:
            return
        if load_existing(table).has_write(change.write_id, version):
            return
        if unknown is None:
            raise CommitConflictError(table.root)
        if failures + 1 == UNKNOWN_TRIES_MAX:
            raise unknown
        Event().wait(UNKNOWN_WAIT_S * 2**failures)


def load_existing(table: TableFormat) -> TableVersion:
    """Return the newest version. Raises TableError if the table does not exist."""
    version = table.load()
    if version is None:
        raise TableError(table.root, "there is no such table")
    return version


def _is_committed(table: TableFormat, version: TableVersion, write: TableWrite) -> bool:
    if write.app_id is None or write.batch_id is None:
        return False
    newest = version.batch_id_of(write.app_id)
    if newest is None or write.batch_id > newest:
        return False
    query_id = json.loads(version.properties().get(QUERIES_KEY, "{}")).get(write.app_id)
    if query_id is not None and query_id != write.query_id:
        other = f"query {write.query_id} has another checkpoint" if write.query_id else "this write is of another query"
        raise TableError(
            table.root,
            f"batch {write.batch_id} of app.id {write.app_id!r} was committed by query {query_id}; "
            f"{other} and needs another app.id",
        )
    return True


def _check_run(table: TableFormat, version: TableVersion, write: TableWrite) -> None:
    """Raise TableError if the batch was committed in the same run of the query: then this is not a repetition."""
    if write.run_id is not None and _is_by_run(version, write):
        raise TableError(
            table.root,
            f"batch {write.batch_id} of app.id {write.app_id!r} was already written in this run of the query; "
            "each write of a foreachBatch to the same table needs its own app.id",
        )


def _record_run(table: TableFormat, write: TableWrite) -> None:
    """Commit, without files, that the run of `write` has repeated its batch."""
    for _ in range(ATTEMPTS_MAX):
        version = load_existing(table)
        if write.run_id is None or _is_by_run(version, write):
            return
        with suppress(CommitConflictError):
            properties = _with_run(version.properties(), write)
            commit_change(table, version, TableChange(ChangeKind.APPEND, (), properties=properties))
    raise TableError(table.root, f"{ATTEMPTS_MAX} attempts to commit failed because other commits came first")


def _is_by_run(version: TableVersion, write: TableWrite) -> bool:
    """Return True if the run of `write` has already written or repeated its batch."""
    runs = json.loads(version.properties().get(RUNS_KEY, "{}"))
    return bool(runs.get(write.app_id) == [write.run_id, write.batch_id])


def _with_run(properties: Mapping[str, str], write: TableWrite) -> dict[str, str]:
    if write.run_id is None:
        return dict(properties)
    runs = json.loads(properties.get(RUNS_KEY, "{}")) | {write.app_id: [write.run_id, write.batch_id]}
    return {**properties, RUNS_KEY: json.dumps(runs, sort_keys=True)}


def _change(table: TableFormat, version: TableVersion, write: TableWrite) -> TableChange:
    kind = ChangeKind.OVERWRITE if write.overwrite else ChangeKind.APPEND
    files = MergedFiles(added=list(write.files))
    if write.upsert is not None:
        kind = ChangeKind.UPSERT
        applied = offsets_from_json(version.properties().get(OFFSETS_KEY))
        files = merge_changes(table, version, write.files, write.upsert, applied)
    return TableChange(
        kind,
        files.added,
        files.removed,
        app_id=write.app_id,
        batch_id=write.batch_id,
        properties=_properties(version, write),
    )


def _properties(version: TableVersion, write: TableWrite) -> dict[str, str]:
    """Return the table properties after the write. An overwrite keeps only the query and run ids."""
    current = version.properties()
    kept = (QUERIES_KEY, RUNS_KEY) if write.overwrite else tuple(current)
    properties = _with_run({key: current[key] for key in kept if key in current}, write)
    if write.app_id is not None and write.query_id not in (None, write.app_id):
        queries = json.loads(properties.get(QUERIES_KEY, "{}")) | {write.app_id: write.query_id}
        properties[QUERIES_KEY] = json.dumps(queries, sort_keys=True)
    if write.upsert is not None:
        properties[KEYS_KEY] = json.dumps(write.upsert.rules.keys)
    if write.offsets:
        properties[OFFSETS_KEY] = offsets_to_json(
            merge_offsets([offsets_from_json(properties.get(OFFSETS_KEY)), write.offsets])
        )
    return properties


def next_offsets(batch: pa.RecordBatch) -> TableOffsets:
    """Return the largest offset plus one of each topic and partition in `batch`."""
    columns = list(offset_columns(batch.schema.names))
    rows = pa.Table.from_batches([batch.select(columns)]).rename_columns(list(OFFSET_COLUMNS)).drop_null()
    largest = rows.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    offsets: TableOffsets = {}
    values = (largest.column(name).to_pylist() for name in ("topic", "partition", "offset_max"))
    for topic, partition, offset in zip(*values, strict=True):
        offsets.setdefault(topic, {})[partition] = offset + 1
    return offsets


def merge_offsets(parts: Iterable[TableOffsets]) -> TableOffsets:
    """Return the maximum of each partition."""
    merged: TableOffsets = {}
    for offsets in parts:
        for topic, partitions in offsets.items():
            of_topic = merged.setdefault(topic, {})
            for partition, offset in partitions.items():
                of_topic[partition] = max(offset, of_topic.get(partition, 0))
    return merged


def offsets_to_json(offsets: TableOffsets) -> str:
    """Format offsets as the value of the read option `startingOffsets`."""
    return json.dumps(
        {
            topic: {str(number): partitions[number] for number in sorted(partitions)}
            for topic, partitions in sorted(offsets.items())
        }
    )


def offsets_from_json(text: str | None) -> TableOffsets:
    """The inverse of `offsets_to_json`; empty for None."""
    document = json.loads(text) if text else {}
    return {
        topic: {int(number): offset for number, offset in partitions.items()} for topic, partitions in document.items()
    }
