"""Options of a table, and what is said of a wrong one."""

import os

import pytest

from logbrook.spark.errors import OptionError
from logbrook.spark.tables.options import IcebergOptions, TableOptions, local_path


def test_a_path_is_all_it_takes() -> None:
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
    }
    assert TableOptions.parse(options) == TableOptions(
        "/data/a b", "iceberg", ("day", "hour"), 1000, "snappy", "app", True, True, "/c",
        IcebergOptions("prod", "lake", "events"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'path': it is required"),
        ({"path": "s3://bucket/t"}, "'path': a table lies in a directory that every executor sees"),
        ({"path": "/t", "partion.by": "day"}, "'partion.by': there is no such option; did you mean 'partition.by'"),
        ({"path": "/t", "partition.by": "day,day"}, "'partition.by': it names a column twice"),
        ({"path": "/t", "table.format": "hudi"}, "'table.format': it must be delta or iceberg or parquet"),
        ({"path": "/t", "file.bytes": "0"}, "'file.bytes': it must be at least 1"),
        ({"path": "/t", "source.offsets": "yes"}, "'source.offsets': it must be none or auto"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        TableOptions.parse(options)
    assert message in str(caught.value)


def test_a_relative_path_is_made_absolute() -> None:
    assert local_path("tables/t") == os.path.join(os.getcwd(), "tables/t")
    assert local_path("file:/data/t/") == "/data/t"
