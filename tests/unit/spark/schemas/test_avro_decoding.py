"""Avro values to columns, with fastavro as the oracle."""

import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logbrook.spark.schemas.avro_resolution import AvroReader
from logbrook.spark.schemas.avro_schema import parse_avro
from logbrook.spark.schemas.columns import ColumnBuffers
from logbrook.spark.schemas.errors import IncompatibleSchemaError, InvalidSchemaError
from logbrook.spark.schemas.kernels.avro import ValueBounds, decode_avro

INT32, INT64 = 2**31, 2**63


def encode(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def decode_bytes(values: list[bytes], writer: Any, reader: Any = None) -> Any:
    """Decode with `reader`, by default the writer's own schema, and return the Arrow array."""
    target = AvroReader(parse_avro(json.dumps(writer if reader is None else reader)))
    resolution = target.resolve(parse_avro(json.dumps(writer)))
    ends = np.cumsum([len(value) for value in values], dtype=np.int64)
    starts = ends - [len(value) for value in values]
    data = np.frombuffer(b"".join(values), np.uint8)
    data.flags.writeable = False
    buffers = ColumnBuffers(target.root, len(values), data.size)
    is_decoded = np.empty(len(values), np.uint8)
    decode_avro(data, ValueBounds(starts.astype(np.int64), ends), resolution.program, buffers.table, is_decoded)
    array = buffers.finish(resolution.defaults)
    array.validate(full=True)
    assert array.type == target.root.arrow_type
    assert [valid for valid, decoded in zip(array.is_valid().to_pylist(), is_decoded, strict=True) if not decoded] == [
        False
    ] * int((is_decoded == 0).sum())
    return array


def decode(values: list[Any], writer: Any, reader: Any = None) -> list[Any]:
    rows: list[Any] = decode_bytes([encode(writer, value) for value in values], writer, reader).to_pylist()
    return rows


def record(*fields: tuple[str, Any], name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": name, "type": type_} for name, type_ in fields]}


def with_default(schema: dict[str, Any], name: str, type_: Any, default: Any, **more: Any) -> dict[str, Any]:
    return schema | {"fields": [*schema["fields"], {"name": name, "type": type_, "default": default, **more}]}


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ("boolean", [True, False]),
        ("int", [0, -1, 63, 64, -65, INT32 - 1, -INT32]),
        ("long", [0, -1, 8191, 8192, INT64 - 1, -INT64]),
        ("float", [0.0, 1.5, -2.25, float("inf")]),
        ("double", [0.0, 0.1, -1e300]),
        ("bytes", [b"", b"\x00\xff", b"x" * 5000]),
        ("string", ["", "plain", "käse", "日本", "\U0001f9c0", "x" * 5000]),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["B", "A", "B"]),
        ({"type": "fixed", "name": "f", "size": 3}, [b"abc", b"\x00\x01\x02"]),
        ({"type": "array", "items": "int"}, [[1, 2], [], [3]]),
        ({"type": "array", "items": {"type": "array", "items": ["null", "string"]}}, [[["a", None], []], [], [[]]]),
        (["null", "int"], [None, 5, None]),
        (["int", "null"], [None, 5, None]),
        (["null", "int", "long"], [None, 5, INT64 - 1]),
        (record(), [{}, {}]),
        (record(("a", "int"), ("b", record(("c", "string"), name="inner"))), [{"a": 1, "b": {"c": "x"}}]),
        (record(("a", ["null", record(("c", "string"), name="i")])), [{"a": None}, {"a": {"c": "x"}}, {"a": None}]),
        (logical("int", "date"), [date(1970, 1, 1), date(2026, 11, 17), date(1900, 2, 28)]),
        (logical("long", "timestamp-millis"), [datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)]),
        (logical("long", "timestamp-micros"), [datetime(1969, 1, 2, 3, 4, 5, 6, UTC)]),
        (logical("long", "local-timestamp-micros"), [datetime(2026, 1, 2, 3, 4, 5, 6)]),
        (logical("bytes", "decimal", precision=9, scale=2), [Decimal("1.23"), Decimal("-9999999.99"), Decimal("0.00")]),
        (
            {"type": "fixed", "name": "d", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 0},
            [Decimal(10**38 - 1), Decimal(1 - 10**38)],
        ),
    ],
    ids=repr,
)
def test_values_are_as_they_were_written(schema: Any, values: list[Any]) -> None:
    assert decode(values, schema) == values


def test_a_map_is_a_list_of_entries() -> None:
    schema = {"type": "map", "values": ["null", "long"]}
    assert decode([{"a": 1, "b": None}, {}], schema) == [[("a", 1), ("b", None)], []]


def test_a_union_of_several_types_is_a_struct_of_members() -> None:
    nothing = {"member0": None, "member1": None, "member2": None}
    assert decode(
        [("string", "x"), None, ("boolean", True), ("double", 2.5)], ["null", "string", "double", "boolean"]
    ) == [
        nothing | {"member0": "x"},
        None,
        nothing | {"member2": True},
        nothing | {"member1": 2.5},
    ]


def test_times_of_day_stay_numbers_and_unknown_logical_types_are_ignored() -> None:
    schema = record(
        ("a", logical("int", "time-millis")), ("b", logical("string", "uuid")), ("c", logical("int", "odd"))
    )
    values = [encode(record(("a", "int"), ("b", "string"), ("c", "int")), {"a": 5, "b": "u", "c": 7})]
    assert decode_bytes(values, schema).to_pylist() == [{"a": 5, "b": "u", "c": 7}]


OLD = record(("id", "int"), ("name", "string"), ("gone", {"type": "map", "values": ["null", "long", "string"]}))
OLD_VALUE = {"id": 7, "name": "n", "gone": {"a": 1, "b": "x", "c": None}}


@pytest.mark.parametrize(
    ("field", "default", "expected"),
    [
        (["null", "string"], None, None),
        ("int", 5, 5),
        (["int", "null"], 5, 5),
        ("string", "käse", "käse"),
        ("bytes", "\u00ff\u0000", b"\xff\x00"),
        ("double", 1, 1.0),
        ("boolean", True, True),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": "int"}, {"k": 1}, [("k", 1)]),
        (record(("x", "int"), ("y", "string"), name="inner"), {"x": 1, "y": "z"}, {"x": 1, "y": "z"}),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", "B"),
        (logical("int", "date"), 1, date(1970, 1, 2)),
        (logical("long", "timestamp-millis"), 1500, datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        (logical("bytes", "decimal", precision=4, scale=1), "\u00ff\u00ff", Decimal("-0.1")),
    ],
    ids=repr,
)
def test_a_new_field_gets_its_default_and_a_removed_one_is_skipped(field: Any, default: Any, expected: Any) -> None:
    new = with_default(record(("name", "string"), ("id", "long")), "new", field, default)
    row = {"name": "n", "id": 7, "new": expected}
    assert decode([OLD_VALUE, OLD_VALUE], OLD, new) == [row, row]


def test_a_default_within_lists_applies_to_every_element() -> None:
    old = {"type": "array", "items": ["null", record(("a", "int"), name="x")]}
    new = {"type": "array", "items": ["null", with_default(record(("a", "int"), name="x"), "b", "int", 9)]}
    assert decode([[{"a": 1}, None, {"a": 2}], []], old, new) == [[{"a": 1, "b": 9}, None, {"a": 2, "b": 9}], []]


PROMOTIONS = [
    ("int", "long", [1, -1]),
    ("int", "float", [3]),
    ("int", "double", [3]),
    ("long", "float", [4]),
    ("long", "double", [2**53]),
    ("float", "double", [1.5]),
    ("string", "bytes", ["x"]),
    ("bytes", "string", [b"x"]),
    ("int", ["null", "long"], [1]),
    (["null", "int"], ["null", "long"], [1, None]),
    (["null", "int"], ["long", "null", "string"], [1, None]),
    ("int", ["string", "long"], [1]),
]


@pytest.mark.parametrize(("old", "new", "values"), PROMOTIONS, ids=repr)
def test_types_are_promoted_as_by_the_specification(old: Any, new: Any, values: list[Any]) -> None:
    oracle = []
    for value in values:
        data = io.BytesIO(encode(old, value))
        oracle.append(fastavro.schemaless_reader(data, old, new))
    members = [branch for branch in new if branch != "null"] if isinstance(new, list) else []
    if len(members) > 1:
        chosen = members.index("long")
        nothing = {f"member{number}": None for number in range(len(members))}
        oracle = [None if value is None else nothing | {f"member{chosen}": value} for value in oracle]
    assert decode(values, old, new) == oracle


def test_enum_symbols_are_matched_by_name_and_unknown_ones_become_the_default() -> None:
    old = {"type": "enum", "name": "e", "symbols": ["A", "B", "C"]}
    new = {"type": "enum", "name": "e", "symbols": ["C", "A"], "default": "A"}
    assert decode(["A", "B", "C"], old, new) == ["A", "A", "C"]
    strict = {"type": "enum", "name": "e", "symbols": ["C", "A"]}
    assert decode(["A", "B", "C"], old, strict) == ["A", None, "C"]


def test_a_renamed_field_is_read_by_its_alias() -> None:
    new = {"type": "record", "name": "r", "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]}
    assert decode([{"a": 4}], record(("a", "int")), new) == [{"b": 4}]


def test_a_branch_that_cannot_be_read_makes_only_its_own_values_null() -> None:
    assert decode([1, "x", 2], ["int", "string"], "long") == [1, None, 2]
    assert decode([{"a": 1}, {"a": None}], record(("a", ["null", "int"])), record(("a", "int"))) == [{"a": 1}, None]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (record(("a", "int")), record(("a", "string")), "a: int cannot be read as string"),
        (record(), record(("a", "int")), "a: the writer lacks it, and the reader has no default"),
        (record(("a", record(("b", "long"), name="i"))), record(("a", record(("b", "int"), name="i"))), "a: b: long"),
        (["null", "string"], "int", "string cannot be read as int"),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "an array cannot be read as a map"),
        ({"type": "fixed", "name": "f", "size": 3}, {"type": "fixed", "name": "f", "size": 4}, "f cannot be read as f"),
    ],
)
def test_schemas_that_do_not_resolve_are_refused_with_the_field(old: Any, new: Any, reason: str) -> None:
    with pytest.raises(IncompatibleSchemaError, match=f"^{reason}"):
        AvroReader(parse_avro(json.dumps(new))).resolve(parse_avro(json.dumps(old)))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array", "items": "null"}, "an array has elements without any bytes"),
        ({"type": "array", "items": record()}, "an array has elements without any bytes"),
    ],
)
def test_arrays_whose_elements_have_no_bytes_are_refused(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        AvroReader(parse_avro(json.dumps(schema))).resolve(parse_avro(json.dumps(schema)))


NESTED = record(
    ("id", "long"),
    ("name", ["null", "string"]),
    ("tags", {"type": "array", "items": record(("t", "string"), ("n", ["null", "int"]), name="tag")}),
    ("kind", {"type": "enum", "name": "k", "symbols": ["A", "B"]}),
    ("props", {"type": "map", "values": "double"}),
    ("flag", "boolean"),
)
NESTED_VALUE = {
    "id": 5,
    "name": "käse",
    "tags": [{"t": "a", "n": 1}, {"t": "b", "n": None}],
    "kind": "B",
    "props": {"x": 1.5},
    "flag": True,
}
NESTED_ROW = NESTED_VALUE | {"props": [("x", 1.5)]}


def test_only_the_malformed_value_becomes_null() -> None:
    good = encode(NESTED, NESTED_VALUE)
    for length in range(len(good)):
        rows = decode_bytes([good, good[:length], good, good + b"\x00", b"", good], NESTED).to_pylist()
        assert rows == [NESTED_ROW, None, NESTED_ROW, None, None, NESTED_ROW]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("int", b"\xff\xff\xff\xff\x1f"),
        ("int", b"\xff\xff\xff\xff\xff\x01"),
        ("long", b"\xff" * 10),
        ("boolean", b"\x02"),
        ("string", b"\x02\xff"),
        ("string", b"\x06\xed\xa0\x80"),
        ("string", b"\x04\xc0\x80"),
        ("string", b"\x04\xc3\x28"),
        ("string", b"\x01"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x01"),
        (["null", "int"], b"\x04\x02"),
        (["null", "int", "string"], b"\x06"),
        (["null", "int", "string"], b"\x01"),
        ({"type": "array", "items": "int"}, b"\x04\x02\x02"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02\x00"),
        ({"type": "array", "items": "int"}, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02\x00"),
        (logical("long", "timestamp-millis"), b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (logical("bytes", "decimal", precision=38, scale=2), b"\x22" + bytes(17)),
        (logical("bytes", "decimal", precision=38, scale=2), b"\x00"),
    ],
    ids=repr,
)
def test_invalid_encodings_are_null(schema: Any, value: bytes) -> None:
    writer = schema if not isinstance(schema, dict) or "logicalType" not in schema else schema["type"]
    assert decode_bytes([value], schema).to_pylist() == [None], writer


def test_a_decimal_with_too_many_digits_is_null() -> None:
    schema = logical("bytes", "decimal", precision=3, scale=1)
    values = [struct.pack(">bi", 8, number) for number in (999, 1000, -999, -1000)]
    assert decode_bytes(values, schema).to_pylist() == [Decimal("99.9"), None, Decimal("-99.9"), None]


def test_blocks_with_a_byte_count_are_read() -> None:
    assert decode_bytes([b"\x03\x04\x02\x04\x02\x06\x00"], {"type": "array", "items": "int"}).to_pylist() == [[1, 2, 3]]


PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-INT32, INT32 - 1),
    "long": st.integers(-INT64, INT64 - 1),
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
}


@st.composite
def schemas_and_values(  # noqa: PLR0911 - one per kind
    draw: st.DrawFn, depth: int = 3
) -> tuple[Any, st.SearchStrategy[Any]]:
    kinds = ["primitive"] * 4 + (["record", "array", "map", "nullable"] * 2 if depth else []) + ["enum", "fixed"]
    kind = draw(st.sampled_from(kinds))
    name = "unnamed"
    if kind == "primitive":
        primitive = draw(st.sampled_from(sorted(PRIMITIVES)))
        return primitive, PRIMITIVES[primitive]
    if kind == "enum":
        symbols = ["A", "B", "C"]
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": 4}, st.binary(min_size=4, max_size=4)
    if kind == "record":
        fields = draw(st.lists(schemas_and_values(depth - 1), min_size=1, max_size=4))
        schema = record(*((f"f{number}", field) for number, (field, _) in enumerate(fields)), name=name)
        return schema, st.fixed_dictionaries({f"f{number}": values for number, (_, values) in enumerate(fields)})
    inner, values = draw(schemas_and_values(depth - 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=5), values, max_size=3)
    if isinstance(inner, list):
        return inner, values
    branches = draw(st.sampled_from([["null", inner], [inner, "null"]]))
    return branches, st.none() | values


def with_names(schema: Any, numbers: Iterator[int]) -> Any:
    """Give every named type a name of its own."""
    if isinstance(schema, list):
        return [with_names(branch, numbers) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    named = schema | ({"name": f"n{next(numbers)}"} if schema.get("name") == "unnamed" else {})
    if "fields" in named:
        fields = [field | {"type": with_names(field["type"], numbers)} for field in named["fields"]]
        return named | {"fields": fields}
    return named | {key: with_names(named[key], numbers) for key in ("items", "values") if key in named}


def as_row(schema: Any, value: Any) -> Any:
    """Convert a value to the form of Arrow's to_pylist: maps are lists of entries."""
    if value is None or isinstance(schema, str):
        return value
    if isinstance(schema, list):
        return as_row(next(branch for branch in schema if branch != "null"), value)
    if schema["type"] == "record":
        return {field["name"]: as_row(field["type"], value[field["name"]]) for field in schema["fields"]}
    if schema["type"] == "array":
        return [as_row(schema["items"], element) for element in value]
    if schema["type"] == "map":
        return [(key, as_row(schema["values"], element)) for key, element in value.items()]
    return value


@settings(max_examples=60)
@given(st.data())
def test_any_schema_is_decoded_as_by_fastavro(data: st.DataObject) -> None:
    drawn, strategy = data.draw(schemas_and_values())
    schema = with_names(drawn, count())
    values = data.draw(st.lists(strategy, min_size=1, max_size=8))
    assert decode(values, schema) == [as_row(schema, value) for value in values]


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_no_bytes_are_read_or_written_outside_the_columns(values: list[bytes]) -> None:
    good = encode(NESTED, NESTED_VALUE)
    rows = decode_bytes([good, *values, good], NESTED).to_pylist()
    assert rows[0] == rows[-1] == NESTED_ROW
    for value, row in zip(values, rows[1:-1], strict=True):
        if row is not None:
            oracle = as_row(NESTED, fastavro.schemaless_reader(io.BytesIO(value), NESTED, None))
            # As texts, in which not-a-number equals itself.
            assert repr(oracle) == repr(row)


def test_no_values_are_no_rows() -> None:
    assert decode_bytes([], NESTED) == pa.array([], decode_bytes([], NESTED).type)
