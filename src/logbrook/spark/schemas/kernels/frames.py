"""The registry's wire format: a zero byte and a big-endian schema id before the value."""

from typing import Any

import numpy as np

from logbrook.records.columns.jit import BYTES, BYTES_IN, INTS_IN, LONGS, pointer, types
from logbrook.spark.schemas.kernels.jit import compiled

FRAME_BYTES = 5
# In place of a schema id, which is never negative.
NULL_VALUE, NOT_FRAMED = -1, -2


@compiled(types.void, BYTES_IN, INTS_IN, BYTES, LONGS)
def read_schema_ids(data_in: Any, ends: Any, is_valid: Any, ids: Any) -> None:
    """Set the schema id of each value, NULL_VALUE or NOT_FRAMED."""
    data = pointer(data_in)
    for row in range(ids.size):
        start = np.int64(ends[row])
        if is_valid[row] == 0:
            ids[row] = NULL_VALUE
        elif ends[row + 1] - start < FRAME_BYTES or data[start] != 0 or data[start + 1] >= 0x80:
            ids[row] = NOT_FRAMED
        else:
            schema_id = np.int64(0)
            for index in range(start + 1, start + FRAME_BYTES):
                schema_id = schema_id << 8 | np.int64(data[index])
            ids[row] = schema_id
