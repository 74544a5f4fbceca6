"""Values of megabytes, in a JVM of the default size, one gigabyte."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from logbrook import Broker
from logbrook.spark.headers import without_null_headers
from logbrook.spark.session_settings import ARROW_BYTES_MAX, ARROW_ROWS_MAX

HEADERS = "cast(null AS array<struct<key: string, value: binary>>) AS headers"
TOTALS = ("count(*)", "sum(length(value))")
# More than the JVM has, if a task sent all its rows to Python at once.
TOTAL_BYTES = 400_000_000


# test_batches_from_spark_are_limited_in_rows_and_bytes has the rule that keeps such values from exhausting the memory.
@pytest.mark.long
@pytest.mark.parametrize("value_bytes", [1_000_000, 10_000_000])
def test_large_values_go_through_topics_and_tables(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, value_bytes: int
) -> None:
    heap_bytes = spark.sparkContext._jvm.Runtime.getRuntime().maxMemory()  # type: ignore[union-attr]
    assert heap_bytes <= 1 << 30
    for name in (topic, f"{topic}-copy"):
        broker.create_topic(name, 2, {"max.message.bytes": str(2 * value_bytes)})
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    limits = {"max.request.size": str(2 * value_bytes), "compression": "zstd"}
    count = TOTAL_BYTES // value_bytes
    rows = spark.range(count, numPartitions=2).selectExpr(f"repeat('x', {value_bytes}) AS value", HEADERS)
    rows.write.format("logbrook").options(**servers, **limits, topic=topic).mode("append").save()
    source = spark.read.format("logbrook").options(**servers, subscribe=topic, includeHeaders="true").load()
    table = str(tmp_path / "table")
    source.write.format("logbrook_table").mode("append").save(table)
    stored = spark.read.format("logbrook_table").load(table).select("value", "headers")
    stored.write.format("logbrook").options(**servers, **limits, topic=f"{topic}-copy").mode("append").save()
    copy = spark.read.format("logbrook").options(**servers, subscribe=f"{topic}-copy").load()
    assert tuple(copy.selectExpr(*TOTALS).first() or ()) == (count, count * value_bytes)


def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "bytes": [batch.nbytes]})


@pytest.mark.parametrize(("count", "value_bytes"), [(5_000, 10), (300, 1_000_000)])
def test_batches_from_spark_are_limited_in_rows_and_bytes(spark: SparkSession, count: int, value_bytes: int) -> None:
    """Rows without headers take time in proportion to the square of the rows in a batch."""
    rows = spark.range(count, numPartitions=1).selectExpr(f"repeat('x', {value_bytes}) AS value", HEADERS)
    batches = rows.mapInArrow(sizes, "rows long, bytes long").collect()
    assert sum(batch.rows for batch in batches) == count
    assert max(batch.rows for batch in batches) <= ARROW_ROWS_MAX
    assert max(batch.bytes for batch in batches) <= ARROW_BYTES_MAX + 2 * value_bytes
    assert len(batches) <= 2 * max(count / ARROW_ROWS_MAX, count * value_bytes / ARROW_BYTES_MAX) + 1


def test_the_topic_sink_of_pipelines_and_replays_gets_empty_headers_instead_of_null(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr("'v' AS value", HEADERS, "id")
    assert without_null_headers(rows).first() == ("v", [], 0)
    for other in (rows.select("value"), rows.selectExpr("1 AS headers")):
        assert without_null_headers(other) is other
