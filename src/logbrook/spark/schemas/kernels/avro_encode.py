"""Interpreter of programs that encode Arrow columns as Avro values, one after the other in one buffer.

A program is a table of (operation, node, parameter, target), made by `avro_encoding` from the schema and the columns.
The output buffer is large enough for any values of the columns, so nothing here checks its capacity.
"""

from typing import Any, NamedTuple

import numpy as np

from logbrook.records.columns.encode_kernels import write_varint
from logbrook.records.columns.jit import (
    BYTE_POINTER,
    BYTES,
    LONG,
    LONGS,
    PAIR,
    TABLE,
    copy_bytes,
    pointer,
    shifted,
    types,
)
from logbrook.spark.schemas.kernels.jit import LONG_POINTER, bytes_at, compiled, ints_at, longs_at

# Columns of the table of nodes: addresses of data, offsets and validity bitmap (0 if no value is null), and the
# position of the first value in the bitmaps.
DATA, ENDS, VALID, BIT = range(4)
NODE_FIELDS = 4

# (node, bytes of a number), (node, bytes of a number), (node),
INTEGER, REAL, BOOLEAN = range(3)
# (node), (node, bytes), (node, bytes or LENGTH_PREFIXED),
TEXT, FIXED, DECIMAL = range(3, 6)
# (node, index of null, target if null), (node), (NO_NODE, number),
NULLABLE, REQUIRED, CONSTANT = range(6, 9)
# (node, unused, target after the list), (node), and the last instruction.
BEGIN_LIST, NEXT_ELEMENT, END = range(9, 12)

INSTRUCTION_FIELDS = 4
LENGTH_PREFIXED = -1
LIST_DEPTH_MAX = 32
# Instruction of the first element, end of the list, and index of the value that the list belongs to.
_FRAME = 3
STACK_LENGTH = _FRAME * LIST_DEPTH_MAX
# The largest size of a value beside its bytes: a varint of 10 bytes, the index of a union's branch, the end of a list.
VALUE_BYTES_MAX = 12
DECIMAL_BYTES_MAX = 17
_DECIMAL_BYTES = 16
# In place of a position, after a value that the schema does not allow.
NOT_ALLOWED = -1


class EncodeProgram(NamedTuple):
    """Instructions and scratch space for open lists."""

    instructions: Any
    stack: Any


class EncodedOutput(NamedTuple):
    """The encoded values, and the end of each."""

    data: Any
    ends: Any


PROGRAM = types.NamedTuple([TABLE, LONGS], EncodeProgram)
OUTPUT = types.NamedTuple([BYTES, LONGS], EncodedOutput)


@compiled(types.boolean, LONG_POINTER, LONG)
def is_null(node: Any, index: Any) -> Any:
    if node[VALID] == 0:
        return False
    bit = node[BIT] + index
    return bytes_at(node[VALID])[bit >> 3] >> np.uint8(bit & 7) & np.uint8(1) == 0


@compiled(LONG, LONG_POINTER, LONG_POINTER, LONG, BYTE_POINTER, LONG)
def write_number(instruction: Any, node: Any, index: Any, out: Any, position: Any) -> Any:
    """Execute INTEGER, REAL or BOOLEAN. Returns the position after the output."""
    operation, width = instruction[0], instruction[2]
    if operation == INTEGER:
        value = longs_at(node[DATA])[index] if width == 8 else np.int64(ints_at(node[DATA])[index])
        return write_varint(out, position, value)
    if operation == BOOLEAN:
        bit = node[BIT] + index
        out[position] = bytes_at(node[DATA])[bit >> 3] >> np.uint8(bit & 7) & np.uint8(1)
        return position + 1
    copy_bytes(shifted(out, position), bytes_at(node[DATA] + index * width), width)
    return position + width


@compiled(LONG, BYTE_POINTER)
def decimal_size(number: Any) -> Any:
    """Return the smallest number of bytes that holds a little-endian number of 16 bytes with its sign."""
    size = np.int64(_DECIMAL_BYTES)
    sign = np.uint8(0xFF) if number[_DECIMAL_BYTES - 1] >= 0x80 else np.uint8(0)
    while size > 1 and number[size - 1] == sign and (number[size - 2] >= 0x80) == (sign != 0):
        size -= 1
    return size


@compiled(LONG, LONG_POINTER, LONG_POINTER, LONG, BYTE_POINTER, LONG)
def write_bytes(instruction: Any, node: Any, index: Any, out: Any, position: Any) -> Any:
    """Execute TEXT, FIXED or DECIMAL. Returns the position after the output, or NOT_ALLOWED."""
    operation, size = instruction[0], instruction[2]
    if operation == DECIMAL:
        number = bytes_at(node[DATA] + index * _DECIMAL_BYTES)
        needed = decimal_size(number)
        if size == LENGTH_PREFIXED:
            size = needed
            position = write_varint(out, position, size)
        elif needed > size:
            return np.int64(NOT_ALLOWED)
        sign = np.uint8(0xFF) if number[_DECIMAL_BYTES - 1] >= 0x80 else np.uint8(0)
        for offset in range(size):
            out[position + size - 1 - offset] = number[offset] if offset < _DECIMAL_BYTES else sign
        return position + size
    ends = ints_at(node[ENDS])
    start, length = np.int64(ends[index]), np.int64(ends[index + 1]) - np.int64(ends[index])
    if operation == TEXT:
        position = write_varint(out, position, length)
    elif length != size:
        return np.int64(NOT_ALLOWED)
    copy_bytes(shifted(out, position), bytes_at(node[DATA] + start), length)
    return position + length


@compiled(PAIR, LONG_POINTER, LONG_POINTER, LONG, BYTE_POINTER, PAIR)
def write_choice(instruction: Any, node: Any, index: Any, out: Any, state: Any) -> Any:
    """Execute NULLABLE, REQUIRED or CONSTANT. Returns (position or NOT_ALLOWED, next instruction)."""
    position, current = state
    operation, parameter = instruction[0], instruction[2]
    if operation == CONSTANT:
        return write_varint(out, position, parameter), current + 1
    if operation == REQUIRED:
        return np.int64(NOT_ALLOWED) if is_null(node, index) else position, current + 1
    if is_null(node, index):
        return write_varint(out, position, parameter), instruction[3]
    return write_varint(out, position, 1 - parameter), current + 1


@compiled(
    types.UniTuple(types.int64, 4), LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, types.UniTuple(LONG, 4)
)
def write_list(instruction: Any, node: Any, stack: Any, out: Any, state: Any) -> Any:
    """Execute BEGIN_LIST or NEXT_ELEMENT. Takes and returns (position, next instruction, open lists, index)."""
    position, current, depth, index = state
    if instruction[0] == BEGIN_LIST:
        ends = ints_at(node[ENDS])
        start, end = np.int64(ends[index]), np.int64(ends[index + 1])
        if start == end:
            return write_varint(out, position, 0), instruction[3], depth, index
        frame = shifted(stack, _FRAME * depth)
        frame[0], frame[1], frame[2] = current + 1, end, index
        return write_varint(out, position, end - start), current + 1, depth + 1, start
    frame = shifted(stack, _FRAME * (depth - 1))
    if index + 1 < frame[1]:
        return position, frame[0], depth, index + 1
    return write_varint(out, position, 0), current + 1, depth - 1, frame[2]


@compiled(LONG, LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR)
def encode_value(program: Any, nodes: Any, stack: Any, out: Any, state: Any) -> Any:
    """Encode the value of one row; `state` is position and row. Returns the position after it, or NOT_ALLOWED."""
    position, index = state
    current, depth = np.int64(0), np.int64(0)
    while True:
        instruction = shifted(program, current * INSTRUCTION_FIELDS)
        operation = instruction[0]
        node = shifted(nodes, max(instruction[1], 0) * NODE_FIELDS)
        if operation < TEXT:
            position = write_number(instruction, node, index, out, position)
            current += 1
        elif operation < NULLABLE:
            position = write_bytes(instruction, node, index, out, position)
            current += 1
        elif operation < BEGIN_LIST:
            position, current = write_choice(instruction, node, index, out, (position, current))
        elif operation < END:
            position, current, depth, index = write_list(
                instruction, node, stack, out, (position, current, depth, index)
            )
        if operation == END or position == NOT_ALLOWED:
            return position


@compiled(LONG, PROGRAM, TABLE, LONG, BYTES, OUTPUT)
def encode_avro(program_in: Any, nodes_in: Any, rows: Any, prefix_in: Any, output: Any) -> Any:
    """Encode `rows` values, each after `prefix`. A null row has no bytes. Returns the rows that were encoded."""
    program, stack, nodes = pointer(program_in.instructions), pointer(program_in.stack), pointer(nodes_in)
    out, prefix = pointer(output.data), pointer(prefix_in)
    position = np.int64(0)
    output.ends[0] = 0
    for row in range(rows):
        if not is_null(nodes, row):
            copy_bytes(shifted(out, position), prefix, prefix_in.size)
            position = encode_value(program, nodes, stack, out, (position + prefix_in.size, row))
            if position == NOT_ALLOWED:
                return row
        output.ends[row + 1] = position
    return rows
