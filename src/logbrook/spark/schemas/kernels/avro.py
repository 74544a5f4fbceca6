"""Interpreter of Avro programs: one instruction per field of the writer's schema, for all rows of one schema id.

A program is a table of (operation, node, two parameters), made by `avro_resolution` from the writer's and the reader's
schema. It is interpreted rather than compiled for each schema: compiling takes seconds in every worker, and an
instruction costs a few nanoseconds. A value that does not match its schema gets the position BAD, and becomes null in
all columns.
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
    TRIPLE,
    pointer,
    shifted,
    types,
)
from logbrook.spark.schemas.kernels.jit import LONG_POINTER, compiled
from logbrook.spark.schemas.kernels.nodes import (
    BAD,
    append_null,
    close_list,
    mark_valid,
    put_boolean,
    put_bytes,
    put_decimal,
    put_integer,
    put_raw,
    put_real,
    put_text,
    roll_back,
)

# Operations with their parameters.
# (node, bits, factor), (node, bits), (node, offset in tables, number of symbols).
INTEGER, INTEGER_AS_REAL, ENUM = range(3)
# (node, bytes), (node, 1).
REAL, BOOLEAN = range(3, 5)
# (node, bytes), where LENGTH_PREFIXED stands for bytes that follow their number.
TEXT, FIXED, DECIMAL = range(5, 8)
# Without input: (node), (node), none. Input that the reader's schema lacks: (NO_NODE, bits), (NO_NODE, bytes).
STRUCT_VALUE, NULL, UNREADABLE, SKIP_VARINT, SKIP_BYTES = range(8, 13)
# Unions: (node, index of null, target if null), (NO_NODE, offset of targets in tables, branches), (NO_NODE, target).
NULLABLE, BRANCH, JUMP = range(13, 16)
# Arrays and maps: (node or NO_NODE, target after the list), and after each element (node or NO_NODE). The end.
BEGIN_LIST, NEXT_ELEMENT, END = range(16, 19)

INSTRUCTION_FIELDS = 4
NO_NODE = -1
LENGTH_PREFIXED = -1
# Two numbers per list that is open: remaining elements of the block, and the instruction of the first element.
LIST_DEPTH_MAX = 32
_MS_MAX = (2**63 - 1) // 1000


class ValueBounds(NamedTuple):
    """Start and end of each value in the data."""

    starts: Any
    ends: Any


class AvroProgram(NamedTuple):
    """Instructions, the tables of enums and unions, and scratch space for open lists."""

    instructions: Any
    tables: Any
    stack: Any


_BOUNDS = types.NamedUniTuple(LONGS, 2, ValueBounds)
_PROGRAM = types.NamedTuple([TABLE, LONGS, LONGS], AvroProgram)


@compiled(PAIR, BYTE_POINTER, LONG, LONG, LONG)
def read_size(data: Any, position: Any, end: Any, size: Any) -> Any:
    """Return (position of the bytes or BAD, their number), for a fixed `size` or a length prefix."""
    if size == LENGTH_PREFIXED:
        size, position = read_varint(data, position, end, 64)
    if size < 0 or size > end - position:
        return np.int64(BAD), np.int64(0)
    return position, size


@compiled(LONG, LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR)
def read_integer(instruction: Any, tables: Any, nodes: Any, data: Any, bounds: Any) -> Any:
    """Execute INTEGER, INTEGER_AS_REAL or ENUM. Returns the position after the input or BAD."""
    operation, node, parameter, factor = instruction[0], instruction[1], instruction[2], instruction[3]
    bits: Any = 32 if operation == ENUM else parameter
    value, position = read_varint(data, bounds[0], bounds[1], bits)
    if operation == INTEGER:
        put_integer(nodes, node, value * factor)
        # The only other factor is that of milliseconds to microseconds.
        return position if factor == 1 or -_MS_MAX <= value <= _MS_MAX else np.int64(BAD)
    if operation == INTEGER_AS_REAL:
        put_real(nodes, node, np.float64(value))
        return position
    if value < 0 or value >= factor or tables[parameter + value] < 0:
        return np.int64(BAD)
    put_integer(nodes, node, tables[parameter + value])
    return position


@compiled(LONG, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR)
def read_fixed_number(instruction: Any, nodes: Any, data: Any, bounds: Any) -> Any:
    """Execute REAL or BOOLEAN. Returns the position after the input or BAD."""
    node, size = instruction[1], instruction[2]
    position, _ = read_size(data, bounds[0], bounds[1], size)
    if position == BAD:
        return np.int64(BAD)
    if instruction[0] == REAL:
        put_raw(nodes, node, shifted(data, position), size)
    else:
        if data[position] > 1:
            return np.int64(BAD)
        put_boolean(nodes, node, np.int64(data[position]))
    return position + size


@compiled(LONG, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR)
def read_bytes(instruction: Any, nodes: Any, data: Any, bounds: Any) -> Any:
    """Execute TEXT, FIXED or DECIMAL. Returns the position after the input or BAD."""
    operation, node = instruction[0], instruction[1]
    start, size = read_size(data, bounds[0], bounds[1], instruction[2])
    if start == BAD:
        return np.int64(BAD)
    if operation == FIXED:
        put_bytes(nodes, node, shifted(data, start), size)
    elif operation == DECIMAL:
        if size < 1 or size > 16:
            return np.int64(BAD)
        put_decimal(nodes, node, shifted(data, start), size)
    elif not put_text(nodes, node, shifted(data, start), size):
        return np.int64(BAD)
    return start + size


@compiled(LONG, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR)
def skip_or_append(instruction: Any, nodes: Any, data: Any, bounds: Any) -> Any:
    """Execute STRUCT_VALUE to SKIP_BYTES. Returns the position after the input or BAD."""
    position, end = bounds
    operation, node = instruction[0], instruction[1]
    if operation == STRUCT_VALUE:
        mark_valid(nodes, node)
        return position
    if operation == NULL:
        append_null(nodes, node)
        return position
    if operation == UNREADABLE:
        return np.int64(BAD)
    if operation == SKIP_VARINT:
        _, position = read_varint(data, position, end, instruction[2])
        return position
    start, size = read_size(data, position, end, instruction[2])
    return start + size


@compiled(PAIR, LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, TRIPLE)
def branch(instruction: Any, tables: Any, nodes: Any, data: Any, bounds: Any) -> Any:
    """Execute NULLABLE, BRANCH or JUMP. Returns (position or BAD, next instruction).

    `bounds` is position, end and the current instruction.
    """
    position, end, current = bounds
    operation, node, parameter, last = instruction[0], instruction[1], instruction[2], instruction[3]
    if operation == JUMP:
        return position, parameter
    index, position = read_varint(data, position, end, 64)
    if operation == BRANCH:
        if index < 0 or index >= last:
            return np.int64(BAD), tables[parameter]
        return position, tables[parameter + index]
    if index == parameter:
        append_null(nodes, node)
        return position, last
    return position if index == 1 - parameter else np.int64(BAD), current + 1


@compiled(PAIR, BYTE_POINTER, LONG, LONG)
def read_block(data: Any, position: Any, end: Any) -> Any:
    """Return (elements of a block, position after its header or BAD). The last block has 0 elements."""
    count, position = read_varint(data, position, end, 64)
    if count < 0:
        # The number of bytes follows, for readers that skip the block.
        count = -count
        _, position = read_varint(data, position, end, 64)
    # An element has at least one byte.
    if count < 0 or count > end - position:
        return np.int64(0), np.int64(BAD)
    return count, position


@compiled(TRIPLE, LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, types.UniTuple(types.int64, 4))
def loop(instruction: Any, nodes: Any, stack: Any, data: Any, state: Any) -> Any:
    """Execute BEGIN_LIST or NEXT_ELEMENT. Returns (position or BAD, next instruction, number of open lists).

    `state` is position, end, current instruction and number of open lists.
    """
    position, end, current, depth = state
    operation, node = instruction[0], instruction[1]
    if operation == BEGIN_LIST:
        stack[2 * depth], stack[2 * depth + 1] = 1, current + 1
        depth += 1
    frame = 2 * (depth - 1)
    stack[frame] -= 1
    if stack[frame] > 0:
        return position, stack[frame + 1], depth
    count, position = read_block(data, position, end)
    if count > 0:
        stack[frame] = count
        return position, stack[frame + 1], depth
    if node != NO_NODE:
        close_list(nodes, node)
    return position, instruction[2] if operation == BEGIN_LIST else current + 1, depth - 1


@compiled(LONG, LONG_POINTER, LONG_POINTER, LONG_POINTER, LONG_POINTER, BYTE_POINTER, PAIR)
def decode_value(program: Any, tables: Any, nodes: Any, stack: Any, data: Any, bounds: Any) -> Any:
    """Execute a program for one value. Returns the position after it, or BAD or another one if it is malformed."""
    position, end = bounds
    current, depth = np.int64(0), np.int64(0)
    while True:
        instruction = shifted(program, current * INSTRUCTION_FIELDS)
        operation = instruction[0]
        if operation < REAL:
            position = read_integer(instruction, tables, nodes, data, (position, end))
            current += 1
        elif operation < TEXT:
            position = read_fixed_number(instruction, nodes, data, (position, end))
            current += 1
        elif operation < STRUCT_VALUE:
            position = read_bytes(instruction, nodes, data, (position, end))
            current += 1
        elif operation < NULLABLE:
            position = skip_or_append(instruction, nodes, data, (position, end))
            current += 1
        elif operation < BEGIN_LIST:
            position, current = branch(instruction, tables, nodes, data, (position, end, current))
        elif operation < END:
            position, current, depth = loop(instruction, nodes, stack, data, (position, end, current, depth))
        if operation == END or position > end:
            return position


@compiled(types.void, BYTES_IN, _BOUNDS, _PROGRAM, TABLE, BYTES)
def decode_avro(data_in: Any, bounds: Any, program_in: Any, nodes_in: Any, is_decoded: Any) -> None:
    """Decode the values between `bounds` and set `is_decoded` of each; a malformed value is null in all columns."""
    data, nodes = pointer(data_in), pointer(nodes_in)
    program, tables, stack = pointer(program_in.instructions), pointer(program_in.tables), pointer(program_in.stack)
    for row in range(bounds.starts.size):
        end = bounds.ends[row]
        position = decode_value(program, tables, nodes, stack, data, (bounds.starts[row], end))
        is_decoded[row] = position == end
        if position != end:
            roll_back(nodes, nodes_in.shape[0], row)
            append_null(nodes, 0)
