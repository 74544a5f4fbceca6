"""Merge of the changes of a batch into a table version: which data files to add and which to remove (copy on write).

Tasks write changes to Parquet files that no commit references. The driver reads the key and order columns of these
files, keeps the newest change of each key, looks its key up in the data files that can contain it, and rewrites the
files in which a row is replaced or deleted. All other columns are streamed from file to file, so memory grows with the
keys of a batch and not with its rows.

A data file is skipped by its partition values and by the column statistics of its footer. Changes that are spread over
all keys therefore rewrite most of a table: partition it by a part of the key, or use larger batches.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logbrook.spark.errors import TableError
from logbrook.spark.tables.files import TableFileWriter, column_bounds, read_file
from logbrook.spark.tables.format import DataFile, TableFormat, TableVersion
from logbrook.spark.tables.storage import TableStorage
from logbrook.spark.tables.upsert import UpsertRules, offset_columns

# Columns of a key table besides those of keys and order, which are named by position and so cannot collide with these.
_ROW, _DELETED, _CHANGE = "row", "deleted", "change"
_STORED = "stored_"
# Rows of data files that are looked up at a time.
LOOK_UP_ROWS = 4_000_000

RowMask: TypeAlias = NDArray[np.bool_]

_BOUNDED_TYPES = (pa.types.is_signed_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_timestamp)


@dataclass(frozen=True, slots=True)
class UpsertWrite:
    """Rules for merging the changes of a batch. `skips_applied` drops those below the table's source offsets."""

    rules: UpsertRules
    file_bytes: int
    compression: str
    skips_applied: bool = False


@dataclass(frozen=True, slots=True)
class MergedFiles:
    """Result of a merge. The removed files contain every row that is replaced or deleted."""

    added: list[DataFile] = field(default_factory=list)
    removed: list[DataFile] = field(default_factory=list)


def merge_changes(
    table: TableFormat,
    version: TableVersion,
    changes: Sequence[DataFile],
    upsert: UpsertWrite,
    applied: Mapping[str, Mapping[int, int]],
) -> MergedFiles:
    """Write the data files that `version` needs so that it has the changes. Nothing is committed.

    Raises TableError for a change without a key, and for two changes of a key of which neither is newer. On any
    exception the new files are deleted.
    """
    merge = _Merge(table, version, upsert)
    newest = merge.newest_changes(changes, applied if upsert.skips_applied else {})
    if newest.num_rows == 0:
        return MergedFiles()
    replaced: list[tuple[DataFile, RowMask]] = []
    is_stale = np.zeros(newest.num_rows, dtype=bool)
    for files in _groups(file for file in version.data_files() if merge.may_contain(file, newest)):
        masks, stale = merge.look_up(files, newest)
        is_stale[stale] = True
        replaced += [(file, kept) for file, kept in zip(files, masks, strict=True) if not kept.all()]
    inserted = newest.filter(pc.and_(pc.invert(newest[_DELETED]), pa.array(~is_stale)))[_ROW].to_numpy()
    added = merge.write(_rows(replaced, changes, inserted, version.file_schema, table.storage))
    return MergedFiles(added, [file for file, _ in replaced])


class _Merge:
    """The merge into one version of a table."""

    def __init__(self, table: TableFormat, version: TableVersion, upsert: UpsertWrite) -> None:
        self._table = table
        self._version = version
        self._upsert = upsert
        self._schema = version.schema
        rules = upsert.rules
        self._order = rules.row_order(self._schema.names)
        self._names = {name: f"k{number}" for number, name in enumerate(rules.keys)}
        applied = offset_columns(self._schema.names) if upsert.skips_applied else ()
        for number, name in enumerate((*self._order.all_columns, *applied)):
            # A key that is also an order column is equal in all rows that are compared.
            self._names.setdefault(name, f"o{number}")
        self._keys = [self._names[name] for name in rules.keys]

    def newest_changes(self, files: Sequence[DataFile], applied: Mapping[str, Mapping[int, int]]) -> pa.Table:
        """Return the newest change of each key, with its row number over all `files`. Raises TableError."""
        changes = self._without_applied(self._key_table(files)[0], applied)
        self._check_keys(changes)
        newest = self._newest(changes)
        return newest.append_column(_CHANGE, pa.array(np.arange(newest.num_rows)))

    def may_contain(self, file: DataFile, newest: pa.Table) -> bool:
        """Return False if no key of `newest` can be in `file`."""
        for name in self._upsert.rules.keys:
            values, kind = newest[self._names[name]], self._schema.field(name).type
            if name in file.partition:
                low = high = file.partition[name]
            elif any(is_bounded(kind) for is_bounded in _BOUNDED_TYPES) and (bounds := self._bounds(file, name)):
                low, high = bounds
            else:
                continue
            if low is None or high is None:
                return False
            is_inside = pc.and_(
                pc.greater_equal(values, pa.scalar(low, kind)), pc.less_equal(values, pa.scalar(high, kind))
            )
            if not pc.any(is_inside).as_py():
                return False
        return True

    def _bounds(self, file: DataFile, name: str) -> tuple[Any, Any] | None:
        return column_bounds(file, name, self._table.storage)

    def look_up(self, files: Sequence[DataFile], newest: pa.Table) -> tuple[list[RowMask], NDArray[np.int64]]:
        """Return a mask of the rows of each file that remain, and the changes that are older than a row of them."""
        stored, ends = self._key_table(files)
        kept = np.ones(stored.num_rows, dtype=bool)
        others = [name for name in stored.column_names if name not in (*self._keys, _DELETED)]
        stored = stored.select([*self._keys, *others]).rename_columns(
            [*self._keys, *(f"{_STORED}{name}" for name in others)]
        )
        matches = stored.join(newest.drop_columns([_ROW, _DELETED]), self._keys, join_type="inner")
        is_older = self._is_older(matches)
        kept[matches.filter(pc.invert(is_older))[f"{_STORED}{_ROW}"].to_numpy()] = False
        return np.split(kept, ends[:-1]), matches.filter(is_older)[_CHANGE].to_numpy()

    def write(self, rows: Iterator[pa.RecordBatch]) -> list[DataFile]:
        writer = TableFileWriter(
            self._table.data_directory,
            self._version.file_schema,
            self._version.partition_by,
            partition_columns_in_files=self._table.partition_columns_in_files,
            file_bytes=self._upsert.file_bytes,
            compression=self._upsert.compression,
            storage=self._table.storage,
        )
        try:
            for batch in rows:
                writer.write(batch)
            return writer.finish()
        except BaseException:
            writer.discard()
            raise

    def _key_table(self, files: Sequence[DataFile]) -> tuple[pa.Table, list[int]]:
        """Return the key and order columns of all rows, deletes marked, rows numbered; and where each file ends."""
        delete = self._upsert.rules.delete
        columns = pa.schema([self._schema.field(name) for name in self._names])
        if delete is not None:
            columns = columns.append(pa.field(delete, pa.bool_()))
        batches: list[pa.RecordBatch] = []
        ends: list[int] = []
        for file in files:
            rows = ends[-1] if ends else 0
            for batch in read_file(file, columns, self._table.storage):
                batches.append(batch)
                rows += batch.num_rows
            ends.append(rows)
        table = pa.Table.from_batches(batches, schema=columns)
        is_delete = pc.fill_null(table[delete], False) if delete is not None else pa.repeat(False, table.num_rows)
        keys = pa.table([table[name] for name in self._names], names=list(self._names.values()))
        return keys.append_column(_DELETED, is_delete).append_column(_ROW, pa.array(np.arange(table.num_rows))), ends

    def _without_applied(self, changes: pa.Table, applied: Mapping[str, Mapping[int, int]]) -> pa.Table:
        topic, partition, offset = (self._names.get(name) for name in offset_columns(self._schema.names))
        for name, partitions in applied.items():
            for number, next_offset in partitions.items():
                is_applied = pc.and_(pc.equal(changes[topic], name), pc.equal(changes[partition], number))
                is_applied = pc.and_(is_applied, pc.less(changes[offset], next_offset))
                changes = changes.filter(pc.invert(pc.fill_null(is_applied, False)))
        return changes

    def _check_keys(self, changes: pa.Table) -> None:
        for name in self._upsert.rules.keys:
            values = changes[self._names[name]]
            is_missing = pc.is_null(values)
            is_in_path = name in self._version.partition_by and not self._table.partition_columns_in_files
            if is_in_path and pa.types.is_string(values.type):
                # Delta stores an empty string in a partition column as null.
                is_missing = pc.or_(is_missing, pc.fill_null(pc.equal(values, ""), False))
            missing = pc.sum(is_missing).as_py()
            if missing:
                reason = f"{missing} rows of the batch have no value in key column {name!r}; filter them out before"
                raise TableError(self._table.root, reason)

    def _newest(self, changes: pa.Table) -> pa.Table:
        order, names = self._order, self._names
        if not order.columns:
            newest = _last_of_each(changes, self._keys, [])
            if newest.num_rows < changes.num_rows:
                double = changes.num_rows - newest.num_rows
                reason = f"{double} keys are in the batch more than once; upsert.order must say which row is the newest"
                raise TableError(self._table.root, reason)
            return newest
        origin = [names[name] for name in order.origin]
        newest = _last_of_each(changes, [*self._keys, *origin], [names[name] for name in order.columns])
        if origin:
            newest = _last_of_each(newest, self._keys, [*(names[name] for name in order.between), *origin])
        return newest

    def _is_older(self, matches: pa.Table) -> pa.ChunkedArray:
        """Return for each match if its change is older than the stored row."""
        is_older = pa.chunked_array([pa.repeat(False, matches.num_rows)])
        is_equal = pa.chunked_array([pa.repeat(True, matches.num_rows)])
        for name in self._compared(self._order.columns):
            change, stored = matches[name], matches[f"{_STORED}{name}"]
            is_less = pc.or_(
                pc.fill_null(pc.less(change, stored), False), pc.and_(pc.is_null(change), pc.is_valid(stored))
            )
            is_older = pc.or_(is_older, pc.and_(is_equal, is_less))
            is_equal = pc.and_(is_equal, _is_same(change, stored))
        for name in self._compared(self._order.origin):
            is_older = pc.and_(is_older, _is_same(matches[name], matches[f"{_STORED}{name}"]))
        return is_older

    def _compared(self, names: Sequence[str]) -> list[str]:
        return [self._names[name] for name in names if name not in self._upsert.rules.keys]


def _last_of_each(table: pa.Table, by: Sequence[str], order: Sequence[str]) -> pa.Table:
    """Return the last row of each group after a sort by `order`; null sorts first."""
    if order:
        # Sort by validity first: how to place nulls is said differently in each release of pyarrow.
        columns = {f"{name}_is_valid": pc.is_valid(table[name]) for name in order if table[name].null_count}
        columns |= {name: table[name] for name in order}
        names = [name for column in order for name in (f"{column}_is_valid", column) if name in columns]
        keys = [(name, "ascending") for name in names]
        table = table.take(pc.sort_indices(pa.table(columns), sort_keys=keys))
    by = list(dict.fromkeys(by))
    positions = table.select(by).append_column("position", pa.array(np.arange(table.num_rows)))
    last = positions.group_by(by).aggregate([("position", "max")])
    return table.take(last["position_max"])


def _is_same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(pc.fill_null(pc.equal(left, right), False), both_null)


def _groups(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Group files to be looked up together: each look-up builds a hash table of all changes."""
    group: list[DataFile] = []
    rows = 0
    for file in files:
        if group and rows + file.rows > LOOK_UP_ROWS:
            yield group
            group, rows = [], 0
        group.append(file)
        rows += file.rows
    if group:
        yield group


def _rows(
    replaced: Sequence[tuple[DataFile, RowMask]],
    changes: Sequence[DataFile],
    inserted: NDArray[np.int64],
    schema: pa.Schema,
    storage: TableStorage,
) -> Iterator[pa.RecordBatch]:
    """Yield the remaining rows of the replaced files, then the inserted rows of the changes."""
    for file, kept in replaced:
        yield from _masked(file, kept, schema, storage)
    is_inserted = np.zeros(sum(file.rows for file in changes), dtype=bool)
    is_inserted[inserted] = True
    ends = np.cumsum([file.rows for file in changes])
    for file, mask in zip(changes, np.split(is_inserted, ends[:-1]), strict=True):
        if mask.any():
            yield from _masked(file, mask, schema, storage)


def _masked(file: DataFile, mask: RowMask, schema: pa.Schema, storage: TableStorage) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in read_file(file, schema, storage):
        yield batch.filter(pa.array(mask[start : start + batch.num_rows]))
        start += batch.num_rows
