"""What a table format must be able to do; `formats` has one module for each.

A `TableVersion` is the table as it was when it was loaded. It is never refreshed: a commit succeeds only on top of the
version that was loaded, so that whatever the caller has concluded from that version still holds when the commit lands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa

from logbrook.spark.tables.partitions import PartitionValue

# Every property of a commit starts so, which tells them from what the formats add by themselves.
PROPERTY_PREFIX = "logbrook."
# A fresh id in every commit of a Change; a commit that has it says which properties are the newest.
WRITE_KEY = "logbrook.write"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file, and what a commit must know of it."""

    path: str
    size_bytes: int
    rows: int
    partition: Mapping[str, PartitionValue]
    # Parquet's own footer with the columns' statistics; only a file that was just written has it.
    footer: Any = field(default=None, compare=False, repr=False)


class ChangeKind(Enum):
    APPEND = "append"
    # All rows that were there go.
    OVERWRITE = "overwrite"
    # The rows stay, in other files.
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class Change:
    """One commit. An overwrite removes all files without naming them."""

    kind: ChangeKind
    added: Sequence[DataFile]
    removed: Sequence[DataFile] = ()
    app_id: str | None = None
    batch_id: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


class TableVersion(Protocol):
    """One version of a table."""

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""

    @property
    def file_schema(self) -> pa.Schema:
        """The same columns as a file shall have them, with whatever the format keeps in their metadata."""

    @property
    def partition_by(self) -> tuple[str, ...]: ...

    def batch_id_of(self, app_id: str) -> int | None:
        """The newest batch of this writer that is in the table, None for none."""

    def properties(self) -> dict[str, str]:
        """The properties of the newest Change, empty for none."""

    def data_files(self) -> list[DataFile]:
        """The files that make up the table; raises TableError when files alone do not say what its rows are."""

    def commit(self, change: Change) -> None:
        """Publish `change` on top of this version; raises CommitConflictError when it is not the newest any more."""

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Add columns that may be null; raises CommitConflictError as `commit` does."""


class TableFormat(Protocol):
    """A table in the directory `root`, whether it exists or not."""

    root: str
    # Where files go; the directories of partitions are below it.
    data_directory: str
    # Whether a file holds the columns too by which its directory is named.
    partition_columns_in_files: bool
    # Whether there are integers of 8 and 16 bits.
    small_integers: bool

    def load(self) -> TableVersion | None:
        """The newest version, None when there is no table."""

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Create the table without rows, unless another was quicker."""

    def unreferenced(self, before: datetime) -> list[str]:
        """Files that no commit needs which is newer than `before`; only such as have not changed since then."""

    def forget(self, before: datetime) -> None:
        """Drop the commits that `unreferenced` has left out of account, where the format keeps them."""
