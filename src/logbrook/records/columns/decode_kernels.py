"""Compiled loops that decode record batches into columns. Every byte is validated before use.

Kernels do not raise: they return where they stopped, and the caller gets the error from `reader`. A position of _BAD
fails every later check, so that one comparison at the end of a record covers all its fields: unterminated varints,
lengths that do not fit, trailing bytes.
"""

from typing import Any, NamedTuple

import numpy as np

from logbrook.records.batch import TIMESTAMP_TYPE_BIT
from logbrook.records.columns.jit import (
    BYTE_POINTER,
    BYTES,
    BYTES_IN,
    INT_POINTER,
    INTS,
    LONG,
    LONGS,
    PAIR,
    TABLE,
    TRIPLE,
    compiled,
    copy_bytes,
    pointer,
    shifted,
    types,
)
from logbrook.records.columns.sections import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    END,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    START,
)

# Indexes into the array of totals: rows, bytes and nulls written to the columns so far.
ROWS, KEY_BYTES, KEY_NULLS, VALUE_BYTES, VALUE_NULLS = range(5)
HEADER_KEY_BYTES, HEADER_VALUE_BYTES, HEADER_VALUE_NULLS = range(5, 8)
TOTALS = 8

DONE = -1

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)

_BAD = 2**62
_US_PER_MS = 1000
_TIMESTAMP_MS_MAX = _INT64_MAX // _US_PER_MS


class BinaryColumn(NamedTuple):
    """A binary column in Arrow's layout: value offsets, data bytes, and a validity bitmap, initially all ones.

    `ends` is empty for a column that was not requested.
    """

    ends: Any
    data: Any
    validity: Any


class RecordColumns(NamedTuple):
    key: Any
    value: Any
    offset: Any
    timestamp_us: Any
    timestamp_type: Any
    header_ends: Any
    # Position of each row's headers in the input bytes.
    header_positions: Any


class HeaderColumns(NamedTuple):
    key: Any
    value: Any


_BINARY = types.NamedTuple([INTS, BYTES, BYTES], BinaryColumn)
_BINARY_POINTERS = types.NamedTuple([INT_POINTER, BYTE_POINTER, BYTE_POINTER], BinaryColumn)
_RECORDS = types.NamedTuple([_BINARY, _BINARY, LONGS, LONGS, INTS, INTS, LONGS], RecordColumns)
_HEADERS = types.NamedUniTuple(_BINARY, 2, HeaderColumns)


@compiled(PAIR, BYTE_POINTER, LONG, LONG, LONG)
def read_any_varint(data: Any, position: int, end: int, bits: int) -> Any:
    """Return (zigzag value of at most `bits` at `position`, position after it or _BAD)."""
    value, shift = np.uint64(0), np.int64(0)
    while position < end and shift < bits:
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        if byte < np.uint64(0x80):
            # The last byte that fits has room for 4 bits of an int and for 1 bit of a long.
            if shift + 7 > bits and byte >> np.uint64(bits - shift) != np.uint64(0):
                break
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += 7
    return np.int64(0), np.int64(_BAD)


@compiled(PAIR, BYTE_POINTER, LONG, LONG, LONG)
def read_varint(data: Any, position: int, end: int, bits: int) -> Any:
    """Like read_any_varint, with a fast path for one and two bytes."""
    if position + 1 < end:
        value = np.int64(data[position])
        if value < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        second = np.int64(data[position + 1])
        if second < 0x80:
            value = value & 0x7F | second << 7
            return (value >> 1) ^ -(value & 1), position + 2
    return read_any_varint(data, position, end, bits)


@compiled(TRIPLE, BYTE_POINTER, LONG, LONG)
def read_field(data: Any, position: int, end: int) -> Any:
    """Return (start, length or -1 for null, position after it or _BAD) of a length-prefixed field."""
    length, start = read_varint(data, position, end, 32)
    if length == -1:
        return start, np.int64(-1), start
    if length < -1 or length > end - start:
        return start, np.int64(-1), np.int64(_BAD)
    return start, length, start + length


@compiled(TRIPLE, BYTE_POINTER, LONG, LONG, LONG)
def skip_headers(data: Any, position: int, end: int, count: int) -> Any:
    """Return (position after `count` headers or _BAD, bytes of their keys, bytes of their values)."""
    key_bytes, value_bytes = np.int64(0), np.int64(0)
    if count < 0 or count > (end - position) // 2:
        return np.int64(_BAD), key_bytes, value_bytes
    for _ in range(count):
        _, key_length, position = read_field(data, position, end)
        _, value_length, position = read_field(data, position, end)
        if key_length < 0:
            return np.int64(_BAD), key_bytes, value_bytes
        key_bytes += key_length
        value_bytes += max(value_length, 0)
    return position, key_bytes, value_bytes


@compiled(LONG, LONG, LONG)
def timestamp_us(base_ms: int, delta_ms: int) -> Any:
    """Add with 64-bit wrapping, as the Java client does, and convert to microseconds.

    Saturates where microseconds overflow, rather than wrapping to a plausible time.
    """
    timestamp_ms = np.int64(np.uint64(base_ms) + np.uint64(delta_ms))
    if timestamp_ms > _TIMESTAMP_MS_MAX:
        return _INT64_MAX
    if timestamp_ms < -_TIMESTAMP_MS_MAX:
        return _INT64_MIN
    return timestamp_ms * _US_PER_MS


@compiled(LONG, BYTE_POINTER, TRIPLE, _BINARY_POINTERS, LONG, LONG)
def put_field(data: Any, field: Any, column: Any, row: int, column_bytes: int) -> Any:
    """Append the result of read_field to a column that holds `column_bytes`. Returns the new number of bytes."""
    start, length, _ = field
    if length > 0:
        copy_bytes(shifted(column.data, column_bytes), shifted(data, start), length)
        column_bytes += length
    elif length < 0:
        column.validity[row >> 3] &= ~(np.uint8(1) << np.uint8(row & 7))
    column.ends[row + 1] = column_bytes
    return column_bytes


@compiled(LONG, BYTES_IN, TABLE, PAIR, _RECORDS, LONGS)
def decode_records(data_in: Any, sections: Any, offset_range: Any, columns: Any, totals: Any) -> Any:
    """Append the records of `sections` in the offset range. Returns DONE, or the index of a malformed section."""
    data = pointer(data_in)
    keys = BinaryColumn(pointer(columns.key.ends), pointer(columns.key.data), pointer(columns.key.validity))
    values = BinaryColumn(pointer(columns.value.ends), pointer(columns.value.data), pointer(columns.value.validity))
    wants_key, wants_value = columns.key.ends.size > 0, columns.value.ends.size > 0
    start_offset, end_offset = offset_range
    row, key_bytes, value_bytes = totals[ROWS], totals[KEY_BYTES], totals[VALUE_BYTES]
    for index in range(sections.shape[0]):
        position, end = sections[index, START], sections[index, END]
        base_offset, last_offset_delta = sections[index, BASE_OFFSET], sections[index, LAST_OFFSET_DELTA]
        is_log_append_time = sections[index, ATTRIBUTES] & TIMESTAMP_TYPE_BIT != 0
        base_timestamp = sections[index, MAX_TIMESTAMP if is_log_append_time else BASE_TIMESTAMP]
        previous_delta = np.int64(-1)
        for _ in range(sections[index, COUNT]):
            length, position = read_varint(data, position, end, 32)
            if length < 0 or length > end - position:
                return index
            record_end = position + length
            timestamp_delta, position = read_varint(data, position + 1, record_end, 64)
            offset_delta, position = read_varint(data, position, record_end, 32)
            key = read_field(data, position, record_end)
            value = read_field(data, key[2], record_end)
            header_count, headers_start = read_varint(data, value[2], record_end, 32)
            headers = (headers_start, np.int64(0), np.int64(0))
            if header_count != 0:
                headers = skip_headers(data, headers_start, record_end, header_count)
            position = headers[0]
            if position != record_end or offset_delta <= previous_delta or offset_delta > last_offset_delta:
                return index
            previous_delta = offset_delta
            offset = base_offset + offset_delta
            if offset < start_offset or offset >= end_offset:
                continue
            if wants_key:
                key_bytes = put_field(data, key, keys, row, key_bytes)
            if wants_value:
                value_bytes = put_field(data, value, values, row, value_bytes)
            columns.offset[row] = offset
            columns.timestamp_us[row] = timestamp_us(base_timestamp, 0 if is_log_append_time else timestamp_delta)
            columns.timestamp_type[row] = is_log_append_time
            columns.header_positions[row] = headers_start
            columns.header_ends[row + 1] = columns.header_ends[row] + header_count
            totals[KEY_NULLS] += key[1] < 0
            totals[VALUE_NULLS] += value[1] < 0
            totals[HEADER_KEY_BYTES] += headers[1]
            totals[HEADER_VALUE_BYTES] += headers[2]
            row += 1
        if position != end:
            return index
    totals[ROWS], totals[KEY_BYTES], totals[VALUE_BYTES] = row, key_bytes, value_bytes
    return np.int64(DONE)


@compiled(types.void, BYTES_IN, PAIR, _RECORDS, _HEADERS, LONGS)
def decode_headers(data_in: Any, row_range: Any, records: Any, headers: Any, totals: Any) -> None:
    """Append the headers of these rows, whose bytes decode_records has validated."""
    data, end = pointer(data_in), data_in.size
    keys = BinaryColumn(pointer(headers.key.ends), pointer(headers.key.data), pointer(headers.key.validity))
    values = BinaryColumn(pointer(headers.value.ends), pointer(headers.value.data), pointer(headers.value.validity))
    key_bytes, value_bytes = totals[HEADER_KEY_BYTES], totals[HEADER_VALUE_BYTES]
    for row in range(row_range[0], row_range[1]):
        position = records.header_positions[row]
        for header in range(records.header_ends[row], records.header_ends[row + 1]):
            key = read_field(data, position, end)
            value = read_field(data, key[2], end)
            position = value[2]
            key_bytes = put_field(data, key, keys, header, key_bytes)
            value_bytes = put_field(data, value, values, header, value_bytes)
            totals[HEADER_VALUE_NULLS] += value[1] < 0
    totals[HEADER_KEY_BYTES], totals[HEADER_VALUE_BYTES] = key_bytes, value_bytes
