"""Tables in the Delta format, with delta-rs.

`app.id` and batch id are a `txn` action of the commit; the properties are in its `commitInfo`. As Delta requires, data
files do not contain the partition columns, and an empty string in a partition column is null.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from logbrook.spark.errors import CommitConflictError, CommitUnknownError, TableError
from logbrook.spark.tables.files import files_before, now_ms
from logbrook.spark.tables.format import (
    PROPERTY_PREFIX,
    SUMMARY_KEY,
    WRITE_KEY,
    ChangeKind,
    DataFile,
    TableChange,
    TableCommit,
    TableOptions,
)
from logbrook.spark.tables.location import relative_to
from logbrook.spark.tables.schema import partition_text, plain_schema
from logbrook.spark.tables.storage import TableStorage

# Commits searched first for the newest properties; only maintenance commits lie in between.
HISTORY_LIMIT = 10
STATISTICS_TEXT_MAX = 64
_MILLISECOND = timedelta(milliseconds=1)


class DeltaFormat:
    """The Delta table at a location."""

    partition_columns_in_files = False
    small_integers = True
    can_upsert = True

    def __init__(self, options: TableOptions, storage: TableStorage) -> None:
        self.root = options.path
        self.storage = storage
        self.data_directory = options.path
        self._settings = dict(options.storage)

    def load(self) -> "DeltaVersion | None":
        try:
            return DeltaVersion(self.root, self._open())
        except TableNotFoundError:
            return None

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        self.storage.prepare(self.root)
        try:
            DeltaTable.create(
                self.root, schema, mode="ignore", partition_by=list(partition_by), storage_options=self._settings
            )
        except (DeltaError, OSError):
            # Another writer has created it, or the answer was lost.
            if self.load() is None:
                raise

    def history(self, limit: int) -> list[TableCommit]:
        return [
            TableCommit.of(
                commit["version"], commit["timestamp"], commit.get("operation", "?").lower(), commit.get(SUMMARY_KEY)
            )
            for commit in self._open().history(limit)
        ]

    def unreferenced(self, before: datetime) -> list[str]:
        # Delta's vacuum takes whole hours; rounding up is safe.
        age_s = max(0, int((datetime.now(UTC) - before).total_seconds()))
        table = self._open()
        names = table.vacuum(math.ceil(age_s / 3600), dry_run=True, enforce_retention_duration=False, full=True)
        paths = [os.path.join(self.root, name) for name in names]
        old = set(files_before(self.root, (".parquet",), before, self.storage))
        return [path for path in paths if path in old]

    def expire_commits(self, before: datetime) -> None:
        """Do nothing: Delta itself removes commits 30 days after a checkpoint includes them."""

    def _open(self) -> DeltaTable:
        return DeltaTable(self.root, storage_options=self._settings)


class DeltaVersion:
    """One version of a Delta table."""

    def __init__(self, root: str, table: DeltaTable) -> None:
        mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mapping != "none":
            raise TableError(root, f"its column mapping mode is {mapping}, which is not supported")
        self._root = root
        self._table = table
        self.number = table.version()
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
                raise TableError(self._root, f"{deletions} of its files have deletion vectors, which are not supported")
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

    def commit(self, change: TableChange) -> None:
        changes_rows = change.kind is not ChangeKind.REWRITE
        actions: list[Any] = [self._add_action(file, changes_rows) for file in change.added]
        actions += [self._remove_action(file, changes_rows) for file in change.removed]
        metadata = {**change.properties, WRITE_KEY: change.write_id, SUMMARY_KEY: change.summary()}
        transactions = None
        if change.app_id is not None and change.batch_id is not None:
            transactions = [Transaction(change.app_id, change.batch_id, now_ms())]
        properties = CommitProperties(custom_metadata=metadata, max_commit_retries=0, app_transactions=transactions)
        with _commit_errors(self._root):
            self._table.create_write_transaction(
                actions,
                "overwrite" if change.kind is ChangeKind.OVERWRITE else "append",
                self._table.schema(),
                list(self.partition_by),
                commit_properties=properties,
            )

    def has_write(self, write_id: str, since: "DeltaVersion") -> bool:
        newer = self.number - since.number
        return newer > 0 and any(commit.get(WRITE_KEY) == write_id for commit in self._table.history(newer))

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        fields = Schema.from_arrow(pa.schema(columns)).fields
        with _commit_errors(self._root):
            self._table.alter.add_columns(fields, commit_properties=CommitProperties(max_commit_retries=0))

    def _add_action(self, file: DataFile, changes_rows: bool) -> AddAction:
        return AddAction(
            path=relative_to(file.path, self._root),
            size=file.size_bytes,
            partition_values={name: partition_text(value) for name, value in file.partition.items()},
            modification_time=now_ms(),
            data_change=changes_rows,
            stats=json.dumps(statistics(file.footer)),
        )

    def _remove_action(self, file: DataFile, changes_rows: bool) -> RemoveAction:
        return RemoveAction(
            relative_to(file.path, self._root),
            changes_rows,
            now_ms(),
            file.size_bytes,
            {name: partition_text(value) for name, value in file.partition.items()},
        )


@contextmanager
def _commit_errors(root: str) -> Iterator[None]:
    try:
        yield
    except CommitFailedError as error:
        raise CommitConflictError(root) from error
    except DeltaProtocolError:
        raise
    except (DeltaError, OSError) as error:
        raise CommitUnknownError(root, str(error)) from error


def statistics(footer: Any) -> dict[str, Any]:
    """Return Delta's data-skipping statistics from the footer of a Parquet file.

    Floats have no bounds, because Parquet ignores NaN in them and Delta does not; neither have long strings.
    """
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for column in (group.column(number) for group in groups for number in range(group.num_columns)):
        name, stats = column.path_in_schema, column.statistics
        if stats is None or not stats.has_null_count or "." in name:
            unknown.add(name)
            continue
        nulls[name] = nulls.get(name, 0) + stats.null_count
        if stats.has_min_max and _is_bound(stats.min) and _is_bound(stats.max):
            lows[name] = min(stats.min, lows.get(name, stats.min))
            highs[name] = max(stats.max, highs.get(name, stats.max))
        elif stats.null_count < column.num_values:
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
    """Serialize a bound. Delta's timestamps are in milliseconds: lower bounds are rounded down, upper bounds up."""
    if isinstance(value, datetime):
        floor = value.replace(microsecond=value.microsecond // 1000 * 1000)
        rounded = floor + _MILLISECOND if up and floor != value else floor
        return rounded.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
