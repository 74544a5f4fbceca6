"""Tidying a table: small files into larger ones, and files that no commit needs off the disk.

Both are safe beside writers. A compaction commits only if every file that it has read is still part of the table, and a
clean-up leaves alone what is younger than any write that may still be going on.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from logbrook.spark.tables.commits import ATTEMPTS_MAX, loaded
from logbrook.spark.tables.errors import CommitConflictError, TableError
from logbrook.spark.tables.format import Change, ChangeKind, DataFile, TableFormat, TableVersion
from logbrook.spark.tables.formats import open_format
from logbrook.spark.tables.options import FILE_BYTES_DEFAULT, TableOptions
from logbrook.spark.tables.reading import read_file
from logbrook.spark.tables.writing import TableFileWriter, delete_files

OLDER_THAN_DEFAULT = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class CompactResult:
    """How many files became how many; zeros when there was nothing to do."""

    files_removed: int = 0
    files_added: int = 0
    bytes_removed: int = 0
    bytes_added: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The files that no commit needs, and whether they are deleted or only named."""

    files: tuple[str, ...]
    size_bytes: int
    deleted: bool


def compact(
    path: str,
    *,
    file_bytes: int = FILE_BYTES_DEFAULT,
    compression: str = "zstd",
    options: Mapping[str, str] | None = None,
) -> CompactResult:
    """Rewrite the files of each partition that are smaller than `file_bytes` into as few as that size allows.

    `options` are those of `logbrook_table` that it takes to find the table. Raises TableError when another has removed
    or rewritten one of the files meanwhile; nothing is changed then.
    """
    table = open_format(TableOptions.parse({**(options or {}), "path": path}))
    version = loaded(table)
    groups = small_groups(version.data_files(), file_bytes)
    removed = [file for group in groups for file in group]
    if not removed:
        return CompactResult()
    added = _rewrite(table, version, groups, file_bytes, compression)
    rows = sum(file.rows for file in added)
    try:
        _replace(table, removed, added)
    except TableError:
        delete_files([file.path for file in added])
        raise
    return CompactResult(
        len(removed),
        len(added),
        sum(file.size_bytes for file in removed),
        sum(file.size_bytes for file in added),
        rows,
    )


def vacuum(
    path: str,
    older_than: timedelta = OLDER_THAN_DEFAULT,
    *,
    dry_run: bool = True,
    options: Mapping[str, str] | None = None,
) -> VacuumResult:
    """Name the files that no commit of the last `older_than` needs and that are older themselves, or delete them.

    `older_than` must be longer than any write takes and any query reads. Delta rounds it up to whole hours; Iceberg's
    older snapshots are dropped, save those that say what has been committed.
    """
    table = open_format(TableOptions.parse({**(options or {}), "path": path}))
    loaded(table)
    before = datetime.now(UTC) - older_than
    files = sorted(table.unreferenced(before))
    size_bytes = sum(os.path.getsize(file) for file in files)
    if not dry_run:
        table.forget(before)
        delete_files(files)
    return VacuumResult(tuple(files), size_bytes, deleted=not dry_run)


def small_groups(files: Sequence[DataFile], file_bytes: int) -> list[list[DataFile]]:
    """The files to rewrite together: of one partition, each smaller than `file_bytes`, and at least two.

    A group is about as large as one file should be, so that a file which a compaction has made is left alone by the
    next one. They are in the order of their size: that keeps equal ones together.
    """
    by_partition: dict[tuple[object, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        # What is nearly large enough would be rewritten for next to nothing.
        if file.size_bytes < file_bytes * 3 // 4:
            by_partition[tuple(file.partition.values())].append(file)
    groups = []
    for partition in by_partition.values():
        group: list[DataFile] = []
        for file in sorted(partition, key=lambda each: each.size_bytes):
            if group and sum(each.size_bytes for each in group) + file.size_bytes > file_bytes:
                groups.append(group)
                group = []
            group.append(file)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def _rewrite(
    table: TableFormat, version: TableVersion, groups: Sequence[Sequence[DataFile]], file_bytes: int, compression: str
) -> list[DataFile]:
    """The files that hold what those of `groups` hold."""
    added: list[DataFile] = []
    try:
        for group in groups:
            writer = TableFileWriter(
                table.data_directory,
                version.file_schema,
                version.partition_by,
                partition_columns_in_files=table.partition_columns_in_files,
                file_bytes=file_bytes,
                compression=compression,
            )
            try:
                for file in group:
                    for batch in read_file(file, version.file_schema):
                        writer.write(batch)
                written = writer.finish()
            except BaseException:
                writer.discard()
                raise
            added += written
            assert sum(file.rows for file in written) == sum(file.rows for file in group), "rows were lost"
    except BaseException:
        delete_files([file.path for file in added])
        raise
    return added


def _replace(table: TableFormat, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
    gone = {file.path for file in removed}
    for _ in range(ATTEMPTS_MAX):
        version = loaded(table)
        missing = gone - {file.path for file in version.data_files()}
        if missing:
            raise TableError(table.root, f"{len(missing)} files were removed by another while they were compacted")
        try:
            version.commit(Change(ChangeKind.REWRITE, added, removed, properties=version.properties()))
        except CommitConflictError:
            continue
        return
    raise TableError(table.root, f"{ATTEMPTS_MAX} times in a row another commit came first")
