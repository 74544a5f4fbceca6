"""Batch writes to tables, as `foreachBatch` makes them: repetitions add nothing, second writes are refused."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from logbrook.spark.errors import OptionError, TableError
from logbrook.spark.tables.format import TableOptions
from logbrook.spark.tables.source import BatchTableWriter, StreamTableWriter

StartTask = Callable[..., None]
MakeTable = Callable[..., Any]
RUNS = [f"{number}1111111-1111-1111-1111-111111111111" for number in range(3)]


def row(number: int) -> dict[str, Any]:
    return {"id": number, "day": "monday", "note": None}


def write(table: Any, *ids: int, overwrite: bool = False, **options: str) -> None:
    named = {name.replace("_", "."): text for name, text in options.items()}
    writer = BatchTableWriter(TableOptions.parse({**table.options, **named}), table.frame, overwrite)
    schema = to_arrow_schema(table.frame, timezone="UTC")
    batch = pa.RecordBatch.from_pylist([row(number) for number in ids], schema=schema)
    writer.commit([writer.write(iter([batch]))])


def ids_of(table: Any) -> list[int]:
    return sorted(row["id"] for row in table.rows())


def test_a_write_with_the_same_options_is_a_repetition(make_table: MakeTable, start_task: StartTask) -> None:
    table = make_table()
    start_task()
    for number in (0, 1, 1, 0):
        write(table, number, app_id="app", batch_id=str(number))
    write(table, 2, app_id="other", batch_id="0")
    assert ids_of(table) == [0, 1, 2]
    # Without options it is no repetition.
    for _ in range(2):
        write(table, 3)
    assert ids_of(table) == [0, 1, 2, 3, 3]


def test_a_micro_batch_repeated_by_a_later_run_is_written_once(make_table: MakeTable, start_task: StartTask) -> None:
    table = make_table()
    for run_id, batches in zip(RUNS, ([0, 1], [1, 2], [2, 3]), strict=True):
        for batch_id in batches:
            start_task(batch_id, run_id=run_id)
            write(table, batch_id)
    assert ids_of(table) == [0, 1, 2, 3]
    assert table.version.batch_id_of("query") == 3
    assert table.on_disk() == {file.path for file in table.version.data_files()}


def test_an_older_checkpoint_repeats_several_micro_batches(make_table: MakeTable, start_task: StartTask) -> None:
    table = make_table()
    for run_id in RUNS:
        for batch_id in range(3):
            start_task(batch_id, run_id=run_id)
            write(table, batch_id)
    assert ids_of(table) == [0, 1, 2]
    assert table.version.batch_id_of("query") == 2


def test_a_second_write_of_a_micro_batch_is_refused_in_every_run(make_table: MakeTable, start_task: StartTask) -> None:
    """If the later run took it for a repetition of the first write, its rows would be lost."""
    table = make_table()
    message = r"batch 0 of app\.id 'query' was already written in this run of the query"
    for run_id in RUNS:
        start_task(0, run_id=run_id)
        write(table, 0)
        with pytest.raises(TableError, match=message):
            write(table, 1)
        assert ids_of(table) == [0]
    write(table, 1, app_id="second")
    assert ids_of(table) == [0, 1]


def test_a_given_batch_id_may_be_written_again_in_the_same_run(make_table: MakeTable, start_task: StartTask) -> None:
    table = make_table()
    start_task(5)
    for _ in range(2):
        write(table, 0, app_id="app", batch_id="5")
    assert ids_of(table) == [0]
    # Another query under the same id would lose its first batches.
    start_task(5, query_id="other")
    with pytest.raises(TableError, match=r"batch 5 of app\.id 'app' was committed by query query; query other has"):
        write(table, 1, app_id="app", batch_id="5")
    start_task()
    with pytest.raises(TableError, match="this write is of another query"):
        write(table, 1, app_id="app", batch_id="5")


def test_an_overwrite_is_repeated_unless_it_has_a_batch_id(make_table: MakeTable, start_task: StartTask) -> None:
    table = make_table()
    start_task(0)
    for number in range(2):
        write(table, number, overwrite=True)
    assert ids_of(table) == [1]
    for number in range(2, 4):
        write(table, number, overwrite=True, batch_id="0")
    assert ids_of(table) == [2]
    # What an overwrite replaces includes rows of this micro-batch, and it keeps the record of its writes.
    write(table, 5, app_id="app")
    write(table, 6, overwrite=True)
    with pytest.raises(TableError, match="already written"):
        write(table, 5, app_id="app")


def test_an_app_id_without_a_batch_id_is_refused_before_a_file_is_written(
    make_table: MakeTable, start_task: StartTask
) -> None:
    table = make_table()
    start_task()
    with pytest.raises(OptionError, match=r"'batch\.id': it is required with app\.id"):
        write(table, 0, app_id="app")
    with pytest.raises(OptionError, match=r"'app\.id': it is required with batch\.id"):
        write(table, 0, batch_id="1")
    assert not table.on_disk()


def test_a_streaming_query_has_its_own_batch_ids(make_table: MakeTable) -> None:
    table = make_table()
    options = TableOptions.parse({**table.options, "batch.id": "1"})
    with pytest.raises(OptionError, match=r"'batch\.id': it is only for batch writes"):
        StreamTableWriter(options, table.frame, False)
