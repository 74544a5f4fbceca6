"""Decoding of values with a schema to Arrow columns and encoding back, on one core, and the CPU time it takes.

Values are orders: two numbers, a timestamp, two strings, a nullable string, an enum and a list of lines, about 90 bytes
in Avro. The reference is fastavro, which makes a dict of each record, from which Arrow makes columns. Both are measured
in turns; the best round counts.
"""

import io
import json
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa

from bench.rows import Row, best_ratio, seconds
from logbrook.spark.schemas.avro_encoding import encode_column
from logbrook.spark.schemas.avro_schema import parse_avro
from logbrook.spark.schemas.decoding import ValueDecoder
from logbrook.spark.schemas.reader_schema import ReaderSchema
from logbrook.spark.schemas.registry import RegistryConfig, SchemaRegistry
from logbrook.spark.schemas.schema_decoders import schema_decoder
from logbrook.testing.schema_registry import InMemoryRegistry

_RECORDS = 50_000
_ROUNDS = 7
# Times fastavro's speed.
_DECODE_RATIO_MIN = 20.0
_LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}
_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "customer", "type": "string"},
        {"name": "country", "type": "string"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]}},
        {"name": "lines", "type": {"type": "array", "items": _LINE}},
    ],
}


def run() -> list[Row]:
    with InMemoryRegistry() as registry:
        schema_id = registry.register("orders-value", json.dumps(_ORDER))
        schemas = schema_decoder(
            ReaderSchema("avro", json.dumps(_ORDER)), SchemaRegistry(RegistryConfig((registry.url,)))
        )
        decoder = ValueDecoder(schemas)
        values = _values(schema_id)
        decode = partial(decoder.decode, values)
        columns = decode().values
        reference = partial(_decode_with_fastavro, values, schemas.value_type)
        return [
            _rate("decode Avro to columns", decode),
            _cpu("decode Avro to columns, CPU", decode),
            _cpu("encode Avro from columns, CPU", partial(encode_column, columns, parse_avro(json.dumps(_ORDER)), 1)),
            _rate("decode Avro to columns with fastavro", reference),
            _cpu("decode Avro to columns with fastavro, CPU", reference),
            Row(
                "decode Avro to columns, of fastavro",
                best_ratio(reference, decode, rounds=_ROUNDS),
                "ratio",
                _DECODE_RATIO_MIN,
            ),
        ]


def _values(schema_id: int) -> Any:
    parsed = fastavro.parse_schema(json.loads(json.dumps(_ORDER)))
    values = []
    for number in range(_RECORDS):
        out = io.BytesIO()
        out.write(struct.pack(">bI", 0, schema_id))
        order = {
            "id": number * 7919,
            "amount": number / 8,
            "at": 1_760_000_000_000 + number,
            "customer": f"customer-{number % 997}",
            "country": ("CH", "DE", "FR")[number % 3],
            "note": None if number % 4 else "leave it at the door",
            "state": ("NEW", "PAID", "SENT")[number % 3],
            "lines": [{"sku": f"sku-{line}", "n": line} for line in range(number % 5)],
        }
        fastavro.schemaless_writer(out, parsed, order)
        values.append(out.getvalue())
    return pa.array(values, pa.binary())


def _decode_with_fastavro(values: Any, value_type: Any) -> Any:
    parsed = fastavro.parse_schema(json.loads(json.dumps(_ORDER)))
    read = fastavro.schemaless_reader
    return pa.array([read(io.BytesIO(value[5:]), parsed, None) for value in values.to_pylist()], value_type)


def _rate(name: str, call: Callable[[], object]) -> Row:
    call()
    return Row(name, _RECORDS / min(seconds(call) for _ in range(_ROUNDS)), "records/s")


def _cpu(name: str, call: Callable[[], object]) -> Row:
    def cpu_seconds() -> float:
        started = time.process_time()
        call()
        return time.process_time() - started

    best = min(cpu_seconds() for _ in range(_ROUNDS))
    return Row(name, best * 1_000_000 / _RECORDS, "s/million", higher_is_better=False)
