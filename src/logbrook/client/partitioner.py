"""The partition of a key, as Kafka's Java clients choose it: murmur2 without the sign bit, modulo the partitions.

`partitions_of` hashes many keys without Python code per key. The keys of one length are the lanes of a large integer,
each in 64 bits of which the hash takes 32: a multiplication of the integer by a constant of 32 bits multiplies every
lane, and no lane overflows into the next.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from operator import mod

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_NO_SIGN = 0x7FFFFFFF
_LANE_BYTES = 8
# From this number of keys of one length on, lanes are faster.
_LANES_MIN = 8


@lru_cache(maxsize=65_536)
def partition_of(key: bytes, count: int) -> int:
    """Return the partition for a key in a topic of `count` partitions, as Kafka's Java clients do."""
    return (murmur2(key) & _NO_SIGN) % count


def murmur2(data: bytes) -> int:
    """Return the unsigned hash of Kafka's default partitioner: murmur2 with its seed."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ k
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partitions_of(keys: Sequence[bytes], count: int) -> list[int]:
    """Return `partition_of` of each key."""
    lengths = [*map(len, keys)]
    distinct = set(lengths)
    if len(distinct) == 1:
        return [*_partitions_of_equal_lengths(keys, lengths[0], count)]
    by_length: dict[int, list[bytes]] = {length: [] for length in distinct}
    exhaust(map(list.append, map(by_length.__getitem__, lengths), keys))
    partitions = {length: _partitions_of_equal_lengths(same, length, count) for length, same in by_length.items()}
    # The keys of each length are in the order of all keys.
    return [*map(next, map(partitions.__getitem__, lengths))]


def _partitions_of_equal_lengths(keys: Sequence[bytes], length: int, count: int) -> Iterator[int]:
    if len(keys) < _LANES_MIN:
        return map(partition_of, keys, repeat(count))
    return map(mod, _hash_lanes(keys, length), repeat(count))


def exhaust(calls: Iterator[object]) -> None:
    """Run an iterator for its side effects."""
    deque(calls, maxlen=0)


def _hash_lanes(keys: Sequence[bytes], length: int) -> Sequence[int]:
    """Return murmur2 without the sign bit of keys that all have this length."""
    data, ones = b"".join(keys), _lanes_of_one(len(keys))
    mask = ones * _MASK
    hashed = ones * (_SEED ^ length)
    whole = length & ~3
    lane = _lane_reader(data, length, len(keys))
    for start in range(0, whole, 4):
        k = lane(start, 4) * _M & mask
        # A shift moves the lowest bits of a lane into the unused half of the one below.
        k = ((k ^ k >> 24) & mask) * _M & mask
        hashed = (hashed * _M & mask) ^ k
    if whole < length:
        hashed = (hashed ^ lane(whole, length - whole)) * _M & mask
    hashed = ((hashed ^ hashed >> 13) & mask) * _M & mask
    hashed = (hashed ^ hashed >> 15) & ones * _NO_SIGN
    return memoryview(hashed.to_bytes(_LANE_BYTES * len(keys), "little")).cast("Q").tolist()


def _lane_reader(data: bytes, length: int, count: int) -> Callable[[int, int], int]:
    def read(start: int, size: int) -> int:
        """Return the integer whose lanes are the `size` bytes at `start` of each key."""
        lanes = bytearray(_LANE_BYTES * count)
        for index in range(size):
            lanes[index::_LANE_BYTES] = data[start + index :: length]
        return int.from_bytes(lanes, "little")

    return read


@lru_cache(maxsize=256)
def _lanes_of_one(count: int) -> int:
    return int.from_bytes(b"\1".ljust(_LANE_BYTES, b"\0") * count, "little")
