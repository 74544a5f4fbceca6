"""Values of Confluent's own serializers are decoded, and its deserializers read ours."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.pandas.types import to_arrow_type

from logbrook.spark.schemas import decoding
from logbrook.spark.schemas.decoding import value_decoder
from logbrook.spark.schemas.encoding import ValueEncoder
from logbrook.spark.schemas.encoding_options import ValueEncoding
from logbrook.spark.schemas.options import RegisteredFormat
from logbrook.spark.schemas.reader_schema import ReaderSchema, fetch_reader_schema
from logbrook.spark.schemas.registry import RegistryConfig
from logbrook.testing.schema_registry import InMemoryRegistry
from tests.unit.spark.schemas.proto_messages import ALL, PROTO, as_row, rich

CONTEXT = SerializationContext("t", MessageField.VALUE)
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
ORDERS: list[dict[str, Any]] = [{"id": n, "note": None if n % 2 else f"n{n}", "tags": ["a"] * n} for n in range(5)]
JSON_ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryRegistry]:
    monkeypatch.setattr(decoding, "_decoders", {})
    with InMemoryRegistry() as registry:
        yield registry


@pytest.fixture
def client(registry: InMemoryRegistry) -> Any:
    return SchemaRegistryClient({"url": registry.url})


def decode(registry: InMemoryRegistry, format_: str, values: list[Any]) -> list[Any]:
    registered = RegisteredFormat(format_, RegistryConfig((registry.url,)))
    decoder = value_decoder(registered, fetch_reader_schema(registered, ["t"]))
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert set(decoded.errors.to_pylist()) == {None}
    rows: list[Any] = decoded.values.to_pylist()
    return rows


def test_avro_of_confluents_serializer_is_decoded(registry: InMemoryRegistry, client: Any) -> None:
    serialize = AvroSerializer(client, json.dumps(ORDER))
    assert decode(registry, "avro", [serialize(order, CONTEXT) for order in ORDERS]) == ORDERS


def test_json_of_confluents_serializer_is_decoded(registry: InMemoryRegistry, client: Any) -> None:
    serialize = JSONSerializer(json.dumps(JSON_ORDER), client)
    orders = [{"id": order["id"], "tags": order["tags"]} for order in ORDERS]
    assert decode(registry, "json", [serialize(order, CONTEXT) for order in orders]) == orders


def test_confluents_deserializer_reads_encoded_columns(registry: InMemoryRegistry, client: Any) -> None:
    encoding = ValueEncoding("avro", RegistryConfig((registry.url,)), "t-value", schema_text=json.dumps(ORDER))
    type_ = pa.struct([("id", pa.int64()), ("note", pa.string()), ("tags", pa.list_(pa.string()))])
    encoded = ValueEncoder(encoding).encode(pa.array(ORDERS, type_)).to_pylist()
    deserialize = AvroDeserializer(client)
    assert [deserialize(value, CONTEXT) for value in encoded] == ORDERS


def test_confluents_protobuf_deserializer_reads_encoded_columns(registry: InMemoryRegistry) -> None:
    encoding = ValueEncoding("protobuf", RegistryConfig((registry.url,)), "t-value", schema_text=PROTO)
    type_ = to_arrow_type(ReaderSchema("protobuf", PROTO).value_type, timezone="UTC")
    encoded = ValueEncoder(encoding).encode(pa.array([as_row(rich())], type_)).to_pylist()
    deserialize = ProtobufDeserializer(ALL, {"use.deprecated.format": False})
    assert [as_row(deserialize(value, CONTEXT)) for value in encoded] == [as_row(rich())]
