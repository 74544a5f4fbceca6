"""Arrow columns to record batches: `encode`.

The columns are those of Spark's `kafka` sink: `value`, and optionally `key`, `headers` and `timestamp`; others are
ignored. Python runs once per batch, to compress it and to write its header.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.records.batch import (
    HEADER_BYTES,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    advance_sequence,
)
from logbrook.records.builder import BATCH_BYTES_MAX, NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, seal
from logbrook.records.codecs import compress
from logbrook.records.columns.encode_kernels import BATCH_FIELDS, BinaryInput, EncoderInput, plan, write
from logbrook.records.columns.schema import HEADERS_TYPE

_INT_MAX = 2**31 - 1


def encode(
    records: Any,
    *,
    now_ms: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    batch_records_max: int = _INT_MAX,
    base_offset: Offset = Offset(0),
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> list[bytearray]:
    """Encode the rows of a `pyarrow.RecordBatch` as record batches at consecutive offsets from `base_offset`.

    A row without a timestamp gets `now_ms`. `level` None is the codec's default. A batch has at most `batch_bytes_max`
    bytes before compression and `batch_records_max` records; a larger record gets a batch of its own. Sequence numbers
    continue from `base_sequence` if it is given. Raises ValueError for columns that cannot be encoded.
    """
    columns = _columns(records, now_ms)
    lengths = np.empty(records.num_rows, np.int32)
    table = np.empty((records.num_rows, BATCH_FIELDS), np.int64)
    limits = (min(batch_bytes_max, _INT_MAX) - HEADER_BYTES, batch_records_max)
    count, rows = plan(columns, limits, lengths, table)
    if rows != records.num_rows:
        raise ValueError(f"row {rows} has a header without a key, or is too large for a batch")
    batches = []
    for first_row, end_row, records_bytes, base_timestamp, max_timestamp in table[:count].tolist():
        batch = bytearray(HEADER_BYTES + records_bytes)
        write(columns, lengths, (first_row, end_row), np.frombuffer(batch, np.uint8), HEADER_BYTES)
        if codec is not Codec.NONE:
            batch[HEADER_BYTES:] = compress(codec, memoryview(batch)[HEADER_BYTES:], level)
        header = BatchHeader(
            base_offset=base_offset + first_row,
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC_V2,
            crc=0,
            attributes=codec | (TRANSACTIONAL_BIT if transactional else 0),
            last_offset_delta=end_row - first_row - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence if base_sequence < 0 else advance_sequence(base_sequence, first_row),
            count=end_row - first_row,
        )
        seal(header, batch)
        batches.append(batch)
    return batches


def _columns(records: Any, now_ms: int) -> EncoderInput:
    """Convert the columns of `records` to the kernels' input."""
    names, rows = records.schema.names, records.num_rows
    if "value" not in names:
        raise ValueError(f"records need a column named value; the columns are: {', '.join(names) or 'none'}")
    header_starts, header_ends, header_key, header_value = _headers(
        records.column("headers") if "headers" in names else pa.nulls(rows, HEADERS_TYPE)
    )
    return EncoderInput(
        key=binary_input(records.column("key") if "key" in names else pa.nulls(rows, pa.binary())),
        value=binary_input(records.column("value")),
        timestamp_ms=readonly(_timestamps(records.column("timestamp") if "timestamp" in names else None, rows, now_ms)),
        header_starts=readonly(header_starts),
        header_ends=readonly(header_ends),
        header_key=header_key,
        header_value=header_value,
    )


def binary_input(column: Any) -> BinaryInput:
    column = column.cast(pa.binary())
    validity, ends, data = column.buffers()
    first, rows = column.offset, len(column)
    return BinaryInput(
        ends=readonly(_numbers(ends, np.int32)[first : first + rows + 1]),
        data=readonly(_numbers(data, np.uint8)),
        validity=readonly(_numbers(validity, np.uint8)),
        bit=first if column.null_count else -1,
    )


def _numbers(buffer: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.empty(0, dtype) if buffer is None else np.frombuffer(buffer, dtype)


def readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view: the kernels' signatures require one, and some of Arrow's buffers are writable."""
    array = array.view()
    array.flags.writeable = False
    return array


def _timestamps(column: Any, rows: int, now_ms: int) -> npt.NDArray[np.int64]:
    if column is None:
        return np.full(rows, now_ms, np.int64)
    # Truncate to milliseconds, the resolution of record timestamps.
    milliseconds = column.cast(pa.timestamp("ms", getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
    return np.asarray(milliseconds.fill_null(now_ms))


def _headers(column: Any) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], BinaryInput, BinaryInput]:
    """Return (start, end of each row's headers, keys, values). A row without headers may be empty or null."""
    column = column.cast(HEADERS_TYPE)
    keys, values = column.values.flatten()
    if column.null_count == len(column):
        zeros = np.zeros(len(column), np.int32)
        return zeros, zeros, binary_input(keys), binary_input(values)
    bounds = np.asarray(column.offsets)
    starts, ends = bounds[:-1], bounds[1:]
    if column.null_count:
        # A null list may still have elements in the buffers.
        ends = np.where(np.asarray(column.is_null()), starts, ends)
    return starts, ends, binary_input(keys), binary_input(values)
