"""Compiled loops between values and columns.

`jit` compiles, `frames` reads schema ids, `nodes` appends to columns, `avro` and `protobuf` decode with it, and
`avro_encode` encodes. Imports `records`, numba and numpy, and nothing of Spark.
"""
