"""The options of the format `logbrook_table`.

A table lies in a directory of a file system that every executor sees, because its commits need a link that fails when
the name exists.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, urlsplit

from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader

FILE_BYTES_DEFAULT = 128 << 20
TABLE_FORMATS = ("delta", "iceberg", "parquet")
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclass(frozen=True, slots=True)
class IcebergOptions:
    """Where the table's name is kept: in a catalog that pyiceberg's configuration names, else beside the table."""

    catalog: str | None = None
    namespace: str = "logbrook"
    table: str = "table"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What one reader or writer was asked for."""

    path: str
    table_format: str | None = None
    partition_by: tuple[str, ...] = ()
    file_bytes: int = FILE_BYTES_DEFAULT
    compression: str = "zstd"
    app_id: str | None = None
    add_columns: bool = False
    track_offsets: bool = False
    checkpoint: str | None = None
    iceberg: IcebergOptions = IcebergOptions()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Raises OptionError for whatever is unknown or does not make sense."""
        read = OptionReader(options)
        file_bytes = read.integer("file.bytes", FILE_BYTES_DEFAULT, at_least=1)
        assert file_bytes is not None
        parsed = cls(
            path=local_path(read.required("path")),
            table_format=read.choice("table.format", TABLE_FORMATS, "") or None,
            partition_by=_names(read, "partition.by"),
            file_bytes=file_bytes,
            compression=read.choice("compression", COMPRESSIONS, "zstd"),
            app_id=read.text("app.id"),
            add_columns=read.choice("schema.evolution", ("none", "add"), "none") == "add",
            track_offsets=read.choice("source.offsets", ("none", "auto"), "none") == "auto",
            checkpoint=read.text("checkpointLocation"),
            iceberg=IcebergOptions(
                catalog=read.text("iceberg.catalog"),
                namespace=read.text("iceberg.namespace") or IcebergOptions().namespace,
                table=read.text("iceberg.table") or IcebergOptions().table,
            ),
        )
        read.finish()
        return parsed


def local_path(text: str) -> str:
    """The absolute path that `text` or its `file:` URI means; raises OptionError for another scheme."""
    parts = urlsplit(text)
    if parts.scheme == "file":
        return os.path.normpath(unquote(parts.path))
    if "://" in text:
        raise OptionError("path", f"a table lies in a directory that every executor sees, which {text!r} is not")
    return os.path.abspath(text)


def _names(read: OptionReader, name: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in (read.text(name) or "").split(",") if part.strip())
    if len(set(names)) < len(names):
        raise OptionError(name, "it names a column twice")
    return names
