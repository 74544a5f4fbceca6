"""Files written by a task, and their removal if it fails."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from logbrook.spark.errors import OptionError, TableError
from logbrook.spark.tables import files as files_module
from logbrook.spark.tables.files import TableFileWriter, files_from_json, files_to_json
from logbrook.spark.tables.format import DataFile, TableOptions
from logbrook.spark.tables.source import (
    StreamTableWriter,
    TableCommitMessage,
    app_id_of,
    delete_unpublished,
    plan_write,
)

SCHEMA = pa.schema({"id": pa.int64(), "day": pa.string()})
FRAME: StructType = from_arrow_schema(SCHEMA)


def batch_of(ids: range, day: str = "monday") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids), "day": [day] * len(ids)}, schema=SCHEMA)


def writer_of(directory: Path, *, partition_by: tuple[str, ...] = (), file_bytes: int = 1 << 20) -> TableFileWriter:
    return TableFileWriter(
        str(directory),
        SCHEMA,
        partition_by,
        partition_columns_in_files=False,
        file_bytes=file_bytes,
        compression="none",
    )


def test_a_file_ends_when_it_has_its_size(tmp_path: Path) -> None:
    writer = writer_of(tmp_path, file_bytes=10_000)
    for start in range(0, 20_000, 500):
        writer.write(batch_of(range(start, start + 500)))
    files = writer.finish()
    assert len(files) > 5
    assert all(10_000 <= file.size_bytes < 40_000 for file in files[:-1])
    assert sum(file.rows for file in files) == 20_000
    assert all(pq.read_metadata(file.path).num_rows == file.rows == file.footer.num_rows for file in files)


def test_small_batches_share_a_row_group(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    for start in range(100):
        writer.write(batch_of(range(start, start + 1)))
    (file,) = writer.finish()
    assert (file.rows, file.footer.num_row_groups) == (100, 1)


def test_no_more_files_are_open_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "OPEN_FILES_MAX", 3)
    writer = writer_of(tmp_path, partition_by=("day",))
    for number in range(10):
        writer.write(batch_of(range(number, number + 1), f"day-{number}"))
        assert len(writer._open) <= 3
    files = writer.finish()
    assert sorted(str(file.partition["day"]) for file in files) == [f"day-{number}" for number in range(10)]
    assert all(file.footer.num_columns == 1 for file in files), "the directory says which day it is"


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch_of(range(1000))
        raise RuntimeError("the executor is lost")

    plan = plan_write(TableOptions.parse({"path": str(tmp_path / "table"), "file.bytes": "1000"}), FRAME)
    with pytest.raises(RuntimeError, match="the executor is lost"):
        plan.run(batches())
    assert list(tmp_path.rglob("*.parquet")) == []


def test_an_abort_deletes_only_unpublished_files(tmp_path: Path) -> None:
    options = TableOptions.parse({"path": str(tmp_path / "table"), "app.id": "app"})
    writer = StreamTableWriter(options, FRAME, overwrite=False)
    first, second = (writer.write(iter([batch_of(range(10))])) for _ in range(2))
    # All tasks were done, so the commit was tried.
    writer.abort([first, second], 0)
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    # One was not.
    writer.abort([first, None], 0)
    assert isinstance(second, TableCommitMessage)
    assert [str(path) for path in tmp_path.rglob("*.parquet")] == [second.files[0].path]
    delete_unpublished([None])


def test_a_writer_is_known_by_its_option_then_its_query_then_its_checkpoint() -> None:
    given = TableOptions(path="/t", app_id="app", checkpoint="/c")
    assert app_id_of(given, "query") == "app"
    unnamed = TableOptions(path="/t", checkpoint="/c")
    assert app_id_of(unnamed, "query") == "query"
    assert app_id_of(unnamed, None) == app_id_of(TableOptions(path="/other", checkpoint="/c"), None)
    with pytest.raises(OptionError, match=r"'app\.id': it is required"):
        app_id_of(TableOptions(path="/t"), None)


def test_a_table_is_partitioned_only_by_types_with_valid_directory_names(tmp_path: Path) -> None:
    def plan(frame: pa.Schema, partition_by: str) -> None:
        options = {"path": str(tmp_path / "table"), "partition.by": partition_by}
        plan_write(TableOptions.parse(options), from_arrow_schema(frame))

    with pytest.raises(TableError, match="partitioned by 'hour', which is not a column of the frame"):
        plan(SCHEMA, "hour")
    with pytest.raises(TableError, match="it cannot be partitioned by 'ratio', which is double"):
        plan(SCHEMA.append(pa.field("ratio", pa.float64())), "ratio")
    with pytest.raises(TableError, match="it needs a column besides"):
        plan(SCHEMA, "id,day")
    assert not (tmp_path / "table").exists()


def test_a_list_of_files_travels_to_a_task_as_json() -> None:
    schema = pa.schema(
        {"id": pa.int64(), "day": pa.date32(), "text": pa.string(), "number": pa.int32(), "b": pa.bool_()}
    )
    files = [
        DataFile("s3://lake/t/a.parquet", 10, 1, {"day": date(2026, 1, 31), "text": "é/%", "number": 7, "b": True}),
        DataFile("s3://lake/t/b.parquet", 20, 2, {"day": None, "text": "", "number": None, "b": None}),
        DataFile("/data/c.parquet", 30, 3, {}),
    ]
    assert files_from_json(files_to_json(files), schema) == files
