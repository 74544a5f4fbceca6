"""Offsets by time: the first record that is not older, whatever order the timestamps are in."""

from collections.abc import Callable

import pytest

from tests.interop.clients.interface import Client, Outgoing
from tests.interop.conftest import NewTopic

_TIMES = [1_000, 3_000, 2_000, 5_000, 4_000]


@pytest.fixture
def timed_topic(servers: str, new_topic: NewTopic, get_client: Callable[[str], Client]) -> str:
    """Written by one client that can choose timestamps; the second of its partitions is empty."""
    topic = new_topic(partitions=2)
    with get_client("confluent").producer(servers) as producer:
        for timestamp_ms in _TIMES:
            producer.deliver(Outgoing(topic, b"%d" % timestamp_ms, timestamp_ms=timestamp_ms))
    return topic


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"), [(0, 0), (1_000, 0), (1_001, 1), (3_000, 1), (3_001, 3), (5_000, 3), (5_001, -1)]
)
def test_an_offset_is_found_by_time(
    client: Client, servers: str, timed_topic: str, timestamp_ms: int, offset: int
) -> None:
    assert client.offsets_at(servers, timed_topic, [0, 1], timestamp_ms) == {0: offset, 1: -1}


def test_a_reader_starts_at_a_time(client: Client, servers: str, timed_topic: str) -> None:
    offset = client.offsets_at(servers, timed_topic, [0], 3_500)[0]
    with client.reader(servers, timed_topic, {0: offset}) as reader:
        assert [one.timestamp_ms for one in reader.read(2)] == [5_000, 4_000]


def test_the_ends_of_a_partition_are_told(client: Client, servers: str, timed_topic: str) -> None:
    assert client.ends(servers, timed_topic, [0, 1]) == {0: (0, 5), 1: (0, 0)}
