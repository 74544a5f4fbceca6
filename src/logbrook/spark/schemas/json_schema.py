"""JSON Schema: the Spark type of the values that a schema describes.

Only types are read: objects with properties, arrays with items, strings (with the formats `date-time` and `date`),
integers, numbers and booleans, each also with null. Constraints such as `required` or `minimum` are not checked. A
schema without an equivalent, such as an object without properties, is refused by its path.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from logbrook.spark.schemas.errors import InvalidSchemaError

_SIMPLE: dict[str, DataType] = {"boolean": BooleanType(), "integer": LongType(), "number": DoubleType()}
_STRING_FORMATS: dict[str, DataType] = {"date-time": TimestampType(), "date": DateType()}
_UNIONS = ("oneOf", "anyOf")


def json_schema_type(text: str, references: Mapping[str, str] | None = None) -> StructType:
    """Return the type of values; `references` are other schemas by name. Raises InvalidSchemaError."""
    documents = {name: _parse(reference) for name, reference in (references or {}).items()}
    root = _parse(text)
    type_ = _TypeReader(root, documents).read(root, "value", ())
    if not isinstance(type_, StructType):
        raise InvalidSchemaError("the JSON schema describes no object")
    return type_


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidSchemaError(f"the JSON schema is not JSON: {error}") from None


class _TypeReader:
    def __init__(self, root: Any, documents: Mapping[str, Any]) -> None:
        self._root = root
        self._documents = documents

    def read(self, schema: Any, path: str, above: tuple[str, ...]) -> DataType:
        """Return the type of the schema at `path`; `above` are the references that led to it."""
        if not isinstance(schema, dict):
            raise InvalidSchemaError(f"{path} has no type")
        if "$ref" in schema:
            reference = str(schema["$ref"])
            if reference in above:
                raise InvalidSchemaError(f"{path} is recursive")
            return self.read(self._resolve(reference, path), path, (*above, reference))
        for union in _UNIONS:
            if union in schema:
                return self._read_union(schema[union], path, above)
        match _type_name(schema, path):
            case "object":
                return self._read_object(schema, path, above)
            case "array":
                return ArrayType(self.read(schema.get("items"), f"{path}[]", above))
            case "string":
                return _STRING_FORMATS.get(str(schema.get("format")), StringType())
            case name if name in _SIMPLE:
                return _SIMPLE[name]
        raise InvalidSchemaError(f"{path} has the type {schema.get('type')!r}, which has no column")

    def _read_object(self, schema: Mapping[str, Any], path: str, above: tuple[str, ...]) -> DataType:
        properties = schema.get("properties")
        if not properties:
            raise InvalidSchemaError(f"{path} is an object without properties, which has no columns")
        return StructType(
            [StructField(name, self.read(member, f"{path}.{name}", above)) for name, member in properties.items()]
        )

    def _read_union(self, members: Any, path: str, above: tuple[str, ...]) -> DataType:
        others = [member for member in members if not (isinstance(member, dict) and member.get("type") == "null")]
        if len(others) != 1:
            raise InvalidSchemaError(f"{path} has several types, and a column has one")
        return self.read(others[0], path, above)

    def _resolve(self, reference: str, path: str) -> Any:
        name, _, pointer = reference.partition("#")
        document = self._documents.get(name) if name else self._root
        for part in filter(None, pointer.split("/")):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            document = document.get(key) if isinstance(document, dict) else None
        if document is None:
            raise InvalidSchemaError(f"{path} refers to {reference!r}, which does not exist")
        return document


def _type_name(schema: Mapping[str, Any], path: str) -> str:
    given = schema.get("type")
    names = [name for name in (given if isinstance(given, list) else [given]) if name != "null"]
    if len(names) > 1:
        raise InvalidSchemaError(f"{path} has several types, and a column has one")
    if names and names[0] is not None:
        return str(names[0])
    symbols = schema.get("enum") or [schema.get("const")]
    if all(isinstance(symbol, str) for symbol in symbols):
        return "string"
    return "object" if "properties" in schema else ""
