"""Protobuf values to columns, with Google's library as the oracle."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logbrook.spark.schemas import decoding
from logbrook.spark.schemas.columns import ColumnBuffers
from logbrook.spark.schemas.decoding import value_decoder
from logbrook.spark.schemas.errors import InvalidSchemaError
from logbrook.spark.schemas.kernels.avro import ValueBounds
from logbrook.spark.schemas.kernels.protobuf import decode_protobuf
from logbrook.spark.schemas.options import RegisteredFormat
from logbrook.spark.schemas.proto_columns import ProtobufReader
from logbrook.spark.schemas.proto_schema import message_type, parse_proto, types_of
from logbrook.spark.schemas.reader_schema import ReaderSchema
from logbrook.spark.schemas.registry import RegistryConfig
from logbrook.testing.schema_registry import InMemoryRegistry
from tests.unit.spark.schemas.proto_messages import ALL, PROTO, as_row, messages, normalized, rich


def decode(values: list[bytes], proto: str = PROTO) -> list[Any]:
    file, types = types_of(proto)
    reader = ProtobufReader(file.messages[0], types)
    ends = np.cumsum([len(value) for value in values], dtype=np.int64)
    starts = ends - np.array([len(value) for value in values], np.int64)
    data = np.frombuffer(b"".join(values), np.uint8)
    data.flags.writeable = False
    buffers = ColumnBuffers(reader.root, len(values), data.size)
    is_decoded = np.empty(len(values), np.uint8)
    decode_protobuf(data, ValueBounds(starts, ends), reader.program(), buffers.table, is_decoded)
    array = buffers.finish()
    array.validate(full=True)
    assert array.is_valid().to_pylist() == [bool(decoded) for decoded in is_decoded]
    rows: list[Any] = array.to_pylist()
    return rows


@settings(max_examples=40)
@given(st.lists(messages(), min_size=1, max_size=4))
def test_messages_are_decoded_as_by_googles_library(values: list[Any]) -> None:
    rows = decode([value.SerializeToString() for value in values])
    assert [normalized(row) for row in rows] == [as_row(value) for value in values]


def test_an_empty_message_has_defaults_and_nulls() -> None:
    (row,) = decode([b""])
    assert row == as_row(ALL())
    assert (row["f1"], row["f14"], row["o1"], row["colour"], row["inner"], row["r1"]) == (0, "", None, "RED", None, [])


def test_only_the_truncated_message_becomes_null() -> None:
    good = rich().SerializeToString(deterministic=True)
    for length in range(len(good)):
        first, cut, last = decode([good, good[:length], good])
        assert first == last == as_row(rich())
        if cut is not None:
            assert normalized(cut) == as_row(ALL.FromString(good[:length]))


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00",
        b"\x0b\x0c",
        b"\x0f",
        b"\x72\x02\xc3\x28",
        b"\x08",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x08" + b"\xff" * 10,
    ],
    ids=repr,
)
def test_invalid_encodings_are_null(data: bytes) -> None:
    good = rich().SerializeToString()
    first, odd, last = decode([good, data, good])
    assert (first, odd, last) == (as_row(rich()), None, as_row(rich()))


def test_the_last_value_counts_and_unknown_fields_and_other_wire_types_are_skipped() -> None:
    twice = ALL(f1=1, f14="first").SerializeToString() + ALL(f1=2, f14="last", r1=[5]).SerializeToString()
    odd = b"\x09" + bytes(8) + b"\x92\x7d\x01x" + ALL(r1=[6]).SerializeToString()
    (row,) = decode([twice + odd])
    assert (row["f1"], row["f14"], row["r1"]) == (2, "last", [5, 6])


def test_packed_and_unpacked_numbers_are_read() -> None:
    (row,) = decode([b"\xa8\x01\x01\xaa\x01\x02\x02\x03\xa8\x01\x04"])
    assert row["r1"] == [1, 2, 3, 4]


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_are_decoded_or_null(values: list[bytes]) -> None:
    good = rich().SerializeToString()
    rows = decode([good, *values, good])
    assert rows[0] == rows[-1] == as_row(rich())


def test_types_have_columns() -> None:
    proto = """
    package a.b;
    message M { required int32 id = 1; optional E e = 2; repeated N n = 3; map<string, .a.b.M.N> m = 4;
      optional uint64 big = 5; optional google.protobuf.Int64Value boxed = 6; extensions 100 to max;
      message N { optional bytes raw = 1 [default = "a;}"]; } enum E { A = 1; B = 0x10; } }
    """
    file, types = types_of(proto)
    assert message_type(file.messages[0], types).simpleString() == (
        "struct<id:int,e:string,n:array<struct<raw:binary>>,m:map<string,struct<raw:binary>>,"
        "big:decimal(20,0),boxed:struct<value:bigint>>"
    )
    assert file.messages[0].enums[0].values == {1: "A", 16: "B"}


def test_types_of_imported_files_are_found() -> None:
    money = 'syntax = "proto3"; package money; message Amount { int64 cents = 1; }'
    file, types = types_of('import "money.proto"; message M { money.Amount a = 1; }', {"money.proto": money})
    assert message_type(file.messages[0], types).simpleString() == "struct<a:struct<cents:bigint>>"


@pytest.mark.parametrize(
    ("proto", "reason"),
    [
        ("message M { int32 a = 1", "the Protobuf schema ends within a statement"),
        ("message M { int32 a : 1; }", "the Protobuf schema has ':' where '=' is expected"),
        ("message M { int32 a = x; }", "the Protobuf schema has 'x' where a number is expected"),
        ("message M { € a = 1; }", "the Protobuf schema has '€' in line 1"),
        ("message M { Odd a = 1; }", "M uses 'Odd', which is not defined"),
        ("message M { M a = 1; }", "M contains itself"),
        ("message M { repeated group G = 1 { } }", "groups are not supported"),
        ("message M { int32 a = 1; int32 b = 1; }", "M has two fields of one number"),
    ],
)
def test_a_schema_without_columns_is_refused(proto: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        _ = ReaderSchema("protobuf", proto).value_type


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryRegistry]:
    monkeypatch.setattr(decoding, "_decoders", {})
    with InMemoryRegistry() as registry:
        yield registry


def framed(schema_id: int, indexes: bytes, value: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + indexes + value


NESTED = "message First { int32 x = 1; } message A { int32 x = 1; message B { int32 x = 1; } }"


def test_the_message_is_found_by_its_indexes(registry: InMemoryRegistry) -> None:
    new = registry.register("t", "message A { int32 x = 1; } message First { int32 y = 2; int32 x = 1; }", "PROTOBUF")
    old = registry.register("t", NESTED, "PROTOBUF")
    format_ = RegisteredFormat("protobuf", RegistryConfig((registry.url,)))
    reader = ReaderSchema("protobuf", 'syntax = "proto3"; message A { int32 x = 1; string added = 9; }')
    cases: list[tuple[bytes, Any]] = [
        (framed(old, b"\x02\x02", b"\x08\x05"), {"x": 5, "added": ""}),
        (framed(new, b"\x00", b"\x08\x06"), {"x": 6, "added": ""}),
        (framed(new, b"\x02\x00", b"\x08\x07"), {"x": 7, "added": ""}),
        (framed(old, b"\x00", b"\x08\x05"), None),
        (framed(old, b"\x04\x02\x00", b"\x08\x05"), None),
        (framed(old, b"\x02\x10", b"\x08\x05"), None),
        (framed(old, b"\x01", b"\x08\x05"), None),
        (framed(old, b"\x10", b"\x08\x05"), None),
        (framed(old, b"", b""), None),
    ]
    decoded = value_decoder(format_, reader).decode(pa.array([value for value, _ in cases], pa.binary()))
    assert decoded.values.to_pylist() == [row for _, row in cases]
    mismatch = f"the value does not match schema {old}"
    assert decoded.errors.to_pylist() == [None] * 3 + [mismatch] * 6
    nested = ReaderSchema("protobuf", NESTED, message="A.B")
    decoded = value_decoder(format_, nested).decode(pa.array([cases[4][0]], pa.binary()))
    assert decoded.values.to_pylist() == [{"x": 5}]


def test_a_file_without_messages_is_refused() -> None:
    assert parse_proto("").messages == []
    with pytest.raises(InvalidSchemaError, match="the schema has no message"):
        _ = ReaderSchema("protobuf", "").value_type
    with pytest.raises(InvalidSchemaError, match="the schema has no message 'X'"):
        _ = ReaderSchema("protobuf", "message M {}", message="X").value_type
