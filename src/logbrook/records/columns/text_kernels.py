"""Compiled loops that print decoded records as text: constants, keys, values, numbers, times and JSON strings.

A row of text is a sequence of parts, which a table describes: the kind of each part, and the column or the range of
constant bytes that it prints.
"""

from typing import Any, NamedTuple

import numpy as np

from logbrook.records.columns.encode_kernels import BinaryInput, field_length, pointers
from logbrook.records.columns.jit import (
    BYTE_POINTER,
    BYTES,
    BYTES_IN,
    INT_POINTER,
    INTS_IN,
    LONG,
    LONGS,
    LONGS_IN,
    TABLE,
    compiled,
    copy_bytes,
    pointer,
    shifted,
    types,
)

# Columns of the table of parts. A constant is the range [START, END) of the constant bytes.
KIND, START, END = range(3)
PART_FIELDS = 3
# Kinds of parts. START of the kinds with a column is KEY or VALUE.
CONSTANT, RAW, LENGTH, JSON, OFFSET, TIMESTAMP, ISO_TIME = range(7)
KEY, VALUE = range(2)

# The most bytes that a number, a time, or a byte in a JSON string takes.
NUMBER_BYTES_MAX = 20
TIME_BYTES_MAX = 24
ESCAPED_BYTES_MAX = 6
NULL_BYTES = 4

# Returned for a timestamp that the kernel does not print as Python does.
UNPRINTABLE = -1

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)
_US_PER_MS = 1000
# From this second on (in 2242), a time in seconds as a double has less than the precision of a microsecond.
_SECOND_MAX = 2**33
_ZERO, _MINUS, _QUOTE, _BACKSLASH = 0x30, 0x2D, 0x22, 0x5C
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_NULL = np.frombuffer(b"null", np.uint8).copy()
# The letters of short escapes in JSON; 0 for other bytes.
_SHORT_ESCAPES = np.zeros(256, np.uint8)
for _byte, _letter in zip(b'\b\t\n\f\r"\\', b'btnfr"\\', strict=True):
    _SHORT_ESCAPES[_byte] = _letter


class TextInput(NamedTuple):
    """The columns that can be printed."""

    key: Any
    value: Any
    offset: Any
    timestamp_us: Any


_BINARY = types.NamedTuple([INTS_IN, BYTES_IN, BYTES_IN, LONG], BinaryInput)
_BINARY_POINTERS = types.NamedTuple([INT_POINTER, BYTE_POINTER, BYTE_POINTER, LONG], BinaryInput)
_INPUT = types.NamedTuple([_BINARY, _BINARY, LONGS_IN, LONGS_IN], TextInput)


@compiled(LONG, BYTE_POINTER, LONG, LONG, LONG)
def write_digits(out: Any, position: Any, value: Any, size: Any) -> Any:
    """Write the last `size` decimal digits of a value of at least 0. Returns the position after them."""
    for index in range(size):
        out[position + size - 1 - index] = np.uint8(_ZERO + value % 10)
        value //= 10
    return position + size


@compiled(LONG, BYTE_POINTER, LONG, LONG)
def write_number(out: Any, position: Any, value: Any) -> Any:
    """Write an integer other than the smallest one in decimal. Returns the position after it."""
    if value < 0:
        out[position] = np.uint8(_MINUS)
        position += 1
        value = -value
    size, rest = np.int64(1), value // 10
    while rest > 0:
        size += 1
        rest //= 10
    return write_digits(out, position, value, size)


@compiled(LONG, BYTE_POINTER, LONG, LONG)
def write_time(out: Any, position: Any, timestamp_ms: Any) -> Any:
    """Write YYYY-MM-DDTHH:MM:SS.mmmZ. Returns the position after it."""
    days, of_day_ms = timestamp_ms // 86_400_000, timestamp_ms % 86_400_000
    # Days since 0000-03-01, in eras of 400 years; a year begins in March, so that a leap day is its last.
    days += 719_468
    era, of_era = days // 146_097, days % 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (1 if month <= 2 else 0)
    position = write_digits(out, position, year, 4)
    out[position] = np.uint8(_MINUS)
    position = write_digits(out, position + 1, month, 2)
    out[position] = np.uint8(_MINUS)
    position = write_digits(out, position + 1, day, 2)
    out[position] = np.uint8(0x54)  # T
    position = write_digits(out, position + 1, of_day_ms // 3_600_000, 2)
    out[position] = np.uint8(0x3A)  # :
    position = write_digits(out, position + 1, of_day_ms // 60_000 % 60, 2)
    out[position] = np.uint8(0x3A)
    position = write_digits(out, position + 1, of_day_ms // 1000 % 60, 2)
    out[position] = np.uint8(0x2E)  # .
    position = write_digits(out, position + 1, of_day_ms % 1000, 3)
    out[position] = np.uint8(0x5A)  # Z
    return position + 1


@compiled(LONG, BYTE_POINTER, LONG, _BINARY_POINTERS, LONG)
def write_raw(out: Any, position: Any, column: Any, row: Any) -> Any:
    """Write the bytes of a value, nothing for null. Returns the position after them."""
    length = field_length(column, row)
    if length > 0:
        copy_bytes(shifted(out, position), shifted(column.data, column.ends[row]), length)
        position += length
    return position


@compiled(LONG, BYTE_POINTER, LONG, LONG)
def write_escape(out: Any, position: Any, byte: Any) -> Any:
    """Write a byte that JSON strings must escape. Returns the position after it."""
    out[position] = np.uint8(_BACKSLASH)
    letter = _SHORT_ESCAPES[byte]
    if letter != 0:
        out[position + 1] = letter
        return position + 2
    out[position + 1] = np.uint8(0x75)  # u
    out[position + 2] = np.uint8(_ZERO)
    out[position + 3] = np.uint8(_ZERO)
    out[position + 4] = _DIGITS[byte >> 4]
    out[position + 5] = _DIGITS[byte & 15]
    return position + 6


@compiled(LONG, BYTE_POINTER, LONG, _BINARY_POINTERS, LONG)
def write_json(out: Any, position: Any, column: Any, row: Any) -> Any:
    """Write a value, which must be UTF-8, as a JSON string, or null. Returns the position after it."""
    length = field_length(column, row)
    if length < 0:
        for index in range(NULL_BYTES):
            out[position + index] = _NULL[index]
        return position + NULL_BYTES
    data, start = column.data, np.int64(column.ends[row])
    out[position] = np.uint8(_QUOTE)
    position += 1
    for index in range(start, start + length):
        byte = data[index]
        if byte >= 0x20 and byte != _QUOTE and byte != _BACKSLASH:  # noqa: PLR1714 - compiled: no tuple
            out[position] = byte
            position += 1
        else:
            position = write_escape(out, position, byte)
    out[position] = np.uint8(_QUOTE)
    return position + 1


@compiled(LONG, BYTE_POINTER, LONG, LONG, LONG)
def write_timestamp(out: Any, position: Any, timestamp_us: Any, kind: Any) -> Any:
    """Write a timestamp in milliseconds or as a time. Returns the position after it, or UNPRINTABLE."""
    # The decoder saturates timestamps that do not fit.
    if timestamp_us == _INT64_MAX or timestamp_us == _INT64_MIN:  # noqa: PLR1714, SIM109 - compiled: no tuple
        return np.int64(UNPRINTABLE)
    timestamp_ms = timestamp_us // _US_PER_MS
    if kind == TIMESTAMP:
        return write_number(out, position, timestamp_ms)
    if timestamp_ms < 0:
        out[position] = np.uint8(_MINUS)
        return position + 1
    if timestamp_ms // 1000 >= _SECOND_MAX:
        return np.int64(UNPRINTABLE)
    return write_time(out, position, timestamp_ms)


@compiled(LONG, BYTE_POINTER, LONG, _BINARY_POINTERS, LONG, LONG)
def write_field(out: Any, position: Any, column: Any, row: Any, kind: Any) -> Any:
    """Write a key or value in one of the ways RAW, LENGTH and JSON. Returns the position after it."""
    if kind == RAW:
        return write_raw(out, position, column, row)
    if kind == LENGTH:
        return write_number(out, position, field_length(column, row))
    return write_json(out, position, column, row)


@compiled(LONG, _INPUT, TABLE, BYTES_IN, LONGS, BYTES)
def write_rows(columns: Any, parts: Any, constants_in: Any, row_ends: Any, text: Any) -> Any:
    """Write all rows to `text`, and the position after each to `row_ends`. Returns the last one, or UNPRINTABLE."""
    keys, values = pointers(columns.key), pointers(columns.value)
    constants, out = pointer(constants_in), pointer(text)
    position = np.int64(0)
    for row in range(row_ends.size):
        for index in range(parts.shape[0]):
            kind, start = parts[index, KIND], parts[index, START]
            if kind == CONSTANT:
                size = parts[index, END] - start
                copy_bytes(shifted(out, position), shifted(constants, start), size)
                position += size
            elif kind == OFFSET:
                position = write_number(out, position, columns.offset[row])
            elif kind >= TIMESTAMP:
                position = write_timestamp(out, position, columns.timestamp_us[row], kind)
                if position < 0:
                    return position
            elif start == KEY:
                position = write_field(out, position, keys, row, kind)
            else:
                position = write_field(out, position, values, row, kind)
        row_ends[row] = position
    return position
