"""Paths and URIs of tables: each scheme is supported, or refused by its name."""

import os
from pathlib import Path

import pytest

from logbrook.spark.errors import InvalidPipelineError, OptionError
from logbrook.spark.pipeline.file import read_pipeline
from logbrook.spark.tables.format import TableOptions
from logbrook.spark.tables.location import (
    Store,
    parse_location,
    relative_to,
    resolve_beside,
    scheme_of,
    split_location,
    store_of,
)

REFUSED = ["dbfs:/t", "s3n://bucket/t", "https://host/t", "viewfs:///t", "wasb:t"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/data/t/", "/data/t"),
        ("file:/data/t/", "/data/t"),
        ("file:///data/a%20b", "/data/a b"),
        ("FILE://localhost/data/t", "/data/t"),
        ("file:////data//t", "/data/t"),
        ("file:/data/a#b?c", "/data/a#b?c"),
        ("/data/2026:01", "/data/2026:01"),
    ],
)
def test_a_path_or_file_uri_is_a_local_path(text: str, path: str) -> None:
    assert parse_location(text) == path
    assert store_of(path) is Store.LOCAL


@pytest.mark.parametrize(
    ("text", "location", "store"),
    [
        ("s3://bucket/a/t/", "s3://bucket/a/t", Store.S3),
        ("S3A://bucket//a/t", "s3://bucket/a/t", Store.S3),
        ("gs://bucket/t", "gs://bucket/t", Store.GCS),
        ("abfs://files@a.dfs.core.windows.net/t", "abfss://files@a.dfs.core.windows.net/t", Store.AZURE),
        ("hdfs://namenode:8020/tables/t", "hdfs://namenode:8020/tables/t", Store.HDFS),
    ],
)
def test_the_location_in_a_store_has_one_form(text: str, location: str, store: Store) -> None:
    assert parse_location(text) == location
    assert store_of(location) is store


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hdfs:/tables/t", "does not name the store; write hdfs://namenode:8020/path"),
        ("hdfs:///tables/t", "does not name the store"),
        ("s3a:/bucket/t", "does not name the store; write s3://bucket/path"),
        ("s3:t", r"does not name the store; write s3://bucket/path; a directory of that name is './s3:t'"),
        ("s3://bucket/", "is a whole store, and a table needs a directory: s3://bucket/path"),
        ("s3://bucket/a/../t", "must not contain"),
        ("s3://bucket/a%20b", "must not contain"),
    ],
)
def test_an_incomplete_location_is_refused(text: str, reason: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_location(text)
    assert f"option 'path': {text!r} {reason}" in str(refused.value)


def test_names_of_files_are_relative_to_their_table() -> None:
    assert relative_to("s3://bucket/t/data/a=b%2Fc/1.parquet", "s3://bucket/t") == "data/a=b%2Fc/1.parquet"
    assert relative_to("/data/t/1.parquet", "/data/t") == "1.parquet"
    assert split_location("s3://bucket/t/data") == ("s3://bucket", "t/data")


@pytest.mark.parametrize("text", ["tables/t", "./a:b", "a/b:c", "2026:01/t"])
def test_a_relative_path_is_made_absolute(text: str) -> None:
    assert scheme_of(text) is None
    assert parse_location(text) == os.path.normpath(os.path.join(os.getcwd(), text))
    assert resolve_beside("/etc", text) == os.path.normpath(f"/etc/{text}")


@pytest.mark.parametrize("text", REFUSED)
def test_a_scheme_that_is_not_supported_is_refused_by_name(text: str) -> None:
    scheme = text.partition(":")[0].lower()
    with pytest.raises(
        OptionError, match=f"^option 'path': '{text}' has the scheme '{scheme}', which is not supported"
    ):
        TableOptions.parse({"path": text})


def test_a_directory_with_a_colon_in_its_name_can_be_given() -> None:
    with pytest.raises(OptionError, match=r"a directory of that name is '\./orders:v1'$"):
        parse_location("orders:v1")
    with pytest.raises(OptionError, match=r"one of file, s3, s3a, gs, abfs, abfss, hdfs$"):
        parse_location("dbfs:/t")


@pytest.mark.parametrize("text", ["file://host/data", "file:data", "file:", "file://localhost"])
def test_a_file_uri_without_an_absolute_local_path_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=f"'{text}' is not a local file; write file: and an absolute path"):
        parse_location(text)


@pytest.mark.parametrize("text", ["hdfs:/checkpoints", "s3a://bucket/c", "dbfs:/c", "file:/c"])
def test_a_uri_is_not_resolved_against_a_directory(text: str) -> None:
    assert resolve_beside("/etc", text) == text


def test_a_pipeline_with_such_a_table_is_refused_before_spark_starts(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        'name = "p"\nbootstrap_servers = "127.0.0.1:9092"\n[sources.a]\ntopic = "a"\nformat = "bytes"\n'
        '[sinks.t]\nview = "a"\ntable = "dbfs:/tables/t"\n'
    )
    with pytest.raises(InvalidPipelineError) as refused:
        read_pipeline(str(path), checkpoint="hdfs:/checkpoints/p")
    (problem,) = refused.value.problems
    assert "p.toml:8: sinks.t.table: 'dbfs:/tables/t' has the scheme 'dbfs', which is not supported" in str(problem)


def test_a_checkpoint_uri_is_left_to_spark(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        'name = "p"\nbootstrap_servers = "127.0.0.1:9092"\ncheckpoint = "dbfs:/c"\n'
        '[sources.a]\ntopic = "a"\nformat = "bytes"\n[sinks.t]\nview = "a"\ntopic = "b"\n'
    )
    assert read_pipeline(str(path)).checkpoint == "dbfs:/c"
    assert read_pipeline(str(path), checkpoint="hdfs:/d").checkpoint == "hdfs:/d"
