"""The table formats, each imported only when a table of it is opened."""

import os
from importlib import import_module

from logbrook.spark.errors import OptionError
from logbrook.spark.tables.format import TableFormat
from logbrook.spark.tables.options import IcebergOptions, TableOptions

_CLASSES = {
    "delta": ("logbrook.spark.tables.formats.delta", "DeltaFormat"),
    "iceberg": ("logbrook.spark.tables.formats.iceberg", "IcebergFormat"),
    "parquet": ("logbrook.spark.tables.formats.parquet", "ParquetFormat"),
}
# The directory by which a table of each format is known.
_LOG_DIRECTORIES = {"delta": "_delta_log", "iceberg": "metadata", "parquet": "_manifests"}


def open_format(options: TableOptions) -> TableFormat:
    """The format of the table at the options' path, else the one that is asked for, else Delta.

    Raises OptionError when another format is asked for than the table has.
    """
    found = format_at(options.path)
    if found and options.table_format and found != options.table_format:
        raise OptionError("table.format", f"{options.path!r} is a table of format {found}, not {options.table_format}")
    chosen = found or options.table_format or "delta"
    if chosen != "iceberg" and options.iceberg != IcebergOptions():
        raise OptionError("table.format", f"{options.path!r} is of format {chosen}, which has no options of Iceberg")
    module, name = _CLASSES[chosen]
    opened: TableFormat = getattr(import_module(module), name)(options)
    return opened


def format_at(path: str) -> str | None:
    """The format of the table at `path`, None when there is none."""
    for name, directory in _LOG_DIRECTORIES.items():
        if os.path.isdir(os.path.join(path, directory)):
            return name
    return None
