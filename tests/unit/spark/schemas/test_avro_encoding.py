"""Columns to Avro values, with fastavro as the oracle."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CalendarIntervalType,
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
    TimestampNTZType,
    TimestampType,
)

from logbrook import Broker
from logbrook.client import Client
from logbrook.records.reader import iter_records
from logbrook.spark.errors import OptionError
from logbrook.spark.schemas import encoding
from logbrook.spark.schemas.avro_derivation import derive_avro
from logbrook.spark.schemas.avro_encoding import encode_column
from logbrook.spark.schemas.avro_schema import parse_avro, spark_type
from logbrook.spark.schemas.encoding import with_encoded_values
from logbrook.spark.schemas.encoding_options import ValueEncoding
from logbrook.spark.schemas.errors import IncompatibleSchemaError, InvalidSchemaError, RegistryError, UnknownSchemaError
from logbrook.spark.sending import close_idle, send_rows
from logbrook.spark.write_options import write_options
from logbrook.spark.writer import batch_writer
from logbrook.testing.schema_registry import InMemoryRegistry

HEAD = b"\x00\x00\x00\x00\x07"


def record(*fields: tuple[str, Any], name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": name, "type": type_} for name, type_ in fields]}


def encode(schema: Any, values: list[Any], arrow_type: Any = None) -> list[Any]:
    """Encode a column of the schema's own type, and decode each value with fastavro."""
    avro = parse_avro(json.dumps(schema))
    column = pa.array(values, to_arrow_type(spark_type(avro), timezone="UTC") if arrow_type is None else arrow_type)
    encoded = encode_column(column, avro, 7)
    encoded.validate(full=True)
    assert encoded.equals(encode_column(pa.concat_arrays([column[:1], column])[1:], avro, 7)), "a slice is the same"
    decoded: list[Any] = []
    for value in encoded.to_pylist():
        if value is None:
            decoded.append(None)
            continue
        assert value[:5] == HEAD
        rest = io.BytesIO(value[5:])
        decoded.append(fastavro.schemaless_reader(rest, json.loads(json.dumps(schema)), None))
        assert rest.read() == b""
    return decoded


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ("int", [0, -1, 2**31 - 1, -(2**31)]),
        ("long", [0, 2**63 - 1, -(2**63)]),
        ("float", [1.5, -0.25]),
        ("double", [0.1, -1e300]),
        ("boolean", [True, False, True]),
        ("string", ["", "käse"]),
        ("bytes", [b"", b"\xff"]),
        ({"type": "fixed", "name": "f", "size": 2}, [b"ab", b"\x00\x01"]),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["B", "A"]),
        ({"type": "array", "items": ["null", "int"]}, [[1, None, 3], [], [None]]),
        ({"type": "array", "items": {"type": "array", "items": "string"}}, [[["a"], []], []]),
        (
            record(("a", "int"), ("b", ["null", record(("c", "string"), name="i")])),
            [{"a": 1, "b": {"c": "x"}}, {"a": 2, "b": None}],
        ),
        (record(("b", ["string", "null"])), [{"b": "x"}, {"b": None}]),
        (logical("int", "date"), [date(2026, 1, 1), date(1900, 1, 1)]),
        (
            logical("long", "timestamp-micros"),
            [datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime(1900, 1, 1, tzinfo=UTC)],
        ),
        (logical("long", "timestamp-millis"), [datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)]),
        (
            logical("bytes", "decimal", precision=38, scale=2),
            [Decimal("0.00"), Decimal("1.28"), Decimal("-1.28"), Decimal("-1.29"), Decimal(10**36 - 1) / 100],
        ),
        (
            {"type": "fixed", "name": "d", "size": 17, "logicalType": "decimal", "precision": 5, "scale": 1},
            [Decimal("-12.3"), Decimal("9999.9")],
        ),
    ],
    ids=repr,
)
def test_values_are_read_back_by_fastavro(schema: Any, values: list[Any]) -> None:
    assert encode(schema, values) == values


def test_maps_nulls_and_milliseconds_below_zero() -> None:
    assert encode({"type": "map", "values": ["null", "long"]}, [[("a", 1), ("b", None)], [], None]) == [
        {"a": 1, "b": None},
        {},
        None,
    ]
    early = [datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)]
    assert encode(logical("long", "timestamp-millis"), early) == [datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)]


def test_a_decimal_may_be_wider_than_any_number() -> None:
    wide = {"type": "fixed", "name": "d", "size": 500, "logicalType": "decimal", "precision": 5, "scale": 1}
    values = [Decimal("-12.3")] * 50
    assert encode(wide, values) == values


def test_a_root_that_may_be_null_is_a_tombstone() -> None:
    assert encode(["null", "int"], [1, None]) == [1, None]


def test_columns_are_widened_to_the_schema() -> None:
    assert encode("long", [1], pa.int32()) == [1]
    assert encode("double", [1.5], pa.float32()) == [1.5]
    assert encode("double", [3], pa.int64()) == [3.0]
    assert encode(record(("a", "int"), ("b", ["null", "int"])), [{"a": 1}], pa.struct([("a", pa.int32())])) == [
        {"a": 1, "b": None}
    ]


@pytest.mark.parametrize(
    ("schema", "values", "arrow_type", "reason"),
    [
        ("int", [2**40], pa.int64(), "value: Integer value 1099511627776 not in range"),
        ("int", [1.5], pa.float64(), "value: a column of double does not fit the schema"),
        ("string", [1], pa.int64(), "value: a column of int64 does not fit the schema"),
        (record(("a", "int")), [{"a": None}], None, r"the value \{'a': None\} is not allowed by schema 7"),
        (record(("a", "int")), [{"b": 1}], pa.struct([("b", pa.int32())]), "value: the schema has no field b"),
        (record(("a", "int")), [{}], pa.struct([]), "value: the column 'a' is missing, and cannot be null"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, ["A", "B"], None, "the value 'B' is not allowed by schema 7"),
        ({"type": "fixed", "name": "f", "size": 2}, [b"abc"], None, "the value b'abc' is not allowed by schema 7"),
        (record(("a", ["int", "string"])), [{"a": 1}], pa.struct([("a", pa.int32())]), "only unions of null and"),
    ],
)
def test_values_that_do_not_fit_the_avro_schema_are_refused(
    schema: Any, values: list[Any], arrow_type: Any, reason: str
) -> None:
    with pytest.raises(IncompatibleSchemaError, match=reason):
        encode(schema, values, arrow_type)


def test_the_derived_schema_has_the_same_type() -> None:
    inner = StructType([StructField("x", IntegerType())])
    types: dict[str, DataType] = {
        "b": BooleanType(),
        "s": ShortType(),
        "f": FloatType(),
        "d": DoubleType(),
        "t": StringType(),
        "r": BinaryType(),
        "day": DateType(),
        "at": TimestampType(),
        "local": TimestampNTZType(),
        "n": DecimalType(9, 2),
        "l": ArrayType(inner),
        "m": MapType(StringType(), inner),
    }
    type_ = StructType([StructField("id", LongType(), False)])
    for name, field_type in types.items():
        type_ = type_.add(name, field_type)
    text = derive_avro(type_, "a.b-value")
    assert json.loads(text)["name"] == "a_b_value"
    expected = type_.simpleString().replace("smallint", "int")
    assert spark_type(parse_avro(text)).simpleString() == expected
    fields = {field["name"]: field for field in json.loads(text)["fields"]}
    assert fields["id"] == {"name": "id", "type": "long"}
    assert fields["t"] == {"name": "t", "type": ["null", "string"], "default": None}


def test_types_and_names_that_avro_lacks_are_refused() -> None:
    with pytest.raises(InvalidSchemaError, match=r"^v_a is interval, which Avro does not have; cast it$"):
        derive_avro(StructType([StructField("a", CalendarIntervalType())]), "v")
    with pytest.raises(InvalidSchemaError, match=r"^'a b' cannot be the name of a field in Avro; rename the column$"):
        derive_avro(StructType([StructField("a b", LongType())]), "v")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryRegistry]:
    monkeypatch.setattr(encoding, "_encoders", {})
    with InMemoryRegistry() as registry:
        yield registry


VALUE = StructType([StructField("id", LongType())])


def options(registry: InMemoryRegistry, **more: str) -> dict[str, str]:
    texts = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "schema.registry.url": registry.url}
    return texts | {"value.format": "avro"} | {name.replace("__", "."): text for name, text in more.items()}


def encoding_of(registry: InMemoryRegistry, type_: Any = VALUE, **more: str) -> ValueEncoding:
    schema = StructType([StructField("value", type_)])
    made = batch_writer(options(registry, **more), schema, False).options.encoding
    assert made is not None
    return made


def test_the_schema_is_derived_and_registered_once_by_the_tasks(registry: InMemoryRegistry) -> None:
    made = encoding_of(registry)
    assert registry.requests == [], "planning writes nothing"
    batch = pa.record_batch({"key": ["k"], "value": pa.array([{"id": 5}], pa.struct([("id", pa.int64())]))})
    for _ in range(2):
        encoded = with_encoded_values(batch, made)
        assert encoded.schema.names == ["key", "value"]
        assert encoded.column("value").to_pylist() == [b"\x00\x00\x00\x00\x01\x02\x0a"]
    assert registry.requests == ["POST /subjects/t-value/versions"]


def test_the_schema_may_be_given_or_be_in_the_registry_already(registry: InMemoryRegistry) -> None:
    text = json.dumps(record(("id", "long")))
    batch = pa.record_batch({"value": pa.array([{"id": 5}], pa.struct([("id", pa.int64())]))})
    with pytest.raises(UnknownSchemaError):
        with_encoded_values(batch, encoding_of(registry, value__schema=text, auto__register__schemas="false"))
    registry.register("other", '"int"')
    schema_id = registry.register("t-value", text)
    for more in (
        {"value__schema": text, "auto__register__schemas": "false"},
        {"value__schema__version": "latest"},
        {"value__schema__version": "1"},
        {"value__schema__id": str(schema_id)},
    ):
        encoded = with_encoded_values(batch, encoding_of(registry, **more))
        assert encoded.column("value").to_pylist() == [b"\x00\x00\x00\x00\x02\x0a"]
    registry.fail_next(409)
    with pytest.raises(RegistryError, match="it answers 409"):
        with_encoded_values(batch, encoding_of(registry, value__subject="new"))


def test_json_texts_get_the_id_of_their_schema(registry: InMemoryRegistry) -> None:
    registry.register("t-value", '{"type": "object"}', "JSON")
    made = encoding_of(registry, StringType(), value__format="json")
    batch = pa.record_batch({"value": pa.array(['{"a": 1}', None])})
    assert with_encoded_values(batch, made).column("value").to_pylist() == [b'\x00\x00\x00\x00\x01{"a": 1}', None]
    with pytest.raises(InvalidSchemaError, match=r"with 'value.format' json column 'value' is a JSON text, not struct"):
        encoding_of(registry, value__format="json")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"schema.registry.url": ""}, "option 'value.format': avro needs 'schema.registry.url'"),
        ({"schema.registry.url": "", "value.format": "json"}, "option 'value.format': json needs"),
        ({"topic": ""}, "option 'value.subject': it is required unless"),
        ({"value.format": "binary"}, "option 'schema.registry.url': it needs 'value.format'"),
        ({"value.format": "binary", "schema.registry.url": "", "auto.register.schemas": "true"}, "'auto.register.sch"),
    ],
)
def test_conflicting_options_are_refused(registry: InMemoryRegistry, changed: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        write_options(options(registry) | changed)


def test_rows_are_sent_encoded(registry: InMemoryRegistry) -> None:
    type_ = StructType([StructField("id", LongType()), StructField("raw", BinaryType())])
    with Broker(topics=["t"]) as broker, Client(broker.bootstrap_servers) as client:
        texts = options(registry) | {"kafka.bootstrap.servers": broker.bootstrap_servers}
        writer = batch_writer(texts, StructType([StructField("value", type_)]), False)
        values = pa.array([{"id": 1, "raw": b"x"}, None], to_arrow_type(type_))
        assert send_rows(writer.options, iter([pa.record_batch({"value": values})])) == 2
        close_idle()
        fetched = client.fetch("t", 0, 0)  # type: ignore[arg-type]
        assert [record.value for record in iter_records(fetched.records, 0, bytes_max=1 << 20)] == [
            b"\x00\x00\x00\x00\x01\x02\x02\x02\x02x",
            None,
        ]
