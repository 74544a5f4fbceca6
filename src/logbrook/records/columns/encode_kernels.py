"""Compiled loops that encode columns as the records of batches.

Encoding takes two passes, because a record begins with its length and a batch ends before the record that would not
fit: `plan` computes the length of every record and divides the rows into batches, `write` encodes one batch.
"""

from typing import Any, NamedTuple

import numpy as np

from logbrook.records.columns.jit import (
    BYTE_POINTER,
    BYTES,
    BYTES_IN,
    INT_POINTER,
    INTS,
    INTS_IN,
    LONG,
    LONGS_IN,
    PAIR,
    TABLE,
    compiled,
    copy_bytes,
    pointer,
    shifted,
    types,
)

# Columns of the table of batches.
FIRST_ROW, END_ROW, RECORDS_BYTES, BASE_TIMESTAMP, MAX_TIMESTAMP = range(5)
BATCH_FIELDS = 5

# Lengths of records and batches are int32; this leaves room for the batch header.
_RECORD_BYTES_MAX = 2**31 - 1 - 1024
_NULL_LENGTH = -1


class BinaryInput(NamedTuple):
    """A binary column in Arrow's layout. `bit` is the bitmap position of the first row, -1 if no row is null."""

    ends: Any
    data: Any
    validity: Any
    bit: Any


class EncoderInput(NamedTuple):
    """The columns to encode. Row i has the headers in [header_starts[i], header_ends[i])."""

    key: Any
    value: Any
    timestamp_ms: Any
    header_starts: Any
    header_ends: Any
    header_key: Any
    header_value: Any


_BINARY = types.NamedTuple([INTS_IN, BYTES_IN, BYTES_IN, LONG], BinaryInput)
_BINARY_POINTERS = types.NamedTuple([INT_POINTER, BYTE_POINTER, BYTE_POINTER, LONG], BinaryInput)
_INPUT = types.NamedTuple([_BINARY, _BINARY, LONGS_IN, INTS_IN, INTS_IN, _BINARY, _BINARY], EncoderInput)


@compiled(LONG, LONG)
def varint_bytes(value: Any) -> Any:
    """Return the encoded size of `value` as a zigzag varint."""
    rest = np.uint64((value << 1) ^ (value >> 63)) >> np.uint64(7)
    size = np.int64(1)
    while rest != np.uint64(0):
        rest >>= np.uint64(7)
        size += 1
    return size


@compiled(LONG, BYTE_POINTER, LONG, LONG)
def write_varint(out: Any, position: Any, value: Any) -> Any:
    """Write the zigzag varint of `value` at `position`. Returns the position after it."""
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest >= np.uint64(0x80):
        out[position] = np.uint8(rest & np.uint64(0x7F) | np.uint64(0x80))
        rest >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(rest)
    return position + 1


@compiled(LONG, _BINARY_POINTERS, LONG)
def field_length(column: Any, row: Any) -> Any:
    """Return the length of a value, -1 if it is null."""
    if column.bit >= 0:
        bit = column.bit + row
        if column.validity[bit >> 3] >> np.uint8(bit & 7) & np.uint8(1) == 0:
            return np.int64(_NULL_LENGTH)
    return np.int64(column.ends[row + 1]) - np.int64(column.ends[row])


@compiled(LONG, _BINARY_POINTERS, LONG)
def field_bytes(column: Any, row: Any) -> Any:
    """Return the encoded size of a value with its length prefix."""
    length = field_length(column, row)
    return varint_bytes(length) + max(length, 0)


@compiled(LONG, BYTE_POINTER, LONG, _BINARY_POINTERS, LONG)
def write_field(out: Any, position: Any, column: Any, row: Any) -> Any:
    """Write a value with its length prefix at `position`. Returns the position after it."""
    length = field_length(column, row)
    position = write_varint(out, position, length)
    if length > 0:
        copy_bytes(shifted(out, position), shifted(column.data, column.ends[row]), length)
        position += length
    return position


@compiled(LONG, LONG, LONG)
def subtract_wrapping(value: Any, base: Any) -> Any:
    """Subtract with 64-bit wrapping, the inverse of the Java client's addition."""
    return np.int64(np.uint64(value) - np.uint64(base))


@compiled(LONG, _BINARY_POINTERS, _BINARY_POINTERS, LONG, LONG)
def headers_bytes(keys: Any, values: Any, start: Any, end: Any) -> Any:
    """Return the encoded size of the headers with their count; -1 if a header has no key."""
    size = varint_bytes(end - start)
    for header in range(start, end):
        if field_length(keys, header) < 0:
            return np.int64(-1)
        size += field_bytes(keys, header) + field_bytes(values, header)
    return size


@compiled(_BINARY_POINTERS, _BINARY)
def pointers(column: Any) -> Any:
    return BinaryInput(pointer(column.ends), pointer(column.data), pointer(column.validity), column.bit)


@compiled(PAIR, _INPUT, PAIR, INTS, TABLE)
def plan(columns: Any, limits: Any, lengths: Any, batches: Any) -> Any:
    """Fill `lengths` with the length of each record, and `batches` with a row for each batch within the limits.

    Returns (number of batches, number of rows planned): it stops at a row that cannot be encoded.
    """
    keys, values = pointers(columns.key), pointers(columns.value)
    header_keys, header_values = pointers(columns.header_key), pointers(columns.header_value)
    bytes_max, records_max = limits
    count, first_row, records_bytes, base_timestamp = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for row in range(lengths.size):
        timestamp = columns.timestamp_ms[row]
        headers = headers_bytes(header_keys, header_values, columns.header_starts[row], columns.header_ends[row])
        fixed = 1 + field_bytes(keys, row) + field_bytes(values, row) + headers
        if headers < 0 or fixed > _RECORD_BYTES_MAX:
            return count, row
        timestamp_delta = subtract_wrapping(timestamp, base_timestamp)
        length = fixed + varint_bytes(timestamp_delta) + varint_bytes(row - first_row)
        size = length + varint_bytes(length)
        if count == 0 or records_bytes + size > bytes_max or row - first_row >= records_max:
            first_row, base_timestamp, records_bytes = np.int64(row), timestamp, np.int64(0)
            length = fixed + 2  # deltas of 0 take a byte each
            size = length + varint_bytes(length)
            batches[count, FIRST_ROW] = row
            batches[count, BASE_TIMESTAMP] = timestamp
            batches[count, MAX_TIMESTAMP] = timestamp
            count += 1
        records_bytes += size
        lengths[row] = length
        batches[count - 1, END_ROW] = row + 1
        batches[count - 1, RECORDS_BYTES] = records_bytes
        batches[count - 1, MAX_TIMESTAMP] = max(batches[count - 1, MAX_TIMESTAMP], timestamp)
    return count, np.int64(lengths.size)


@compiled(LONG, _INPUT, INTS, PAIR, BYTES, LONG)
def write(columns: Any, lengths: Any, row_range: Any, batch: Any, position: Any) -> Any:
    """Write the records of one planned batch at `position`. Returns the position after them."""
    keys, values = pointers(columns.key), pointers(columns.value)
    header_keys, header_values = pointers(columns.header_key), pointers(columns.header_value)
    out = pointer(batch)
    first_row, end_row = row_range
    base_timestamp = columns.timestamp_ms[first_row]
    for row in range(first_row, end_row):
        position = write_varint(out, position, lengths[row])
        out[position] = 0
        position = write_varint(out, position + 1, subtract_wrapping(columns.timestamp_ms[row], base_timestamp))
        position = write_varint(out, position, row - first_row)
        position = write_field(out, position, keys, row)
        position = write_field(out, position, values, row)
        start, end = columns.header_starts[row], columns.header_ends[row]
        position = write_varint(out, position, end - start)
        for header in range(start, end):
            position = write_field(out, position, header_keys, header)
            position = write_field(out, position, header_values, header)
    return position
