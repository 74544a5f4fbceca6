"""Values with a schema in a registry."""

import asyncio
import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from logbrook.console.decoding import UndecodableError, format_bytes
from logbrook.console.schema_values import SchemaValues, registry_fetch
from logbrook.testing.schema_registry import InMemoryRegistry


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4) + payload


def loaded(values: SchemaValues, *data: bytes) -> SchemaValues:
    # While a browser runs, this thread has a running event loop.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, values.load(data)).result()
    return values


def test_avro_is_decoded_by_the_schema_of_the_registry(tmp_path: Any) -> None:
    city = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
    order = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "City"}, {"name": "raw", "type": "bytes"}],
    }
    with InMemoryRegistry(user_info="ada:s p") as registry:
        registry.register("city", json.dumps(city))
        reference = {"name": "City", "subject": "city", "version": 1}
        schema_id = registry.register("order", json.dumps(order), references=[reference])
        url = registry.url.replace("http://", "http://ada:s%20p@")
        names: dict[str, Any] = {}
        parse_schema(city, names)
        path = tmp_path / "value"
        with path.open("wb") as file:
            schemaless_writer(file, parse_schema(order, names), {"id": 7, "to": {"name": "Köln"}, "raw": b"\xff"})
        data = framed(schema_id, path.read_bytes())
        values = loaded(SchemaValues(registry_fetch(url)), data, b"no frame", framed(99, b""))
        loaded(values, data, framed(99, b""))
        assert registry.requests.count("GET /schemas/ids/99") == 1
    expected = {"id": 7, "to": {"name": "Köln"}, "raw": {"base64": "/w=="}}
    assert json.loads(format_bytes(data, "schema", values.decode)) == expected
    assert format_bytes(data[:-1], "schema", values.decode).startswith("Not Avro or Protobuf: ")
    for unknown, reason in ((b"no frame", "zero byte"), (framed(99, b""), "404"), (framed(5, b""), "not loaded yet")):
        with pytest.raises(UndecodableError, match=reason):
            values.decode(unknown)


def test_protobuf_is_decoded_by_a_serialized_descriptor() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3", package="shop")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    order.field.add(name="order_id", number=1, type=9, label=1)
    order.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order.nested_type.add(name="Line").field.add(name="count", number=1, type=5, label=1)
    documents = {
        "/schemas/ids/3": {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; …'},
        "/schemas/ids/3?format=serialized": {
            "schemaType": "PROTOBUF",
            "schema": base64.b64encode(file.SerializeToString()).decode(),
        },
        "/schemas/ids/4": {"schemaType": "JSON", "schema": "{}"},
    }
    from google.protobuf import timestamp_pb2  # noqa: PLC0415

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))()
    message.order_id = "a7"
    message.at.seconds = 60
    line = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order.Line"))(count=5)
    whole = framed(3, b"\x02\x02" + message.SerializeToString())
    nested = framed(3, b"\x04\x02\x00" + line.SerializeToString())
    values = loaded(SchemaValues(documents.__getitem__), whole, framed(4, b""))
    assert SchemaValues(documents.__getitem__).fetch_and_decode(whole) == values.decode(whole)
    assert values.decode(whole) == {"order_id": "a7", "at": "1970-01-01T00:01:00Z"}
    assert values.decode(nested) == {"count": 5}
    assert values.decode(framed(4, b"[1]")) == [1]
    assert format_bytes(framed(3, b"\x00\xff\xff"), "schema", values.decode).startswith("Not Avro or Protobuf")


def test_a_registry_that_does_not_answer_is_named_and_asked_again_later() -> None:
    asked = []

    def fetch(path: str) -> dict[str, Any]:
        asked.append(path)
        raise OSError("connection refused")

    values = loaded(SchemaValues(fetch), framed(1, b""))
    loaded(values, framed(1, b""))
    assert asked == ["/schemas/ids/1"]
    with pytest.raises(UndecodableError, match="schema 1 of the registry: connection refused"):
        values.decode(framed(1, b""))
