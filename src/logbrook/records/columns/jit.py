"""Compilation of the kernels, and intrinsics that numba lacks: array pointers and memcpy.

Every kernel has an explicit signature, so it is compiled, or loaded from the cache, when its module is imported and not
during a request. The cache is beside the source, in the user's cache directory if that is read-only, or in
NUMBA_CACHE_DIR; if none is writable, every process compiles the kernels again.

Kernels take arrays, their helpers take pointers: numba counts references when an array is passed, and two atomic
operations per field cost more than decoding the record. Helpers are inlined into their callers.

Numba keys its cache by the kernel's own source file, but a kernel also uses helpers and constants of other files. So
the digest of all sources of this package is part of each kernel's name. Kernels of other packages add their own.
"""

from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from typing import Any, TypeVar

import numba
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic as numba_intrinsic

F = TypeVar("F", bound=Callable[..., Any])

# These parts of numba are untyped.
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


def digest_sources(package: str) -> str:
    """Return a digest of the Python files of `package`."""
    sources = sorted((file.name, file.read_bytes()) for file in files(package).iterdir() if file.name.endswith(".py"))
    return sha256(b"".join(source for _, source in sources)).hexdigest()[:16]


SOURCES_DIGEST = digest_sources(__package__)


def compiled(returns: Any, *arguments: Any, own_digest: str = "") -> Callable[[F], F]:
    """Compile a function for exactly these types, to run without the interpreter lock.

    `own_digest` is that of the function's package, if it is another than this one.
    """
    signature = returns(*arguments)

    def compile_function(function: F) -> F:
        function.__qualname__ = f"{function.__qualname__}_{SOURCES_DIGEST}{own_digest}"
        try:
            kernel: F = numba.njit(signature, cache=True, nogil=True)(function)
        except (RuntimeError, OSError):
            # Numba has no writable cache directory, or the disk is full.
            kernel = numba.njit(signature, nogil=True)(function)
        return kernel

    return compile_function


# An intrinsic is called with the types of its arguments.
@intrinsic  # type: ignore[untyped-decorator]
def pointer(typing_context: Any, array: Any) -> Any:  # noqa: ARG001
    """pointer(array): the address of its first element. Indexing it has no bounds check."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic  # type: ignore[untyped-decorator]
def shifted(typing_context: Any, address: Any, count: Any) -> Any:  # noqa: ARG001
    """shifted(address, count): the address of the element at index `count`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.gep(args[0], [args[1]])

    return address(address, LONG), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(typing_context: Any, target: Any, source: Any, size: Any) -> Any:  # noqa: ARG001
    """copy_bytes(target, source, size): memcpy between addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        cgutils.raw_memcpy(builder, args[0], args[1], args[2], 1)
        return context.get_dummy_value()

    return types.void(BYTE_POINTER, BYTE_POINTER, LONG), generate
