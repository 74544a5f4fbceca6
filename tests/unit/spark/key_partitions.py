"""Partitions of the keys in a column."""

from typing import Any

import numpy as np

from logbrook.spark.partitioner import hash_keys


def key_partitions(keys: Any, partition_count: int) -> list[int]:
    partitions = np.full(len(keys), -1, np.int32)
    hash_keys(keys, np.full(len(keys), partition_count, np.int64), partitions)
    return partitions.tolist()
