"""The busiest topics."""

from logbrook.client.admin_results import PartitionInfo, TopicDescription
from logbrook.console.sampling import average_traffic, busiest_topics
from logbrook.model.identifiers import BrokerId, LeaderEpoch, Offset
from logbrook.monitoring.sampling import TopicRates


def topic(name: str, size: int) -> TopicDescription:
    leader = BrokerId(1)
    partition = PartitionInfo(0, leader, LeaderEpoch(0), (leader,), (leader,), Offset(0), Offset(1), size)
    return TopicDescription(name, bytes(16), False, (partition,))


def test_topics_are_ordered_by_bytes_in_and_out_not_by_messages_or_size() -> None:
    rates = {
        "many": TopicRates(1_000, 10_000, 0, 0),
        "large": TopicRates(1, 50_000, 0, 0),
        "read": TopicRates(0, 0, 100, 90_000),
        "idle-large": TopicRates(0, 0, 0, 0),
        "idle": TopicRates(0, 0, 0, 0),
    }
    traffic = average_traffic({}, rates)
    topics = [topic(name, 9 if name == "idle-large" else 1) for name in sorted(rates)]
    assert [busy.name for busy in busiest_topics(topics, traffic)] == ["read", "large", "many", "idle-large", "idle"]


def test_traffic_is_averaged_and_deleted_topics_are_removed() -> None:
    before = average_traffic({}, {"a": TopicRates(in_bytes=1_000), "gone": TopicRates(in_bytes=1_000)})
    after = average_traffic(before, {"a": TopicRates(in_bytes=0), "b": TopicRates(in_records=100)})
    assert 0 < after["a"] < before["a"]
    assert after.keys() == {"a", "b"}
    assert after["b"] > 0
