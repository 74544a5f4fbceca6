"""Parsing of records into rows, and the reasons in dead letters. from_json alone would lose some records."""

from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from logbrook.spark.pipeline.parsing import RowParser
from logbrook.spark.pipeline.spec import RowFormat

SCHEMA = "id BIGINT, amount DOUBLE, at TIMESTAMP, n STRUCT<a: INT, b: STRING>, l ARRAY<INT>, s STRING"
RECORD = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
GOOD: dict[bytes, tuple[Any, ...]] = {
    b'{"id":1,"amount":2.5,"at":"2026-01-01T00:00:00Z"}': (1, 2.5, datetime(2026, 1, 1), None, None, None),
    b"{}": (None,) * 6,
    b'{"id":null,"other":[1]}': (None,) * 6,
    b' {"id":7}\n': (7, None, None, None, None, None),
    b'{"at":1700000000}': (None, None, datetime(2023, 11, 14, 22, 13, 20), None, None, None),
    b'{"n":{"a":1,"b":"x"},"l":[1,2]}': (None, None, None, (1, "x"), [1, 2], None),
    b'{"s":5}': (None, None, None, None, None, "5"),
}
BAD: dict[bytes | None, bytes] = {
    None: b"the value is null",
    b"": b"the value is not a JSON object",
    b"   ": b"the value is not a JSON object",
    b"{bad": b"the value is not JSON",
    b'{"id":1': b"the value is not JSON",
    b'{"id":1} garbage': b"the value is not JSON",
    b'{"id":1}{"id":2}': b"the value is not JSON",
    b'{"id":1}}': b"the value is not JSON",
    b"\xff\xfe": b"the value is not JSON",
    b"null": b"the value is not a JSON object",
    b"[1]": b"the value is not a JSON object",
    b'[{"id":5}]': b"the value is not a JSON object",
    b'"s"': b"the value is not a JSON object",
    b'{"id":"x","amount":2.5}': b"id is not bigint",
    b'{"id":1.5,"amount":"2"}': b"id is not bigint, amount is not double",
    b'{"id":99999999999999999999}': b"id is not bigint",
    b'{"at":"nonsense"}': b"at is not timestamp",
    b'{"n":3}': b"n is not struct<a:int,b:string>",
    b'{"n":{"a":"x"}}': b"the value does not fit the schema",
    b'{"l":[1,"x"]}': b"l is not array<int>",
}


def records(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    rows: list[tuple[Any, ...]] = [
        (b"k", value, "t", 0, offset, datetime(2026, 1, 1), []) for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RECORD).coalesce(1)


@pytest.fixture(scope="module")
def parser(spark: SparkSession) -> RowParser:
    schema = StructType.fromDDL(SCHEMA)
    assert isinstance(schema, StructType)
    return RowParser(RowFormat.JSON, schema)


def test_a_value_that_fits_its_schema_is_a_row(spark: SparkSession, parser: RowParser) -> None:
    rows = parser.rows(records(spark, [*BAD, *GOOD]), drops_unparsed=True)
    assert rows.columns[-5:] == ["_key", "_topic", "_partition", "_offset", "_timestamp"]
    assert [tuple(row)[:6] for row in rows.collect()] == list(GOOD.values())


def test_every_other_record_is_a_dead_letter_with_its_reason(spark: SparkSession, parser: RowParser) -> None:
    letters = parser.dead_letters(records(spark, [*GOOD, *BAD])).collect()
    assert {row.value and bytes(row.value): bytes(row.headers[0].value) for row in letters} == BAD


def test_a_tombstone_is_a_row_of_nulls_if_configured(spark: SparkSession) -> None:
    schema = StructType.fromDDL("id BIGINT, s STRING")
    assert isinstance(schema, StructType)
    parser = RowParser(RowFormat.JSON, schema, keeps_tombstones=True)
    there = records(spark, [b'{"id":1}', None, b"null", b"bad"])
    rows = parser.rows(there, drops_unparsed=True).collect()
    assert [(row.id, row.s, bytes(row._key), row._offset) for row in rows] == [
        (1, None, b"k", 0),
        (None, None, b"k", 1),
    ]
    assert [bytes(row.value) for row in parser.dead_letters(there).collect()] == [b"null", b"bad"]
    assert len(parser.rows(there.limit(2), drops_unparsed=False).collect()) == 2


def test_a_text_is_utf_8(spark: SparkSession) -> None:
    parser = RowParser(RowFormat.STRING, None)
    there = records(spark, [b"caf\xc3\xa9", b"\xff", None])
    assert [row.value for row in parser.rows(there, drops_unparsed=True).collect()] == ["café", None]
    (letter,) = parser.dead_letters(there).collect()
    assert bytes(letter.headers[0].value) == b"the value is not UTF-8"


def test_the_bytes_format_accepts_any_value(spark: SparkSession) -> None:
    parser = RowParser(RowFormat.BYTES, None)
    rows = parser.rows(records(spark, [b"\xff", None]), drops_unparsed=False).collect()
    assert (parser.can_fail, [row.value for row in rows]) == (False, [b"\xff", None])
