"""Upserts: the newest change of a key is in the table once, whatever the order and the number of attempts."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from logbrook.spark.errors import OptionError, TableError
from logbrook.spark.tables import merging
from logbrook.spark.tables.commits import KEYS_KEY, load_existing
from logbrook.spark.tables.files import read_file
from logbrook.spark.tables.format import DataFile, TableOptions, TableVersion, open_format
from logbrook.spark.tables.maintenance import compact
from logbrook.spark.tables.source import BatchTableWriter, StreamTableWriter, check_write

Row = dict[str, Any]
FIELDS = {"id": pa.int64(), "note": pa.string(), "_topic": pa.string(), "_partition": pa.int32(), "_offset": pa.int64()}
FRAME = from_arrow_schema(pa.schema({**FIELDS, "_timestamp": pa.timestamp("us", "UTC"), "gone": pa.bool_()}))


def change(number: int, note: str | None, offset: int, partition: int = 0, second: int = 0) -> Row:
    """A change of row `number`; without a note it is a delete."""
    origin = {"_topic": "t", "_partition": partition, "_offset": offset}
    at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    return {"id": number, "note": note, **origin, "_timestamp": at, "gone": note is None}


@dataclass
class UpsertedTable:
    """A table that is written as Spark would, by tasks and a driver."""

    options: dict[str, str]
    frame: StructType

    def writer(self, **options: str) -> StreamTableWriter:
        named = {name.replace("_", "."): text for name, text in options.items()}
        return StreamTableWriter(TableOptions.parse({**self.options, **named}), self.frame, overwrite=False)

    def upsert(self, batch_id: int, *tasks: Sequence[Row], **options: str) -> None:
        writer = self.writer(**options)
        writer.commit([writer.write(iter([self.batch(rows)])) for rows in tasks], batch_id)

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(self.frame, timezone="UTC"))

    @property
    def version(self) -> TableVersion:
        return load_existing(open_format(TableOptions.parse({"path": self.options["path"]})))

    def rows(self) -> list[Row]:
        version = self.version
        batches = [batch for file in version.data_files() for batch in read_file(file, version.schema)]
        return [row for batch in batches for row in batch.to_pylist()]

    def notes(self) -> dict[int, str]:
        """Return notes by id; fails for a duplicate id."""
        rows = self.rows()
        notes = {row["id"]: row["note"] for row in rows}
        assert len(notes) == len(rows), rows
        return notes

    def files(self) -> set[str]:
        return {file.path for file in self.version.data_files()}


@pytest.fixture(params=["delta", "iceberg"])
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


MakeTable = Callable[..., UpsertedTable]


@pytest.fixture
def make_upserted(table_format: str, tmp_path: Path) -> MakeTable:
    def make(frame: StructType = FRAME, **options: str) -> UpsertedTable:
        named = {name.replace("_", "."): text for name, text in options.items()}
        rules = {"write.mode": "upsert", "upsert.keys": "id", "upsert.delete": "gone", "app.id": "app"}
        given = {"path": str(tmp_path / "table"), "table.format": table_format, **rules, **named}
        return UpsertedTable({name: text for name, text in given.items() if text}, frame)

    return make


def on_disk(table: UpsertedTable) -> set[str]:
    return {str(path) for path in Path(table.options["path"]).rglob("*.parquet")}


def test_the_newest_change_of_a_batch_wins_in_any_order_of_tasks(make_upserted: MakeTable) -> None:
    table = make_upserted()
    table.upsert(
        0,
        [change(1, "new", 7), change(2, "old", 1), change(3, "kept", 2)],
        [change(1, "old", 3), change(2, None, 9), change(4, None, 4), change(4, "back", 5)],
    )
    assert table.notes() == {1: "new", 3: "kept", 4: "back"}
    assert "gone" not in table.version.schema.names
    # The files of changes are removed; only those of the table are left.
    assert on_disk(table) == table.files()


def test_later_batches_replace_add_and_delete(make_upserted: MakeTable) -> None:
    table = make_upserted()
    table.upsert(0, [change(number, "first", number) for number in range(6)])
    table.upsert(1, [change(1, "second", 10), change(2, None, 11), change(9, "added", 12), change(8, None, 13)])
    assert table.notes() == {0: "first", 1: "second", 3: "first", 4: "first", 5: "first", 9: "added"}
    table.upsert(2, [change(number, None, 20 + number) for number in range(10)])
    assert table.notes() == {}
    table.upsert(3, [change(1, "again", 40)])
    assert table.notes() == {1: "again"}


def test_a_replayed_batch_changes_nothing(make_upserted: MakeTable) -> None:
    table = make_upserted()
    table.upsert(0, [change(1, "a", 0), change(2, "b", 1)])
    table.upsert(1, [change(1, None, 2), change(3, "c", 3)])
    before = table.files()
    table.upsert(1, [change(1, None, 2), change(3, "c", 3)])
    assert table.notes() == {2: "b", 3: "c"}
    assert table.files() == before
    assert table.version.batch_id_of("app") == 1


def test_an_older_change_loses_also_in_a_later_batch(make_upserted: MakeTable) -> None:
    """For example when another query reads the topic again from its start."""
    table = make_upserted()
    table.upsert(0, [change(1, "new", 7), change(2, "only", 3)])
    table.upsert(0, [change(1, "old", 2), change(2, "only", 3), change(5, "missed", 1)], app_id="again")
    assert table.notes() == {1: "new", 2: "only", 5: "missed"}
    table.upsert(1, [change(1, None, 6)], app_id="again")
    assert table.notes()[1] == "new"


def test_a_batch_without_news_is_committed_too(make_upserted: MakeTable) -> None:
    table = make_upserted()
    table.upsert(0, [change(1, "new", 7)])
    table.upsert(1, [change(1, "old", 2), change(4, None, 8)])
    assert table.notes() == {1: "new"}
    assert table.version.batch_id_of("app") == 1


def test_deleted_rows_stay_deleted_when_the_topic_is_read_again(make_upserted: MakeTable) -> None:
    """The table has the source offsets, and so knows which changes it already has."""
    table = make_upserted(source_offsets="auto")
    table.upsert(0, [change(1, "a", 0), change(2, "b", 1)], [change(3, "c", 0, partition=1)])
    table.upsert(1, [change(1, None, 2)])
    table.upsert(0, [change(1, "a", 0), change(2, "b", 1), change(4, "new", 3)], app_id="again")
    assert table.notes() == {2: "b", 3: "c", 4: "new"}
    assert table.version.properties()["logbrook.offsets"] == '{"t": {"0": 4, "1": 1}}'


def test_a_key_that_changes_its_partition_is_not_held_by_its_old_offset(make_upserted: MakeTable) -> None:
    table = make_upserted()
    table.upsert(0, [change(1, "before", 1000)])
    table.upsert(1, [change(1, "moved", 5, partition=1)])
    assert table.notes() == {1: "moved"}
    # Within a batch the timestamp decides between partitions, and the offset within each.
    early = [change(1, "late offset", 2000, second=30), change(1, "newest in 0", 2001, second=20)]
    table.upsert(2, early, [change(1, "later", 6, partition=1, second=25)])
    assert table.notes() == {1: "later"}


def test_other_columns_may_order_the_changes(make_upserted: MakeTable) -> None:
    table = make_upserted(upsert_order="note,id")
    table.upsert(0, [change(1, "b", 9), change(1, "a", 10)])
    assert table.notes() == {1: "b"}
    table.upsert(1, [change(1, "a", 11)])
    assert table.notes() == {1: "b"}
    # Of equal changes the later batch wins; null counts as older than any value.
    table.upsert(2, [change(1, "b", 3)])
    assert table.rows()[0]["_offset"] == 3
    table.upsert(3, [{**change(1, None, 12), "gone": False}])
    assert table.notes() == {1: "b"}


def test_without_an_order_column_the_later_batch_wins_for_each_key(make_upserted: MakeTable) -> None:
    """For example with an aggregation in update mode."""
    frame = from_arrow_schema(pa.schema({"country": pa.string(), "day": pa.date32(), "total": pa.float64()}))
    table = make_upserted(frame, upsert_keys="country,day", upsert_delete="", partition_by="day")
    monday, tuesday = date(2026, 1, 5), date(2026, 1, 6)

    def row(country: str, day: date, total: float) -> Row:
        return {"country": country, "day": day, "total": total}

    table.upsert(0, [row("fr", monday, 1.0)], [row("de", monday, 2.0), row("fr", tuesday, 3.0)])
    table.upsert(1, [row("fr", monday, 1.5)])
    totals = sorted((row["country"], row["day"], row["total"]) for row in table.rows())
    assert totals == [("de", monday, 2.0), ("fr", monday, 1.5), ("fr", tuesday, 3.0)]
    with pytest.raises(TableError, match=r"1 keys are in the batch more than once; upsert\.order must say which"):
        table.upsert(2, [row("de", monday, 5.0)], [row("de", monday, 6.0)])


def test_only_files_with_a_changed_key_are_read_and_replaced(
    make_upserted: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = from_arrow_schema(pa.schema({"id": pa.int64(), "day": pa.string(), "note": pa.string()}))
    table = make_upserted(frame, upsert_keys="id,day", upsert_delete="", partition_by="day")

    def row(number: int, day: str, note: str = "") -> Row:
        return {"id": number, "day": day, "note": note}

    table.upsert(0, [row(1, "monday"), row(2, "monday"), row(1, "tuesday")])
    table.upsert(1, [row(100, "monday"), row(101, "monday")])
    assert len(table.files()) == 3
    read: list[str] = []

    def noted(file: DataFile, *args: Any) -> Any:
        read.append(file.path)
        return read_file(file, *args)

    before = table.files()
    monkeypatch.setattr(merging, "read_file", noted)
    table.upsert(2, [row(2, "monday", "changed")])
    kept = before & table.files()
    assert len(kept) == 2
    assert not kept & set(read)
    assert sorted(row["id"] for row in table.rows()) == [1, 1, 2, 100, 101]


def test_a_merge_is_repeated_on_top_of_another_commit(
    make_upserted: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_upserted()
    table.upsert(0, [change(1, "a", 0), change(2, "b", 1)])
    merge = merging.merge_changes
    attempts: list[merging.MergedFiles] = []

    def slow_merge(*args: Any) -> merging.MergedFiles:
        merged = merge(*args)
        attempts.append(merged)
        if len(attempts) == 1:
            monkeypatch.setattr("logbrook.spark.tables.commits.merge_changes", merge)
            table.upsert(0, [change(1, "other", 5), change(3, "c", 6)], app_id="other")
            compact(table.options["path"])
            monkeypatch.setattr("logbrook.spark.tables.commits.merge_changes", slow_merge)
        return merged

    monkeypatch.setattr("logbrook.spark.tables.commits.merge_changes", slow_merge)
    table.upsert(1, [change(1, "late", 4), change(2, "changed", 8)])
    assert len(attempts) == 2
    assert table.notes() == {1: "other", 2: "changed", 3: "c"}
    abandoned = {file.path for file in attempts[0].added}
    # The failed attempt has left no file.
    assert not abandoned & on_disk(table)


def test_a_batch_without_keys_is_refused_and_leaves_no_file(make_upserted: MakeTable) -> None:
    table = make_upserted()
    table.upsert(0, [change(1, "a", 0)])
    writer = table.writer()
    message = writer.write(iter([table.batch([{**change(1, "b", 1), "id": None}])]))
    with pytest.raises(TableError, match="1 rows of the batch have no value in key column 'id'; filter them out"):
        writer.commit([message], 1)
    writer.abort([message], 1)
    assert on_disk(table) == table.files()
    assert table.notes() == {1: "a"}


def test_every_exact_type_is_a_key(make_upserted: MakeTable) -> None:
    types = {
        "text": pa.string(),
        "bytes": pa.binary(),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "price": pa.decimal128(10, 2),
        "id": pa.int64(),
    }
    frame = from_arrow_schema(pa.schema({**types, "note": pa.string(), "tags": pa.list_(pa.string())}))
    table = make_upserted(frame, upsert_keys=",".join(types), upsert_delete="")
    key = {
        "text": "a",
        "bytes": b"\x00\xff",
        "flag": True,
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 12, 0, 0, 123456, UTC),
        "price": Decimal("1.50"),
        "id": 1,
    }
    table.upsert(0, [{**key, "note": "old", "tags": ["x", None]}, {**key, "id": 2, "note": "other", "tags": None}])
    table.upsert(1, [{**key, "note": "new", "tags": []}])
    rows = sorted(table.rows(), key=lambda row: row["id"])
    assert [(row["id"], row["note"], row["tags"]) for row in rows] == [(1, "new", []), (2, "other", None)]


@pytest.mark.parametrize("seed", range(3))
def test_the_table_equals_a_dictionary_after_any_changes(make_upserted: MakeTable, seed: int) -> None:
    random = Random(seed)
    table = make_upserted(partition_by="_partition", file_bytes="2000")
    expected: dict[int, str] = {}
    offsets = [0, 0, 0]
    for batch_id in range(6):
        tasks: list[list[Row]] = [[], [], []]
        for _ in range(random.randrange(1, 60)):
            number = random.randrange(30)
            # A key is always in the same partition, as in a topic whose records have this key.
            partition = number % 3
            note = None if random.random() < 0.3 else f"{batch_id}-{random.random()}"
            tasks[partition].append(change(number, note, offsets[partition], partition))
            offsets[partition] += 1
            if note is None:
                expected.pop(number, None)
            else:
                expected[number] = note
        for task in tasks:
            random.shuffle(task)
        table.upsert(batch_id, *tasks)
        if random.random() < 0.3:
            table.upsert(batch_id, *tasks)
        if random.random() < 0.3:
            compact(table.options["path"])
        assert table.notes() == expected


def test_the_formats_own_libraries_read_the_upserted_rows(make_upserted: MakeTable, table_format: str) -> None:
    table = make_upserted(partition_by="_partition")
    table.upsert(0, [change(number, "first", number, number % 2) for number in range(10)])
    table.upsert(1, [change(3, "second", 20, 1), change(4, None, 21), change(11, "added", 22)])
    path = table.options["path"]
    if table_format == "delta":
        read = DeltaTable(path).to_pyarrow_table(columns=["id", "note"])
    else:
        with closing(SqlCatalog("logbrook", uri=f"sqlite:///{path}/metadata/catalog.db")) as catalog:
            read = catalog.load_table("logbrook.table").scan(selected_fields=("id", "note")).to_arrow()
    notes = dict(zip(read["id"].to_pylist(), read["note"].to_pylist(), strict=True))
    assert len(notes) == read.num_rows
    expected = {**dict.fromkeys(range(10), "first"), 3: "second", 11: "added"}
    del expected[4]
    assert notes == table.notes() == expected


def test_an_append_to_an_upserted_table_is_refused_and_an_overwrite_starts_anew(make_upserted: MakeTable) -> None:
    table = make_upserted(upsert_delete="")
    table.upsert(0, [change(1, "a", 0)])
    appending = {name: text for name, text in table.options.items() if not name.startswith(("upsert.", "write."))}
    with pytest.raises(TableError, match=r"upserted by the key id, and write\.mode=append could duplicate them"):
        check_write(appending, table.frame)
    with pytest.raises(TableError, match="by the key id, and the key id, note could duplicate them"):
        check_write({**table.options, "upsert.keys": "id,note"}, table.frame)
    writer = BatchTableWriter(TableOptions.parse(appending), table.frame, overwrite=True)
    writer.commit([writer.write(iter([table.batch([change(2, "b", 0)])]))])
    assert KEYS_KEY not in table.version.properties()
    assert table.notes() == {2: "b"}


def test_a_batch_query_upserts_too(make_upserted: MakeTable) -> None:
    table = make_upserted(app_id="")
    for rows in ([change(1, "a", 0), change(2, "b", 1)], [change(2, None, 2)]):
        writer = BatchTableWriter(TableOptions.parse(table.options), table.frame, overwrite=False)
        writer.commit([writer.write(iter([table.batch(rows)]))])
    assert table.notes() == {1: "a"}
    with pytest.raises(OptionError, match=r"'write\.mode': upsert cannot be combined with overwrite"):
        BatchTableWriter(TableOptions.parse(table.options), table.frame, overwrite=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"upsert.keys": "nr"}, "'upsert.keys': there is no column 'nr'; there are id, note, _topic"),
        ({"upsert.keys": ""}, "'upsert.keys': it is required with write.mode=upsert"),
        ({"upsert.keys": "tags"}, "'upsert.keys': column 'tags' is list<element: string>, which has no exact order"),
        ({"upsert.order": "ratio"}, "'upsert.order': column 'ratio' is double, which has no exact order"),
        ({"upsert.delete": "note"}, "'upsert.delete': column 'note' is string, not boolean"),
        ({"upsert.delete": "deleted"}, "'upsert.delete': there is no column 'deleted'"),
        ({"upsert.keys": "id,gone"}, "'upsert.delete': column 'gone' is not stored, so it is no key and no order"),
        ({"table.format": "parquet"}, "'write.mode': upsert is for delta and iceberg: readers of plain parquet files"),
        ({"write.mode": "append"}, "'upsert.keys': it is only for write.mode=upsert"),
        ({"write.mode": "merge"}, "'write.mode': it must be append or upsert, not 'merge'"),
    ],
)
def test_wrong_rules_are_refused_by_name(tmp_path: Path, options: dict[str, str], message: str) -> None:
    more = pa.schema({"tags": pa.list_(pa.string()), "ratio": pa.float64()})
    frame = StructType([*FRAME.fields, *from_arrow_schema(more).fields])
    rules = {"write.mode": "upsert", "upsert.keys": "id", "upsert.delete": "gone"}
    with pytest.raises(OptionError) as refused:
        check_write({"path": str(tmp_path / "table"), **rules, **options}, frame)
    assert message in str(refused.value)
