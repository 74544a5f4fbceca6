"""Columns to Protobuf values, with Google's library as the oracle."""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
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
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from logbrook.spark.schemas import encoding
from logbrook.spark.schemas.encoding import with_encoded_values
from logbrook.spark.schemas.encoding_options import ValueEncoding
from logbrook.spark.schemas.errors import IncompatibleSchemaError, InvalidSchemaError, UnknownSchemaError
from logbrook.spark.schemas.proto_derivation import derive_protobuf
from logbrook.spark.schemas.proto_encoding import ProtobufWriter
from logbrook.spark.schemas.proto_schema import message_type, reader_message, types_of
from logbrook.spark.writer import batch_writer
from logbrook.testing.schema_registry import InMemoryRegistry
from tests.unit.spark.schemas.proto_messages import ALL, PROTO, as_row, messages, rich

HEAD = b"\x00\x00\x00\x00\x07"


def encode(proto: str, values: list[Any], arrow_type: Any = None, message: str | None = None) -> list[Any]:
    """Encode a column of the message's own type, and return the values after the schema id."""
    file, types = types_of(proto)
    written = reader_message(file, message)
    column = pa.array(
        values, to_arrow_type(message_type(written, types), timezone="UTC") if arrow_type is None else arrow_type
    )
    writer = ProtobufWriter(file, types, written, 7)
    encoded = writer.encode(column)
    encoded.validate(full=True)
    assert encoded.equals(writer.encode(pa.concat_arrays([column[:1], column])[1:])), "a slice is the same"
    texts = encoded.to_pylist()
    assert all(text is None or text.startswith(HEAD) for text in texts)
    return [None if text is None else text[len(HEAD) :] for text in texts]


def fields(text: str) -> str:
    return f'syntax = "proto3"; message M {{ {text} }}'


@settings(max_examples=40)
@given(st.lists(messages(), min_size=1, max_size=4))
def test_messages_are_encoded_as_by_googles_library(values: list[Any]) -> None:
    for value in values:
        # A number that the enum lacks is null in a column.
        value.colour = value.colour if value.colour != 77 else 0
    encoded = encode(PROTO, [as_row(value) for value in values])
    assert [ALL.FromString(text[1:]) for text in encoded] == values
    for text, value in zip(encoded, values, strict=True):
        # The order of a map's entries is not defined.
        if len(value.counts) < 2:
            assert text == b"\x00" + value.SerializeToString(deterministic=True)


def test_null_rows_have_no_bytes_and_null_fields_are_absent() -> None:
    value = rich()
    value.at.nanos = 999_999_000
    only_nulls = dict.fromkeys(as_row(ALL()))
    encoded = encode(PROTO, [None, as_row(value), only_nulls, None])
    assert encoded == [None, b"\x00" + value.SerializeToString(deterministic=True), b"\x00", None]


def test_an_empty_column_is_encoded() -> None:
    assert encode(PROTO, []) == []


def test_fields_that_the_column_lacks_are_absent_and_numbers_are_widened() -> None:
    proto = fields("int64 id = 1; double score = 2; string note = 3; uint64 big = 4; uint32 small = 5;")
    type_ = pa.struct([("big", pa.int64()), ("id", pa.int16()), ("score", pa.float32()), ("small", pa.int64())])
    row = {"id": 5, "score": 1.5, "big": 2**62, "small": 2**32 - 1}
    expected = b"\x08\x05\x11" + struct.pack("<d", 1.5) + b"\x20" + b"\x80" * 8 + b"\x40\x28\xff\xff\xff\xff\x0f"
    assert encode(proto, [row], type_) == [b"\x00" + expected]


def test_every_name_of_an_enum_is_written_as_its_number() -> None:
    proto = fields("enum E { option allow_alias = true; ZERO = 0; ONE = 1; EINS = 1; } optional E e = 1;")
    assert encode(proto, [{"e": "EINS"}, {"e": "ZERO"}, {"e": None}]) == [b"\x00\x08\x01", b"\x00\x08\x00", b"\x00"]


def test_the_path_of_the_message_follows_the_schema_id() -> None:
    proto = "message A { } message B { message C { } message D { required int32 x = 1; } }"
    assert encode(proto, [{"x": 5}], message="B.D") == [b"\x04\x02\x02\x08\x05"]
    assert encode(proto, [{}], pa.struct([]), message="B") == [b"\x02\x02"]


@pytest.mark.parametrize(
    ("proto", "value", "arrow_type", "reason"),
    [
        (fields("int32 a = 1;"), {"a": 2**40}, pa.int64(), r"value\.a: Integer value 1099511627776 not in range"),
        (fields("uint32 a = 1;"), {"a": -1}, pa.int64(), r"value\.a: Integer value -1 not in range"),
        (fields("uint64 a = 1;"), {"a": Decimal(-1)}, pa.decimal128(20, 0), r"value\.a: "),
        (fields("int32 a = 1;"), {"a": 1.5}, pa.float64(), r"value\.a: a column of double cannot be written as int32"),
        (fields("string a = 1;"), {"a": 1}, pa.int64(), r"value\.a: a column of int64 cannot be written as string"),
        (fields("bool a = 1;"), {"a": 1}, pa.int64(), r"value\.a: a column of int64 cannot be written as bool"),
        (fields("repeated int32 a = 1;"), {"a": 1}, pa.int32(), "cannot be written as repeated int32"),
        (fields("map<string, int32> a = 1;"), {"a": 1}, pa.int32(), "cannot be written as map"),
        (fields("int32 b = 1;"), {"a": 1}, pa.int32(), "value: M has no field a"),
        ("message M { optional int32 a = 1; required int32 b = 2; }", {"a": 1}, pa.int32(), "column 'b' is missing"),
        ("message M { required int32 a = 1; }", {"a": None}, pa.int32(), r"the value \{'a': None\} is not allowed by"),
        (fields("repeated int32 a = 1;"), {"a": [1, None]}, pa.list_(pa.int32()), "is not allowed by schema 7"),
        (fields("enum E { A = 0; } E a = 1;"), {"a": "B"}, pa.string(), r"the value \{'a': 'B'\} is not allowed by"),
        (
            fields("google.protobuf.Timestamp a = 1;"),
            {"a": datetime(2026, 1, 1)},
            pa.timestamp("us"),
            r"value\.a: a column of timestamp\[us\] cannot be written as google.protobuf.Timestamp",
        ),
    ],
)
def test_values_that_do_not_fit_the_protobuf_message_are_refused(
    proto: str, value: Any, arrow_type: Any, reason: str
) -> None:
    with pytest.raises(IncompatibleSchemaError, match=reason):
        encode(proto, [value], pa.struct([("a", arrow_type)]))


def test_two_values_of_a_oneof_are_refused() -> None:
    proto = fields("oneof choice { string text = 1; int32 number = 2; }")
    assert encode(proto, [{"text": "a", "number": None}, {"text": None, "number": 0}]) == [
        b"\x00\x0a\x01a",
        b"\x00\x10\x00",
    ]
    with pytest.raises(IncompatibleSchemaError, match="value: only one of text, number may have a value"):
        encode(proto, [{"text": "a", "number": 0}])


def test_the_derived_schema_has_the_same_type() -> None:
    inner = StructType([StructField("x", IntegerType())])
    types: dict[str, DataType] = {
        "b": BooleanType(),
        "s": ShortType(),
        "f": FloatType(),
        "d": DoubleType(),
        "t": StringType(),
        "r": BinaryType(),
        "at": TimestampType(),
        "big": DecimalType(20, 0),
        "one": inner,
        "l": ArrayType(inner),
        "n": ArrayType(LongType()),
        "m": MapType(StringType(), inner),
        "_k": MapType(IntegerType(), DoubleType()),
    }
    type_ = StructType([StructField("id", LongType(), False)])
    for name, field_type in types.items():
        type_ = type_.add(name, field_type)
    text = derive_protobuf(type_, "a.b-value")
    file, parsed = types_of(text)
    assert message_type(file.messages[0], parsed).simpleString() == type_.simpleString().replace("smallint", "int")
    assert file.messages[0].name == "a_b_value"
    assert "  int64 id = 1;\n  optional bool b = 2;\n" in text
    assert 'import "google/protobuf/timestamp.proto";' in text
    row = {"id": 1, "one": {"x": 2}, "l": [{"x": None}], "m": [("k", {"x": 3})], "at": datetime(2026, 1, 1, tzinfo=UTC)}
    assert len(encode(text, [row])) == 1


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        (LongType(), r"^a message is made of a struct, and the column is bigint; use struct\(\)$"),
        (StructType([StructField("a", DateType())]), "^a is date, which Protobuf does not have there; cast it$"),
        (StructType([StructField("a", DecimalType(9, 2))]), r"^a is decimal\(9,2\), which"),
        (StructType([StructField("a", ArrayType(ArrayType(LongType())))]), r"^a is array<bigint>, which"),
        (StructType([StructField("a", MapType(DoubleType(), LongType()))]), "^the key of a is double, which"),
        (StructType([StructField("a b", LongType())]), "^'a b' cannot be the name of a field in Protobuf"),
    ],
)
def test_types_and_names_that_protobuf_lacks_are_refused(type_: DataType, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        derive_protobuf(type_, "v")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryRegistry]:
    monkeypatch.setattr(encoding, "_encoders", {})
    with InMemoryRegistry() as registry:
        yield registry


VALUE = StructType([StructField("id", LongType())])
BATCH = pa.record_batch({"value": pa.array([{"id": 5}], pa.struct([("id", pa.int64())]))})


def encoding_of(registry: InMemoryRegistry, **more: str) -> ValueEncoding:
    texts = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "schema.registry.url": registry.url}
    texts |= {"value.format": "protobuf"} | {name.replace("__", "."): text for name, text in more.items()}
    made = batch_writer(texts, StructType([StructField("value", VALUE)]), False).options.encoding
    assert made is not None
    return made


def encode_batch(value_encoding: ValueEncoding) -> list[Any]:
    values: list[Any] = with_encoded_values(BATCH, value_encoding).column("value").to_pylist()
    return values


def test_a_schema_is_derived_only_for_a_subject_without_one(registry: InMemoryRegistry) -> None:
    with pytest.raises(UnknownSchemaError):
        encode_batch(encoding_of(registry, auto__register__schemas="false"))
    assert encode_batch(encoding_of(registry)) == [HEAD[:4] + b"\x01\x00\x08\x05"]
    assert registry.requests[-1] == "POST /subjects/t-value/versions"
    # The latest version has the numbers that readers know.
    registry.register("t-value", fields("string note = 1; optional int64 id = 2;"), "PROTOBUF")
    encoding._encoders.clear()
    assert encode_batch(encoding_of(registry)) == [HEAD[:4] + b"\x02\x00\x10\x05"]


def test_the_schema_and_its_message_may_be_given(registry: InMemoryRegistry) -> None:
    text = 'syntax = "proto3"; message Other { } message Order { int64 id = 3; }'
    given = encoding_of(registry, value__schema=text, value__message="Order")
    assert encode_batch(given) == [HEAD[:4] + b"\x01\x02\x02\x18\x05"]
    named = encoding_of(registry, value__schema__version="1", value__message="Order")
    assert encode_batch(named) == [HEAD[:4] + b"\x01\x02\x02\x18\x05"]


def test_a_schema_of_another_format_is_refused(registry: InMemoryRegistry) -> None:
    registry.register("t-value", '"int"')
    with pytest.raises(InvalidSchemaError, match=r"^schema 1 is AVRO, and 'value.format' is protobuf$"):
        encode_batch(encoding_of(registry))
