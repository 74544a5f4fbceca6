"""ListOffsets by timestamp: the first record that is not older, in whatever order the timestamps are."""

from collections.abc import Callable

import pytest

from tests.interop.clients.interface import Client, Outgoing
from tests.interop.conftest import KEPT_FOREVER, NewTopic

_TIMES = [1_000, 3_000, 2_000, 5_000, 4_000]


@pytest.fixture
def timed_topic(servers: str, new_topic: NewTopic, get_client: Callable[[str], Client]) -> str:
    """A topic with the timestamps above in partition 0; partition 1 is empty."""
    topic = new_topic(partitions=2, settings=KEPT_FOREVER)
    with get_client("confluent").producer(servers) as producer:
        for timestamp_ms in _TIMES:
            producer.deliver(Outgoing(topic, b"%d" % timestamp_ms, timestamp_ms=timestamp_ms))
    return topic


def test_an_offset_is_found_by_time(client: Client, servers: str, timed_topic: str) -> None:
    offsets = {0: 0, 1_000: 0, 1_001: 1, 3_000: 1, 3_001: 3, 5_000: 3, 5_001: -1}
    answers = {time: client.offsets_at(servers, timed_topic, [0, 1], time) for time in offsets}
    assert answers == {time: {0: offset, 1: -1} for time, offset in offsets.items()}


def test_a_reader_starts_at_a_time(client: Client, servers: str, timed_topic: str) -> None:
    offset = client.offsets_at(servers, timed_topic, [0], 3_500)[0]
    with client.reader(servers, timed_topic, {0: offset}) as reader:
        assert [record.timestamp_ms for record in reader.read(2)] == [5_000, 4_000]


def test_the_first_and_last_offsets_of_a_partition_are_listed(client: Client, servers: str, timed_topic: str) -> None:
    assert client.ends(servers, timed_topic, [0, 1]) == {0: (0, 5), 1: (0, 0)}
