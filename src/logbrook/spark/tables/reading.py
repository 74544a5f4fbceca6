"""How the rows of a table's files are read without Spark's own reader."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from logbrook.spark.tables.format import DataFile
from logbrook.spark.tables.schema import conform

BATCH_ROWS = 65_536


def read_file(file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of `file` in the columns of `schema`.

    A column that the file does not have is its partition's value, or null if the table was not partitioned by it: the
    file is then older than the column.
    """
    with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as parquet:
        present = set(parquet.schema_arrow.names)
        # A file without any of the columns still has to say how many rows it has.
        columns = [name for name in schema.names if name in present] or parquet.schema_arrow.names[:1]
        constants = [field for field in schema if field.name not in present and field.name in file.partition]
        for batch in parquet.iter_batches(BATCH_ROWS, columns=columns):
            scalars = (pa.scalar(file.partition[field.name], field.type) for field in constants)
            arrays = [*batch.columns, *(pa.repeat(scalar, batch.num_rows) for scalar in scalars)]
            names = [*batch.schema.names, *(field.name for field in constants)]
            yield conform(pa.RecordBatch.from_arrays(arrays, names=names), schema)
