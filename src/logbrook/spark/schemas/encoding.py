"""Encoding of the column `value` of a sink, in the wire format of a schema registry.

Options: those of the registry (`options`), and

    value.format            avro: any column; protobuf: a struct; json: a column of JSON texts, such as to_json makes
    value.subject           <topic>-value
    value.schema            the schema to write with
    value.schema.version, value.schema.id   a registered schema to write with
    value.message           protobuf: the message of the schema; the first one
    auto.register.schemas   true; false: the schema must be registered already

Without a schema among the options: for avro it is derived from the column's type, and registered as the next version of
the subject; for protobuf and json it is the latest version, because the numbers of Protobuf's fields depend on the
versions before. If there is none yet, that of protobuf is derived, too.

Tasks resolve the schema id, once per process: registering a schema again returns the same id.
"""

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from logbrook.spark.schemas.avro_encoding import encode_column
from logbrook.spark.schemas.avro_schema import parse_avro
from logbrook.spark.schemas.encoding_options import ValueEncoding
from logbrook.spark.schemas.errors import InvalidSchemaError, UnknownSchemaError
from logbrook.spark.schemas.proto_encoding import ProtobufWriter
from logbrook.spark.schemas.proto_schema import reader_message, types_of
from logbrook.spark.schemas.registry import RegisteredSchema, SchemaRegistry

_TYPES = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}


class ValueEncoder:
    """Encodes values of one schema, in one process."""

    def __init__(self, encoding: ValueEncoding) -> None:
        self._encode = _encode_function(_registered(encoding), encoding)

    def encode(self, values: Any) -> Any:
        """Return the values as bytes, null for null. Raises IncompatibleSchemaError."""
        return self._encode(values)


def _encode_function(schema: RegisteredSchema, encoding: ValueEncoding) -> Callable[[Any], Any]:
    if encoding.format == "avro":
        avro = parse_avro(schema.text, [text for _, text in schema.references])
        return lambda values: encode_column(values, avro, schema.id)
    if encoding.format == "protobuf":
        file, types = types_of(schema.text, dict(schema.references))
        return ProtobufWriter(file, types, reader_message(file, encoding.message), schema.id).encode
    prefix = pa.scalar(struct.pack(">bI", 0, schema.id), pa.binary())
    separator = pa.scalar(b"", pa.binary())
    return lambda values: pc.binary_join_element_wise(prefix, values.cast(pa.binary()), separator)


_encoders: dict[ValueEncoding, ValueEncoder] = {}


def with_encoded_values(batch: Any, encoding: ValueEncoding) -> Any:
    """Return `batch` with its column `value` encoded. Raises RegistryError or IncompatibleSchemaError."""
    encoder = _encoders.get(encoding)
    if encoder is None:
        encoder = _encoders[encoding] = ValueEncoder(encoding)
    index = batch.schema.get_field_index("value")
    return batch.set_column(index, pa.field("value", pa.binary()), encoder.encode(batch.column(index)))


def _registered(encoding: ValueEncoding) -> RegisteredSchema:
    """Return the schema to write with. Raises RegistryError or InvalidSchemaError."""
    registry = SchemaRegistry(encoding.registry)
    type_ = _TYPES[encoding.format]
    schema = _existing(encoding, registry)
    if schema is None:
        assert encoding.schema_text is not None
        find = registry.register if encoding.registers else registry.look_up
        return RegisteredSchema(find(encoding.subject, encoding.schema_text, type_), type_, encoding.schema_text)
    if schema.type.upper() != type_:
        raise InvalidSchemaError(f"schema {schema.id} is {schema.type}, and 'value.format' is {encoding.format}")
    return schema


def _existing(encoding: ValueEncoding, registry: SchemaRegistry) -> RegisteredSchema | None:
    """Return the schema that the options name, None if it is one of theirs or derived."""
    if encoding.schema_id is not None:
        return registry.schema(encoding.schema_id)
    if encoding.schema_text is None:
        return registry.version(encoding.subject, encoding.version)
    if encoding.format == "protobuf" and encoding.is_derived:
        with suppress(UnknownSchemaError):
            return registry.version(encoding.subject)
    return None
