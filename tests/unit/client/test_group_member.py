"""A member of a group, against a real broker, and what members tell each other."""

from collections.abc import Iterator

import pytest
from hypothesis import given
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


def test_the_only_member_gets_all_and_commits(client: Client) -> None:
    partition = TopicPartition("work", 1)
    with GroupMember(client, "alone", ["work"]) as member:
        assert member.join() == tuple(TopicPartition("work", number) for number in range(3))
        assert member.heartbeat()
        assert member.commit({partition: 7})
        assert Admin(client).groups.committed("alone")[partition].offset == 7
        assert Admin(client).groups.describe("alone").state == "Stable"
    assert Admin(client).groups.describe("alone").state == "Empty"


def test_a_member_that_the_group_went_on_without_learns_it(client: Client) -> None:
    with GroupMember(client, "gone", ["work"], heartbeat_s=0) as member:
        member.join()
        with GroupMember(client, "gone", ["work"]) as other:
            # Leaves in the name of the first, as its session's end would.
            other.member_id = member.member_id
        assert not member.commit({TopicPartition("work", 0): 1})
        assert not member.heartbeat()
        assert len(member.join()) == 3
        assert member.heartbeat()


def test_a_topic_that_is_not_there_gives_no_partition(client: Client) -> None:
    with GroupMember(client, "hopeful", ["nothing"]) as member:
        assert member.join() == ()


@given(st.lists(NAMES))
def test_a_subscription_reads_back(topics: list[str]) -> None:
    assert decode_subscription(encode_subscription(topics)) == topics


@given(st.lists(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1))))
def test_an_assignment_reads_back(partitions: list[TopicPartition]) -> None:
    assert sorted(decode_assignment(encode_assignment(partitions))) == sorted(partitions)


@given(st.binary(max_size=40))
def test_rubbish_is_an_error_of_its_own(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except GroupProtocolError:
            continue


def test_before_it_is_given_any_a_member_has_no_partitions() -> None:
    assert decode_assignment(b"") == ()


@given(
    st.dictionaries(NAMES, st.lists(st.sampled_from("xyz"), unique=True), max_size=6),
    st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9)),
)
def test_every_partition_that_is_wanted_goes_to_one_member(
    subscriptions: dict[str, list[str]], counts: dict[str, int]
) -> None:
    assigned = assign_by_range(subscriptions, {topic: range(count) for topic, count in counts.items()})
    assert assigned.keys() == subscriptions.keys()
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    every = [one for partitions in assigned.values() for one in partitions]
    assert sorted(every) == sorted(
        TopicPartition(topic, number) for topic in wanted for number in range(counts.get(topic, 0))
    )
    for topic in wanted:
        each = [sum(one.topic == topic for one in assigned[member]) for member in sorted(assigned)]
        readers = [
            count for count, member in zip(each, sorted(assigned), strict=True) if topic in subscriptions[member]
        ]
        assert readers == sorted(readers, reverse=True)
        assert max(readers) - min(readers) <= 1


def test_a_range_is_as_kafka_assigns_it() -> None:
    assigned = assign_by_range({"b": ["t"], "a": ["t", "u"]}, {"t": range(3), "u": range(1)})
    assert assigned == {
        "a": [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)],
        "b": [TopicPartition("t", 2)],
    }
