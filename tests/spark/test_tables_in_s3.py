"""A table in a real S3 server, written and read by Spark with the credentials of the session."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logbrook.spark import register
from logbrook.spark.tables.union import history
from tests.object_store.conftest import s3_server  # noqa: F401 - a fixture
from tests.object_store.s3_server import BUCKET, S3Server
from tests.spark.limits import finish


@contextmanager
def with_settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Change Hadoop's configuration of the session that all tests share, and register the sources with it."""
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    for name, text in settings.items():
        configuration.set(name, text)
    register(spark)
    try:
        yield
    finally:
        for name in settings:
            configuration.unset(name)
        register(spark)


# tests/object_store/ has tables in S3, and tests/unit/spark/tables/ the settings that they take from a session.
@pytest.mark.long
def test_a_stream_into_a_table_in_s3_uses_the_settings_of_the_session(
    spark: SparkSession,
    s3_server: S3Server,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    settings = {
        "fs.s3a.endpoint": s3_server.address,
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.access.key": s3_server.user,
        "fs.s3a.secret.key": s3_server.password,
    }
    table = f"s3a://{BUCKET}/spark/{tmp_path.name}"
    source = str(tmp_path / "source")
    spark.range(0, 100, 1, 2).selectExpr("id", "string(id % 3) as day").write.parquet(source)
    with with_settings(spark, settings):
        rows = spark.readStream.schema("id long, day string").parquet(source)
        writer = rows.writeStream.format("logbrook_table").option("partition.by", "day")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        finish(writer.start(table))
        frames = (spark.read.format("logbrook_table").load(table), history(spark, table))
        for frame in frames:
            assert sorted(row.id for row in frame.where("day <> '1'").collect()) == [
                number for number in range(100) if number % 3 != 1
            ]
