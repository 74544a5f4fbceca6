"""Table maintenance: compaction of small files, deletion of unreferenced files (vacuum), and the list of commits.

The first two are safe with concurrent writers. A compaction commits only if every file it has read is still part of the
table. Vacuum deletes only files older than `older_than`, which must exceed the duration of any write or query.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from logbrook.spark.errors import CommitConflictError, CommitUnknownError, TableChangedError, TableError
from logbrook.spark.tables.commits import ATTEMPTS_MAX, commit_change, load_existing
from logbrook.spark.tables.files import delete_files, read_file
from logbrook.spark.tables.format import (
    FILE_BYTES_DEFAULT,
    ChangeKind,
    DataFile,
    TableChange,
    TableCommit,
    TableFormat,
    TableOptions,
    TableVersion,
    open_format,
)
from logbrook.spark.tables.source import WritePlan

OLDER_THAN_DEFAULT = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class CompactResult:
    """Counts of a compaction; all zero if there was nothing to compact."""

    files_removed: int = 0
    files_added: int = 0
    bytes_removed: int = 0
    bytes_added: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The unreferenced files. `deleted` is False after a dry run."""

    files: tuple[str, ...]
    size_bytes: int
    deleted: bool


def compact(
    path: str,
    *,
    file_bytes: int = FILE_BYTES_DEFAULT,
    compression: str = "zstd",
    options: Mapping[str, str] | None = None,
    on_progress: Callable[[int, int], None] = lambda _files, _of: None,
) -> CompactResult:
    """Merge the files of each partition that are smaller than `file_bytes` into files of about that size.

    `options` are those of `logbrook_table` needed to open the table. `on_progress` is called with the number of files
    read so far and in all. Raises TableChangedError, without a change, if another writer has removed or rewritten one
    of the files meanwhile.
    """
    table = open_format(TableOptions.parse({**(options or {}), "path": path}))
    version = load_existing(table)
    groups = compaction_groups(version.data_files(), file_bytes)
    removed = [file for group in groups for file in group]
    if not removed:
        return CompactResult()
    added = _rewrite(table, version, _with_progress(groups, on_progress), file_bytes, compression)
    rows = sum(file.rows for file in added)
    try:
        _replace(table, removed, added)
    except CommitUnknownError:
        # The files may be part of the table.
        raise
    except TableError:
        delete_files([file.path for file in added], table.storage)
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
    """List, or delete unless `dry_run`, files older than `older_than` that no commit of that period references.

    `older_than` must be longer than any write or query takes. Delta rounds it up to whole hours. Older Iceberg
    snapshots are expired, except the one that holds the committed batch ids.
    """
    table = open_format(TableOptions.parse({**(options or {}), "path": path}))
    load_existing(table)
    before = datetime.now(UTC) - older_than
    files = sorted(table.unreferenced(before))
    sizes = {file.path: file.size_bytes for file in table.storage.files(table.root)} if files else {}
    size_bytes = sum(sizes.get(file, 0) for file in files)
    if not dry_run:
        table.expire_commits(before)
        delete_files(files, table.storage)
    return VacuumResult(tuple(files), size_bytes, deleted=not dry_run)


def history(path: str, limit: int = 20, options: Mapping[str, str] | None = None) -> list[TableCommit]:
    """Return the last commits of a table, newest first. Raises TableError if there is no such table."""
    table = open_format(TableOptions.parse({**(options or {}), "path": path}))
    load_existing(table)
    return table.history(limit)


def compaction_groups(files: Sequence[DataFile], file_bytes: int) -> list[list[DataFile]]:
    """Return groups of at least two small files of one partition, each group about `file_bytes` in total.

    A compacted file is thus left alone by the next compaction. Files are grouped in order of size, so that similar
    sizes stay together.
    """
    by_partition: dict[tuple[object, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        # Rewriting a file that is almost large enough gains little.
        if file.size_bytes < file_bytes * 3 // 4:
            by_partition[tuple(file.partition.values())].append(file)
    groups = []
    for partition in by_partition.values():
        group: list[DataFile] = []
        for file in sorted(partition, key=lambda file: file.size_bytes):
            if group and sum(grouped.size_bytes for grouped in group) + file.size_bytes > file_bytes:
                groups.append(group)
                group = []
            group.append(file)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def _with_progress(
    groups: Sequence[Sequence[DataFile]], on_progress: Callable[[int, int], None]
) -> Iterator[Sequence[DataFile]]:
    files, of = 0, sum(map(len, groups))
    for group in groups:
        yield group
        files += len(group)
        on_progress(files, of)


def _rewrite(
    table: TableFormat, version: TableVersion, groups: Iterable[Sequence[DataFile]], file_bytes: int, compression: str
) -> list[DataFile]:
    """Write the rows of `groups` to new files; delete them again if that fails."""
    plan = WritePlan(
        directory=table.data_directory,
        schema=version.file_schema,
        partition_by=version.partition_by,
        partition_columns_in_files=table.partition_columns_in_files,
        file_bytes=file_bytes,
        compression=compression,
        track_offsets=False,
    )
    added: list[DataFile] = []
    try:
        for group in groups:
            rows = (batch for file in group for batch in read_file(file, plan.schema, table.storage))
            written = plan.run(rows, table.storage).files
            added += written
            assert sum(file.rows for file in written) == sum(file.rows for file in group), "rows were lost"
    except BaseException:
        delete_files([file.path for file in added], table.storage)
        raise
    return added


def _replace(table: TableFormat, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
    removed_paths = {file.path for file in removed}
    for _ in range(ATTEMPTS_MAX):
        version = load_existing(table)
        missing = removed_paths - {file.path for file in version.data_files()}
        if missing:
            raise TableChangedError(table.root, len(missing))
        try:
            change = TableChange(ChangeKind.REWRITE, added, removed, properties=version.properties())
            commit_change(table, version, change)
        except CommitConflictError:
            continue
        return
    raise TableError(table.root, f"{ATTEMPTS_MAX} attempts to commit failed because other commits came first")
