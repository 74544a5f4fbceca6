"""The offsets up to which a table holds a topic."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from logbrook.spark.errors import OptionError, TableError
from logbrook.spark.tables.commits import OFFSETS_KEY, merge_offsets, next_offsets, offsets_from_json, offsets_to_json
from logbrook.spark.tables.format import TableOptions, open_format
from logbrook.spark.tables.source import StreamTableWriter, plan_write

SCHEMA = pa.schema({"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "value": pa.binary()})


def test_the_next_offset_is_one_past_the_largest_in_any_order_of_rows() -> None:
    rows = [("t", 0, 7), ("t", 1, 3), ("u", 0, 0), ("t", 0, 9), ("t", 0, 8), (None, 0, 99), ("t", 0, None)]
    batch = pa.RecordBatch.from_pylist(
        [{"topic": topic, "partition": number, "offset": offset} for topic, number, offset in rows], schema=SCHEMA
    )
    assert next_offsets(batch) == {"t": {0: 10, 1: 4}, "u": {0: 1}}
    assert next_offsets(batch.slice(0, 0)) == {}


def test_merging_keeps_the_furthest() -> None:
    assert merge_offsets([{"t": {0: 5, 1: 1}}, {"t": {0: 3, 2: 8}, "u": {0: 0}}]) == {
        "t": {0: 5, 1: 1, 2: 8},
        "u": {0: 0},
    }
    assert merge_offsets([]) == {}


def test_json_is_what_starting_offsets_takes() -> None:
    offsets = {"u": {0: 1}, "t": {10: 5, 2: 7}}
    assert offsets_to_json(offsets) == '{"t": {"2": 7, "10": 5}, "u": {"0": 1}}'
    assert offsets_from_json(offsets_to_json(offsets)) == offsets
    assert offsets_from_json(None) == {}


def test_a_frame_without_offsets_is_refused(tmp_path: Path) -> None:
    options = TableOptions(path=str(tmp_path), track_offsets=True)
    with pytest.raises(OptionError, match=r"'source\.offsets': it needs a column 'offset' of type integer"):
        plan_write(options, from_arrow_schema(SCHEMA.remove(2)))
    with pytest.raises(OptionError, match=r"'source\.offsets': it needs a column 'topic' of type string"):
        plan_write(options, from_arrow_schema(SCHEMA.set(0, pa.field("topic", pa.int32()))))
    plan_write(options, from_arrow_schema(SCHEMA))


def test_offsets_cannot_be_noted_from_some_later_batch_on(tmp_path: Path) -> None:
    row = {"topic": "t", "partition": 0, "offset": 4, "value": b""}
    frame = from_arrow_schema(SCHEMA)
    batch = pa.RecordBatch.from_pylist([row], schema=SCHEMA)
    late = TableOptions(path=str(tmp_path), app_id="app", track_offsets=True)
    writer = StreamTableWriter(TableOptions(path=str(tmp_path), app_id="app"), frame, overwrite=False)
    writer.commit([writer.write(iter([batch]))], 0)
    with pytest.raises(TableError, match="it has rows without source offsets"):
        plan_write(late, frame)
    # An overwrite of all rows replaces the offsets too.
    writer = StreamTableWriter(late, frame, overwrite=True)
    writer.commit([writer.write(iter([batch]))], 1)
    version = open_format(late).load()
    assert version is not None
    assert version.properties()[OFFSETS_KEY] == '{"t": {"0": 5}}'
    plan_write(late, frame)
