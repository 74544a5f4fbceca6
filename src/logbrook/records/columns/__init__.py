"""Record batches to Arrow columns and back, and log compaction, in code compiled by numba.

`decode` (module `decoding`, with `sections` for the batch headers and `decode_kernels`) and `encode` (`encoding`,
`encode_kernels`) are the interface; `schema` has the columns, `jit` the compilation. Importing one of these names
compiles the kernels or loads them from numba's cache. `cleaning` is for `logbrook.compactor`, which needs no Arrow.

This package and the pipelines built on it are the only parts of Logbrook that import numpy, numba and pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logbrook.records.columns.decoding import BYTES_MAX, decode
    from logbrook.records.columns.encoding import encode
    from logbrook.records.columns.schema import SCHEMA

__all__ = ["BYTES_MAX", "SCHEMA", "decode", "encode"]

_MODULES = {"BYTES_MAX": "decoding", "SCHEMA": "schema", "decode": "decoding", "encode": "encoding"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
