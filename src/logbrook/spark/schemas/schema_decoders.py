"""Decoders of the values of one schema id, by format: Avro and JSON, and `proto_decoding`."""

from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type

from logbrook.spark.json_values import decode_json
from logbrook.spark.schemas.avro_resolution import AvroReader, Resolution
from logbrook.spark.schemas.avro_schema import parse_avro
from logbrook.spark.schemas.columns import ColumnBuffers
from logbrook.spark.schemas.kernels.avro import decode_avro
from logbrook.spark.schemas.kernels.frames import FRAME_BYTES
from logbrook.spark.schemas.proto_decoding import ProtobufSchemaDecoder
from logbrook.spark.schemas.reader_schema import ReaderSchema
from logbrook.spark.schemas.registry import RegisteredSchema, SchemaRegistry
from logbrook.spark.schemas.writer_schemas import BinaryValues, Flags, Longs, WriterSchemas


class SchemaDecoder(Protocol):
    """Decodes the values of one format with one reader's schema. `value_type` is the Arrow type of the result."""

    value_type: Any

    def decode(self, schema_id: int, values: BinaryValues, rows: Longs) -> tuple[Any, Flags]:
        """Return the values of `rows`, and 0 for each that is malformed.

        Raises UnreadableSchemaError, or RegistryError if the registry cannot be asked for the schema.
        """


class AvroSchemaDecoder:
    """Decodes Avro, with a program for each writer's schema."""

    def __init__(self, reader: ReaderSchema, registry: SchemaRegistry) -> None:
        self._reader = AvroReader(parse_avro(reader.text, [text for _, text in reader.references]))
        self._resolutions = WriterSchemas(registry, "AVRO", self._resolve)
        self.value_type = self._reader.root.arrow_type

    def decode(self, schema_id: int, values: BinaryValues, rows: Longs) -> tuple[Any, Flags]:
        resolution = self._resolutions.get(schema_id)
        bounds = values.bounds(rows)
        buffers = ColumnBuffers(self._reader.root, len(rows), int((bounds.ends - bounds.starts).sum()))
        is_decoded = np.empty(len(rows), np.uint8)
        decode_avro(values.data, bounds, resolution.program, buffers.table, is_decoded)
        return buffers.finish(resolution.defaults), is_decoded

    def _resolve(self, writer: RegisteredSchema) -> Resolution:
        return self._reader.resolve(parse_avro(writer.text, [text for _, text in writer.references]))


class JsonSchemaDecoder:
    """Decodes JSON. Values carry their field names, so the writer's schema is not needed."""

    def __init__(self, reader: ReaderSchema) -> None:
        self.value_type = to_arrow_type(reader.value_type, timezone="UTC")

    def decode(self, schema_id: int, values: BinaryValues, rows: Longs) -> tuple[Any, Flags]:  # noqa: ARG002
        buffers = [None, pa.py_buffer(values.ends), pa.py_buffer(values.data)]
        framed = pa.Array.from_buffers(pa.binary(), len(values.ends) - 1, buffers)
        # Several times as fast as binary_slice.
        texts = pc.binary_replace_slice(framed.take(pa.array(rows)), 0, FRAME_BYTES, b"")
        decoded = decode_json(texts, self.value_type)
        return decoded, np.asarray(decoded.is_valid()).astype(np.uint8)


def schema_decoder(reader: ReaderSchema, registry: SchemaRegistry) -> SchemaDecoder:
    """Return a decoder for values that are read with `reader`."""
    if reader.format == "avro":
        return AvroSchemaDecoder(reader, registry)
    return ProtobufSchemaDecoder(reader, registry) if reader.format == "protobuf" else JsonSchemaDecoder(reader)
