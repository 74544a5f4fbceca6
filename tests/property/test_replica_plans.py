"""Plans keep the replicas that they need not move, and leave nothing to improve."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from logbrook.client.replica_plans import TooFewBrokersError, plan_balance, plan_drain, plan_placement
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId

Assignment = Mapping[TopicPartition, Sequence[BrokerId]]
Racks = dict[BrokerId, str | None]


@st.composite
def clusters(draw: st.DrawFn, racks: Sequence[str | None]) -> tuple[Assignment, Racks]:
    """Generate brokers and partitions of a few topics, with one to four replicas anywhere."""
    brokers = [BrokerId(number) for number in draw(st.lists(st.integers(1, 9), min_size=1, max_size=7, unique=True))]
    placed = st.lists(st.sampled_from(brokers), min_size=1, max_size=min(4, len(brokers)), unique=True)
    assignment: dict[TopicPartition, Sequence[BrokerId]] = {}
    for topic in ("orders", "events"):
        for number, replicas in enumerate(draw(st.lists(placed, max_size=12))):
            assignment[TopicPartition(topic, number)] = tuple(replicas)
    return assignment, {broker: draw(st.sampled_from(racks)) for broker in brokers}


def loads(assignment: Assignment, racks: Racks) -> Counter[BrokerId]:
    counts = Counter(dict.fromkeys(racks, 0))
    counts.update(replica for replicas in assignment.values() for replica in replicas)
    return counts


def rack_count(replicas: Sequence[BrokerId], racks: Racks) -> int:
    return len({racks[replica] for replica in replicas})


def check_replicas(before: Assignment, after: Assignment, racks: Racks) -> None:
    assert after.keys() == before.keys()
    for partition, replicas in after.items():
        assert len(replicas) == len(before[partition]) == len(set(replicas))
        assert set(replicas) <= racks.keys()


@settings(max_examples=60, deadline=None)
@given(clusters(racks=[None]))
def test_without_racks_all_brokers_have_as_many_replicas_with_the_fewest_moves(
    cluster: tuple[Assignment, Racks],
) -> None:
    assignment, racks = cluster
    after = {**assignment, **plan_balance(assignment, racks)}
    check_replicas(assignment, after, racks)
    counts = loads(after, racks)
    assert max(counts.values()) - min(counts.values()) <= 1
    before = loads(assignment, racks)
    least, most = divmod(sum(before.values()), len(racks))
    most = least + (most > 0)
    needed = max(sum(max(0, n - most) for n in before.values()), sum(max(0, least - n) for n in before.values()))
    assert sum(len(set(after[partition]) - set(assignment[partition])) for partition in after) == needed


@settings(max_examples=60, deadline=None)
@given(clusters(racks=["a", "b", "c", None]))
def test_a_balanced_cluster_has_no_move_that_evens_it_out_and_spreads_over_racks(
    cluster: tuple[Assignment, Racks],
) -> None:
    assignment, racks = cluster
    after = {**assignment, **plan_balance(assignment, racks)}
    check_replicas(assignment, after, racks)
    counts, rack_total = loads(after, racks), len(set(racks.values()))
    for replicas in after.values():
        used = rack_count(replicas, racks)
        assert used == min(len(replicas), rack_total)
        for source in replicas:
            for target in racks.keys() - set(replicas):
                moved = [target if replica == source else replica for replica in replicas]
                is_allowed = rack_count(moved, racks) >= used
                assert not is_allowed or counts[source] - counts[target] < 2


@settings(max_examples=60, deadline=None)
@given(clusters(racks=["a", "b", None]))
def test_a_plan_for_a_balanced_cluster_is_empty(cluster: tuple[Assignment, Racks]) -> None:
    assignment, racks = cluster
    assert plan_balance({**assignment, **plan_balance(assignment, racks)}, racks) == {}


@settings(max_examples=60, deadline=None)
@given(clusters(racks=[None]))
def test_no_change_of_a_single_leader_evens_them_out(cluster: tuple[Assignment, Racks]) -> None:
    assignment, racks = cluster
    after = {**assignment, **plan_balance(assignment, racks)}
    leading = Counter(dict.fromkeys(racks, 0))
    leading.update(replicas[0] for replicas in after.values())
    for replicas in after.values():
        assert all(leading[replicas[0]] - leading[replica] < 2 for replica in replicas)


@settings(max_examples=60, deadline=None)
@given(clusters(racks=["a", "b", "c"]), st.data())
def test_a_drained_broker_has_nothing_and_other_replicas_stay(
    cluster: tuple[Assignment, Racks], data: st.DataObject
) -> None:
    assignment, racks = cluster
    drained = set(data.draw(st.lists(st.sampled_from(sorted(racks)), min_size=1, max_size=2)))
    remaining = racks.keys() - drained
    if any(len(replicas) > len(remaining) and set(replicas) & drained for replicas in assignment.values()):
        with pytest.raises(TooFewBrokersError):
            plan_drain(assignment, drained, racks)
        return
    plan = plan_drain(assignment, drained, racks)
    after = {**assignment, **plan}
    check_replicas(assignment, after, racks)
    for partition, replicas in after.items():
        kept = set(assignment[partition]) - drained
        assert kept <= set(replicas) <= remaining
        assert bool(set(assignment[partition]) & drained) == (partition in plan)
        # An added replica shares a rack only if every rack with a broker left has a replica.
        free = {racks[broker] for broker in remaining} - {racks[replica] for replica in replicas}
        added = [replica for replica in replicas if replica not in kept]
        others = Counter(racks[replica] for replica in replicas)
        assert not free or all(others[racks[replica]] == 1 for replica in added)


@settings(max_examples=60, deadline=None)
@given(clusters(racks=[None]), st.data())
def test_partitions_are_put_on_the_given_brokers_with_even_leaders(
    cluster: tuple[Assignment, Racks], data: st.DataObject
) -> None:
    assignment, racks = cluster
    assume(len(assignment) > 1)
    brokers = data.draw(st.lists(st.sampled_from(sorted(racks)), min_size=1, unique=True))
    after = {**assignment, **plan_placement(assignment, brokers)}
    assert all(sorted(replicas) == sorted(brokers) for replicas in after.values())
    leading = Counter(dict.fromkeys(brokers, 0))
    leading.update(replicas[0] for replicas in after.values())
    assert max(leading.values()) - min(leading.values()) <= 1
