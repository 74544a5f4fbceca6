"""Columns that decoding kernels fill, and their conversion to Arrow arrays.

The tree of columns depends only on the reader's schema, so that values of all writers' schemas become arrays of one
type. Buffers are allocated at the largest size that the input could fill: a column of rows has a value per row, and the
elements of lists have at least one byte of input each. Pages that are never written use no physical memory; a buffer
filled to less than half is copied, to release the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logbrook.spark.schemas.kernels.nodes import (
    BINARY,
    DATA,
    ENDS,
    KIND,
    LEVEL,
    LIST,
    NO_LIST,
    NODE_FIELDS,
    STRUCT,
    SUBTREE_END,
    USED,
    VALID,
)

# Arrow's binary columns have 32-bit offsets.
_BYTES_MAX = 2**31 - 1
_LOW_WORD = 2**64 - 1


@dataclass(frozen=True, slots=True)
class ColumnNode:
    """A column. `level` is the list whose elements it holds, or NO_LIST; `symbols` are those of an enum."""

    index: int
    kind: int
    level: int
    arrow_type: Any
    children: tuple["ColumnNode", ...] = ()
    symbols: tuple[str, ...] | None = None

    @property
    def subtree_end(self) -> int:
        return self.children[-1].subtree_end if self.children else self.index + 1

    def subtree(self) -> Iterator["ColumnNode"]:
        """Yield this node and those below it, by index."""
        yield self
        for child in self.children:
            yield from child.subtree()


def kind_of(arrow_type: Any) -> int:
    """Return the kind of a column without columns below it."""
    if pa.types.is_binary(arrow_type) or pa.types.is_string(arrow_type):
        return BINARY
    if pa.types.is_boolean(arrow_type) or pa.types.is_null(arrow_type):
        return 1
    return int(arrow_type.bit_width) // 8


class ColumnBuffers:
    """The buffers of all columns below `root` while `rows` values of `input_bytes` in total are decoded."""

    def __init__(self, root: ColumnNode, rows: int, input_bytes: int) -> None:
        self._root = root
        self._rows = rows
        nodes = list(root.subtree())
        self.table = np.zeros((len(nodes), NODE_FIELDS), np.int64)
        self._buffers: list[dict[int, npt.NDArray[Any]]] = []
        for node in nodes:
            # The largest of lists and strings has as many elements or bytes as the input.
            length = rows if node.level == NO_LIST else input_bytes
            buffers = {VALID: np.empty(length, np.uint8)}
            if node.kind > 0:
                buffers[DATA] = np.empty(length * node.kind, np.uint8)
            elif node.kind != STRUCT:
                buffers[ENDS] = np.empty(length + 1, np.int32)
                buffers[ENDS][0] = 0
            if node.kind == BINARY:
                buffers[DATA] = np.empty(min(input_bytes, _BYTES_MAX), np.uint8)
            self._buffers.append(buffers)
            row = self.table[node.index]
            row[KIND], row[LEVEL], row[SUBTREE_END] = node.kind, node.level, node.subtree_end
            for field, buffer in buffers.items():
                row[field] = buffer.__array_interface__["data"][0]

    def finish(self, defaults: Mapping[int, Any] | None = None) -> Any:
        """Return the array of the root. `defaults` has an array of one value for each node that has no input."""
        return self._finish(self._root, self._rows, defaults or {})

    def _finish(self, node: ColumnNode, count: int, defaults: Mapping[int, Any]) -> Any:
        if node.index in defaults:
            return defaults[node.index].take(pa.array(np.zeros(count, np.int32)))
        buffers = self._buffers[node.index]
        validity = _validity(buffers[VALID][:count])
        if node.kind == STRUCT:
            children = [self._finish(child, count, defaults) for child in node.children]
            return pa.Array.from_buffers(node.arrow_type, count, [validity], children=children)
        if node.kind == LIST:
            ends = _arrow_buffer(buffers[ENDS], count + 1)
            elements = self._elements(node, int(buffers[ENDS][count]), defaults)
            return pa.Array.from_buffers(node.arrow_type, count, [validity, ends], children=[elements])
        if node.kind == BINARY:
            ends = _arrow_buffer(buffers[ENDS], count + 1)
            data = _arrow_buffer(buffers[DATA], int(self.table[node.index, USED]))
            return pa.Array.from_buffers(node.arrow_type, count, [validity, ends, data])
        return _finish_numbers(node, count, validity, buffers[DATA])

    def _elements(self, node: ColumnNode, count: int, defaults: Mapping[int, Any]) -> Any:
        children = [self._finish(child, count, defaults) for child in node.children]
        if not pa.types.is_map(node.arrow_type):
            return children[0]
        entries = pa.struct([node.arrow_type.key_field, node.arrow_type.item_field])
        return pa.Array.from_buffers(entries, count, [None], children=children)


def _finish_numbers(node: ColumnNode, count: int, validity: Any, data: npt.NDArray[np.uint8]) -> Any:
    if pa.types.is_null(node.arrow_type):
        return pa.nulls(count)
    if pa.types.is_boolean(node.arrow_type):
        bits = pa.py_buffer(np.packbits(data[:count], bitorder="little"))
        return pa.Array.from_buffers(node.arrow_type, count, [validity, bits])
    numbers = _arrow_buffer(data, count * node.kind)
    if node.symbols is not None:
        indices = pa.Array.from_buffers(pa.int32(), count, [validity, numbers])
        return pa.array(node.symbols, pa.string()).take(indices)
    array = pa.Array.from_buffers(node.arrow_type, count, [validity, numbers])
    return _within_precision(array, data) if pa.types.is_decimal(node.arrow_type) else array


def _within_precision(array: Any, data: npt.NDArray[np.uint8]) -> Any:
    """Replace decimals with more digits than their type by null."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        limit = 10**array.type.precision
        words = data[: len(array) * 16].view(np.int64).reshape(-1, 2).tolist()
        fits = [abs(high << 64 | low & _LOW_WORD) < limit for low, high in words]
        return pc.if_else(pa.array(fits, pa.bool_()), array, pa.scalar(None, array.type))
    return array


def _validity(is_valid: npt.NDArray[np.uint8]) -> Any:
    if is_valid.all():
        return None
    return pa.py_buffer(np.packbits(is_valid, bitorder="little"))


def _arrow_buffer(array: npt.NDArray[Any], length: int) -> Any:
    return pa.py_buffer(array[:length].copy() if length < array.size // 2 else array[:length])
