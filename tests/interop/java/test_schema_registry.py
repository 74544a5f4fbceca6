"""A real schema registry that keeps its schemas in Logbrook."""

import http.client
import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from logbrook import Broker
from logbrook.spark.schemas.decoding import value_decoder
from logbrook.spark.schemas.encoding import ValueEncoder
from logbrook.spark.schemas.encoding_options import ValueEncoding
from logbrook.spark.schemas.errors import RegistryError, UnknownSchemaError
from logbrook.spark.schemas.options import RegisteredFormat
from logbrook.spark.schemas.reader_schema import fetch_reader_schema
from logbrook.spark.schemas.registry import RegistryConfig, SchemaRegistry
from tests.interop.java.apicurio import ApicurioRegistry, apicurio_directory
from tests.interop.java.download_cache import MissingToolError

# It takes 160 MB and half a minute to start.
pytestmark = pytest.mark.long

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NOTE = {"name": "note", "type": "string", "default": "none"}
V2 = {"type": "record", "name": "Order", "fields": [*V1["fields"], NOTE]}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryConfig]:
    try:
        directory = apicurio_directory()
    except MissingToolError as error:
        pytest.skip(f"no schema registry, so its interoperability is not tested: {error}")
    log: Path = tmp_path_factory.mktemp("apicurio") / "log"
    with Broker() as broker, ApicurioRegistry(directory, broker.bootstrap_servers, log) as registry:
        yield RegistryConfig((registry.url,))


def framed(schema_id: int, content: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + content


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def decode(config: RegistryConfig, format_: str, topic: str, values: list[bytes]) -> list[Any]:
    registered = RegisteredFormat(format_, config)
    decoder = value_decoder(registered, fetch_reader_schema(registered, [topic]))
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert set(decoded.errors.to_pylist()) == {None}
    rows: list[Any] = decoded.values.to_pylist()
    return rows


def test_avro_evolves(config: RegistryConfig) -> None:
    registry = SchemaRegistry(config)
    old, new = (registry.register("orders-value", json.dumps(schema)) for schema in (V1, V2))
    assert registry.register("orders-value", json.dumps(V1)) == old != new
    values = [framed(old, avro(V1, {"id": 1})), framed(new, avro(V2, {"id": 2, "note": "x"}))]
    assert decode(config, "avro", "orders", values) == [{"id": 1, "note": "none"}, {"id": 2, "note": "x"}]
    with pytest.raises(UnknownSchemaError, match="there is no schema 9999"):
        registry.schema(9999)
    with pytest.raises(UnknownSchemaError, match="there is no version latest of the subject 'none'"):
        registry.version("none")


def test_protobuf_and_json_schemas_are_read(config: RegistryConfig) -> None:
    registry = SchemaRegistry(config)
    proto = 'syntax = "proto3"; package shop; message Order { int32 id = 1; repeated string tags = 2; }'
    proto_id = registry.register("proto-value", proto, "PROTOBUF")
    values = [framed(proto_id, b"\x00\x08\x05\x12\x01a")]
    assert decode(config, "protobuf", "proto", values) == [{"id": 5, "tags": ["a"]}]
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    json_id = registry.register("json-value", schema, "JSON")
    assert decode(config, "json", "json", [framed(json_id, b'{"id": 5}')]) == [{"id": 5}]


def test_a_sink_registers_its_schema_and_an_incompatible_one_is_refused(config: RegistryConfig) -> None:
    encoding = ValueEncoding("avro", config, "sink-value", schema_text=json.dumps(V1))
    encoded = ValueEncoder(encoding).encode(pa.array([{"id": 5}], pa.struct([("id", pa.int32())])))
    assert decode(config, "avro", "sink", encoded.to_pylist()) == [{"id": 5}]
    set_compatibility(config, "sink-value")
    other = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    with pytest.raises(RegistryError, match="it answers 409"):
        ValueEncoder(ValueEncoding("avro", config, "sink-value", schema_text=json.dumps(other)))


def test_a_protobuf_schema_is_derived_once(config: RegistryConfig) -> None:
    line = StructType([StructField("sku", StringType()), StructField("n", IntegerType())])
    type_ = (
        StructType([StructField("id", LongType(), False)])
        .add("at", TimestampType())
        .add("lines", ArrayType(line))
        .add("tags", MapType(StringType(), line))
        .add("_offset", LongType())
    )
    encoding = ValueEncoding("protobuf", config, "made-value", is_derived=True).for_column(type_)
    row = {
        "id": 5,
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "lines": [{"sku": "a", "n": None}],
        "tags": [("k", {"sku": None, "n": 0})],
        "_offset": None,
    }
    column = pa.array([row], to_arrow_type(type_, timezone="UTC"))
    for _ in range(2):
        # The second time it is the latest version.
        encoded = ValueEncoder(encoding).encode(column)
        assert decode(config, "protobuf", "made", encoded.to_pylist()) == [row]


def set_compatibility(config: RegistryConfig, subject: str) -> None:
    address, _, path = config.urls[0].removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(address, timeout=30)
    body = json.dumps({"compatibility": "BACKWARD"})
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    connection.request("PUT", f"/{path}/config/{subject}", body, headers)
    assert connection.getresponse().status == 200
    connection.close()
