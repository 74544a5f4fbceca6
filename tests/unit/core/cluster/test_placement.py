"""Placement of replicas over brokers and racks."""

from collections import Counter

import pytest

from logbrook.core.cluster.placement import InvalidReplicationFactorError, place_replicas
from logbrook.model.identifiers import BrokerId


def brokers(*racks: str) -> dict[BrokerId, str]:
    return {BrokerId(number): rack for number, rack in enumerate(racks, 1)}


def test_leaders_and_replicas_are_spread_evenly() -> None:
    placed = place_replicas(brokers("", "", "", ""), 12, 3)
    leaders = Counter(replicas[0] for replicas in placed)
    everything = Counter(broker_id for replicas in placed for broker_id in replicas)
    assert set(leaders.values()) == {3}
    assert set(everything.values()) == {9}
    assert all(len(set(replicas)) == 3 for replicas in placed)


def test_partitions_with_the_same_leader_have_different_followers() -> None:
    """The partitions of a lost broker are then taken over by all others."""
    placed = place_replicas(brokers("", "", "", "", ""), 20, 2)
    assert len({replicas for replicas in placed if replicas[0] == 1}) == 4


def test_replicas_are_in_different_racks() -> None:
    racks = brokers("a", "a", "b", "b", "c", "c")
    for replicas in place_replicas(racks, 30, 3):
        assert len({racks[broker_id] for broker_id in replicas}) == 3


def test_more_replicas_than_racks_use_every_rack() -> None:
    racks = brokers("a", "a", "a", "b")
    for replicas in place_replicas(racks, 12, 3):
        assert {racks[broker_id] for broker_id in replicas} == {"a", "b"}
        assert len(set(replicas)) == 3


def test_the_start_selects_the_first_leader() -> None:
    assert [place_replicas(brokers("", "", ""), 1, 1, start)[0][0] for start in range(4)] == [1, 2, 3, 1]


def test_one_broker_has_everything() -> None:
    assert place_replicas(brokers("a"), 2, 1) == [(1,), (1,)]


@pytest.mark.parametrize("replication_factor", [0, 3])
def test_a_replication_factor_needs_as_many_brokers(replication_factor: int) -> None:
    with pytest.raises(InvalidReplicationFactorError, match=str(replication_factor)):
        place_replicas(brokers("", ""), 1, replication_factor)
