"""Values in the wire format of a schema registry: schema ids, mixed schemas, and reasons."""

import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from logbrook import Broker
from logbrook.client import Client
from logbrook.model import TopicPartition
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.spark import fetching
from logbrook.spark.errors import OptionError
from logbrook.spark.fetching import read_range
from logbrook.spark.offset_ranges import OffsetRange
from logbrook.spark.schema import SchemaError
from logbrook.spark.schemas import decoding, writer_schemas
from logbrook.spark.schemas.decoding import value_decoder, with_decoded_values
from logbrook.spark.schemas.errors import InvalidSchemaError, RegistryError
from logbrook.spark.schemas.options import RegisteredFormat
from logbrook.spark.schemas.reader_schema import ReaderSchema, fetch_reader_schema, reader_schema_of
from logbrook.spark.schemas.registry import RegistryConfig
from logbrook.spark.source import LogbrookDataSource
from logbrook.testing.schema_registry import InMemoryRegistry


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": type_} for name, type_ in fields]}


V1 = record(("id", "int"))
V2 = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "none"}],
}


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


@pytest.fixture
def registry() -> Iterator[InMemoryRegistry]:
    with InMemoryRegistry() as registry:
        yield registry


@pytest.fixture(autouse=True)
def own_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_decoders", {})


def avro(registry: InMemoryRegistry, **fields: Any) -> RegisteredFormat:
    return RegisteredFormat("avro", RegistryConfig((registry.url,), retries=0), **fields)


def decode(format_: RegisteredFormat, values: list[bytes | None], reader: Any = V2) -> tuple[list[Any], list[Any]]:
    schema = ReaderSchema(format_.format, json.dumps(reader))
    decoded = value_decoder(format_, schema).decode(pa.array(values, pa.binary()))
    return decoded.values.to_pylist(), decoded.errors.to_pylist()


def test_rows_of_several_schemas_keep_their_order(registry: InMemoryRegistry) -> None:
    old, new = (registry.register("t-value", json.dumps(schema)) for schema in (V1, V2))
    values = [framed(old, V1, {"id": n}) if n % 3 else framed(new, V2, {"id": n, "note": "x"}) for n in range(100)]
    rows, errors = decode(avro(registry), [*values, None])
    assert rows == [{"id": n, "note": "none" if n % 3 else "x"} for n in range(100)] + [None]
    assert errors == [None] * 101
    assert len(registry.requests) == 2


def test_the_reader_keeps_its_schema_when_a_newer_one_is_registered(registry: InMemoryRegistry) -> None:
    old, new = (registry.register("t-value", json.dumps(schema)) for schema in (V1, V2))
    values: list[bytes | None] = [framed(old, V1, {"id": 1}), framed(new, V2, {"id": 2, "note": "x"})]
    rows, errors = decode(avro(registry), values, record(("id", "long")))
    assert (rows, errors) == ([{"id": 1}, {"id": 2}], [None, None])


def test_every_value_that_does_not_decode_has_a_reason(registry: InMemoryRegistry) -> None:
    good, odd = registry.register("t", json.dumps(V1)), registry.register("t", '"string"')
    proto = registry.register("t", "message M {}", "PROTOBUF")
    not_framed = "the value does not begin with a zero byte and a schema id"
    cases: list[tuple[bytes | None, Any, str | None]] = [
        (framed(good, V1, {"id": 1}), {"id": 1, "note": "none"}, None),
        (None, None, None),
        (b"", None, not_framed),
        (b"\x00\x00\x00\x00", None, not_framed),
        (b"\x01" + framed(good, V1, {"id": 1})[1:], None, not_framed),
        (b"\x00\xff\xff\xff\xff\x02", None, not_framed),
        (framed(good, V1, {"id": 1}) + b"x", None, f"the value does not match schema {good}"),
        (framed(good, V1, {"id": 1})[:-1], None, f"the value does not match schema {good}"),
        (framed(odd, "string", "x"), None, f"schema {odd} cannot be read: string cannot be read as r"),
        (framed(proto, "string", "x"), None, f"schema {proto} cannot be read: it is PROTOBUF, not AVRO"),
        (framed(77, "string", "x"), None, f"the schema registry at {registry.url}: there is no schema 77"),
    ]
    rows, errors = decode(avro(registry), [value for value, _, _ in cases])
    assert rows == [row for _, row, _ in cases]
    assert errors == [error for _, _, error in cases]


def test_a_schema_that_was_unknown_is_asked_for_again_later(
    registry: InMemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(writer_schemas, "monotonic", lambda: now_s)
    value: list[bytes | None] = [framed(1, V1, {"id": 1})]
    assert decode(avro(registry), value)[0] == [None]
    registry.register("t", json.dumps(V1))
    assert decode(avro(registry), value)[0] == [None]
    now_s += 31
    assert decode(avro(registry), value)[0] == [{"id": 1, "note": "none"}]
    asked = len(registry.requests)
    now_s += 1000
    assert decode(avro(registry), value)[0] == [{"id": 1, "note": "none"}]
    assert len(registry.requests) == asked


def test_a_registry_that_is_away_fails_the_task_and_makes_no_value_null(registry: InMemoryRegistry) -> None:
    registry.fail_next(503)
    with pytest.raises(RegistryError, match="it answers 503 Service Unavailable"):
        decode(avro(registry), [framed(1, V1, {"id": 1})])


def test_a_slice_of_a_batch_is_decoded(registry: InMemoryRegistry) -> None:
    good = registry.register("t", json.dumps(V1))
    values = pa.array([framed(good, V1, {"id": n}) if n % 5 else None for n in range(50)], pa.binary())
    batch = pa.record_batch({"offset": pa.array(range(50), pa.int64()), "value": values}).slice(20, 20)
    reader = ReaderSchema("avro", json.dumps(V1))
    columns = ("valueError", "offset", "value", "valueBytes")
    decoded = with_decoded_values(batch, columns, avro(registry), reader)
    assert decoded.schema.names == list(columns)
    assert decoded.column("value").to_pylist() == [{"id": n} if n % 5 else None for n in range(20, 40)]
    assert decoded.column("valueBytes").to_pylist() == values.to_pylist()[20:40]
    assert decode(avro(registry), []) == ([], [])


def test_json_values_are_read_without_asking_for_schemas(registry: InMemoryRegistry) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date"}}}
    format_ = RegisteredFormat("json", RegistryConfig((registry.url,)))
    head = struct.pack(">bI", 0, 5)
    values = [head + b'{"id": 1}', b'{"id": 1}', head + b'{"id": "x"}', head + b"{", None, head + b'{"id": 2, "x": 3}']
    rows, errors = decode(format_, values, schema)
    assert rows == [{"id": 1, "at": None}, None, None, None, None, {"id": 2, "at": None}]
    mismatch = "the value does not match schema 5"
    unframed = "the value does not begin with a zero byte and a schema id"
    assert errors == [None, unframed, mismatch, mismatch, None, None]
    assert registry.requests == []


def test_the_schema_to_read_with_is_the_latest_or_the_one_that_is_named(registry: InMemoryRegistry) -> None:
    texts = [json.dumps(schema) for schema in (V1, V2)]
    ids = [registry.register("t-value", text) for text in texts]
    registry.register("other", '"string"')
    assert fetch_reader_schema(avro(registry), ["t"]).text == texts[1]
    assert fetch_reader_schema(avro(registry, version="1"), ["t"]).text == texts[0]
    assert fetch_reader_schema(avro(registry, schema_id=ids[0]), None).text == texts[0]
    assert fetch_reader_schema(avro(registry, subject="other"), ["t", "u"]).text == '"string"'
    assert fetch_reader_schema(avro(registry, schema_text='"int"'), None) == ReaderSchema("avro", '"int"')
    for topics in (None, ["t", "u"]):
        with pytest.raises(OptionError, match=r"^option 'value.subject': it is required where a query reads several"):
            fetch_reader_schema(avro(registry), topics)
    registry.register("json-value", "{}", "JSON")
    with pytest.raises(InvalidSchemaError, match=r"is JSON, and 'value.format' is avro"):
        fetch_reader_schema(avro(registry), ["json"])


def source(registry: InMemoryRegistry, **options: str) -> LogbrookDataSource:
    texts = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "value.format": "avro"}
    texts |= {"schema.registry.url": registry.url, **options}
    return LogbrookDataSource(texts)


def test_the_row_schema_carries_the_reader_schema(registry: InMemoryRegistry) -> None:
    registry.register("t-value", json.dumps(V1))
    schema = source(registry, columns="offset,value,valueError").schema()
    assert isinstance(schema, StructType)
    assert schema.simpleString() == "struct<offset:bigint,value:struct<id:int>,valueError:string>"
    assert reader_schema_of(schema) == ReaderSchema("avro", json.dumps(V1))
    registry.register("t-value", json.dumps(V2))
    sent = StructType.fromJson(json.loads(schema.json()))
    reader = source(registry).reader(sent)
    assert reader._options.reader_schema == ReaderSchema("avro", json.dumps(V1))
    assert reader._columns == ("offset", "value", "valueError")


def test_a_query_without_values_asks_no_registry(registry: InMemoryRegistry) -> None:
    schema = source(registry, columns="offset,key").schema()
    assert isinstance(schema, StructType)
    assert source(registry, columns="offset,key").reader(schema)._options.registered is None
    assert registry.requests == []


def test_a_schema_of_the_user_must_have_the_type_of_the_values(registry: InMemoryRegistry) -> None:
    registry.register("t-value", json.dumps(V2))
    value = StructType([StructField("id", LongType()), StructField("note", StringType())])
    reader = source(registry).reader(StructType([StructField("value", value)]))
    assert reader._options.reader_schema is not None
    with pytest.raises(
        SchemaError, match="column 'value' is struct<id:bigint,note:string>, and the schema says string"
    ):
        source(registry).reader(StructType([StructField("value", StringType())]))


@pytest.fixture
def own_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    clients: dict[Any, Any] = {}
    monkeypatch.setattr(fetching, "_clients", clients)
    yield
    for client in clients.values():
        client.close()


@pytest.mark.usefixtures("own_clients")
def test_a_range_is_read_with_decoded_values(registry: InMemoryRegistry) -> None:
    schema_id = registry.register("t-value", json.dumps(V1))
    values = [framed(schema_id, V1, {"id": 1}), b"odd", None]
    with Broker(topics=["t"]) as broker, Client(broker.bootstrap_servers) as client:
        client.produce("t", 0, bytes(build_batch([Record(b"k", value, (), 5) for value in values])))
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        data_source = source(registry, **options, columns="value,key,valueError,valueBytes")
        schema = data_source.schema()
        assert isinstance(schema, StructType)
        reader = data_source.reader(schema)
        (batch,) = read_range(reader._options, reader._columns, OffsetRange(TopicPartition("t", 0), 0, 3))
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    reason = "the value does not begin with a zero byte and a schema id"
    assert batch.to_pylist() == [
        {"value": {"id": 1}, "key": b"k", "valueError": None, "valueBytes": values[0]},
        {"value": None, "key": b"k", "valueError": reason, "valueBytes": b"odd"},
        {"value": None, "key": b"k", "valueError": None, "valueBytes": None},
    ]
