"""Decoding of Protobuf messages: a table of fields per message, for all rows of one message type.

Fields are matched by number, so the reader's message reads values of every compatible writer. Fields come in any order:
each column gets its value when the field is met, and at the end of a message those that were absent get their default
or null. The last value of a field that is not repeated counts; a repeated submessage that should be merged is refused.
"""

from typing import Any, NamedTuple

import numpy as np

from logbrook.records.columns.decode_kernels import read_varint
from logbrook.records.columns.jit import (
    BYTE_POINTER,
    BYTES,
    BYTES_IN,
    LONG,
    LONGS,
    PAIR,
    TABLE,
    pointer,
    shifted,
    types,
)
from logbrook.spark.schemas.kernels.avro import ValueBounds
from logbrook.spark.schemas.kernels.jit import LONG_POINTER, bytes_at, compiled, ints_at, longs_at
from logbrook.spark.schemas.kernels.nodes import (
    BAD,
    BINARY,
    COUNT,
    DATA,
    ENDS,
    KIND,
    NODE_FIELDS,
    STRUCT,
    USED,
    VALID,
    append_null,
    close_list,
    mark_valid,
    put_boolean,
    put_bytes,
    put_integer,
    put_raw,
    put_text,
    roll_back,
)

# Kinds of fields by their wire type: varints,
INT, ZIGZAG, UNSIGNED, BOOL, ENUM = range(5)
# numbers of a fixed size,
SIGNED_FIXED, UNSIGNED_FIXED, REAL = range(5, 8)
# and bytes with their length.
TEXT, RAW, TIMESTAMP, MESSAGE = range(8, 12)

# Columns of the table of fields. PARAMETER is the message of a MESSAGE, and for an ENUM the offset of its numbers.
NUMBER, FIELD_KIND, WIRE_TYPE, NODE, LIST_NODE, PARAMETER, SYMBOLS, HAS_PRESENCE = range(8)
FIELD_FIELDS = 8
NO_NODE = -1
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

# An open message: its number, its end, the count of its columns before it, and the field that is expected next.
_MESSAGE, _END, _COUNT, _HINT = range(4)
_FRAME = 4
DEPTH_MAX = 64
STACK_LENGTH = _FRAME * DEPTH_MAX
_US_PER_S = 1_000_000
_NS_PER_US = 1000
_SECONDS_MAX = (2**63 - 1) // _US_PER_S - 1


class ProtobufProgram(NamedTuple):
    """Fields of all messages, (first, end) of each message's fields, numbers of enums, and scratch space."""

    fields: Any
    messages: Any
    numbers: Any
    stack: Any


_BOUNDS = types.NamedUniTuple(LONGS, 2, ValueBounds)
_PROGRAM = types.NamedTuple([TABLE, TABLE, LONGS, LONGS], ProtobufProgram)


@compiled(PAIR, BYTE_POINTER, LONG, LONG)
def read_unsigned(data: Any, position: Any, end: Any) -> Any:
    """Return (value of a varint as 64 bits, position after it or BAD)."""
    value, shift = np.uint64(0), np.int64(0)
    while position < end and shift < 64:
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        if byte < np.uint64(0x80):
            return np.int64(value), position
        shift += 7
    return np.int64(0), np.int64(BAD)


@compiled(LONG, BYTE_POINTER, LONG, LONG, LONG)
def skip_field(data: Any, position: Any, end: Any, wire_type: Any) -> Any:
    """Return the position after a field of this type, or BAD."""
    if wire_type == VARINT:
        _, position = read_unsigned(data, position, end)
        return position
    size = np.int64(BAD)
    if wire_type == LENGTH:
        size, position = read_unsigned(data, position, end)
    elif wire_type == FIXED64:
        size = np.int64(8)
    elif wire_type == FIXED32:
        size = np.int64(4)
    return position + size if 0 <= size <= end - position else np.int64(BAD)


@compiled(types.void, LONG_POINTER, LONG, LONG)
def put_unsigned(nodes: Any, node: Any, value: Any) -> None:
    """Append a number of 64 bits without a sign to a column of decimals."""
    base = node * NODE_FIELDS
    words = longs_at(nodes[base + DATA] + nodes[base + COUNT] * 16)
    words[0], words[1] = value, 0
    mark_valid(nodes, node)


@compiled(types.void, LONG_POINTER, LONG_POINTER, LONG_POINTER, LONG)
def put_varint(field: Any, numbers: Any, nodes: Any, value: Any) -> None:
    kind, node = field[FIELD_KIND], field[NODE]
    if kind == BOOL:
        put_boolean(nodes, node, np.int64(value != 0))
    elif kind == ZIGZAG:
        put_integer(nodes, node, np.int64(np.uint64(value) >> np.uint64(1)) ^ -(value & 1))
    elif kind == INT:
        put_integer(nodes, node, value)
    elif kind == UNSIGNED:
        if nodes[node * NODE_FIELDS + KIND] == 16:
            put_unsigned(nodes, node, value)
        else:
            put_integer(nodes, node, value & 0xFFFFFFFF)
    else:
        number = np.int64(np.int32(value))
        for index in range(field[SYMBOLS]):
            if numbers[field[PARAMETER] + index] == number:
                put_integer(nodes, node, index)
                return
        # A value that the reader's enum lacks.
        append_null(nodes, node)


@compiled(types.void, LONG_POINTER, LONG_POINTER, BYTE_POINTER, LONG)
def put_fixed(field: Any, nodes: Any, data: Any, size: Any) -> None:
    kind, node = field[FIELD_KIND], field[NODE]
    if kind == REAL or (kind == SIGNED_FIXED and nodes[node * NODE_FIELDS + KIND] == size):
        put_raw(nodes, node, data, size)
        return
    value = np.uint64(0)
    for index in range(size):
        value |= np.uint64(data[index]) << np.uint64(8 * index)
    if size == 8:
        put_unsigned(nodes, node, np.int64(value))
    else:
        put_integer(nodes, node, np.int64(value))


@compiled(PAIR, BYTE_POINTER, LONG, LONG)
def read_timestamp(data: Any, position: Any, end: Any) -> Any:
    """Return (microseconds, `end` or BAD) of a google.protobuf.Timestamp."""
    seconds, nanos = np.int64(0), np.int64(0)
    while position < end:
        tag, position = read_unsigned(data, position, end)
        if tag == 1 << 3 | VARINT:
            seconds, position = read_unsigned(data, position, end)
        elif tag == 2 << 3 | VARINT:
            nanos, position = read_unsigned(data, position, end)
        else:
            position = skip_field(data, position, end, tag & 7)
    if position != end or abs(seconds) > _SECONDS_MAX or nanos < 0 or nanos > 999_999_999:
        return np.int64(0), np.int64(BAD)
    return seconds * _US_PER_S + np.int64(np.uint64(nanos) // np.uint64(_NS_PER_US)), position


@compiled(LONG, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR)
def put_length_delimited(field: Any, nodes: Any, data: Any, bounds: Any) -> Any:
    """Append TEXT, RAW or TIMESTAMP. Returns the end, or BAD."""
    position, end = bounds
    kind, node = field[FIELD_KIND], field[NODE]
    if kind == TIMESTAMP:
        microseconds, position = read_timestamp(data, position, end)
        put_integer(nodes, node, microseconds)
        return position
    if kind == RAW:
        put_bytes(nodes, node, shifted(data, position), end - position)
        return end
    return end if put_text(nodes, node, shifted(data, position), end - position) else np.int64(BAD)


@compiled(LONG, LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR)
def put_scalar(field: Any, numbers: Any, nodes: Any, data: Any, bounds: Any) -> Any:
    """Append one number in its own wire type. Returns the position after it or BAD."""
    position, end = bounds
    if field[WIRE_TYPE] == VARINT:
        value, position = read_unsigned(data, position, end)
        put_varint(field, numbers, nodes, value)
        return position
    size = np.int64(8 if field[WIRE_TYPE] == FIXED64 else 4)
    if size > end - position:
        return np.int64(BAD)
    put_fixed(field, nodes, shifted(data, position), size)
    return position + size


@compiled(types.boolean, LONG_POINTER, LONG_POINTER, LONG)
def replace_value(field: Any, nodes: Any, count: Any) -> Any:
    """Remove the earlier value of a field that is met again. Returns False if it is a message, to be merged."""
    node = field[NODE]
    base = node * NODE_FIELDS
    if field[LIST_NODE] != NO_NODE or nodes[base + COUNT] == count:
        return True
    if nodes[base + KIND] == STRUCT:
        return False
    nodes[base + COUNT] = count
    if nodes[base + KIND] == BINARY:
        nodes[base + USED] = np.int64(ints_at(nodes[base + ENDS])[count])
    return True


@compiled(LONG, LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, types.UniTuple(types.int64, 4))
def read_known(field: Any, numbers: Any, nodes: Any, data: Any, state: Any) -> Any:
    """Append a field other than MESSAGE. `state`: position, end, wire type, count. Returns the position after it."""
    position, end, wire_type, count = state
    is_own_type = wire_type == field[WIRE_TYPE]
    is_packed = wire_type == LENGTH and not is_own_type and field[LIST_NODE] != NO_NODE
    if not is_own_type and not is_packed:
        # Another type under the same number counts as an unknown field.
        return skip_field(data, position, end, wire_type)
    if not replace_value(field, nodes, count):
        return np.int64(BAD)
    if wire_type != LENGTH:
        return put_scalar(field, numbers, nodes, data, (position, end))
    size, position = read_unsigned(data, position, end)
    if size < 0 or size > end - position:
        return np.int64(BAD)
    end = position + size
    if not is_packed:
        return put_length_delimited(field, nodes, data, (position, end))
    while position < end:
        position = put_scalar(field, numbers, nodes, data, (position, end))
    return position


@compiled(types.void, LONG_POINTER, PAIR, LONG_POINTER, LONG)
def close_message(fields: Any, fields_range: Any, nodes: Any, count: Any) -> None:
    """Close the lists of a message, and append default or null to the columns that got no value."""
    for number in range(fields_range[0], fields_range[1]):
        field = shifted(fields, number * FIELD_FIELDS)
        node = field[NODE]
        base = node * NODE_FIELDS
        if field[LIST_NODE] != NO_NODE:
            close_list(nodes, field[LIST_NODE])
        elif nodes[base + COUNT] == count:
            append_null(nodes, node)
            if field[HAS_PRESENCE] == 0:
                bytes_at(nodes[base + VALID])[count] = np.uint8(1)


@compiled(LONG, LONG_POINTER, PAIR, LONG, LONG)
def find_field(fields: Any, fields_range: Any, number: Any, hint: Any) -> Any:
    """Return the index of the field with this number, or -1. Fields mostly come in order, so it begins at `hint`."""
    first, end = fields_range
    for index in range(hint, end):
        if fields[index * FIELD_FIELDS + NUMBER] == number:
            return index
    for index in range(first, min(hint, end)):
        if fields[index * FIELD_FIELDS + NUMBER] == number:
            return index
    return np.int64(-1)


@compiled(LONG, LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR)
def open_message(field: Any, nodes: Any, frame: Any, data: Any, bounds: Any) -> Any:
    """Fill the frame after `frame` for a MESSAGE field. Returns the position of its content or BAD."""
    size, position = read_unsigned(data, bounds[0], bounds[1])
    if size < 0 or size > bounds[1] - position:
        return np.int64(BAD)
    node = field[NODE]
    if not replace_value(field, nodes, frame[_COUNT]):
        return np.int64(BAD)
    # The entry of a map has no struct; its first column is that of the keys.
    first_column = node if node != NO_NODE else field[LIST_NODE] + 1
    frame[_FRAME + _MESSAGE] = field[PARAMETER]
    frame[_FRAME + _END] = position + size
    frame[_FRAME + _COUNT] = nodes[first_column * NODE_FIELDS + COUNT]
    frame[_FRAME + _HINT] = 0
    if node != NO_NODE:
        mark_valid(nodes, node)
    return position


@compiled(PAIR, LONG_POINTER, LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR, PAIR)
def read_field_of(fields: Any, numbers: Any, nodes: Any, frame: Any, data: Any, fields_range: Any, bounds: Any) -> Any:
    """Read the next field of the innermost message. Returns (position or BAD, 1 if it has opened a message)."""
    tag, position = read_unsigned(data, bounds[0], bounds[1])
    number, wire_type = tag >> 3, tag & 7
    if position == BAD or number < 1:
        return np.int64(BAD), np.int64(0)
    index = find_field(fields, fields_range, number, fields_range[0] + frame[_HINT])
    if index < 0:
        return skip_field(data, position, bounds[1], wire_type), np.int64(0)
    field = shifted(fields, index * FIELD_FIELDS)
    frame[_HINT] = index - fields_range[0] + (field[LIST_NODE] == NO_NODE)
    if field[FIELD_KIND] != MESSAGE:
        return read_known(field, numbers, nodes, data, (position, bounds[1], wire_type, frame[_COUNT])), np.int64(0)
    if wire_type != LENGTH:
        return skip_field(data, position, bounds[1], wire_type), np.int64(0)
    return open_message(field, nodes, frame, data, (position, bounds[1])), np.int64(1)


@compiled(LONG, LONG_POINTER, LONG_POINTER, LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR)
def decode_message(fields: Any, messages: Any, numbers: Any, stack: Any, nodes: Any, data: Any, bounds: Any) -> Any:
    """Decode one value. Returns the position after it, or BAD or another one if it is malformed."""
    position, depth = bounds[0], np.int64(1)
    stack[_MESSAGE], stack[_END], stack[_COUNT], stack[_HINT] = 0, bounds[1], nodes[COUNT], 0
    mark_valid(nodes, 0)
    while True:
        frame = shifted(stack, (depth - 1) * _FRAME)
        fields_range = (messages[2 * frame[_MESSAGE]], messages[2 * frame[_MESSAGE] + 1])
        if position >= frame[_END]:
            if position != frame[_END]:
                return np.int64(BAD)
            close_message(fields, fields_range, nodes, frame[_COUNT])
            depth -= 1
            if depth == 0:
                return position
        else:
            position, opened = read_field_of(fields, numbers, nodes, frame, data, fields_range, (position, frame[_END]))
            depth += opened if position != BAD else 0


@compiled(types.void, BYTES_IN, _BOUNDS, _PROGRAM, TABLE, BYTES)
def decode_protobuf(data_in: Any, bounds: Any, program: Any, nodes_in: Any, is_decoded: Any) -> None:
    """Decode the values between `bounds` and set `is_decoded` of each; a malformed value is null in all columns."""
    data, nodes = pointer(data_in), pointer(nodes_in)
    fields, messages = pointer(program.fields), pointer(program.messages)
    numbers, stack = pointer(program.numbers), pointer(program.stack)
    for row in range(bounds.starts.size):
        start, end = bounds.starts[row], bounds.ends[row]
        position = np.int64(BAD)
        if start <= end:
            position = decode_message(fields, messages, numbers, stack, nodes, data, (start, end))
        is_decoded[row] = position == end
        if position != end:
            roll_back(nodes, nodes_in.shape[0], row)
            append_null(nodes, 0)


# Message indexes are packed into one number: their count, and 20 bits for each.
PATH_LENGTH_MAX = 3
PATH_INDEX_BITS = 20
FIRST_MESSAGE = 1 << PATH_LENGTH_MAX * PATH_INDEX_BITS
UNREADABLE_PATH = -1


@compiled(types.void, BYTES_IN, _BOUNDS, LONGS)
def read_message_paths(data_in: Any, bounds: Any, paths: Any) -> None:
    """Set the path of each value's message, and move its start behind the message indexes."""
    data = pointer(data_in)
    for row in range(bounds.starts.size):
        position, end = bounds.starts[row], bounds.ends[row]
        count, position = read_varint(data, position, end, 32)
        path = np.int64(count) << PATH_LENGTH_MAX * PATH_INDEX_BITS
        if position != BAD and count == 0:
            path = np.int64(FIRST_MESSAGE)
        for number in range(min(max(count, 0), PATH_LENGTH_MAX)):
            index, position = read_varint(data, position, end, 32)
            if index < 0 or index >= 1 << PATH_INDEX_BITS:
                position = np.int64(BAD)
            path |= index << (PATH_LENGTH_MAX - 1 - number) * PATH_INDEX_BITS
        is_readable = 0 <= count <= PATH_LENGTH_MAX and position <= end
        paths[row] = path if is_readable else UNREADABLE_PATH
        bounds.starts[row] = position if is_readable else end + 1
