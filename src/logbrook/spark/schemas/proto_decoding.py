"""Decoder of Protobuf values. After the schema id a value has the path of its message in the writer's file.

Fields are matched by number, so the writer's schema is needed only for the name of the message, which must be that of
the reader's.
"""

from typing import Any

import numpy as np

from logbrook.spark.schemas.columns import ColumnBuffers
from logbrook.spark.schemas.kernels.protobuf import (
    PATH_INDEX_BITS,
    PATH_LENGTH_MAX,
    decode_protobuf,
    read_message_paths,
)
from logbrook.spark.schemas.proto_columns import ProtobufReader
from logbrook.spark.schemas.proto_schema import ProtoFile, parse_proto, reader_message, types_of
from logbrook.spark.schemas.reader_schema import ReaderSchema
from logbrook.spark.schemas.registry import SchemaRegistry
from logbrook.spark.schemas.writer_schemas import BinaryValues, Flags, Longs, WriterSchemas


class ProtobufSchemaDecoder:
    """Decodes Protobuf with the reader's message."""

    def __init__(self, reader: ReaderSchema, registry: SchemaRegistry) -> None:
        file, types = types_of(reader.text, dict(reader.references))
        self._reader = ProtobufReader(reader_message(file, reader.message), types)
        self._program = self._reader.program()
        self._files: WriterSchemas[ProtoFile] = WriterSchemas(
            registry, "PROTOBUF", lambda writer: parse_proto(writer.text)
        )
        self.value_type = self._reader.root.arrow_type

    def decode(self, schema_id: int, values: BinaryValues, rows: Longs) -> tuple[Any, Flags]:
        file = self._files.get(schema_id)
        bounds = values.bounds(rows)
        paths = np.empty(len(rows), np.int64)
        read_message_paths(values.data, bounds, paths)
        for path in np.unique(paths).tolist():
            message = file.message_at(_indexes(path))
            if message is None or message.name != self._reader.name:
                # Values of other messages count as malformed.
                is_other = paths == path
                bounds.starts[is_other] = bounds.ends[is_other] + 1
        buffers = ColumnBuffers(self._reader.root, len(rows), int(np.maximum(bounds.ends - bounds.starts, 0).sum()))
        is_decoded = np.empty(len(rows), np.uint8)
        decode_protobuf(values.data, bounds, self._program, buffers.table, is_decoded)
        return buffers.finish(), is_decoded


def _indexes(path: int) -> list[int]:
    """Return the message indexes that `read_message_paths` has packed into one number."""
    count = path >> PATH_LENGTH_MAX * PATH_INDEX_BITS
    shifts = [(PATH_LENGTH_MAX - 1 - number) * PATH_INDEX_BITS for number in range(max(count, 0))]
    return [path >> shift & (1 << PATH_INDEX_BITS) - 1 for shift in shifts] or [-1]
