"""A group member against a real broker, and the consumer protocol's formats and range assignment."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.client.group_member import GroupMember
from logbrook.client.group_protocol import (
    GroupProtocolError,
    assign_by_range,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from logbrook.model import TopicPartition

NAMES = st.text(st.sampled_from("abcé-_."), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"work": 3}, settings={"groups": {"initial_rebalance_delay_ms": 0}}) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


def test_the_only_member_is_assigned_all_partitions_and_commits(client: Client) -> None:
    partition = TopicPartition("work", 1)
    with GroupMember(client, "alone", ["work"]) as member:
        assert member.join() == tuple(TopicPartition("work", number) for number in range(3))
        assert member.heartbeat()
        assert member.commit({partition: 7})
        assert Admin(client).groups.committed("alone")[partition].offset == 7
        assert Admin(client).groups.describe("alone").state == "Stable"
    assert Admin(client).groups.describe("alone").state == "Empty"


def test_a_removed_member_is_refused_and_joins_again(client: Client) -> None:
    with GroupMember(client, "gone", ["work"], heartbeat_s=0) as member:
        member.join()
        with GroupMember(client, "gone", ["work"]) as impostor:
            # Leaves with the first member's id, which has the effect of its session timeout.
            impostor.member_id = member.member_id
        assert not member.commit({TopicPartition("work", 0): 1})
        assert not member.heartbeat()
        assert len(member.join()) == 3
        assert member.heartbeat()


def test_an_unknown_topic_yields_an_empty_assignment(client: Client) -> None:
    with GroupMember(client, "hopeful", ["nothing"]) as member:
        assert member.join() == ()


@settings(max_examples=40)
@given(st.lists(NAMES))
def test_a_subscription_reads_back(topics: list[str]) -> None:
    assert decode_subscription(encode_subscription(topics)) == topics


@settings(max_examples=40)
@given(st.lists(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1))))
def test_an_assignment_reads_back(partitions: list[TopicPartition]) -> None:
    assert sorted(decode_assignment(encode_assignment(partitions))) == sorted(partitions)


@given(st.binary(max_size=40))
def test_malformed_data_raises_nothing_but_group_protocol_errors(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except GroupProtocolError:
            continue


def test_empty_data_is_an_empty_assignment() -> None:
    assert decode_assignment(b"") == ()


@settings(max_examples=40)
@given(
    st.dictionaries(NAMES, st.lists(st.sampled_from("xyz"), unique=True), max_size=6),
    st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9)),
)
def test_every_subscribed_partition_is_assigned_to_one_member(
    subscriptions: dict[str, list[str]], counts: dict[str, int]
) -> None:
    assigned = assign_by_range(subscriptions, {topic: range(count) for topic, count in counts.items()})
    assert assigned.keys() == subscriptions.keys()
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    every = [partition for partitions in assigned.values() for partition in partitions]
    assert sorted(every) == sorted(
        TopicPartition(topic, number) for topic in wanted for number in range(counts.get(topic, 0))
    )
    for topic in wanted:
        assigned_counts = [
            sum(partition.topic == topic for partition in assigned[member]) for member in sorted(assigned)
        ]
        readers = [
            count
            for count, member in zip(assigned_counts, sorted(assigned), strict=True)
            if topic in subscriptions[member]
        ]
        assert readers == sorted(readers, reverse=True)
        assert max(readers) - min(readers) <= 1


def test_ranges_are_assigned_as_by_kafka() -> None:
    assigned = assign_by_range({"b": ["t"], "a": ["t", "u"]}, {"t": range(3), "u": range(1)})
    assert assigned == {
        "a": [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)],
        "b": [TopicPartition("t", 2)],
    }
