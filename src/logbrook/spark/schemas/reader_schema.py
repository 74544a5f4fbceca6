"""The reader's schema of a query: from the options or the registry, kept in the metadata of decoded columns.

Spark asks for the row schema once, when the query starts, and gives it to every process that plans or reads. With the
reader's schema in its metadata, all tasks read with the same one, even if a newer version is registered meanwhile; the
query gets that version when it is started again.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyspark.sql.types import DataType, StructType

from logbrook.spark.errors import OptionError
from logbrook.spark.schemas.avro_schema import parse_avro, spark_type
from logbrook.spark.schemas.errors import InvalidSchemaError
from logbrook.spark.schemas.json_schema import json_schema_type
from logbrook.spark.schemas.options import RegisteredFormat
from logbrook.spark.schemas.proto_schema import message_type, reader_message, types_of
from logbrook.spark.schemas.registry import RegisteredSchema, SchemaRegistry

_METADATA_KEY = "logbrook.reader.schema"
_REGISTRY_TYPES = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}


class ReaderSchema(NamedTuple):
    """The schema that values are read with. `references` are pairs of name and text; `message` is that of Protobuf."""

    format: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    message: str | None = None

    @property
    def value_type(self) -> DataType:
        """The type of the column `value`. Raises InvalidSchemaError."""
        if self.format == "avro":
            return spark_type(parse_avro(self.text, [text for _, text in self.references]))
        if self.format == "protobuf":
            file, types = types_of(self.text, dict(self.references))
            return message_type(reader_message(file, self.message), types)
        return json_schema_type(self.text, dict(self.references))

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of decoded columns, which holds this schema."""
        return {_METADATA_KEY: json.dumps(self)}


def fetch_reader_schema(format_: RegisteredFormat, topics: Sequence[str] | None) -> ReaderSchema:
    """Return the schema to read with. `topics` are those of the query, None for a pattern.

    Raises OptionError, RegistryError, UnknownSchemaError or InvalidSchemaError.
    """
    if format_.schema_text is not None:
        return ReaderSchema(format_.format, format_.schema_text, (), format_.message)
    registered = _fetch(format_, topics)
    expected = _REGISTRY_TYPES[format_.format]
    if registered.type.upper() != expected:
        raise InvalidSchemaError(f"schema {registered.id} is {registered.type}, and 'value.format' is {format_.format}")
    return ReaderSchema(format_.format, registered.text, registered.references, format_.message)


def reader_schema_of(schema: StructType) -> ReaderSchema | None:
    """Return the reader's schema of a row schema, or None if it has none."""
    for field in schema.fields:
        if _METADATA_KEY in (field.metadata or {}):
            document: Any = json.loads(field.metadata[_METADATA_KEY])
            format_, text, references, message = document
            return ReaderSchema(format_, text, tuple((name, reference) for name, reference in references), message)
    return None


def _fetch(format_: RegisteredFormat, topics: Sequence[str] | None) -> RegisteredSchema:
    registry = SchemaRegistry(format_.registry)
    if format_.schema_id is not None:
        return registry.schema(format_.schema_id)
    subject = format_.subject
    if subject is None:
        if topics is None or len(topics) != 1:
            reason = "it is required where a query reads several topics, because each has a subject of its own"
            raise OptionError("value.subject", reason)
        subject = f"{topics[0]}-value"
    return registry.version(subject, format_.version)
