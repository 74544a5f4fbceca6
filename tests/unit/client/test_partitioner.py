"""Partitions of many keys at once are those of each key by itself."""

import random

import pytest

from logbrook.client.partitioner import murmur2, partition_of, partitions_of


@pytest.mark.parametrize("length", [*range(14), 63, 64, 300])
def test_keys_of_one_length(length: int) -> None:
    keys = [random.Random(seed).randbytes(length) for seed in range(200)]
    keys += [b"\xff" * length, b"\0" * length]
    assert partitions_of(keys, 7) == [(murmur2(key) & 0x7FFFFFFF) % 7 for key in keys]


def test_keys_of_many_lengths_keep_their_order() -> None:
    source = random.Random(1)
    keys = [source.randbytes(min(source.randrange(40), source.randrange(40))) for _ in range(3_000)]
    assert partitions_of(keys, 1_000) == [partition_of(key, 1_000) for key in keys]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9])
def test_few_keys(count: int) -> None:
    keys = [b"key-%d" % number for number in range(count)]
    assert partitions_of(keys, 3) == [partition_of(key, 3) for key in keys]
