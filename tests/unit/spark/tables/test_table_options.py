"""Options of a table, and the errors of invalid ones."""

import pytest

from logbrook.spark.errors import OptionError
from logbrook.spark.tables.format import IcebergOptions, TableOptions, check_catalog


def test_a_path_is_sufficient() -> None:
    assert TableOptions.parse({"path": "/data/t"}) == TableOptions(path="/data/t")


def test_every_option_is_read_in_any_letter_case() -> None:
    options = {
        "PATH": "file:///data/a%20b",
        "table.format": "Iceberg",
        "partition.by": "day, hour",
        "file.bytes": "1000",
        "compression": "SNAPPY",
        "app.id": "app",
        "schema.evolution": "add",
        "source.offsets": "auto",
        "checkpointLocation": "/c",
        "iceberg.catalog": "prod",
        "iceberg.namespace": "lake",
        "iceberg.table": "events",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.S3.region": "eu-north-1",
        "batch.id": "7",
    }
    assert TableOptions.parse(options) == TableOptions(
        "/data/a b", "iceberg", ("day", "hour"), 1000, "snappy", "app", True, True, "/c",
        IcebergOptions("prod", "lake", "events", {"type": "rest", "s3.region": "eu-north-1"}), 7,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'path': it is required"),
        ({"path": "dbfs:/tables/t"}, "'path': 'dbfs:/tables/t' has the scheme 'dbfs'"),
        ({"path": "/t", "storage.aws_region": "x"}, "'storage.aws_region': it is for a table in an object store"),
        ({"path": "s3://b/t", "storage.aws_s3_locking_provider": "dynamodb"}, "no longer has a locking provider"),
        ({"path": "/t", "partion.by": "day"}, "'partion.by': there is no such option; did you mean 'partition.by'"),
        ({"path": "/t", "partition.by": "day,day"}, "'partition.by': it names a column twice"),
        ({"path": "/t", "table.format": "hudi"}, "'table.format': it must be delta or iceberg or parquet"),
        ({"path": "/t", "batch.id": "-1"}, "'batch.id': it must be at least 0"),
        ({"path": "/t", "file.bytes": "0"}, "'file.bytes': it must be at least 1"),
        ({"path": "/t", "source.offsets": "yes"}, "'source.offsets': it must be none or auto"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        TableOptions.parse(options)
    assert message in str(caught.value)


def test_secrets_are_not_in_the_text_of_the_options() -> None:
    options = {"path": "s3://b/t", "storage.aws_secret_access_key": "hidden", "iceberg.catalog.credential": "hidden"}
    parsed = TableOptions.parse(options)
    assert parsed.storage["aws_secret_access_key"] == "hidden"
    assert "hidden" not in repr(parsed)


def test_an_iceberg_table_in_an_object_store_needs_a_catalog() -> None:
    options = TableOptions.parse({"path": "hdfs://h/t", "table.format": "iceberg"})
    with pytest.raises(OptionError, match=r"'iceberg\.catalog': an Iceberg table at 'hdfs://h/t' needs a catalog"):
        check_catalog(options)
