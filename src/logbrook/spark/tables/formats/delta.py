"""Tables in the Delta format, by delta-rs.

The writer's id and its batch's id are a `txn` action of the commit, and the properties stand in its `commitInfo`. As
Delta asks for, a file does not hold the columns by which the table is partitioned, and an empty text in such a column
is null.
"""

import json
import math
import os
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from logbrook.spark.tables.errors import CommitConflictError, TableError
from logbrook.spark.tables.format import PROPERTY_PREFIX, WRITE_KEY, Change, ChangeKind, DataFile
from logbrook.spark.tables.options import TableOptions
from logbrook.spark.tables.partitions import to_text
from logbrook.spark.tables.schema import plain_schema
from logbrook.spark.tables.writing import files_before, now_ms

# How far the first look for the newest properties goes back: a few commits of maintenance.
HISTORY_LIMIT = 10
STATISTICS_TEXT_MAX = 64
_MILLISECOND = timedelta(milliseconds=1)


class DeltaFormat:
    """The Delta table at a path."""

    partition_columns_in_files = False
    small_integers = True

    def __init__(self, options: TableOptions) -> None:
        self.root = options.path
        self.data_directory = options.path

    def load(self) -> "DeltaVersion | None":
        try:
            return DeltaVersion(self.root, DeltaTable(self.root))
        except TableNotFoundError:
            return None

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        os.makedirs(self.root, exist_ok=True)
        try:
            DeltaTable.create(self.root, schema, mode="ignore", partition_by=list(partition_by))
        except CommitFailedError:
            if self.load() is None:
                raise

    def unreferenced(self, before: datetime) -> list[str]:
        # Delta counts in whole hours; more of them is the safe side.
        age_s = max(0, int((datetime.now(UTC) - before).total_seconds()))
        table = DeltaTable(self.root)
        names = table.vacuum(math.ceil(age_s / 3600), dry_run=True, enforce_retention_duration=False, full=True)
        paths = [os.path.join(self.root, name) for name in names]
        old = set(files_before(self.root, (".parquet",), before))
        return [path for path in paths if path in old]

    def forget(self, before: datetime) -> None:
        """Delta drops old commits by itself, 30 days after a checkpoint has summed them up."""


class DeltaVersion:
    """One version of a Delta table."""

    def __init__(self, root: str, table: DeltaTable) -> None:
        mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mapping != "none":
            raise TableError(root, f"its columns are mapped by {mapping}, which is not supported here")
        self._root = root
        self._table = table
        self.schema = plain_schema(pa.schema(table.schema().to_arrow()))
        self.file_schema = self.schema
        self.partition_by = tuple(table.metadata().partition_columns)

    def batch_id_of(self, app_id: str) -> int | None:
        batch_id: int | None = self._table.transaction_version(app_id)
        return batch_id

    def properties(self) -> dict[str, str]:
        for limit in (HISTORY_LIMIT, None):
            for commit in self._table.history(limit):
                if WRITE_KEY in commit:
                    return {key: text for key, text in commit.items() if key.startswith(PROPERTY_PREFIX)}
        return {}

    def data_files(self) -> list[DataFile]:
        if "deletionVectors" in (self._table.protocol().reader_features or ()):
            deletions = pa.table(self._table.deletion_vectors()).num_rows
            if deletions:
                raise TableError(self._root, f"{deletions} of its files have deletion vectors, which are not read here")
        actions = pa.table(self._table.get_add_actions(flatten=False)).to_pylist()
        return [
            DataFile(
                path=os.path.join(self._root, unquote(action["path"])),
                size_bytes=action["size_bytes"],
                rows=action["num_records"] or 0,
                partition=action.get("partition") or {},
            )
            for action in actions
        ]

    def commit(self, change: Change) -> None:
        changes_rows = change.kind is not ChangeKind.REWRITE
        actions: list[Any] = [self._add_action(file, changes_rows) for file in change.added]
        actions += [self._remove_action(file, changes_rows) for file in change.removed]
        marks = {**change.properties, WRITE_KEY: str(uuid.uuid4())}
        transactions = None
        if change.app_id is not None and change.batch_id is not None:
            transactions = [Transaction(change.app_id, change.batch_id, now_ms())]
        try:
            self._table.create_write_transaction(
                actions,
                "overwrite" if change.kind is ChangeKind.OVERWRITE else "append",
                self._table.schema(),
                list(self.partition_by),
                commit_properties=CommitProperties(
                    custom_metadata=marks, max_commit_retries=0, app_transactions=transactions
                ),
            )
        except CommitFailedError as error:
            raise CommitConflictError(self._root) from error

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        fields = Schema.from_arrow(pa.schema(columns)).fields
        try:
            self._table.alter.add_columns(fields, commit_properties=CommitProperties(max_commit_retries=0))
        except CommitFailedError as error:
            raise CommitConflictError(self._root) from error

    def _add_action(self, file: DataFile, changes_rows: bool) -> AddAction:
        return AddAction(
            path=os.path.relpath(file.path, self._root),
            size=file.size_bytes,
            partition_values={name: to_text(value) for name, value in file.partition.items()},
            modification_time=now_ms(),
            data_change=changes_rows,
            stats=json.dumps(statistics(file.footer)),
        )

    def _remove_action(self, file: DataFile, changes_rows: bool) -> RemoveAction:
        return RemoveAction(
            os.path.relpath(file.path, self._root),
            changes_rows,
            now_ms(),
            file.size_bytes,
            {name: to_text(value) for name, value in file.partition.items()},
        )


def statistics(footer: Any) -> dict[str, Any]:
    """What Delta's readers skip files by, from the footer of a Parquet file.

    Floats have none, because Parquet leaves NaN out of its bounds and Delta does not; nor have long texts.
    """
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for column in (group.column(number) for group in groups for number in range(group.num_columns)):
        name, found = column.path_in_schema, column.statistics
        if found is None or not found.has_null_count or "." in name:
            unknown.add(name)
            continue
        nulls[name] = nulls.get(name, 0) + found.null_count
        if found.has_min_max and _is_bound(found.min) and _is_bound(found.max):
            lows[name] = min(found.min, lows.get(name, found.min))
            highs[name] = max(found.max, highs.get(name, found.max))
        elif found.null_count < column.num_values:
            unknown.add(name)
    return {
        "numRecords": footer.num_rows,
        "minValues": {name: _bound(low) for name, low in lows.items() if name not in unknown},
        "maxValues": {name: _bound(high, up=True) for name, high in highs.items() if name not in unknown},
        "nullCount": {name: count for name, count in nulls.items() if name not in unknown},
    }


def _is_bound(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= STATISTICS_TEXT_MAX
    if isinstance(value, datetime):
        return value.tzinfo is not None
    return isinstance(value, int | date) and not isinstance(value, bool)


def _bound(value: Any, *, up: bool = False) -> Any:
    """Delta's timestamps are milliseconds, so bounds are rounded away from what they bound."""
    if isinstance(value, datetime):
        floor = value.replace(microsecond=value.microsecond // 1000 * 1000)
        rounded = floor + _MILLISECOND if up and floor != value else floor
        return rounded.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
