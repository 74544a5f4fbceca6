"""Avro schemas, and the types of their columns."""

import json
from typing import Any

import pytest

from logbrook.spark.schemas.avro_defaults import default_value
from logbrook.spark.schemas.avro_schema import AvroPrimitive, AvroRecord, parse_avro, spark_type
from logbrook.spark.schemas.errors import InvalidSchemaError


def ddl(schema: Any, *references: Any) -> str:
    return spark_type(parse_avro(json.dumps(schema), map(json.dumps, references))).simpleString()


def record(name: str, *fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": type_} for field, type_ in fields]
    return {"type": "record", "name": name, "fields": listed, **more}


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        ("int", "int"),
        ({"type": "long"}, "bigint"),
        (["null", "string"], "string"),
        (["int", "long", "null"], "bigint"),
        (["float", "double"], "double"),
        (["int", "string"], "struct<member0:int,member1:string>"),
        (["null"], "void"),
        ({"type": "array", "items": {"type": "map", "values": "bytes"}}, "array<map<string,binary>>"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "string"),
        ({"type": "fixed", "name": "f", "size": 8}, "binary"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "bigint"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, "decimal(10,2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "binary"),
        ({"type": "string", "logicalType": "decimal", "precision": 5}, "string"),
        ({"type": {"type": "int", "logicalType": "date"}}, "date"),
        (record("r", ("a", "int"), ("b", record("s", ("c", "string")))), "struct<a:int,b:struct<c:string>>"),
    ],
    ids=repr,
)
def test_types_are_those_of_sparks_from_avro(schema: Any, type_: str) -> None:
    assert ddl(schema) == type_


def test_names_are_found_in_their_namespace_and_in_references() -> None:
    inner = record("Inner", ("x", "int"))
    outer = record("Outer", ("a", inner), ("b", "Inner"), ("c", "org.a.Inner"), namespace="org.a")
    assert ddl(outer) == "struct<a:struct<x:int>,b:struct<x:int>,c:struct<x:int>>"
    assert (
        ddl(record("R", ("a", "org.b.Money")), record("org.b.Money", ("cents", "long")))
        == "struct<a:struct<cents:bigint>>"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "the Avro schema is not JSON"),
        ('"number"', "the Avro schema uses 'number', which it does not define"),
        ('{"type": "record", "name": "r"}', "the Avro schema is malformed: KeyError: 'fields'"),
        ('{"name": "r"}', "the Avro schema is malformed: KeyError: 'type'"),
        ("5", "the Avro schema is malformed: TypeError"),
        (json.dumps(record("r", ("a", "int"), ("A", "int"))), "r has two fields of one name"),
    ],
)
def test_a_malformed_schema_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        parse_avro(text)


def test_a_recursive_schema_parses_but_has_no_columns() -> None:
    node = parse_avro(json.dumps(record("Node", ("next", ["null", "Node"]))))
    assert isinstance(node, AvroRecord)
    with pytest.raises(InvalidSchemaError, match=r"^Node contains itself; a column cannot be recursive$"):
        spark_type(node)


@pytest.mark.parametrize(
    ("name", "default"), [("int", "x"), ("int", True), ("boolean", 1), ("string", 5), ("bytes", "\u0100")]
)
def test_a_default_of_another_type_is_refused(name: str, default: Any) -> None:
    with pytest.raises(InvalidSchemaError, match=r"^the default .* does not fit its field"):
        default_value(AvroPrimitive(name), default)
