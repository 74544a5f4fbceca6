"""The limit of replication: its rate, the replicas it applies to, and settings that change."""

import pytest

from logbrook.core.metadata import ClusterMetadata
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.server.cluster.throttle import ReplicationThrottle
from logbrook.testing.clock import FakeClock

TOPIC_ID = bytes(16)


def metadata_with(settings: dict[str, str], rate: str | None = "1000") -> ClusterMetadata:
    metadata = ClusterMetadata(BrokerId(1))
    for record in metadata.create_topic("t", 3, settings, TOPIC_ID):
        metadata.replay(*record)
    if rate is not None:
        for record in metadata.configure_all_brokers({"follower.replication.throttled.rate": rate}):
            metadata.replay(*record)
    return metadata


def follower_throttle(metadata: ClusterMetadata, clock: FakeClock) -> ReplicationThrottle:
    return ReplicationThrottle(metadata, BrokerId(1), clock, "follower")


@pytest.mark.parametrize(
    ("replicas", "throttled"), [("*", [0, 1, 2]), ("0:1,2:1", [0, 2]), ("0:2,1:11", []), ("", []), (None, [])]
)
def test_it_applies_to_the_replicas_that_the_topic_lists(replicas: str | None, throttled: list[int]) -> None:
    settings = {} if replicas is None else {"follower.replication.throttled.replicas": replicas}
    throttle = follower_throttle(metadata_with(settings), FakeClock())
    assert [number for number in range(3) if throttle.applies_to(TopicPartition("t", number))] == throttled
    assert not throttle.applies_to(TopicPartition("unknown", 0))


def test_it_applies_to_nothing_without_a_rate_or_in_the_other_direction() -> None:
    settings = {"follower.replication.throttled.replicas": "*"}
    clock = FakeClock()
    assert not follower_throttle(metadata_with(settings, None), clock).applies_to(TopicPartition("t", 0))
    leader = ReplicationThrottle(metadata_with(settings), BrokerId(1), clock, "leader")
    assert leader.rate is None
    leader.record(1 << 30)
    assert not leader.is_exceeded()


def test_the_average_is_the_rate() -> None:
    clock = FakeClock()
    throttle = follower_throttle(metadata_with({}), clock)
    copied = 0
    for _ in range(1000):
        if not throttle.is_exceeded():
            throttle.record(700)
            copied += 700
        clock.advance(100)
    assert 100 * 1000 <= copied <= 102 * 1000


def test_the_setting_of_a_broker_wins_over_that_of_all() -> None:
    metadata = metadata_with({})
    for record in metadata.configure_broker({"follower.replication.throttled.rate": "5"}):
        metadata.replay(*record)
    assert follower_throttle(metadata, FakeClock()).rate == 5
