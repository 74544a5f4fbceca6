"""Options of a sink whose values have a schema in a registry; `encoding` describes them."""

from dataclasses import dataclass, replace

from pyspark.sql.types import BinaryType, DataType, StringType

from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader
from logbrook.spark.schemas.avro_derivation import derive_avro
from logbrook.spark.schemas.errors import InvalidSchemaError
from logbrook.spark.schemas.options import read_registered_format
from logbrook.spark.schemas.proto_derivation import derive_protobuf
from logbrook.spark.schemas.registry import LATEST_VERSION, RegistryConfig

_FORMATS = ("binary", "avro", "json", "protobuf")
_DERIVED = {"avro": derive_avro, "protobuf": derive_protobuf}
_REGISTER = "auto.register.schemas"


@dataclass(frozen=True, slots=True)
class ValueEncoding:
    """Encoding of a sink's values. Without id and text, the schema is a version of the subject."""

    format: str
    registry: RegistryConfig
    subject: str
    version: str = LATEST_VERSION
    schema_id: int | None = None
    schema_text: str | None = None
    registers: bool = True
    # The schema is to be derived from the type of the column.
    is_derived: bool = False
    # Protobuf: the name of the message; None for the first.
    message: str | None = None

    def for_column(self, type_: DataType) -> "ValueEncoding":
        """Return the encoding of a column of this type. Raises InvalidSchemaError."""
        if self.format == "json" and not isinstance(type_, StringType | BinaryType):
            given = type_.simpleString()
            raise InvalidSchemaError(
                f"with 'value.format' json column 'value' is a JSON text, not {given}; use to_json"
            )
        if not self.is_derived:
            return self
        return replace(self, schema_text=_DERIVED[self.format](type_, self.message or self.subject))


def read_value_encoding(options: OptionReader, topic: str | None) -> ValueEncoding | None:
    """Return the encoding of values if a registry is given, else None. Raises OptionError."""
    format_ = options.choice("value.format", _FORMATS, "binary")
    registers = options.boolean(_REGISTER, True)
    registered = read_registered_format(options, format_, is_read=False)
    if registered is None:
        if format_ == "json":
            raise OptionError("value.format", "json needs 'schema.registry.url'; without it use to_json and no format")
        if options.text(_REGISTER) is not None:
            raise OptionError(_REGISTER, "it needs 'schema.registry.url'")
        return None
    subject = registered.subject or (f"{topic}-value" if topic is not None else None)
    if subject is None and registered.schema_id is None:
        raise OptionError("value.subject", "it is required unless the option 'topic' names one for all rows")
    is_named = "value.schema.version" in options or "value.schema.id" in options
    return ValueEncoding(
        format=format_,
        registry=registered.registry,
        subject=subject or "",
        version=registered.version,
        schema_id=registered.schema_id,
        schema_text=registered.schema_text,
        registers=registers,
        is_derived=format_ in _DERIVED and registered.schema_text is None and not is_named,
        message=registered.message,
    )
