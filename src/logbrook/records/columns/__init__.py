"""Record batches as Arrow columns and back, at the speed of compiled code.

The only part of Logbrook that needs numpy, numba and pyarrow, with the pipelines that stand on it: the broker runs
without them. Importing it compiles the kernels, or loads them from numba's cache.
"""

from logbrook.records.columns.decoding import BYTES_MAX, decode
from logbrook.records.columns.encoding import encode
from logbrook.records.columns.schema import SCHEMA

__all__ = ["BYTES_MAX", "SCHEMA", "decode", "encode"]
