"""Plans of moves for small clusters whose best plan is known."""

from collections import Counter

import pytest

from logbrook.client.replica_plans import (
    TooFewBrokersError,
    UnknownReplicasError,
    plan_balance,
    plan_drain,
    plan_placement,
    plan_replacement,
)
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def orders(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    return {TopicPartition("orders", number): ids(*members) for number, members in enumerate(replicas)}


def no_racks(*brokers: int) -> dict[BrokerId, str | None]:
    return dict.fromkeys(ids(*brokers))


def in_racks(racks: dict[int, str]) -> dict[BrokerId, str | None]:
    return {BrokerId(broker): rack for broker, rack in racks.items()}


def test_a_single_partition_gets_the_brokers_in_the_order_given() -> None:
    assert plan_placement(orders((1, 2)), ids(3, 1)) == orders((3, 1))
    assert plan_placement(orders((3, 1)), ids(3, 1)) == {}


def test_several_partitions_on_the_same_brokers_have_different_preferred_leaders() -> None:
    plan = plan_placement(orders((1, 2), (1, 2), (3, 2), (1, 3)), ids(3, 4))
    assert Counter(replicas[0] for replicas in plan.values()) == {3: 2, 4: 2}
    assert all(sorted(replicas) == [3, 4] for replicas in plan.values())


def test_a_broker_replaces_another() -> None:
    assert plan_replacement(orders((1, 2), (2, 1), (3, 2), (1, 4)), *ids(1, 4)) == {
        TopicPartition("orders", 0): (4, 2),
        TopicPartition("orders", 1): (2, 4),
    }


def test_replicas_of_a_drained_broker_move_to_the_brokers_with_the_fewest() -> None:
    assignment = orders((3, 1), (1, 3), (1, 2), (1, 2))
    plan = plan_drain(assignment, ids(3), no_racks(1, 2, 3, 4))
    assert plan == {TopicPartition("orders", 0): (4, 1), TopicPartition("orders", 1): (1, 4)}


def test_a_drained_broker_is_replaced_in_its_rack_if_the_others_are_used() -> None:
    racks = in_racks({1: "a", 2: "b", 3: "c", 4: "a", 5: "c"})
    assert plan_drain(orders((1, 2, 3)), ids(3), racks) == orders((1, 2, 5))
    assert plan_drain(orders((1, 2, 3)), ids(1), racks) == orders((2, 4, 3))


def test_the_rack_of_a_replica_on_a_cordoned_broker_counts() -> None:
    racks = in_racks({1: "a", 2: "a", 3: "c", 4: "b"})
    assert plan_drain(orders((2, 3)), ids(3), racks, cordoned=ids(2)) == orders((2, 4))
    with pytest.raises(TooFewBrokersError, match="only nodes 1, 2 could have them"):
        plan_drain(orders((1, 2, 3)), ids(3), racks, cordoned=ids(4))


def test_without_a_free_rack_replicas_share_one() -> None:
    racks = in_racks({1: "a", 2: "b", 3: "c", 4: "a"})
    assert plan_drain(orders((1, 2, 3)), ids(3), racks) == orders((1, 2, 4))


def test_two_brokers_are_drained_at_once() -> None:
    assert plan_drain(orders((1, 2), (2, 1)), ids(1, 2), no_racks(1, 2, 3, 4)) == orders((3, 4), (4, 3))


def test_a_drain_without_enough_brokers_is_refused() -> None:
    with pytest.raises(TooFewBrokersError, match="orders-0 has 3 replicas, and only nodes 1, 2 could have them"):
        plan_drain(orders((1, 2, 3)), ids(3), no_racks(1, 2, 3))
    with pytest.raises(TooFewBrokersError, match="only no node could have them"):
        plan_drain(orders((3,)), ids(3), no_racks(3))


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    assignment = orders(*(tuple((number + shift) % 3 + 1 for shift in range(3)) for number in range(12)))
    plan = plan_balance(assignment, no_racks(1, 2, 3, 4))
    after = {**assignment, **plan}
    assert Counter(replica for replicas in after.values() for replica in replicas) == dict.fromkeys((1, 2, 3, 4), 9)
    assert Counter(replicas[0] for replicas in after.values()) == dict.fromkeys((1, 2, 3, 4), 3)
    moved = sum(len(set(plan[partition]) - set(assignment[partition])) for partition in plan)
    assert moved == 9


def test_the_smallest_partitions_of_a_topic_move() -> None:
    assignment = orders((1,), (1,), (1,), (1,))
    sizes = {partition: 100 - partition.partition for partition in assignment}
    assert plan_balance(assignment, no_racks(1, 2), sizes) == {
        TopicPartition("orders", 2): (2,),
        TopicPartition("orders", 3): (2,),
    }


def test_the_partitions_of_each_topic_are_spread() -> None:
    assignment = {TopicPartition(topic, number): ids(1) for topic in ("a", "b") for number in range(2)}
    plan = plan_balance(assignment, no_racks(1, 2))
    assert sorted(partition.topic for partition in plan) == ["a", "b"]


def test_leaders_are_evened_out_without_moving_a_replica() -> None:
    assignment = orders((1, 2), (1, 3), (1, 2), (2, 3), (3, 2), (3, 1))
    after = {**assignment, **plan_balance(assignment, no_racks(1, 2, 3))}
    assert Counter(replicas[0] for replicas in after.values()) == {1: 2, 2: 2, 3: 2}
    assert all(set(after[partition]) == set(assignment[partition]) for partition in assignment)


def test_a_leadership_is_passed_on_through_a_third_broker() -> None:
    """Broker 1 shares no partition with broker 3."""
    assignment = orders((1, 2), (1, 2), (1, 2), (2, 3), (2, 3), (3, 2))
    assignment |= {TopicPartition("events", 0): ids(1, 2)}
    racks = in_racks({1: "a", 2: "b", 3: "a"})
    after = {**assignment, **plan_balance(assignment, racks)}
    leaders = Counter(replicas[0] for replicas in after.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1


def test_balancing_repairs_replicas_that_share_a_rack() -> None:
    racks = in_racks({1: "a", 2: "a", 3: "b", 4: "b"})
    after = plan_balance(orders((1, 2), (3, 4)), racks)
    assert [{racks[replica] for replica in replicas} for replicas in after.values()] == [{"a", "b"}, {"a", "b"}]


def test_racks_come_before_even_numbers() -> None:
    racks = in_racks({1: "a", 2: "b", 3: "b"})
    assignment = orders((1, 2), (1, 2), (1, 2), (1, 2))
    after = {**assignment, **plan_balance(assignment, racks)}
    assert Counter(tuple(sorted(replicas)) for replicas in after.values()) == {(1, 2): 2, (1, 3): 2}


def test_a_balanced_cluster_stays_as_it_is() -> None:
    assert plan_balance(orders((1, 2), (2, 3), (3, 1)), no_racks(1, 2, 3)) == {}
    assert plan_balance({}, no_racks(1, 2, 3)) == {}


def test_replicas_on_a_broker_that_is_gone_cannot_be_balanced() -> None:
    with pytest.raises(UnknownReplicasError, match="there are replicas on node 9"):
        plan_balance(orders((1, 9)), no_racks(1, 2))
