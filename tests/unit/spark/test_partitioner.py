"""The partition of a row: by its key as in Kafka's producers, by its column, or round-robin."""

from collections.abc import Iterator
from random import Random
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest

from logbrook import Broker
from logbrook.spark.partitioner import Partitioner
from tests.unit.spark.key_partitions import key_partitions


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_keys_are_hashed_as_in_java() -> None:
    """The cases of Kafka's own UtilsTest, and no bytes at all."""
    hashes = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
        b"": 275646681,
    }
    # With as many partitions as there are positive numbers, the partition is the hash without its sign.
    chosen = key_partitions(pa.array(list(hashes), pa.binary()), 2**31)
    assert chosen == [value & 0x7FFFFFFF for value in hashes.values()]


@pytest.fixture(scope="module")
def random_keys() -> list[bytes]:
    rng = Random(1)
    return [b"", *(rng.randbytes(rng.randrange(40)) for _ in range(3000))]


def test_keys_are_partitioned_as_by_librdkafka(broker: Broker, random_keys: list[bytes]) -> None:
    broker.create_topic("many", 17)
    expected: dict[bytes, int] = {}

    def on_delivery(error: Any, message: Any) -> None:
        assert error is None
        expected[message.key()] = message.partition()

    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    producer = confluent_kafka.Producer(settings)
    # It treats an empty key as null, where Java hashes it.
    keys = [key for key in random_keys if key]
    for key in keys:
        producer.produce("many", b"", key, on_delivery=on_delivery)
    producer.flush(30)
    assert key_partitions(pa.array(keys, pa.binary()), 17) == [expected[key] for key in keys]


def test_the_hash_of_a_key_does_not_depend_on_its_position(random_keys: list[bytes]) -> None:
    whole = pa.array(random_keys, pa.binary())
    expected = key_partitions(whole, 17)
    assert key_partitions(whole.slice(1000, 500), 17) == expected[1000:1500]
    assert key_partitions(whole.cast(pa.large_binary()), 17) == expected
    texts = pa.array([key.hex() for key in random_keys])
    assert key_partitions(texts, 17) == key_partitions(texts.cast(pa.binary()), 17)


def assign(partitioner: Partitioner, key: Any, given: Any, counts: list[int], topic_of: list[int]) -> list[int]:
    topics = [f"t{number}" for number in range(len(counts))]
    return list(map(int, partitioner.assign(topics, np.array(counts), np.array(topic_of), key, given)))


def test_a_row_is_written_to_the_partition_it_names() -> None:
    key = pa.array([b"a", b"a", None, None], pa.binary())
    given = pa.array([7, None, 0, None], pa.int32())
    (hashed,) = key_partitions(pa.array([b"a"], pa.binary()), 9)
    assert assign(Partitioner(lambda count: 4), key, given, [9], [0] * 4) == [7, hashed, 0, 4]


def test_rows_without_a_key_stay_together_and_take_turns_by_batch() -> None:
    partitioner = Partitioner(lambda count: count - 1)
    chosen = [assign(partitioner, None, None, [3, 2], [0, 1, 0, 1]) for _ in range(4)]
    assert chosen == [[2, 1, 2, 1], [0, 0, 0, 0], [1, 1, 1, 1], [2, 0, 2, 0]]


def test_a_topic_whose_rows_have_keys_does_not_take_a_turn() -> None:
    partitioner = Partitioner(lambda count: 0)
    assign(partitioner, pa.array([b"k", None], pa.binary()), None, [3, 3], [0, 1])
    assert assign(partitioner, None, None, [3, 3], [0, 1]) == [0, 1]
