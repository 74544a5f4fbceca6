"""Appending to the columns of a decoded value: one node per column, in Arrow's layout.

The nodes of a schema are numbered in pre-order, so that the columns of a struct or of a list's elements follow it. A
node's row in the table has its number of values so far, the addresses of its buffers and its place in the tree. Buffers
are large enough for any valid input (see `columns`), so nothing here checks capacities.

Validity has a byte per value while columns are filled.
"""

from typing import Any

import numpy as np

from logbrook.records.columns.jit import BYTE_POINTER, LONG, copy_bytes, types
from logbrook.spark.schemas.kernels.jit import (
    LONG_POINTER,
    bytes_at,
    compiled,
    doubles_at,
    floats_at,
    ints_at,
    longs_at,
)

# Columns of the table. COUNT is the number of values, USED the bytes of a binary column, LEVEL the list whose elements
# the values are or NO_LIST, SUBTREE_END the first node that is not below this one.
COUNT, USED, KIND, LEVEL, SUBTREE_END, DATA, ENDS, VALID = range(8)
NODE_FIELDS = 8

# The kind of a column of numbers is their size in bytes: 1, 4, 8 or 16.
BINARY, LIST, STRUCT = -1, -2, -3
NO_LIST = -1

# A position after which no check succeeds, as in `decode_kernels`.
BAD = 2**62


@compiled(types.void, LONG_POINTER, LONG)
def mark_valid(nodes: Any, node: Any) -> None:
    """Count one more value, which is not null."""
    base = node * NODE_FIELDS
    count = nodes[base + COUNT]
    bytes_at(nodes[base + VALID])[count] = np.uint8(1)
    nodes[base + COUNT] = count + 1


@compiled(types.void, LONG_POINTER, LONG, LONG)
def put_integer(nodes: Any, node: Any, value: Any) -> None:
    base = node * NODE_FIELDS
    if nodes[base + KIND] == 8:
        longs_at(nodes[base + DATA])[nodes[base + COUNT]] = value
    else:
        ints_at(nodes[base + DATA])[nodes[base + COUNT]] = np.int32(value)
    mark_valid(nodes, node)


@compiled(types.void, LONG_POINTER, LONG, types.float64)
def put_real(nodes: Any, node: Any, value: Any) -> None:
    base = node * NODE_FIELDS
    if nodes[base + KIND] == 8:
        doubles_at(nodes[base + DATA])[nodes[base + COUNT]] = value
    else:
        floats_at(nodes[base + DATA])[nodes[base + COUNT]] = np.float32(value)
    mark_valid(nodes, node)


@compiled(types.void, LONG_POINTER, LONG, LONG)
def put_boolean(nodes: Any, node: Any, value: Any) -> None:
    base = node * NODE_FIELDS
    bytes_at(nodes[base + DATA])[nodes[base + COUNT]] = np.uint8(value)
    mark_valid(nodes, node)


@compiled(types.void, LONG_POINTER, LONG, BYTE_POINTER, LONG)
def put_raw(nodes: Any, node: Any, source: Any, size: Any) -> None:
    """Copy a number of `size` bytes, little-endian as in memory. A float is widened if the column has doubles."""
    base = node * NODE_FIELDS
    width = nodes[base + KIND]
    address = nodes[base + DATA] + nodes[base + COUNT] * width
    copy_bytes(bytes_at(address), source, size)
    if size != width:
        doubles_at(address)[0] = np.float64(floats_at(address)[0])
    mark_valid(nodes, node)


@compiled(types.void, LONG_POINTER, LONG, BYTE_POINTER, LONG)
def put_bytes(nodes: Any, node: Any, source: Any, size: Any) -> None:
    base = node * NODE_FIELDS
    used = nodes[base + USED]
    copy_bytes(bytes_at(nodes[base + DATA] + used), source, size)
    nodes[base + USED] = used + size
    ints_at(nodes[base + ENDS])[nodes[base + COUNT] + 1] = np.int32(used + size)
    mark_valid(nodes, node)


@compiled(types.void, LONG_POINTER, LONG, BYTE_POINTER, LONG)
def put_decimal(nodes: Any, node: Any, source: Any, size: Any) -> None:
    """Append a big-endian two's complement number of 1 to 16 bytes as a little-endian one of 16 bytes."""
    base = node * NODE_FIELDS
    target = bytes_at(nodes[base + DATA] + nodes[base + COUNT] * 16)
    sign = np.uint8(0xFF) if source[0] >= 0x80 else np.uint8(0)
    for index in range(16):
        target[index] = source[size - 1 - index] if index < size else sign
    mark_valid(nodes, node)


@compiled(types.void, LONG_POINTER, LONG)
def close_list(nodes: Any, node: Any) -> None:
    """End a list after its elements: those of the next node that no list includes yet."""
    base = node * NODE_FIELDS
    elements = nodes[(node + 1) * NODE_FIELDS + COUNT]
    ints_at(nodes[base + ENDS])[nodes[base + COUNT] + 1] = np.int32(elements)
    mark_valid(nodes, node)


@compiled(types.void, LONG_POINTER, LONG)
def append_null(nodes: Any, node: Any) -> None:
    """Append null to a node and, if it is a struct, to the nodes below it; a null list has no elements."""
    level = nodes[node * NODE_FIELDS + LEVEL]
    for below in range(node, nodes[node * NODE_FIELDS + SUBTREE_END]):
        base = below * NODE_FIELDS
        if nodes[base + LEVEL] != level:
            continue
        count, kind = nodes[base + COUNT], nodes[base + KIND]
        if kind > 0:
            data = bytes_at(nodes[base + DATA] + count * kind)
            for index in range(kind):
                data[index] = np.uint8(0)
        elif kind != STRUCT:
            ends = ints_at(nodes[base + ENDS])
            ends[count + 1] = ends[count]
        bytes_at(nodes[base + VALID])[count] = np.uint8(0)
        nodes[base + COUNT] = count + 1


@compiled(types.void, LONG_POINTER, LONG, LONG)
def roll_back(nodes: Any, node_count: Any, rows: Any) -> None:
    """Remove all values after the first `rows` rows."""
    for node in range(node_count):
        base = node * NODE_FIELDS
        level = nodes[base + LEVEL]
        count = rows
        if level != NO_LIST:
            # Lists come before their elements and are rolled back already.
            count = np.int64(ints_at(nodes[level * NODE_FIELDS + ENDS])[nodes[level * NODE_FIELDS + COUNT]])
        nodes[base + COUNT] = count
        if nodes[base + KIND] == BINARY:
            nodes[base + USED] = np.int64(ints_at(nodes[base + ENDS])[count])


@compiled(LONG, LONG)
def sequence_length(first: Any) -> Any:
    """Return the length of a UTF-8 sequence by its first byte, or 0 if none begins with it."""
    if first < 0x80:
        return 1
    if first < 0xC2:
        return 0
    if first < 0xE0:
        return 2
    if first < 0xF0:
        return 3
    return 4 if first < 0xF5 else 0


@compiled(types.boolean, LONG, LONG)
def may_follow(first: Any, second: Any) -> Any:
    """Return True for a second byte that is neither an overlong form, nor a surrogate, nor beyond U+10FFFF."""
    low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
    return low <= second <= high


@compiled(types.boolean, BYTE_POINTER, LONG)
def is_utf8(data: Any, size: Any) -> Any:
    joined = np.uint8(0)
    for index in range(size):
        joined |= data[index]
    if joined < 0x80:
        return True
    position = np.int64(0)
    while position < size:
        first = np.int64(data[position])
        length = sequence_length(first)
        if length == 0 or position + length > size:
            return False
        if length > 1 and not may_follow(first, np.int64(data[position + 1])):
            return False
        for index in range(position + 2, position + length):
            if data[index] & 0xC0 != 0x80:
                return False
        position += length
    return True


@compiled(types.boolean, LONG_POINTER, LONG, BYTE_POINTER, LONG)
def put_text(nodes: Any, node: Any, source: Any, size: Any) -> Any:
    """Append a string, or return False if it is not UTF-8."""
    if not is_utf8(source, size):
        return False
    put_bytes(nodes, node, source, size)
    return True
