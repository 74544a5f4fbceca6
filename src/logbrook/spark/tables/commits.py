"""How the files of a write become part of a table, once.

The loop of every commit: load the newest version, look whether the batch is in it, and commit on top of exactly that
version. Whoever comes second starts again, and one of those who compete always gets through.

A batch's id counts up in its query's checkpoint. A query that starts over with a new checkpoint but under an old
`app.id` would find its first batches committed and lose their rows, so the table also remembers which query it was.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from logbrook.spark.tables.errors import CommitConflictError, TableError
from logbrook.spark.tables.format import Change, ChangeKind, DataFile, TableFormat, TableVersion
from logbrook.spark.tables.offsets import OFFSETS_KEY, Offsets, from_json, merge, to_json
from logbrook.spark.tables.writing import delete_files

QUERIES_KEY = "logbrook.queries"
ATTEMPTS_MAX = 100


@dataclass(frozen=True, slots=True)
class Write:
    """The files of one micro-batch, or of one batch query, which has no ids."""

    files: Sequence[DataFile]
    overwrite: bool = False
    app_id: str | None = None
    batch_id: int | None = None
    query_id: str | None = None
    offsets: Offsets = field(default_factory=dict)


def publish(table: TableFormat, write: Write) -> bool:
    """Commit `write` unless its batch is in the table already; says whether it did.

    Raises TableError when the batch was another query's, or when others always come first.
    """
    if not write.files and not write.overwrite:
        return False
    for attempt in range(ATTEMPTS_MAX):
        version = loaded(table)
        if _is_committed(table, version, write):
            # After a failed attempt the files may be those of the commit that was found.
            if attempt == 0:
                delete_files([file.path for file in write.files])
            return False
        kind = ChangeKind.OVERWRITE if write.overwrite else ChangeKind.APPEND
        properties = _properties(version, write)
        try:
            version.commit(
                Change(kind, write.files, app_id=write.app_id, batch_id=write.batch_id, properties=properties)
            )
        except CommitConflictError:
            continue
        return True
    raise TableError(table.root, f"{ATTEMPTS_MAX} times in a row another commit came first")


def loaded(table: TableFormat) -> TableVersion:
    """The newest version of a table that must exist; raises TableError."""
    version = table.load()
    if version is None:
        raise TableError(table.root, "there is no such table")
    return version


def _is_committed(table: TableFormat, version: TableVersion, write: Write) -> bool:
    if write.app_id is None or write.batch_id is None:
        return False
    newest = version.batch_id_of(write.app_id)
    if newest is None or write.batch_id > newest:
        return False
    query_id = json.loads(version.properties().get(QUERIES_KEY, "{}")).get(write.app_id)
    if query_id is not None and query_id != write.query_id:
        raise TableError(
            table.root,
            f"batch {write.batch_id} of app.id {write.app_id!r} is in it, but by the query {query_id}, so that this "
            f"query {write.query_id} with another checkpoint needs another app.id",
        )
    return True


def _properties(version: TableVersion, write: Write) -> dict[str, str]:
    """What holds of the table with the write in it; an overwrite starts anew."""
    before = version.properties()
    properties = {} if write.overwrite else dict(before)
    if QUERIES_KEY in before:
        properties[QUERIES_KEY] = before[QUERIES_KEY]
    if write.app_id is not None and write.query_id not in (None, write.app_id):
        queries = json.loads(properties.get(QUERIES_KEY, "{}")) | {write.app_id: write.query_id}
        properties[QUERIES_KEY] = json.dumps(queries, sort_keys=True)
    if write.offsets:
        properties[OFFSETS_KEY] = to_json(merge([from_json(properties.get(OFFSETS_KEY)), write.offsets]))
    return properties
