"""Tables of every format in servers of S3, Azure and Google: rows, competing writers, maintenance, credentials."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from logbrook.spark.errors import CommitConflictError, TableError
from logbrook.spark.tables import parquet
from logbrook.spark.tables.format import ChangeKind, TableChange, TableOptions
from logbrook.spark.tables.maintenance import compact, vacuum
from logbrook.spark.tables.object_storage import ObjectStorage
from logbrook.spark.tables.source import StreamTableWriter
from tests.object_store.store_server import StoreServer
from tests.unit.spark.tables.conftest import TableUnderTest

MakeTable = Callable[..., TableUnderTest]
WRITERS = 2
BATCHES = 3


def row(number: int, day: str | None = "monday", note: str | None = None) -> dict[str, Any]:
    return {"id": number, "day": day, "note": note}


def files_in(table: TableUnderTest) -> set[str]:
    return {file.path for file in table.format.storage.files(table.path) if file.path.endswith(".parquet")}


def test_a_batch_is_committed_once_however_often_it_is_replayed(make_table: MakeTable) -> None:
    table = make_table(partition_by="day")
    days = ["monday", "a b/c%é=", None, "2026-01-31"]
    for number, day in enumerate(days):
        assert table.append([row(number, day)], app_id="app", batch_id=number)
        assert not table.append([row(number, day)], app_id="app", batch_id=number)
    assert table.rows() == [row(number, day) for number, day in enumerate(days)]
    assert table.version.batch_id_of("app") == len(days) - 1
    # The replays have left no files.
    assert files_in(table) == {file.path for file in table.version.data_files()}


def test_two_writers_at_once_commit_every_batch_once(make_table: MakeTable) -> None:
    table = make_table()
    together = Barrier(WRITERS)

    def write(writer: int) -> None:
        # Both find that there is no table.
        together.wait(30)
        for batch_id in range(BATCHES):
            number = writer * BATCHES + batch_id
            offsets = {"t": {writer: number + 1}}
            assert table.append([row(number)], app_id=f"app-{writer}", batch_id=batch_id, offsets=offsets)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    assert table.rows() == [row(number) for number in range(WRITERS * BATCHES)]
    assert table.version.properties()["logbrook.offsets"] == '{"t": {"0": 3, "1": 6}}'


def test_a_commit_on_an_old_version_is_a_conflict(make_table: MakeTable) -> None:
    table = make_table()
    table.append([row(1)])
    files, old = table.write_files([row(2)]), table.version
    table.append([row(3)])
    with pytest.raises(CommitConflictError, match="another commit came first"):
        old.commit(TableChange(ChangeKind.APPEND, files))
    assert table.rows() == [row(1), row(3)]


def test_compaction_and_vacuum_keep_the_rows(make_table: MakeTable) -> None:
    table = make_table(partition_by="day")
    for number in range(3):
        table.append([row(number)], app_id="app", batch_id=number)
    before, old = table.rows(), files_in(table)
    result = compact(table.path, options=table.options)
    assert (result.files_removed, result.files_added, result.rows) == (3, 1, 3)
    # The clocks of the server and of this process are the same.
    vacuumed = vacuum(table.path, timedelta(0), dry_run=False, options=table.options)
    assert old <= set(vacuumed.files)
    assert vacuumed.size_bytes > 0
    assert not old & files_in(table)
    assert table.rows() == before
    assert table.version.batch_id_of("app") == 2


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_rows_are_upserted(make_table: MakeTable) -> None:
    table = make_table(write_mode="upsert", upsert_keys="id", app_id="app")
    schema = to_arrow_schema(table.frame, timezone="UTC")
    for batch_id, rows in enumerate([[row(1), row(2)], [row(2, note="changed"), row(3)]]):
        writer = StreamTableWriter(TableOptions.parse(table.options), table.frame, overwrite=False)
        message = writer.write(iter([pa.RecordBatch.from_pylist(rows, schema=schema)]))
        writer.commit([message], batch_id)
    assert table.rows() == [row(1), row(2, note="changed"), row(3)]
    # The files of changes are removed: the first commit's file is replaced and kept for its readers.
    assert len(files_in(table)) == 2


@pytest.mark.parametrize("table_format", ["delta"])
def test_an_aborted_write_leaves_no_object(make_table: MakeTable) -> None:
    table = make_table()
    table.append([row(1)])
    kept = files_in(table)
    writer = StreamTableWriter(TableOptions.parse({**table.options, "app.id": "app"}), table.frame, overwrite=False)
    schema = to_arrow_schema(table.frame, timezone="UTC")
    message = writer.write(iter([pa.RecordBatch.from_pylist([row(2)], schema=schema)]))
    assert files_in(table) > kept
    # Another task failed, so the commit was never attempted.
    writer.abort([message, None], 0)
    assert files_in(table) == kept


def test_credentials_come_from_the_environment(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table()
    for name in list(table.options):
        if name.startswith("storage.") and name != "storage.allow_http":
            monkeypatch.setenv(name.removeprefix("storage.").upper(), table.options.pop(name))
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    table.append([row(1)])
    assert table.rows() == [row(1)]


def test_credentials_come_from_hadoops_settings(make_table: MakeTable, store_server: StoreServer) -> None:
    table = make_table()
    for name in list(table.options):
        if name.startswith("storage."):
            del table.options[name]
    table.options |= store_server.hadoop_options()
    table.append([row(1)])
    assert table.rows() == [row(1)]


@pytest.mark.parametrize("table_format", ["parquet"])
def test_files_that_do_not_exist_are_deleted_and_read_like_local_ones(make_table: MakeTable) -> None:
    table = make_table()
    storage = table.format.storage
    there, missing = f"{table.path}/there", f"{table.path}/missing"
    storage.put(there, b"content")
    storage.delete([missing, there])
    assert list(storage.files(table.path)) == []
    with pytest.raises(FileNotFoundError):
        storage.read(there)


@pytest.mark.parametrize("store_kind", ["s3"])
@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_store_that_ignores_the_condition_is_refused(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectStorage, "put_if_absent", ObjectStorage.put)
    with pytest.raises(TableError, match="two writers would replace each other's commits"):
        make_table().append([row(1)])


@pytest.mark.parametrize("table_format", ["parquet"])
def test_only_the_manifests_after_the_newest_snapshot_are_listed(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "SNAPSHOT_EVERY", 5)
    table = make_table()
    files = table.write_files([row(1)])
    for batch_id in range(7):
        table.version.commit(TableChange(ChangeKind.OVERWRITE, files, app_id="app", batch_id=batch_id))
    listed: list[list[str]] = []
    names = ObjectStorage.names

    def noted(storage: ObjectStorage, directory: str, after: str = "") -> list[str]:
        listed.append(names(storage, directory, after))
        return listed[-1]

    monkeypatch.setattr(ObjectStorage, "names", noted)
    assert table.version.batch_id_of("app") == 6
    assert [name.lstrip("0") for name in listed[0] if name.endswith(".json")] == ["6.json", "7.json"]
