"""The contract of every table format, on real tables."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from logbrook.spark.errors import (
    CommitConflictError,
    CommitUnknownError,
    OptionError,
    SchemaMismatchError,
    TableError,
)
from logbrook.spark.tables import commits, iceberg
from logbrook.spark.tables.commits import TableWrite, publish
from logbrook.spark.tables.delta import statistics
from logbrook.spark.tables.format import ChangeKind, TableChange, TableFormat, TableOptions, open_format
from logbrook.spark.tables.maintenance import compact
from logbrook.spark.tables.parquet import SNAPSHOT_EVERY, ParquetFormat

MakeTable = Callable[..., Any]


LONG, TEXT = pa.int64(), pa.string()


def frame_of(**columns: pa.DataType) -> StructType:
    return from_arrow_schema(pa.schema(columns))


def row(number: int, day: str | None = "monday", note: str | None = None) -> dict[str, Any]:
    return {"id": number, "day": day, "note": note}


def test_a_batch_is_committed_once_however_often_it_is_replayed(make_table: MakeTable) -> None:
    table = make_table()
    assert table.append([row(1)], app_id="app", batch_id=0)
    assert table.append([row(2)], app_id="app", batch_id=1)
    assert not table.append([row(2)], app_id="app", batch_id=1)
    assert table.append([row(3)], app_id="other", batch_id=0)
    assert table.rows() == [row(1), row(2), row(3)]
    assert [table.version.batch_id_of(app) for app in ("app", "other", "nobody")] == [1, 0, None]
    # The replay has left no files.
    assert table.on_disk() == {file.path for file in table.version.data_files()}


def test_a_commit_on_an_old_version_is_a_conflict(make_table: MakeTable) -> None:
    table = make_table()
    table.append([row(1)])
    files, old = table.write_files([row(2)]), table.version
    table.append([row(3)])
    with pytest.raises(CommitConflictError, match="another commit came first"):
        old.commit(TableChange(ChangeKind.APPEND, files))
    assert table.rows() == [row(1), row(3)]


def test_a_batch_that_another_driver_commits_meanwhile_is_not_committed_again(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table()
    table.append([row(0)])
    files = table.write_files([row(1)])
    slow = table.format
    old = slow.load()
    versions = iter([old])
    # The first read of the table happens before the other driver's commit.
    monkeypatch.setattr(slow, "load", lambda: next(versions, None) or table.format.load())
    assert table.append([row(1)], app_id="app", batch_id=0)
    assert not publish(slow, TableWrite(files, app_id="app", batch_id=0))
    assert table.rows() == [row(0), row(1)]
    # Its own commit may have succeeded, so the files are left to the clean-up.
    assert {file.path for file in files} <= table.on_disk()


@pytest.fixture
def commit_unclearly(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TableFormat]:
    """Open a table whose first commits report that their outcome is unknown."""
    monkeypatch.setattr(commits, "UNKNOWN_WAIT_S", 0.001)

    def open_unclear(table: Any, attempt: Callable[[Callable[[], None]], None]) -> TableFormat:
        opened: TableFormat = table.format
        version: Any = opened.load()
        commit, versions = version.commit, iter([version])
        monkeypatch.setattr(version, "commit", lambda change: attempt(lambda: commit(change)))
        monkeypatch.setattr(opened, "load", lambda: next(versions, None) or table.format.load())
        return opened

    return open_unclear


@pytest.mark.parametrize("write", [{}, {"app_id": "app", "batch_id": 0}])
def test_a_commit_whose_answer_is_lost_is_not_repeated(
    make_table: MakeTable, commit_unclearly: Callable[..., TableFormat], write: dict[str, Any]
) -> None:
    table = make_table()
    table.append([row(1)])
    files = table.write_files([row(2)])

    def lose_the_answer(commit: Callable[[], None]) -> None:
        commit()
        # Another commit comes before the writer looks.
        table.append([row(3)])
        raise CommitUnknownError(table.path, "the answer was lost")

    assert publish(commit_unclearly(table, lose_the_answer), TableWrite(files, **write))
    assert table.rows() == [row(1), row(2), row(3)]


def test_a_commit_that_did_not_take_effect_is_repeated(
    make_table: MakeTable, commit_unclearly: Callable[..., TableFormat]
) -> None:
    table = make_table()
    table.append([row(1)])
    files = table.write_files([row(2)])
    failures = iter([True, True])

    def fail_twice(commit: Callable[[], None]) -> None:
        if next(failures, False):
            raise CommitUnknownError(table.path, "the store is away")
        commit()

    assert publish(commit_unclearly(table, fail_twice), TableWrite(files))
    assert table.rows() == [row(1), row(2)]


def test_a_commit_whose_outcome_stays_unknown_fails_and_keeps_its_files(
    make_table: MakeTable, commit_unclearly: Callable[..., TableFormat]
) -> None:
    table = make_table()
    table.append([row(1)])
    files = table.write_files([row(2)])

    def fail(commit: Callable[[], None]) -> None:
        raise CommitUnknownError(table.path, "the store is away")

    with pytest.raises(CommitUnknownError, match="it is not known if it took effect: the store is away"):
        publish(commit_unclearly(table, fail), TableWrite(files))
    assert {file.path for file in files} <= table.on_disk()


def test_properties_are_carried_on_and_offsets_are_merged(make_table: MakeTable) -> None:
    table = make_table()
    table.append([row(1)], app_id="a", batch_id=0, offsets={"t": {0: 5, 1: 3}})
    table.append([row(2)], app_id="b", batch_id=0)
    table.append([row(3)], app_id="a", batch_id=1, offsets={"t": {0: 9}, "u": {0: 1}})
    table.version.add_columns([table.version.schema.field("note").with_name("more")])
    properties = table.version.properties()
    assert properties["logbrook.offsets"] == '{"t": {"0": 9, "1": 3}, "u": {"0": 1}}'


def test_an_overwrite_replaces_all_rows_and_their_metadata(make_table: MakeTable) -> None:
    table = make_table()
    table.append([row(1)], app_id="a", batch_id=0, offsets={"t": {0: 5}})
    table.append([row(2)])
    before = table.version
    table.append([row(3)], overwrite=True)
    assert table.rows() == [row(3)]
    assert "logbrook.offsets" not in table.version.properties()
    assert table.version.batch_id_of("a") == 0
    # Readers that have loaded the old version can still read it.
    assert all(os.path.exists(file.path) for file in before.data_files())
    table.append([], overwrite=True)
    assert table.rows() == []


def test_writers_with_different_ids_all_get_through(make_table: MakeTable) -> None:
    table = make_table()
    together = Barrier(4)

    def write(number: int) -> bool:
        # The first writers find no table.
        if number <= 4:
            together.wait(30)
        offsets = {"t": {number: 10}}
        return bool(table.append([row(number)], app_id=f"app-{number}", batch_id=0, offsets=offsets))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(write, range(1, 9)))
    assert [row["id"] for row in table.rows()] == list(range(1, 9))
    # Each of them has seen the offsets of all earlier commits.
    partitions = ", ".join(f'"{number}": 10' for number in range(1, 9))
    assert table.version.properties()["logbrook.offsets"] == f'{{"t": {{{partitions}}}}}'


def test_a_new_query_under_an_old_app_id_does_not_lose_its_first_batches(make_table: MakeTable) -> None:
    table = make_table()
    table.append([row(1)], app_id="app", batch_id=0, query_id="first")
    assert not table.append([row(1)], app_id="app", batch_id=0, query_id="first")
    with pytest.raises(TableError, match=r"batch 0 of app\.id 'app' was committed by query first"):
        table.append([row(2)], app_id="app", batch_id=0, query_id="second")


def test_partitions_survive_any_value(make_table: MakeTable) -> None:
    frame = frame_of(id=LONG, day=TEXT, date=pa.date32(), flag=pa.bool_(), number=pa.int32())
    table = make_table(frame, partition_by="day,date,flag,number")
    days = ["a b/c%é=", "2026-01-31", None, "01"]
    rows = [
        {"id": number, "day": day, "date": date(2026, 1, 31), "flag": flag, "number": -1}
        for number, (day, flag) in enumerate((day, flag) for day in days for flag in (True, None))
    ]
    table.append(rows)
    assert table.rows() == rows
    files = table.version.data_files()
    assert len(files) == 8
    assert {file.partition["day"] for file in files} == set(days)
    assert {file.partition["date"] for file in files} == {date(2026, 1, 31)}


def test_columns_are_added_only_where_that_is_allowed(make_table: MakeTable) -> None:
    table = make_table()
    table.append([row(1)])
    wider = frame_of(price=pa.float64(), id=LONG, day=TEXT, note=TEXT)
    added = {"price": 2.5, **row(2)}
    message = r"table '.*/table': column 'price' is double in the frame and is not in the table; schema.evolution=add"
    with pytest.raises(SchemaMismatchError, match=message):
        table.append([added], wider)
    table.options["schema.evolution"] = "add"
    table.append([added], wider)
    # A writer that does not know the column writes null.
    table.append([row(3)])
    assert table.rows() == [{**row(1), "price": None}, {**row(2), "price": 2.5}, {**row(3), "price": None}]


def test_a_frame_that_does_not_fit_is_refused_before_any_file_is_written(make_table: MakeTable) -> None:
    table = make_table()
    table.append([row(1)])
    before = table.on_disk()
    message = "column 'id' is string in the frame and is bigint in the table"
    with pytest.raises(SchemaMismatchError, match=message):
        table.append([], frame_of(id=TEXT, day=TEXT, note=TEXT))
    with pytest.raises(SchemaMismatchError, match="column 'note' is not in the frame and is string in the table"):
        table.append([], frame_of(id=LONG, day=TEXT))
    with pytest.raises(OptionError, match=r"'partition\.by': table '.*' is partitioned by nothing"):
        table.write_files([], **{"partition.by": "day"})
    assert table.on_disk() == before


def test_nested_columns_and_small_integers_are_held(make_table: MakeTable) -> None:
    frame = frame_of(
        id=pa.int16(),
        headers=pa.list_(pa.struct({"key": TEXT, "value": pa.binary()})),
        tags=pa.map_(TEXT, pa.int32()),
        at=pa.timestamp("us", "UTC"),
        price=pa.decimal128(10, 2),
        point=pa.struct({"x": pa.float64(), "y": pa.list_(pa.int32())}),
    )
    table = make_table(frame)
    full = {
        "id": 1,
        "headers": [{"key": "k", "value": b"v"}, {"key": "k", "value": None}],
        "tags": [("a", 1)],
        "at": datetime(2026, 1, 31, 12, 0, 0, 123456, UTC),
        "price": None,
        "point": {"x": 0.5, "y": [1, None]},
    }
    empty = {"id": 2, "headers": [], "tags": [], "at": None, "price": None, "point": None}
    nulls = {"id": 3, "headers": None, "tags": None, "at": None, "price": None, "point": None}
    table.append([full, empty, nulls])
    assert table.rows() == [full, empty, nulls]


def test_a_type_that_no_table_holds_is_refused_by_name(make_table: MakeTable) -> None:
    with pytest.raises(TableError, match=r"column 'wait' is interval .*, which a table cannot hold"):
        make_table(frame_of(id=LONG, wait=pa.duration("us"))).append([])


def test_a_table_is_not_opened_as_another_format(make_table: MakeTable, table_format: str) -> None:
    table = make_table()
    table.append([row(1)])
    other_format = "delta" if table_format == "parquet" else "parquet"
    with pytest.raises(OptionError, match=f"is a table of format {table_format}, not {other_format}"):
        table.write_files([], **{"table.format": other_format})
    # The format of a table is detected.
    assert TableOptions.parse({"path": table.path}).table_format is None
    del table.options["table.format"]
    assert table.rows() == [row(1)]


@pytest.mark.parametrize("table_format", ["parquet"])
def test_manifests_are_folded_from_the_newest_snapshot_on(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table()
    files = table.write_files([row(1)])
    for batch_id in range(SNAPSHOT_EVERY + 3):
        loaded = table.version
        change = TableChange(ChangeKind.OVERWRITE, files, app_id="app", batch_id=batch_id)
        loaded.commit(change)
    read: list[int] = []
    plain_read = ParquetFormat._read

    def noted(self: ParquetFormat, number: int) -> dict[str, Any]:
        read.append(number)
        return plain_read(self, number)

    monkeypatch.setattr(ParquetFormat, "_read", noted)
    assert table.version.batch_id_of("app") == SNAPSHOT_EVERY + 2
    assert read == [50, 51, 52, 53]
    assert table.rows() == [row(1)]


@pytest.mark.parametrize("table_format", ["delta"])
def test_bounds_are_rounded_outward(make_table: MakeTable) -> None:
    frame = frame_of(
        id=LONG, at=pa.timestamp("us", "UTC"), ratio=pa.float64(), text=TEXT, long=TEXT, nothing=pa.int32()
    )
    at = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
    rows = [
        {"id": 1, "at": at, "ratio": float("nan"), "text": "a", "long": "x" * 100, "nothing": None},
        {"id": 5, "at": at, "ratio": 1.0, "text": None, "long": "y", "nothing": None},
    ]
    stats = statistics(make_table(frame).write_files(rows)[0].footer)
    assert stats["minValues"] == {"id": 1, "at": "2026-01-31T12:00:00.123Z", "text": "a"}
    assert stats["maxValues"] == {"id": 5, "at": "2026-01-31T12:00:00.124Z", "text": "a"}
    assert (stats["numRecords"], stats["nullCount"]["nothing"], stats["nullCount"]["text"]) == (2, 2, 1)


@pytest.mark.parametrize("table_format", ["iceberg"])
def test_a_table_may_be_kept_in_another_catalog(
    make_table: MakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def configured(name: str, **properties: str) -> SqlCatalog:
        return SqlCatalog(name, uri=f"sqlite:///{tmp_path / name}.db")

    monkeypatch.setattr(iceberg, "load_catalog", configured)
    table = make_table(iceberg_catalog="prod", iceberg_namespace="lake", iceberg_table="events")
    assert table.append([row(1)], app_id="app", batch_id=0)
    assert not table.append([row(1)], app_id="app", batch_id=0)
    assert table.rows() == [row(1)]
    with closing(configured("prod")) as catalog:
        assert catalog.list_tables("lake") == [("lake", "events")]
    elsewhere = {**table.options, "path": str(tmp_path / "elsewhere")}
    with pytest.raises(TableError, match=r"the catalog has 'lake\.events' at 'file:///.*/table'"):
        table.write_files([], **elsewhere)
    with pytest.raises(OptionError, match=r"is of format delta, and iceberg\.\* options are given"):
        open_format(TableOptions.parse({"path": str(tmp_path / "new"), "iceberg.table": "events"}))


@pytest.mark.parametrize("table_format", ["iceberg"])
@pytest.mark.parametrize("attempt", range(5))
def test_writers_that_start_together_may_share_a_new_sql_catalog(
    make_table: MakeTable, tmp_path: Path, attempt: int
) -> None:
    writers = 4
    uri = f"sqlite:///{tmp_path}/shared-{attempt}.db"
    table = make_table(iceberg_catalog_type="sql", iceberg_catalog_uri=uri)
    together = Barrier(writers)

    def load(_: int) -> object:
        together.wait(30)
        return table.format.load()

    with ThreadPoolExecutor(writers) as pool:
        assert list(pool.map(load, range(writers))) == [None] * writers


@pytest.mark.parametrize("table_format", ["iceberg"])
def test_a_namespace_that_another_writer_creates_meanwhile_is_used(
    make_table: MakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"sqlite:///{tmp_path}/shared.db"
    table = make_table(iceberg_catalog_type="sql", iceberg_catalog_uri=uri, iceberg_namespace="lake")
    namespace_exists = SqlCatalog.namespace_exists
    lookups = 0

    def looked_up_before_the_other_writer(catalog: SqlCatalog, namespace: str) -> bool:
        """Answer from before the insert of the other writer; the second lookup is the one in create_namespace()."""
        nonlocal lookups
        lookups += 1
        exists = namespace_exists(catalog, namespace)
        if lookups == 2:
            assert not exists
            with closing(SqlCatalog("logbrook", uri=uri)) as other:
                other.create_namespace("lake")
        return exists

    monkeypatch.setattr(SqlCatalog, "namespace_exists", looked_up_before_the_other_writer)
    assert table.append([row(1)])
    assert table.rows() == [row(1)]


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_the_formats_own_libraries_read_the_same_rows(make_table: MakeTable, table_format: str) -> None:
    table = make_table(partition_by="day")
    for number, day in enumerate(["monday", "a b/c%é=", None, "monday"]):
        table.append([row(number, day, "note")])
    compact(table.path)
    if table_format == "delta":
        read = DeltaTable(table.path).to_pyarrow_table()
        skipped = DeltaTable(table.path).to_pyarrow_table(filters=[("id", ">", 2)])
    else:
        with closing(SqlCatalog("logbrook", uri=f"sqlite:///{table.path}/metadata/catalog.db")) as catalog:
            scan = catalog.load_table("logbrook.table").scan
            read, skipped = scan().to_arrow(), scan("id > 2").to_arrow()
    assert read.select(["id", "day", "note"]).sort_by("id").to_pylist() == table.rows()
    assert skipped.select(["id"]).to_pylist() == [{"id": 3}]
