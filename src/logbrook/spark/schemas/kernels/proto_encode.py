"""Interpreter of programs that encode Arrow columns as Protobuf messages, from the last byte to the first.

The size of a submessage precedes its content and is known only after it. Values are therefore written backwards: the
last row first, and of each message the last field first. A program is a table of instructions in that order, made by
`proto_encoding` from the message and the columns. The output buffer is large enough for any values of the columns, so
nothing here checks its capacity.

Columns are described by the table of nodes of `avro_encode`.
"""

from typing import Any

import numpy as np

from logbrook.records.columns.jit import BYTE_POINTER, BYTES, LONG, PAIR, TABLE, copy_bytes, pointer, shifted, types
from logbrook.spark.schemas.kernels.avro_encode import (
    DATA,
    ENDS,
    NODE_FIELDS,
    OUTPUT,
    PROGRAM,
    is_null,
)
from logbrook.spark.schemas.kernels.jit import LONG_POINTER, bytes_at, compiled, ints_at, longs_at

# Columns of the table of instructions. TAG is 0 for a value without one; SKIPS_DEFAULT is 1 for a field without
# presence, whose default is not written.
OPERATION, NODE, TAG, WIDTH, SKIPS_DEFAULT, TARGET = range(6)
INSTRUCTION_FIELDS = 6

# Values: a column of 64-bit numbers, numbers of WIDTH bytes, bytes, microseconds since the epoch.
VARINT, FIXED, LENGTH_PREFIXED, TIMESTAMP = range(4)
# Go to TARGET if the value is null, or refuse the row.
NULLABLE, REQUIRED = range(4, 6)
# The end and the start of a submessage.
OPEN_MESSAGE, CLOSE_MESSAGE = range(6, 8)
# Begin with the last element of a list, or go to TARGET if it has none; go to the element before. A list with a TAG is
# packed: its elements follow one tag and their size.
LAST_ELEMENT, PREVIOUS_ELEMENT, END = range(8, 11)

DEPTH_MAX = 64
# Of an open list the instruction of its elements, its first element and the index of the value that it belongs to; of
# lists and messages the position of their end.
_ELEMENTS, _FIRST, _OUTER, _END = range(4)
_FRAME = 4
STACK_LENGTH = _FRAME * DEPTH_MAX
# The largest size of a value beside its bytes: a timestamp with tag, size, two tags and two varints.
VALUE_BYTES_MAX = 24
_SECONDS_TAG, _NANOS_TAG = 1 << 3, 2 << 3
_US_PER_S = 1_000_000
_NS_PER_US = 1000
# In place of a position, after a value that the message does not allow.
NOT_ALLOWED = -1
ALL_ROWS = -1


@compiled(LONG, BYTE_POINTER, LONG, LONG)
def write_unsigned(out: Any, end: Any, value: Any) -> Any:
    """Write `value` as an unsigned varint before `end`. Returns its position."""
    rest, size = np.uint64(value), np.int64(1)
    while rest >= np.uint64(0x80):
        rest >>= np.uint64(7)
        size += 1
    start = end - size
    rest = np.uint64(value)
    for index in range(start, end - 1):
        out[index] = np.uint8(rest & np.uint64(0x7F) | np.uint64(0x80))
        rest >>= np.uint64(7)
    out[end - 1] = np.uint8(rest)
    return start


@compiled(LONG, BYTE_POINTER, LONG, LONG)
def write_timestamp(out: Any, end: Any, microseconds: Any) -> Any:
    """Write a google.protobuf.Timestamp with its size. Returns its position."""
    seconds = microseconds // _US_PER_S
    nanos = (microseconds - seconds * _US_PER_S) * _NS_PER_US
    position = end
    if nanos != 0:
        position = write_unsigned(out, write_unsigned(out, position, nanos), np.int64(_NANOS_TAG))
    if seconds != 0:
        position = write_unsigned(out, write_unsigned(out, position, seconds), np.int64(_SECONDS_TAG))
    return write_unsigned(out, position, end - position)


@compiled(types.boolean, LONG_POINTER, LONG_POINTER, LONG)
def is_default(instruction: Any, node: Any, index: Any) -> Any:
    """Return True if a value other than a timestamp is zero or empty. The negative zero of a real is not."""
    operation = instruction[OPERATION]
    if operation == VARINT:
        return longs_at(node[DATA])[index] == 0
    if operation == LENGTH_PREFIXED:
        ends = ints_at(node[ENDS])
        return ends[index] == ends[index + 1]
    width = instruction[WIDTH]
    number = bytes_at(node[DATA] + index * width)
    joined = np.uint8(0)
    for offset in range(width):
        joined |= number[offset]
    return joined == 0


@compiled(LONG, LONG_POINTER, LONG_POINTER, LONG, BYTE_POINTER, LONG)
def write_value(instruction: Any, node: Any, index: Any, out: Any, end: Any) -> Any:
    """Execute VARINT, FIXED, LENGTH_PREFIXED or TIMESTAMP, and write the tag. Returns the position of the output."""
    if instruction[SKIPS_DEFAULT] != 0 and is_default(instruction, node, index):
        return end
    operation, width = instruction[OPERATION], instruction[WIDTH]
    if operation == VARINT:
        position = write_unsigned(out, end, longs_at(node[DATA])[index])
    elif operation == TIMESTAMP:
        position = write_timestamp(out, end, longs_at(node[DATA])[index])
    elif operation == FIXED:
        position = end - width
        copy_bytes(shifted(out, position), bytes_at(node[DATA] + index * width), width)
    else:
        ends = ints_at(node[ENDS])
        start, size = np.int64(ends[index]), np.int64(ends[index + 1]) - np.int64(ends[index])
        position = end - size
        copy_bytes(shifted(out, position), bytes_at(node[DATA] + start), size)
        position = write_unsigned(out, position, size)
    tag = instruction[TAG]
    return write_unsigned(out, position, tag) if tag != 0 else position


@compiled(PAIR, LONG_POINTER, LONG_POINTER, LONG, PAIR)
def check_null(instruction: Any, node: Any, index: Any, state: Any) -> Any:
    """Execute NULLABLE or REQUIRED. Returns (position or NOT_ALLOWED, next instruction)."""
    position, current = state
    if not is_null(node, index):
        return position, current + 1
    if instruction[OPERATION] == REQUIRED:
        return np.int64(NOT_ALLOWED), current
    return position, instruction[TARGET]


@compiled(LONG, LONG_POINTER, LONG_POINTER, BYTE_POINTER, LONG)
def write_size(instruction: Any, frame: Any, out: Any, position: Any) -> Any:
    """Write tag and size before the content of the innermost message or packed list."""
    position = write_unsigned(out, position, frame[_END] - position)
    return write_unsigned(out, position, instruction[TAG])


@compiled(
    types.UniTuple(types.int64, 4), LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, types.UniTuple(LONG, 4)
)
def write_nested(instruction: Any, node: Any, stack: Any, out: Any, state: Any) -> Any:
    """Execute an operation on messages or lists. Takes and returns (position, next instruction, depth, index)."""
    position, current, depth, index = state
    operation = instruction[OPERATION]
    new_frame, frame = shifted(stack, _FRAME * depth), shifted(stack, _FRAME * max(depth - 1, 0))
    if operation == OPEN_MESSAGE:
        new_frame[_END] = position
        return position, current + 1, depth + 1, index
    if operation == CLOSE_MESSAGE:
        return write_size(instruction, frame, out, position), current + 1, depth - 1, index
    if operation == LAST_ELEMENT:
        ends = ints_at(node[ENDS])
        first, end = np.int64(ends[index]), np.int64(ends[index + 1])
        if first == end or is_null(node, index):
            return position, instruction[TARGET], depth, index
        new_frame[_ELEMENTS], new_frame[_FIRST] = current + 1, first
        new_frame[_OUTER], new_frame[_END] = index, position
        return position, current + 1, depth + 1, end - 1
    if index > frame[_FIRST]:
        return position, frame[_ELEMENTS], depth, index - 1
    if instruction[TAG] != 0:
        position = write_size(instruction, frame, out, position)
    return position, current + 1, depth - 1, frame[_OUTER]


@compiled(LONG, LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR)
def encode_message(program: Any, nodes: Any, stack: Any, out: Any, state: Any) -> Any:
    """Encode the value of one row; `state` is its end and the row. Returns its position, or NOT_ALLOWED."""
    position, index = state
    current, depth = np.int64(0), np.int64(0)
    while True:
        instruction = shifted(program, current * INSTRUCTION_FIELDS)
        operation = instruction[OPERATION]
        node = shifted(nodes, max(instruction[NODE], 0) * NODE_FIELDS)
        if operation < NULLABLE:
            position = write_value(instruction, node, index, out, position)
            current += 1
        elif operation < OPEN_MESSAGE:
            position, current = check_null(instruction, node, index, (position, current))
        elif operation < END:
            position, current, depth, index = write_nested(
                instruction, node, stack, out, (position, current, depth, index)
            )
        if operation == END or position == NOT_ALLOWED:
            return position


@compiled(LONG, PROGRAM, TABLE, LONG, BYTES, OUTPUT)
def encode_protobuf(program_in: Any, nodes_in: Any, rows: Any, prefix_in: Any, output: Any) -> Any:
    """Encode `rows` values, each after `prefix`, at the end of the output. A null row has no bytes.

    Returns ALL_ROWS, or the row that is not allowed.
    """
    program, stack, nodes = pointer(program_in.instructions), pointer(program_in.stack), pointer(nodes_in)
    out, prefix = pointer(output.data), pointer(prefix_in)
    position = np.int64(output.data.size)
    output.ends[rows] = position
    for row in range(rows - 1, -1, -1):
        if not is_null(nodes, row):
            position = encode_message(program, nodes, stack, out, (position, row))
            if position == NOT_ALLOWED:
                return np.int64(row)
            position -= prefix_in.size
            copy_bytes(shifted(out, position), prefix, prefix_in.size)
        output.ends[row] = position
    return np.int64(ALL_ROWS)
