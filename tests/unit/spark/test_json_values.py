"""JSON values as structs."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from math import inf
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from logbrook.spark import json_values as values_module
from logbrook.spark.errors import OptionError
from logbrook.spark.json_values import decode_json, with_json_values
from logbrook.spark.schema import SchemaError, columns_of, json_schema, spark_schema, value_schema_of


def struct(**types: DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in types.items()])


SCHEMA = struct(id=LongType(), name=StringType(), tags=ArrayType(StringType()), inner=struct(x=DoubleType()))
NOTHING = {"id": None, "name": None, "tags": None, "inner": None}


def decode(values: Sequence[bytes | None], schema: StructType = SCHEMA) -> list[Any]:
    decoded = decode_json(pa.array(values, pa.binary()), to_arrow_type(schema, timezone="UTC"))
    decoded.validate(full=True)
    assert decoded.type == to_arrow_type(schema, timezone="UTC")
    rows: list[Any] = decoded.to_pylist()
    return rows


def field(type_: DataType, text: str) -> Any:
    """Decode one field of `type_` beside a value that fits; None means that the whole value is null."""
    good, bad = decode([b"{}", b'{"f": %s}' % text.encode()], struct(f=type_))
    assert good == {"f": None}
    return bad and bad["f"]


def test_objects_become_structs() -> None:
    assert decode(
        [b'{"id": 1, "name": "a", "tags": ["x", null], "inner": {"x": 1}}', b'{"inner": {}, "tags": []}']
    ) == [
        {"id": 1, "name": "a", "tags": ["x", None], "inner": {"x": 1.0}},
        {"id": None, "name": None, "tags": [], "inner": {"x": None}},
    ]


def test_no_values_are_no_structs() -> None:
    assert decode([]) == []


def test_fields_outside_the_schema_are_left_out() -> None:
    assert decode([b'{"id": 1, "other": [{"deep": 1}], "more": 5}', b'{"other": 7}']) == [NOTHING | {"id": 1}, NOTHING]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b" ",
        b"null",
        b"5",
        b'"text"',
        b"[]",
        b"nothing",
        b"{",
        b"}",
        b"{}}",
        b'{"id": }',
        b'{"id": 1}{"id": 2}',
        b'{"id": 1}\n{"id": 2}',
        b'{"id": 1},"name":{}',
        b'{"id": 1}, {}',
        b"{'id': 1}",
        b'{"id": 1} // {}',
        b'{"name": "a\nb"}',
        b'{"name": "\xff"}',
        b"\xff",
        b'{"id": 1}\0}',
        b'\0{"id": 1}',
        b'{"id": "1"}',
        b'{"id": 1.0}',
        b'{"id": 9223372036854775808}',
        b'{"id": 1, "id": 2}',
        b'{"name": 1}',
        b'{"tags": "x"}',
        b'{"tags": [1]}',
        b'{"inner": {"x": "1"}}',
        b'{"inner": []}',
    ],
)
def test_a_value_that_is_no_json_or_does_not_fit_is_null_and_harms_no_other(value: bytes | None) -> None:
    good = b'{"id": %d}'
    first, middle, last = decode([good % 1, value, good % 3])
    assert (first, middle, last) == (NOTHING | {"id": 1}, None, NOTHING | {"id": 3})


@pytest.mark.parametrize("value", [b'{\n  "id": 1,\n  "name": "a"\n}\n', b'\r\n\t {"name":\n"a","id":1}'])
def test_white_space_means_nothing(value: bytes) -> None:
    assert decode([value, b"{}", value])[::2] == [NOTHING | {"id": 1, "name": "a"}] * 2


@pytest.mark.parametrize("number", ["Infinity", "Inf"])
def test_infinity_is_a_number(number: str) -> None:
    value = b'{"inner": {"x": %s}}' % number.encode()
    assert decode([value, b"{"]) == [NOTHING | {"inner": {"x": inf}}, None]


def test_limits_of_python_are_not_limits_of_values() -> None:
    digits, deep = b"1" * 5000, b"[" * 5000 + b"]" * 5000
    values = [b'{"id": 1, "other": %s}' % digits, b'{"id": 2, "other": %s}' % deep, b"{"]
    assert decode(values) == [NOTHING | {"id": 1}, NOTHING | {"id": 2}, None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"2024-02-29T12:30:00Z"', datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
        ('"2024-02-29 12:30:00.123456"', datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)),
        ('"2024-02-29T12:30:00.123456789+02:00"', datetime(2024, 2, 29, 10, 30, 0, 123456, tzinfo=UTC)),
        ('"2024-02-29T12:30:00-0530"', datetime(2024, 2, 29, 18, tzinfo=UTC)),
        ('"2024-02-29"', datetime(2024, 2, 29, tzinfo=UTC)),
        ('"1960-01-01T00:00:00"', datetime(1960, 1, 1, tzinfo=UTC)),
        ("null", None),
        ('"2024-02-30"', None),
        ('"2024-02-29T25:00"', None),
        ('"soon"', None),
        ('""', None),
        ("1700000000", None),
    ],
)
def test_a_timestamp_is_text_in_utc_unless_it_has_an_offset(text: str, expected: datetime | None) -> None:
    assert field(TimestampType(), text) == expected


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        (TimestampNTZType(), '"2024-02-29T12:30:00"', datetime(2024, 2, 29, 12, 30)),
        (TimestampNTZType(), '"2024-02-29T12:30:00Z"', None),
        (DateType(), '"2024-02-29"', date(2024, 2, 29)),
        (DateType(), '"29.2.2024"', None),
        (DateType(), "19000", None),
        (IntegerType(), "2147483647", 2147483647),
        (IntegerType(), "2147483648", None),
        (DoubleType(), "-1.5e3", -1500.0),
        (DoubleType(), "7", 7.0),
        (DoubleType(), '"7"', None),
        (BooleanType(), "true", True),
        (BooleanType(), "1", None),
        (StringType(), '"\\u00e9\\n"', "é\n"),
        (ArrayType(ArrayType(LongType())), "[[1], [], null]", [[1], [], None]),
        (
            ArrayType(struct(at=TimestampType())),
            '[{"at": "2024-01-01"}, null]',
            [{"at": datetime(2024, 1, 1, tzinfo=UTC)}, None],
        ),
        (ArrayType(DateType()), '["2024-01-01", "x"]', None),
    ],
)
def test_types_accept_their_json_values(type_: DataType, text: str, expected: Any) -> None:
    assert field(type_, text) == expected


def test_python_looks_at_no_value_where_all_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> bool:
        raise AssertionError("a value was looked at")

    monkeypatch.setattr(values_module, "_may_fit", never)
    rows = decode([*(b'{"id": %d}' % number for number in range(5000)), None, b"", b"null", b'{\n"id": 5000\n}'])
    assert [row and row["id"] for row in rows] == [*range(5000), None, None, None, 5000]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5)
documents = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "name": texts | st.none(),
        "tags": st.lists(texts | st.none(), max_size=3),
        "inner": st.fixed_dictionaries({"x": st.floats(allow_nan=False, allow_infinity=False)}),
        "other": st.recursive(st.none() | st.integers() | texts, st.lists, max_leaves=4),
    },
)
# Pieces of JSON in any order, so that some values end what others begin.
debris = st.lists(
    st.sampled_from(['{"id":1', "}", "{", "{}", "[", '{"inner":{"x":Inf}}', "]", '"', ",", ":", "\n", "\0", "1", " "]),
    max_size=6,
)
given_values = st.lists(documents.map(json.dumps) | debris.map("".join), max_size=6)


@settings(max_examples=60)
@given(given_values)
def test_a_decoded_value_does_not_depend_on_other_values(texts: list[str]) -> None:
    values: list[bytes | None] = [text.encode() for text in texts]
    assert decode(values) == [decode([value])[0] for value in values]


@settings(max_examples=60)
@given(st.lists(documents, max_size=6))
def test_values_equal_those_of_pythons_json(given: list[dict[str, Any]]) -> None:
    expected = [{name: document.get(name) for name in NOTHING} for document in given]
    assert decode([json.dumps(document).encode() for document in given]) == expected


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (struct(a=DecimalType(10, 2)), "value.a is decimal(10,2), which JSON does not have"),
        (struct(a=BinaryType()), "value.a is binary, which JSON does not have"),
        (struct(a=ByteType()), "value.a is tinyint, which JSON does not have"),
        (struct(a=ArrayType(MapType(StringType(), StringType()))), "value.a[] is map<string,string>, which"),
        (struct(), "value has no fields"),
        (StructType([StructField("a", LongType())] * 2), "value has two fields of one name"),
        (StructType([StructField("a", LongType(), False)]), "value.a is NOT NULL, and a value may lack it"),
    ],
)
def test_a_type_that_json_does_not_have_is_refused_by_name(schema: StructType, reason: str) -> None:
    with pytest.raises(SchemaError) as error:
        columns_of(struct(value=schema), is_json=True)
    assert str(error.value).startswith(reason)


def test_the_column_keeps_its_place() -> None:
    batch = pa.record_batch({"key": [b"k"], "value": [b'{"a": 1}'], "offset": [7]})
    changed = with_json_values(batch, struct(a=LongType()))
    assert changed.to_pylist() == [{"key": b"k", "value": {"a": 1}, "offset": 7}]
    without = batch.drop_columns(["value"])
    assert with_json_values(without, struct(a=LongType())).equals(without)


def test_the_schema_has_the_values_as_structs() -> None:
    assert json_schema(("value", "timestamp"), "a long") == "`value` struct<a long>, `timestamp` timestamp_ltz"
    with pytest.raises(OptionError, match=r"^option 'value.schema': it is required where 'value.format' is json"):
        json_schema(("value",), None)


def test_bytes_and_structs_are_not_taken_for_each_other() -> None:
    with pytest.raises(SchemaError, match="column 'value' is a struct, and the schema says binary"):
        columns_of(spark_schema(["value"]), is_json=True)
    with pytest.raises(SchemaError, match="column 'value' is binary, and the schema says struct<a:bigint>"):
        columns_of(struct(value=struct(a=LongType())))
    assert value_schema_of(spark_schema(["value"])) is None
    assert value_schema_of(struct(value=SCHEMA)) == SCHEMA
    assert value_schema_of(struct(key=SCHEMA)) is None
