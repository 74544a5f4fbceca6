"""Replicas for new partitions, spread over brokers and racks.

Brokers are taken in turn, in an order that alternates between racks, so consecutive ones are in different racks. The
leader of the next partition is the next broker. The other replicas follow it at a distance that grows by one each time
that all brokers have led, so that the partitions of a lost broker are spread over all others.

A replica is placed in a rack that has none of the partition yet, as long as there is one.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from logbrook.model import LogbrookError
from logbrook.model.identifiers import BrokerId

# An assignment lists the brokers of each new partition.
Assignments: TypeAlias = Sequence[Sequence[int]]


class ReplicaPlacement(NamedTuple):
    """Where the replicas of new partitions are: on brokers of the cluster's choice, or as assigned.

    A replication factor of -1 is the default. A single node has one replica of everything.
    """

    replication_factor: int = -1
    assignments: Assignments | None = None

    def count_of(self, partition_count: int | None) -> int | None:
        """Return the number of partitions of a new topic, None for the default."""
        return partition_count if self.assignments is None else len(self.assignments)


ANYWHERE = ReplicaPlacement()


class InvalidReplicationFactorError(LogbrookError):
    """There are not enough live brokers that may get replicas for the replication factor."""

    def __init__(self, replication_factor: int, brokers: int) -> None:
        super().__init__(
            f"a replication factor of {replication_factor} needs as many live brokers that are not cordoned, and there "
            f"are {brokers}"
            if replication_factor > 0
            else f"the replication factor is {replication_factor}; it must be at least 1"
        )


def place_replicas(
    racks: Mapping[BrokerId, str], partition_count: int, replication_factor: int, start: int = 0
) -> list[tuple[BrokerId, ...]]:
    """Return the replicas of each partition, the preferred leader first. `racks` has all brokers that may get one.

    `start` selects the first leader; a different one for each topic spreads small topics over all brokers. Raises
    InvalidReplicationFactorError.
    """
    if not 1 <= replication_factor <= len(racks):
        raise InvalidReplicationFactorError(replication_factor, len(racks))
    order = _alternating(racks)
    return [_replicas(order, racks, start + number, replication_factor) for number in range(partition_count)]


def extend_replicas(
    replicas: Sequence[BrokerId], racks: Mapping[BrokerId, str], replication_factor: int, start: int = 0
) -> tuple[BrokerId, ...]:
    """Add brokers to the replicas of a partition up to the replication factor, from racks that have none first.

    Returns fewer if there are not enough brokers. `start` selects the first broker to add.
    """
    order = _alternating(racks)
    first = start % len(order)
    candidates = [broker_id for broker_id in (*order[first:], *order[:first]) if broker_id not in replicas]
    extended = list(replicas)
    while candidates and len(extended) < replication_factor:
        used = {racks.get(replica) for replica in extended}
        added = next((broker_id for broker_id in candidates if racks[broker_id] not in used), candidates[0])
        candidates.remove(added)
        extended.append(added)
    return tuple(extended)


def _alternating(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """Order the brokers so that neighbours are in different racks as far as possible."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    order: list[BrokerId] = []
    for number in range(max(map(len, by_rack.values()))):
        order += [by_rack[rack][number] for rack in sorted(by_rack) if number < len(by_rack[rack])]
    return order


def _replicas(
    order: Sequence[BrokerId], racks: Mapping[BrokerId, str], number: int, replication_factor: int
) -> tuple[BrokerId, ...]:
    count = len(order)
    leader = order[number % count]
    shift = number // count
    others = [order[(number + 1 + (shift + distance) % (count - 1)) % count] for distance in range(count - 1)]
    replicas, used = [leader], {racks[leader]}
    # First one replica per rack, then any brokers in the same order.
    for broker_id in others:
        if len(replicas) < replication_factor and racks[broker_id] not in used:
            replicas.append(broker_id)
            used.add(racks[broker_id])
    replicas += [broker_id for broker_id in others if broker_id not in replicas]
    return tuple(replicas[:replication_factor])
