"""Whether a table takes the rows of a view, found out without writing anything."""

import os
from collections.abc import Mapping

from pyspark.sql.types import StructType

from logbrook.spark.errors import OptionError
from logbrook.spark.tables.formats import open_format
from logbrook.spark.tables.options import TableOptions
from logbrook.spark.tables.partitions import check_partition_columns
from logbrook.spark.tables.schema import missing_columns, stored_schema


def check_table(options: Mapping[str, str], rows: StructType) -> None:
    """Raises TableError or OptionError where the writer of the table would."""
    parsed = TableOptions.parse(options)
    table = open_format(parsed)
    stored = stored_schema(rows, table.root, small_integers=table.small_integers)
    # To open the catalog of a table is to create it, so only one that is there is looked at.
    version = table.load() if os.path.isdir(table.root) else None
    if version is None:
        check_partition_columns(stored, parsed.partition_by, table.root)
        return
    if parsed.partition_by and parsed.partition_by != version.partition_by:
        present = ",".join(version.partition_by) or "nothing"
        raise OptionError("partition.by", f"table {table.root!r} is partitioned by {present}")
    missing_columns(rows, stored, version.schema, table.root, add=parsed.add_columns)
