"""Record batches to Arrow columns and back, in code compiled by numba.

`decode` (module `decoding`, with `sections` for the batch headers and `decode_kernels`) and `encode` (`encoding`,
`encode_kernels`) are the interface; `schema` has the columns, `jit` the compilation. Importing the package compiles the
kernels or loads them from numba's cache.

This package and the pipelines built on it are the only parts of Logbrook that import numpy, numba and pyarrow.
"""

from logbrook.records.columns.decoding import BYTES_MAX, decode
from logbrook.records.columns.encoding import encode
from logbrook.records.columns.schema import SCHEMA

__all__ = ["BYTES_MAX", "SCHEMA", "decode", "encode"]
