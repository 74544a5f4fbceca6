"""How the kernels are compiled, and what numba lacks: pointers into arrays, and a copy of bytes.

Every kernel has an explicit signature, so it is compiled, or loaded from the cache, when its module is imported and
never in the middle of a request. The compiled code is cached beside the source, in the user's cache directory where
that is read-only, or in NUMBA_CACHE_DIR; where none of these can be written, every process compiles it again.

Kernels take arrays and their helpers take pointers: numba counts references whenever an array is passed on, and two
atomic operations for each field of each record cost more than the record does. Helpers are compiled into their callers.

Numba keys its cache by the source of the kernel's own file, and a kernel is made of helpers and constants of others as
well. So each kernel has the digest of all sources of this package in its name: no release runs the kernels of another.
"""

from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from typing import Any, TypeVar

import numba
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic as numba_intrinsic

F = TypeVar("F", bound=Callable[..., Any])

# Numba is typed in parts, and these parts are not.
types: Any = numba.types
cgutils: Any = numba_cgutils
intrinsic: Any = numba_intrinsic

LONG = types.int64
BYTES_IN = types.Array(types.uint8, 1, "C", readonly=True)
INTS_IN = types.Array(types.int32, 1, "C", readonly=True)
LONGS_IN = types.Array(types.int64, 1, "C", readonly=True)
BYTES = types.uint8[::1]
INTS = types.int32[::1]
LONGS = types.int64[::1]
TABLE = types.int64[:, ::1]
BYTE_POINTER = types.CPointer(types.uint8)
INT_POINTER = types.CPointer(types.int32)
PAIR = types.UniTuple(types.int64, 2)
TRIPLE = types.UniTuple(types.int64, 3)


def _digest_sources() -> str:
    sources = sorted(
        (file.name, file.read_bytes()) for file in files(__package__).iterdir() if file.name.endswith(".py")
    )
    return sha256(b"".join(source for _, source in sources)).hexdigest()[:16]


SOURCES_DIGEST = _digest_sources()


def compiled(returns: Any, *arguments: Any) -> Callable[[F], F]:
    """Compile a function to machine code that runs without the interpreter lock, for these types and no others."""
    signature = returns(*arguments)

    def compile_function(function: F) -> F:
        function.__qualname__ = f"{function.__qualname__}_{SOURCES_DIGEST}"
        try:
            kernel: F = numba.njit(signature, cache=True, nogil=True)(function)
        except (RuntimeError, OSError):
            # Numba finds no directory that it may write its cache to, or has no room in it.
            kernel = numba.njit(signature, nogil=True)(function)
        return kernel

    return compile_function


# The arguments of an intrinsic are the types of what it is called with; it is not asked whether it reads them.
@intrinsic  # type: ignore[untyped-decorator]
def pointer(typing_context: Any, array: Any) -> Any:  # noqa: ARG001
    """pointer(array): the address of its first element. It is indexed like the array, without a check."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic  # type: ignore[untyped-decorator]
def shifted(typing_context: Any, address: Any, count: Any) -> Any:  # noqa: ARG001
    """shifted(address, count): the address of the element `count` further on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.gep(args[0], [args[1]])

    return address(address, LONG), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(typing_context: Any, target: Any, source: Any, size: Any) -> Any:  # noqa: ARG001
    """copy_bytes(target, source, size): the C library's memcpy, from address to address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        cgutils.raw_memcpy(builder, args[0], args[1], args[2], 1)
        return context.get_dummy_value()

    return types.void(BYTE_POINTER, BYTE_POINTER, LONG), generate
