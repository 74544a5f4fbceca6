"""Values with schemas in a registry, in Spark: columns, and a pipeline whose schema evolves."""

import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession

from logbrook import Broker
from logbrook.testing.schema_registry import InMemoryRegistry
from tests.spark.pipeline_bench import Bench, Errors

LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}
V1 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}
# The id is wider, the tags are gone, and there is a currency.
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "currency", "type": "string", "default": "EUR"},
    ],
}
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOT_FRAMED = "the value does not begin with a zero byte and a schema id"


@pytest.fixture
def registry() -> Iterator[InMemoryRegistry]:
    with InMemoryRegistry("reader:secret") as registry:
        yield registry


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def order(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "at": AT, "lines": [{"sku": f"s{number}", "n": number}], **more}


def send(broker: Broker, topic: str, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, b"k")
    assert producer.flush(30) == 0


def test_avro_values_are_columns_of_a_batch_and_of_a_stream(
    spark: SparkSession, broker: Broker, topic: str, registry: InMemoryRegistry, tmp_path: Path
) -> None:
    broker.create_topic(topic, 1)
    old = registry.register(f"{topic}-value", json.dumps(V1))
    send(broker, topic, *(framed(old, V1, order(n, tags={"a": "b"})) for n in range(3)), b"odd", None)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "value.format": "avro",
        "schema.registry.url": registry.url,
        "schema.registry.basic.auth.user.info": "reader:secret",
        "columns": "offset,value,valueError",
    }
    frame = spark.read.format("logbrook").options(**options).load()
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:int,at:timestamp,lines:array<struct<sku:string,n:int>>,tags:map<string,string>>"
    )
    rows = frame.orderBy("offset").collect()
    assert rows[2].value == Row(id=2, at=AT.replace(tzinfo=None), lines=[Row(sku="s2", n=2)], tags={"a": "b"})
    assert [(row.value is None, row.valueError) for row in rows[3:]] == [(True, NOT_FRAMED), (True, None)]

    stream = spark.readStream.format("logbrook").options(**options, startingOffsets="earliest").load()
    new = registry.register(f"{topic}-value", json.dumps(V2))
    send(broker, topic, framed(new, V2, order(7, currency="CHF")))
    path, checkpoint = str(tmp_path / "rows"), str(tmp_path / "checkpoint")
    query = stream.select("offset", "value.id", "value.tags", "valueError").writeStream.format("parquet")
    started = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(path)
    assert started.awaitTermination(120)
    last = spark.read.parquet(path).orderBy("offset").collect()[-1]
    reason = f"schema {new} cannot be read: id: long cannot be read as int"
    assert last == Row(offset=5, id=None, tags=None, valueError=reason), "the reader's schema is the one at the start"


SOURCE = """
[sources.orders]
topic = "@-orders"
format = "avro"
options = { "schema.registry.basic.auth.user.info" = "reader:secret", "schema.registry.max.retries" = 1 }
"""
ARCHIVE = """
[sinks.archive]
view = "orders"
table = "tables/orders"
"""


def write(bench: Bench, registry_url: str, text: str) -> None:
    """Write the file of a pipeline that reads the topic `orders` with schemas of a registry."""
    bench.write(SOURCE + text, f'trigger = "once"\nschema_registry = "{registry_url}"')


def test_a_pipeline_whose_schema_evolves_gets_the_new_columns_when_it_starts_again(
    bench: Bench, errors: Errors, registry: InMemoryRegistry
) -> None:
    bench.create("orders", "dead")
    view = '[[views]]\nname = "lines"\nsql = "SELECT * EXCEPT (lines), lines[0].sku AS sku FROM orders"\n'
    sink = ARCHIVE.replace('"orders"', '"lines"') + 'options = { "schema.evolution" = "add" }\n'
    write(bench, registry.url, view + sink + '[dead_letters]\ntopic = "@-dead"\n')
    subject = f"{bench.prefix}-orders-value"
    old = registry.register(subject, json.dumps(V1))
    bench.send("orders", framed(old, V1, order(1, tags={})), b"odd", framed(old, V1, order(2, tags={}))[:-2])
    assert bench.run() == 0, errors()
    evolved = V1 | {"fields": [*V1["fields"], V2["fields"][-1]]}
    new = registry.register(subject, json.dumps(evolved))
    bench.send(
        "orders",
        framed(new, evolved, order(3, tags={}, currency="CHF")),
        framed(old, V1, order(4, tags={"late": "writer"})),
        framed(999, V1, order(5, tags={})),
        None,
    )
    assert bench.run() == 0, errors()
    rows = sorted(bench.table("tables/orders"), key=lambda row: int(row.id))
    assert [(row.id, row.sku, row.currency, row._offset) for row in rows] == [
        (1, "s1", None, 0),
        (3, "s3", "CHF", 3),
        (4, "s4", "EUR", 4),
    ]
    dead = bench.records("dead")
    reasons = [{header.key: bytes(header.value).decode() for header in row.headers} for row in dead]
    assert [(reason["offset"], reason["error"]) for reason in reasons] == [
        ("1", NOT_FRAMED),
        ("2", f"the value does not match schema {old}"),
        ("5", f"the schema registry at {registry.url}: there is no schema 999"),
        ("6", "the value is null"),
    ]
    assert bytes(dead[0].value) == b"odd"
    assert dead[3].value is None


def test_rows_are_written_with_a_schema_that_is_derived_from_them(
    bench: Bench, errors: Errors, registry: InMemoryRegistry
) -> None:
    """A pipeline reads Avro and writes Avro and Protobuf, and batch queries append to the same topics."""
    bench.create("orders", "avro", "protobuf")
    old = registry.register(f"{bench.prefix}-orders-value", json.dumps(V1))
    bench.send("orders", framed(old, V1, order(1, tags={"a": "b"})))
    formats = ("avro", "protobuf")
    view = '[[views]]\nname = "copy"\nsql = "SELECT id, at, lines, tags FROM orders"\n'
    login = 'options = { "schema.registry.basic.auth.user.info" = "reader:secret" }'
    sink = '[sinks.{0}]\nview = "copy"\ntopic = "@-{0}"\nformat = "{0}"\nkey = "id"\n{1}\n'
    write(bench, registry.url, view + "".join(sink.format(name, login) for name in formats))
    assert bench.run() == 0, errors()
    for name in formats:
        options = {"kafka.bootstrap.servers": bench.broker.bootstrap_servers, "value.format": name}
        options["schema.registry.url"] = registry.url.replace("//", "//reader:secret@")
        reader = bench.spark.read.format("logbrook").options(**options, subscribe=f"{bench.prefix}-{name}")
        (row,) = reader.load().collect()
        assert bytes(row.key) == b"1"
        assert row.value == Row(id=1, at=AT.replace(tzinfo=None), lines=[Row(sku="s1", n=1)], tags={"a": "b"})
        again = reader.load().select("value").write.format("logbrook")
        again.options(**options, topic=f"{bench.prefix}-{name}").mode("append").save()
        assert [row.value.id for row in reader.load().collect()] == [1, 1]


# test_pipeline.py has a pipeline that stops at a record, and the test of evolving schemas above this reason.
@pytest.mark.long
def test_a_pipeline_without_dead_letters_stops_with_the_reason(
    bench: Bench, errors: Errors, registry: InMemoryRegistry
) -> None:
    bench.create("orders")
    registry.register(f"{bench.prefix}-orders-value", json.dumps(V1))
    bench.send("orders", b"odd")
    write(bench, registry.url, ARCHIVE)
    assert bench.run() == 4
    reason = f"the record at offset 0 of {bench.prefix}-orders-0 does not parse: {NOT_FRAMED}"
    assert reason in errors()[-1]


def test_a_registry_that_does_not_answer_is_named(bench: Bench, errors: Errors) -> None:
    bench.create("orders")
    write(bench, "http://127.0.0.1:1", ARCHIVE)
    assert bench.run(checks_only=True) == 3
    (expected,) = errors()
    assert expected.startswith(
        f"error: {bench.file}:6: sources.orders: the schema registry at http://127.0.0.1:1: it cannot be asked: "
    )
