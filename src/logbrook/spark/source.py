"""The format `logbrook`: `spark.read.format("logbrook")`, `readStream`, `write` and `writeStream`."""

import sys
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from logbrook.spark.batch_reader import FilteringTopicReader, TopicReader
from logbrook.spark.options import OptionReader
from logbrook.spark.read_options import ReadOptions, read_columns, read_options, read_value_format
from logbrook.spark.schema import columns_of, json_schema, spark_schema, value_schema_of

# Spark loads it where filters are pushed down, and nowhere else. With that switched off, a reader that could take
# filters would be refused, even for a query that has none.
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class LogbrookDataSource(DataSource):
    """Topics of Logbrook, or of any cluster that speaks Kafka's protocol."""

    @classmethod
    def name(cls) -> str:
        return "logbrook"

    def schema(self) -> StructType | str:
        options = OptionReader(self._texts)
        columns = read_columns(options)
        is_json, value_schema = read_value_format(options)
        return json_schema(columns, value_schema) if is_json and "value" in columns else spark_schema(columns)

    def reader(self, schema: StructType) -> TopicReader:
        options = self._read_options(schema, is_batch=True)
        kind = FilteringTopicReader if _PUSHDOWN_WORKER in sys.modules else TopicReader
        return kind(options, columns_of(schema, is_json=options.is_json))

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        from logbrook.spark.stream_reader import TopicStreamReader  # noqa: PLC0415

        options = self._read_options(schema, is_batch=False)
        return TopicStreamReader(options, columns_of(schema, is_json=options.is_json))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from logbrook.spark.writer import batch_writer  # noqa: PLC0415

        return batch_writer(self._texts, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        from logbrook.spark.writer import stream_writer  # noqa: PLC0415

        return stream_writer(self._texts, schema, overwrite)

    def _read_options(self, schema: StructType, *, is_batch: bool) -> ReadOptions:
        return read_options(self._texts, is_batch=is_batch)._replace(value_schema=value_schema_of(schema))

    @property
    def _texts(self) -> dict[str, str]:
        return dict(self.options)
