"""Kafka's default partitioner over Arrow columns.

A row with a partition keeps it. A row with a key goes to murmur2(key) without its sign bit, modulo the number of
partitions, as in the Java client. Rows with neither go to one partition per Arrow batch, in round-robin order.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logbrook.records.columns.jit import BYTES_IN, INTS, INTS_IN, LONGS_IN, compiled, types

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]

_BY_HASH = -1
_STICKY = -2
_ARROW_BYTES_PER_OFFSET = 4


class Partitioner:
    """Holds each topic's next partition for rows without a key. `choose(count)` picks the first one."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self._next: dict[str, int] = {}

    def assign(self, topics: list[str], counts: Longs, topic_of: Longs, key: Any, given: Any) -> Ints:
        """Return the partition of each row.

        Row i belongs to `topics[topic_of[i]]`; `counts` holds the partition count of each topic. `key` and `given`, the
        explicit partitions, are Arrow columns or None.
        """
        rows = len(topic_of)
        partitions = np.full(rows, _STICKY, np.int32)
        if key is not None:
            partitions[np.asarray(key.is_valid())] = _BY_HASH
        if given is not None and given.null_count < rows:
            partitions = np.where(np.asarray(given.is_valid()), np.asarray(given.fill_null(0)), partitions)
            partitions = partitions.astype(np.int32)
        if key is not None:
            hash_keys(key, counts[topic_of], partitions)
        is_sticky = partitions == _STICKY
        if is_sticky.any():
            used = set(np.unique(topic_of[is_sticky]).tolist())
            sticky = [self._advance(topic, int(counts[n])) if n in used else 0 for n, topic in enumerate(topics)]
            partitions[is_sticky] = np.array(sticky, np.int32)[topic_of[is_sticky]]
        return partitions

    def _advance(self, topic: str, count: int) -> int:
        partition = self._next.get(topic)
        partition = self._choose(count) if partition is None else partition % count
        self._next[topic] = partition + 1
        return partition


def hash_keys(key: Any, counts: Longs, partitions: Ints) -> None:
    """Set `partitions[i]` from the key's hash modulo `counts[i]`, for each row i whose partition is -1."""
    key = key.cast(pa.binary())
    _, ends, data = key.buffers()
    offset = key.offset * _ARROW_BYTES_PER_OFFSET
    _hash_keys(
        _readonly(np.frombuffer(ends, np.int32, len(key) + 1, offset)),
        _readonly(np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)),
        _readonly(counts),
        partitions,
    )


def _readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array = array.view()
    array.flags.writeable = False
    return array


@compiled(types.void, INTS_IN, BYTES_IN, LONGS_IN, INTS)
def _hash_keys(ends: Any, data: Any, counts: Any, partitions: Any) -> None:
    # murmur2 in 64-bit arithmetic masked to 32 bits: numba widens products of 32-bit integers to 64 bits anyway.
    low = np.uint64(0xFFFFFFFF)
    m = np.uint64(0x5BD1E995)
    for row in range(partitions.size):
        if partitions[row] != -1:
            continue
        position, end = np.int64(ends[row]), np.int64(ends[row + 1])
        h = np.uint64(0x9747B28C) ^ np.uint64(end - position)
        while end - position >= 4:
            k = np.uint64(data[position])
            k |= np.uint64(data[position + 1]) << np.uint64(8)
            k |= np.uint64(data[position + 2]) << np.uint64(16)
            k |= np.uint64(data[position + 3]) << np.uint64(24)
            k = k * m & low
            k ^= k >> np.uint64(24)
            k = k * m & low
            h = h * m & low ^ k
            position += 4
        if end - position == 3:
            h ^= np.uint64(data[position + 2]) << np.uint64(16)
        if end - position >= 2:
            h ^= np.uint64(data[position + 1]) << np.uint64(8)
        if end - position >= 1:
            h = (h ^ np.uint64(data[position])) * m & low
        h ^= h >> np.uint64(13)
        h = h * m & low
        h ^= h >> np.uint64(15)
        partitions[row] = np.int64(h & np.uint64(0x7FFFFFFF)) % counts[row]
