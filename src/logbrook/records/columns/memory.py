"""Memory of Arrow's pool that kernels fill through numpy, and that becomes a column without a copy.

It is taken before anybody knows how much of it will be filled. What is filled to less than half is copied, so that a
column does not keep the rest; untouched pages cost nothing until then.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logbrook.records.columns.decode_kernels import BinaryColumn

_ALL_VALID = 0xFF


class Memory:
    """Room for `length` numbers."""

    def __init__(self, dtype: npt.DTypeLike, length: int) -> None:
        self._buffer = pa.allocate_buffer(length * np.dtype(dtype).itemsize)
        self.array: npt.NDArray[Any] = np.frombuffer(self._buffer, dtype)

    def buffer(self, length: int) -> Any:
        """The first `length` of them, as Arrow holds them."""
        if length < self.array.size // 2:
            return pa.py_buffer(self.array[:length].copy())
        return self._buffer.slice(0, length * self.array.itemsize)

    def finish(self, arrow_type: Any, length: int) -> Any:
        return pa.Array.from_buffers(arrow_type, length, [None, self.buffer(length)], null_count=0)


class BinaryMemory:
    """Room for `rows` values of `bytes_max` bytes in all; none for a column that is not wanted, which kernels skip."""

    def __init__(self, rows: int, bytes_max: int, *, wanted: bool = True) -> None:
        self._ends = Memory(np.int32, rows + 1 if wanted else 0)
        self._data = Memory(np.uint8, bytes_max if wanted else 0)
        self._validity = Memory(np.uint8, (rows + 7) // 8 if wanted else 0)
        self._ends.array[:1] = 0
        self._validity.array.fill(_ALL_VALID)
        self.column = BinaryColumn(self._ends.array, self._data.array, self._validity.array)

    def finish(self, arrow_type: Any, rows: int, used_bytes: int, nulls: int) -> Any:
        validity = self._validity.buffer((rows + 7) // 8) if nulls else None
        buffers = [validity, self._ends.buffer(rows + 1), self._data.buffer(int(used_bytes))]
        return pa.Array.from_buffers(arrow_type, rows, buffers, null_count=int(nulls))
