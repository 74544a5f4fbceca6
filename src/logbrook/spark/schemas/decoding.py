"""Decoding of the column `value` in a task, for values in a schema registry's wire format.

The rows of a batch are grouped by schema id, and each group is decoded by one call of a compiled kernel. A value that
does not decode is null in the column `value`, and its reason is in the column `valueError`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logbrook.spark.schemas.kernels.frames import NOT_FRAMED, read_schema_ids
from logbrook.spark.schemas.options import RegisteredFormat
from logbrook.spark.schemas.reader_schema import ReaderSchema
from logbrook.spark.schemas.registry import SchemaRegistry
from logbrook.spark.schemas.schema_decoders import SchemaDecoder, schema_decoder
from logbrook.spark.schemas.writer_schemas import Longs, UnreadableSchemaError, as_binary

_NOT_FRAMED_REASON = "the value does not begin with a zero byte and a schema id"


class DecodedValues(NamedTuple):
    """The column `value`, and the reason for each value that did not decode."""

    values: Any
    errors: Any


class ValueDecoder:
    """Decodes values with one reader's schema, in one process."""

    def __init__(self, schemas: SchemaDecoder) -> None:
        self._schemas = schemas

    def decode(self, values: Any) -> DecodedValues:
        """Decode an array of bytes. Raises RegistryError if the registry cannot be asked for a schema."""
        binary = as_binary(values)
        ids = np.empty(len(values), np.int64)
        read_schema_ids(*binary, ids)
        parts: list[Any] = []
        # Position of each row's value in the joined parts, and of its reason; -1 for none.
        positions, codes = np.full(len(values), -1, np.int64), np.full(len(values), -1, np.int32)
        reasons: list[str] = []
        for schema_id, rows in _groups(ids):
            if schema_id == NOT_FRAMED:
                codes[rows] = _add(reasons, _NOT_FRAMED_REASON)
            if schema_id < 0:
                continue
            try:
                decoded, is_decoded = self._schemas.decode(schema_id, binary, rows)
            except UnreadableSchemaError as error:
                codes[rows] = _add(reasons, str(error))
                continue
            positions[rows] = np.arange(len(rows)) + sum(map(len, parts))
            parts.append(decoded)
            if not is_decoded.all():
                code = _add(reasons, f"the value does not match schema {schema_id}")
                codes[rows[is_decoded == 0]] = code
        errors = _take(pa.array(reasons, pa.string()), codes)
        if len(parts) == 1 and len(parts[0]) == len(values):
            return DecodedValues(parts[0], errors)
        joined = pa.concat_arrays(parts) if parts else pa.nulls(0, self._schemas.value_type)
        return DecodedValues(_take(joined, positions), errors)


_decoders: dict[tuple[RegisteredFormat, ReaderSchema], ValueDecoder] = {}


def value_decoder(format_: RegisteredFormat, reader: ReaderSchema) -> ValueDecoder:
    """Return the decoder of this process, whose schemas are kept for later tasks."""
    decoder = _decoders.get((format_, reader))
    if decoder is None:
        schemas = schema_decoder(reader, SchemaRegistry(format_.registry))
        decoder = _decoders[format_, reader] = ValueDecoder(schemas)
    return decoder


def with_decoded_values(batch: Any, columns: Sequence[str], format_: RegisteredFormat, reader: ReaderSchema) -> Any:
    """Return the columns of `batch` that are in `columns`, decoded: value, valueError, and valueBytes as they came."""
    raw = batch.column("value")
    decoded = value_decoder(format_, reader).decode(raw)
    own = {"value": decoded.values, "valueError": decoded.errors, "valueBytes": raw}
    arrays = [own[name] if name in own else batch.column(name) for name in columns]
    fields = [pa.field(name, own[name].type) if name in own else batch.schema.field(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _groups(ids: Longs) -> list[tuple[int, Longs]]:
    """Return each distinct schema id with its rows, in order."""
    if not len(ids):
        return []
    if (ids == ids[0]).all():
        return [(int(ids[0]), np.arange(len(ids)))]
    order = np.argsort(ids, kind="stable")
    starts = np.flatnonzero(np.diff(ids[order])) + 1
    return [(int(ids[rows[0]]), rows) for rows in np.split(order, starts)]


def _add(reasons: list[str], reason: str) -> int:
    reasons.append(reason)
    return len(reasons) - 1


def _take(array: Any, positions: npt.NDArray[Any]) -> Any:
    """Return the elements at `positions`; null where that is negative."""
    return array.take(pa.array(positions, mask=positions < 0))
