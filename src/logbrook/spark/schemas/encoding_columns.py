"""Columns that encoding kernels read: the table of nodes with the addresses of their buffers."""

from typing import Any

import numpy as np
import pyarrow as pa

from logbrook.spark.schemas.errors import IncompatibleSchemaError
from logbrook.spark.schemas.kernels import avro_encode as op

_BYTES_MAX = 2**31 - 1


class EncodingColumns:
    """The columns of a value. `bytes_max` is an upper bound of the encoded size of all values.

    `value_bytes_max` is the largest size of a value beside its bytes.
    """

    def __init__(self, value_bytes_max: int) -> None:
        self.nodes: list[list[int]] = []
        self.bytes_max = 0
        self._value_bytes_max = value_bytes_max
        # Keeps converted columns in memory.
        self._arrays: list[Any] = []

    def add(self, array: Any) -> int:
        """Add a column with validity and offsets, and return its number."""
        self._arrays.append(array)
        self.bytes_max += len(array) * self._value_bytes_max
        buffers = array.buffers()
        row = [0] * op.NODE_FIELDS
        if array.null_count and buffers[0] is not None:
            row[op.VALID] = buffers[0].address
        row[op.BIT] = array.offset
        has_offsets = pa.types.is_list(array.type) or pa.types.is_map(array.type)
        if has_offsets or pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            row[op.ENDS] = buffers[1].address + array.offset * 4 if buffers[1] is not None else 0
        self.nodes.append(row)
        return len(self.nodes) - 1

    def add_numbers(self, array: Any, width: int) -> int:
        """Add a column of numbers of `width` bytes; booleans are bits."""
        node = self.add(array)
        data = array.buffers()[1]
        if data is not None:
            first = 0 if pa.types.is_boolean(array.type) else array.offset * width
            self.nodes[node][op.DATA] = data.address + first
        return node

    def add_binary(self, array: Any) -> int:
        """Add a column of strings or bytes."""
        node = self.add(array)
        data = array.buffers()[2]
        self.nodes[node][op.DATA] = 0 if data is None else data.address
        self.bytes_max += 0 if data is None else data.size
        return node


def binary_array(values: Any, data: Any, ends: Any) -> Any:
    """Return the encoded bytes of `values`, null for null. `ends` has the start of the first value and the end of each.

    Raises IncompatibleSchemaError if there are too many bytes for one array.
    """
    first, last = int(ends[0]), int(ends[-1])
    if last - first > _BYTES_MAX:
        raise IncompatibleSchemaError(f"the values of a batch have {last - first} bytes; write smaller batches")
    validity = None
    if values.null_count:
        validity = pa.py_buffer(np.packbits(np.asarray(values.is_valid()), bitorder="little"))
    buffers = [validity, pa.py_buffer((ends - first).astype(np.int32)), pa.py_buffer(data[first:last].copy())]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)
