"""JSON Schema, and the types of its columns."""

import json
from typing import Any

import pytest

from logbrook.spark.schemas.errors import InvalidSchemaError
from logbrook.spark.schemas.json_schema import json_schema_type


def ddl(properties: Any, references: dict[str, str] | None = None, **more: Any) -> str:
    return json_schema_type(json.dumps({"type": "object", "properties": properties, **more}), references).simpleString()


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string"}, "string"),
        ({"type": ["null", "string"]}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({"const": "a"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "double"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "object", "properties": {"b": {"type": "integer"}}}, "struct<b:bigint>"),
        ({"properties": {"b": {"type": "integer"}}}, "struct<b:bigint>"),
        ({"$ref": "#/$defs/money"}, "struct<cents:bigint>"),
        ({"$ref": "money.json"}, "struct<cents:bigint>"),
        ({"$ref": "money.json#/properties/cents"}, "bigint"),
    ],
    ids=repr,
)
def test_types_have_columns(schema: Any, type_: str) -> None:
    money = {"type": "object", "properties": {"cents": {"type": "integer"}}}
    assert ddl({"a": schema}, {"money.json": json.dumps(money)}, **{"$defs": {"money": money}}) == f"struct<a:{type_}>"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object"}, r"value\.a is an object without properties, which has no columns"),
        ({"type": ["string", "integer"]}, r"value\.a has several types, and a column has one"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, r"value\.a has several types, and a column has one"),
        ({"type": "array"}, r"value\.a\[\] has no type"),
        ({}, r"value\.a has the type None, which has no column"),
        ({"enum": [1, "a"]}, r"value\.a has the type None, which has no column"),
        ({"$ref": "#/$defs/none"}, r"value\.a refers to '#/\$defs/none', which does not exist"),
        ({"$ref": "#"}, r"value\.a is recursive|value\.a\.a is recursive"),
    ],
    ids=repr,
)
def test_a_schema_without_columns_is_refused_by_its_path(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=f"^({reason})"):
        ddl({"a": schema})


def test_a_document_that_is_no_object_schema_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match=r"^the JSON schema describes no object$"):
        json_schema_type('{"type": "string"}')
    with pytest.raises(InvalidSchemaError, match=r"^the JSON schema is not JSON"):
        json_schema_type("{")
