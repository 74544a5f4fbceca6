"""Compilation of this package's kernels, and pointers made from addresses.

A kernel gets its columns as a table of integers with the addresses of their buffers, because the number and the types
of the columns depend on the schema, and a kernel is compiled for fixed argument types.
"""

from functools import partial
from typing import Any

from logbrook.records.columns.jit import BYTE_POINTER, INT_POINTER, LONG, digest_sources, intrinsic, types
from logbrook.records.columns.jit import compiled as compiled_in_records

LONG_POINTER = types.CPointer(types.int64)
FLOAT_POINTER = types.CPointer(types.float32)
DOUBLE_POINTER = types.CPointer(types.float64)

compiled = partial(compiled_in_records, own_digest=digest_sources(__package__))


def _cast_to(pointer_type: Any) -> Any:
    def cast(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            return builder.inttoptr(args[0], context.get_value_type(pointer_type))

        return pointer_type(LONG), generate

    return intrinsic(cast)


# Functions of an address that return a pointer.
bytes_at = _cast_to(BYTE_POINTER)
ints_at = _cast_to(INT_POINTER)
longs_at = _cast_to(LONG_POINTER)
floats_at = _cast_to(FLOAT_POINTER)
doubles_at = _cast_to(DOUBLE_POINTER)
