"""Plans for the replicas of a cluster: moving them, balancing them, and emptying brokers. Nothing here asks a broker.

A plan maps each partition that changes to its new replicas, the preferred leader first. The functions take the replicas
of all partitions, as they are when the moves under way have ended, and `racks`: the brokers that may have replicas,
with their racks. Brokers without a rack count as one rack.

    plan_placement     the same brokers for all partitions
    plan_replacement   a broker instead of another one
    plan_drain         other brokers instead of some
    plan_balance       as many replicas and preferred leaders on each broker, with as few moves as possible

No plan puts two replicas of a partition into one rack as long as another rack has none of it.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import BrokerId

Assignment: TypeAlias = Mapping[TopicPartition, Sequence[BrokerId]]
Plan: TypeAlias = dict[TopicPartition, tuple[BrokerId, ...]]
Racks: TypeAlias = Mapping[BrokerId, str | None]
_Leaders: TypeAlias = dict[TopicPartition, tuple[BrokerId, ...]]
# A partition, and a broker on the chain that passes its leadership on.
_Step: TypeAlias = tuple[TopicPartition, BrokerId]


class TooFewBrokersError(LogbrookError):
    """A partition has more replicas than there are brokers to put them on."""

    def __init__(self, partition: TopicPartition, replicas: int, brokers: Sequence[BrokerId]) -> None:
        super().__init__(f"{partition} has {replicas} replicas, and only {_named(brokers)} could have them")
        self.partition = partition
        self.brokers = tuple(brokers)


class UnknownReplicasError(LogbrookError):
    """Partitions have replicas on brokers that may not have any."""

    def __init__(self, brokers: Sequence[BrokerId]) -> None:
        super().__init__(f"there are replicas on {_named(brokers)}, which cannot be balanced")
        self.brokers = tuple(brokers)


def plan_placement(assignment: Assignment, brokers: Sequence[BrokerId]) -> Plan:
    """Put the partitions on these brokers. A single one gets them in this order, and its preferred leader is the first.

    Of several partitions each broker becomes the preferred leader of as many as of the others.
    """
    if len(assignment) == 1:
        placed = {partition: tuple(brokers) for partition in assignment}
    else:
        current = {
            partition: _led_by(brokers, replicas[0] if replicas and replicas[0] in brokers else brokers[0])
            for partition, replicas in assignment.items()
        }
        placed = _spread_leaders(current, brokers)
    return _changes(assignment, placed)


def plan_replacement(assignment: Assignment, old: BrokerId, new: BrokerId) -> Plan:
    """Put `new` in the place of `old`. Partitions that have a replica on `new` already stay as they are."""
    return {
        partition: tuple(new if replica == old else replica for replica in replicas)
        for partition, replicas in assignment.items()
        if old in replicas and new not in replicas
    }


def plan_drain(
    assignment: Assignment,
    drained: Collection[BrokerId],
    racks: Racks,
    sizes: Mapping[TopicPartition, int] | None = None,
    cordoned: Collection[BrokerId] = (),
) -> Plan:
    """Move the replicas of these brokers to the others with the fewest replicas, then bytes, in racks without any.

    Cordoned brokers get none. Raises TooFewBrokersError.
    """
    sizes = sizes or {}
    targets = [broker for broker in racks if broker not in drained and broker not in cordoned]
    layout = _Layout(assignment, targets, racks)
    stored: Counter[BrokerId] = Counter()
    for partition, replicas in layout.replicas.items():
        stored.update(dict.fromkeys(replicas, sizes.get(partition, 0)))
    leading = Counter(replicas[0] for replicas in layout.replicas.values() if replicas)
    for partition in sorted(assignment, key=lambda partition: (-sizes.get(partition, 0), partition)):
        leaving = [replica for replica in assignment[partition] if replica in drained]
        for replica in leaving:
            target = layout.least_loaded(partition, replica, stored)
            if target is None:
                raise TooFewBrokersError(partition, len(assignment[partition]), sorted(layout.brokers))
            layout.move(partition, replica, target)
            stored[target] += sizes.get(partition, 0)
        if assignment[partition] and assignment[partition][0] in drained:
            leader = min(layout.replicas[partition], key=lambda replica: (leading[replica], replica))
            layout.replicas[partition] = list(_led_by(layout.replicas[partition], leader))
            leading[leader] += 1
    return _changes(assignment, layout.replicas)


def plan_balance(assignment: Assignment, racks: Racks, sizes: Mapping[TopicPartition, int] | None = None) -> Plan:
    """Even out the number of replicas and of preferred leaders of each broker, with the fewest moves.

    Partitions whose replicas share a rack although another one has none are spread over racks first. Of several moves
    that are as good, one is chosen that spreads the topic, then one of a follower, then of the smallest partition.
    Raises UnknownReplicasError.
    """
    unknown = sorted({replica for replicas in assignment.values() for replica in replicas} - racks.keys())
    if unknown:
        raise UnknownReplicasError(unknown)
    layout = _Layout(assignment, list(racks), racks)
    layout.spread_over_racks()
    while (step := layout.next_evening_move(sizes or {})) is not None:
        layout.move(*step)
    replicas = {partition: tuple(members) for partition, members in layout.replicas.items()}
    return _changes(assignment, _spread_leaders(replicas, list(racks)))


class _Layout:
    """Replicas that are moved one by one, with the number of them on each broker."""

    def __init__(self, assignment: Assignment, brokers: Sequence[BrokerId], racks: Racks) -> None:
        self.brokers = brokers
        self.replicas = {partition: list(replicas) for partition, replicas in assignment.items()}
        self._racks = racks
        self._loads = dict.fromkeys(brokers, 0)
        # The partitions on each broker, by topic.
        self._on: dict[BrokerId, dict[str, set[TopicPartition]]] = {broker: {} for broker in brokers}
        # Brokers to which no replica of a broker may move.
        self._closed: dict[BrokerId, set[BrokerId]] = {broker: set() for broker in brokers}
        for partition, replicas in self.replicas.items():
            for replica in replicas:
                self._add(partition, replica)

    def move(self, partition: TopicPartition, source: BrokerId, target: BrokerId) -> None:
        """Put `target` in the place of `source`."""
        replicas = self.replicas[partition]
        replicas[replicas.index(source)] = target
        if source in self._on:
            self._on[source][partition.topic].remove(partition)
            self._loads[source] -= 1
            self._closed[source].clear()
        self._add(partition, target)
        for replica in replicas:
            self._closed.get(replica, set()).clear()

    def least_loaded(
        self, partition: TopicPartition, leaving: BrokerId, stored: Mapping[BrokerId, int]
    ) -> BrokerId | None:
        """Return the best broker for the replica on `leaving`, None if each has a replica already."""
        others = [replica for replica in self.replicas[partition] if replica != leaving]
        used = {self._racks.get(replica) for replica in others}
        candidates = [broker for broker in self.brokers if broker not in others]
        return min(
            candidates,
            key=lambda broker: (self._racks[broker] in used, self._loads[broker], stored[broker], broker),
            default=None,
        )

    def spread_over_racks(self) -> None:
        """Move replicas that share a rack into racks without any of the partition."""
        rack_count = len(set(self._racks.values()))
        for partition in sorted(self.replicas):
            replicas = self.replicas[partition]
            while len(used := self._racks_of(replicas)) < min(len(replicas), rack_count):
                shared = [replica for replica in replicas if used[self._racks[replica]] > 1]
                source = max(shared, key=lambda replica: (self._loads[replica], replica))
                free = [broker for broker in self.brokers if self._racks[broker] not in used]
                self.move(partition, source, min(free, key=lambda broker: (self._loads[broker], broker)))

    def next_evening_move(
        self, sizes: Mapping[TopicPartition, int]
    ) -> tuple[TopicPartition, BrokerId, BrokerId] | None:
        """Return a move from a broker with more replicas to one with at least two fewer: partition, source, target."""
        ascending = sorted(self.brokers, key=lambda broker: (self._loads[broker], broker))
        for source in reversed(ascending):
            for target in ascending:
                if self._loads[source] - self._loads[target] < 2:
                    break
                if target not in self._closed[source]:
                    partition = self._best_to_move(source, target, sizes)
                    if partition is not None:
                        return partition, source, target
                    self._closed[source].add(target)
        return None

    def _best_to_move(
        self, source: BrokerId, target: BrokerId, sizes: Mapping[TopicPartition, int]
    ) -> TopicPartition | None:
        """Return the partition whose move spreads its topic most, then one that `source` does not lead, then a small
        one; None if none may move."""
        by_topic, others = self._on[source], self._on[target]
        topics = sorted(by_topic, key=lambda topic: (len(others.get(topic, ())) - len(by_topic[topic]), topic))
        for topic in topics:
            allowed = [partition for partition in by_topic[topic] if self._may_move(partition, source, target)]
            if allowed:
                return min(
                    allowed,
                    key=lambda partition: (self.replicas[partition][0] == source, sizes.get(partition, 0), partition),
                )
        return None

    def _may_move(self, partition: TopicPartition, source: BrokerId, target: BrokerId) -> bool:
        """True if the move leaves the partition in as many racks."""
        replicas = self.replicas[partition]
        if target in replicas:
            return False
        racks = self._racks
        if racks[source] == racks[target]:
            return True
        others = {racks[replica] for replica in replicas if replica != source}
        return racks[target] not in others or racks[source] in others

    def _racks_of(self, replicas: Iterable[BrokerId]) -> Counter[str | None]:
        return Counter(self._racks[replica] for replica in replicas)

    def _add(self, partition: TopicPartition, broker: BrokerId) -> None:
        if broker in self._on:
            self._on[broker].setdefault(partition.topic, set()).add(partition)
            self._loads[broker] += 1


def _spread_leaders(assignment: _Leaders, brokers: Iterable[BrokerId]) -> _Leaders:
    """Order the replicas so that the brokers are the preferred leaders of numbers of partitions as even as possible.

    A broker with too many passes the leadership of a partition to a replica, which may pass on that of another one, to
    a broker that has at least two fewer than the first. As long as there is such a chain the shortest one is used; when
    there is none, no order is more even (Harvey et al., Semi-matchings for bipartite graphs and load balancing, 2006).
    """
    spread = dict(assignment)
    led: dict[BrokerId, dict[TopicPartition, None]] = {broker: {} for broker in brokers}
    for partition, replicas in spread.items():
        led[replicas[0]][partition] = None
    queue = [(-len(partitions), broker) for broker, partitions in led.items()]
    heapify(queue)
    # Brokers that no chain can relieve or reach. They include whatever can be reached from them.
    settled: set[BrokerId] = set()
    while queue:
        count, first = heappop(queue)
        if first in settled or -count != len(led[first]):
            continue
        chain, reached = _next_chain(first, spread, led, settled)
        if not chain:
            settled |= reached
            continue
        for partition, leader in chain:
            del led[spread[partition][0]][partition]
            led[leader][partition] = None
            spread[partition] = _led_by(spread[partition], leader)
        for broker in (first, chain[0][1]):
            heappush(queue, (-len(led[broker]), broker))
    return spread


def _next_chain(
    first: BrokerId,
    assignment: _Leaders,
    led: Mapping[BrokerId, Mapping[TopicPartition, None]],
    settled: Collection[BrokerId],
) -> tuple[list[_Step], set[BrokerId]]:
    """Return partitions with new leaders that relieve `first`, the last step first, and the brokers that were reached.

    There are none if no broker with at least two fewer leaders is reached.
    """
    # The partition by which each broker was reached, and from which broker.
    reached: dict[BrokerId, _Step | None] = {first: None}
    queue = deque([first])
    while queue:
        broker = queue.popleft()
        for partition in led[broker]:
            for replica in assignment[partition]:
                if replica in reached or replica in settled:
                    continue
                reached[replica] = partition, broker
                if len(led[first]) - len(led[replica]) > 1:
                    return list(_steps(replica, reached)), set(reached)
                queue.append(replica)
    return [], set(reached)


def _steps(last: BrokerId, reached: Mapping[BrokerId, _Step | None]) -> Iterator[_Step]:
    step = reached[last]
    while step is not None:
        partition, broker = step
        yield partition, last
        last, step = broker, reached[broker]


def _led_by(replicas: Sequence[BrokerId], leader: BrokerId) -> tuple[BrokerId, ...]:
    return leader, *(replica for replica in replicas if replica != leader)


def _changes(before: Assignment, after: Assignment) -> Plan:
    return {
        partition: tuple(replicas)
        for partition, replicas in after.items()
        if tuple(replicas) != tuple(before[partition])
    }


def _named(brokers: Sequence[BrokerId]) -> str:
    return f"node{'' if len(brokers) == 1 else 's'} {', '.join(map(str, brokers))}" if brokers else "no node"
