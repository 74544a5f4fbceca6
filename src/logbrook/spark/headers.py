"""The column `headers` of rows on their way to the topic sink.

A record without headers has null there, as with Spark's Kafka connector. Spark measures the Arrow batches that it sends
to Python, and takes longer the more null arrays are in a row (`session_settings`). To the sink an empty array means the
same.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

HEADERS_TYPE = "array<struct<key:string,value:binary>>"


def headers_or_empty() -> Column:
    """Return the column `headers` with empty arrays instead of null."""
    return f.coalesce(f.col("headers"), f.array().cast(HEADERS_TYPE)).alias("headers")


def without_null_headers(rows: DataFrame) -> DataFrame:
    """Return `rows` with empty arrays instead of null headers; unchanged if there is no such column of this type."""
    if "headers" not in rows.columns or rows.schema["headers"].dataType.simpleString() != HEADERS_TYPE:
        return rows
    return rows.withColumn("headers", headers_or_empty())
