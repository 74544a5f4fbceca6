"""Faults of a simulated cluster.

They come in sequences that run at the same time, so that faults overlap. A broker is stopped by one of them only. Times
are in proportion to the lease of a broker.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.server.cluster.cluster_admin import ClusterAdmin
from logbrook.server.topics import TRANSACTION_STATE
from logbrook.storage.errors import CorruptLogError
from logbrook.testing.forwarding import MUTATING_CALLS, SYNC_CALLS
from logbrook.testing.simulation.cluster import SimulatedCluster, host_of
from logbrook.testing.simulation.cluster_plan import ClusterFault
from logbrook.testing.variants import Variant

_SEQUENCES = 2
# Of the only transactional producer.
_COORDINATOR = TopicPartition(TRANSACTION_STATE, 0)
_QUIET_S_MIN = 0.02


class ClusterFaults:
    """Breaks a cluster. `hosts` are all hosts of the network, `partitions` those that are moved and elected."""

    def __init__(
        self,
        seed: int,
        cluster: SimulatedCluster,
        hosts: list[str],
        partitions: list[TopicPartition],
        note: Callable[[str], None],
    ) -> None:
        self.count = 0
        self._seed = seed
        self._cluster = cluster
        self._plan = cluster.plan
        self._loop = cluster.loop
        self._lease_s = cluster.plan.lease_s
        self._numbers = list(cluster.brokers)
        self._hosts = hosts
        self._partitions = partitions
        self._note = note
        self._is_replacing = False
        # Logs that were damaged last, and the brokers that have them.
        self._damaged: dict[TopicPartition, int] = {}
        self._kinds: dict[ClusterFault, Callable[[Random], Awaitable[None]]] = {
            ClusterFault.KILL: self._kill,
            ClusterFault.KILL_ALL: self._kill_all,
            ClusterFault.RESTART: self._restart,
            ClusterFault.ISOLATE: self._isolate,
            ClusterFault.CUT_FROM_BROKER: self._cut_from_broker,
            ClusterFault.BREAK_CONNECTIONS: self._break_connections,
            ClusterFault.CUT_FROM_STORE: self._cut_from_store,
            ClusterFault.STOP_STORE: self._stop_store,
            ClusterFault.LOSE_ANSWER: self._lose_answer,
            ClusterFault.COMPACT_STORE: self._compact_store,
            ClusterFault.EXPIRE_LEASE: self._expire_lease,
            ClusterFault.DEPOSE_TWICE: self._depose_twice,
            ClusterFault.HAND_OVER_TWICE: self._hand_over_twice,
            ClusterFault.MOVE: self._move,
            ClusterFault.CANCEL_MOVE: self._cancel_move,
            ClusterFault.ELECT: self._elect,
            ClusterFault.REPLACE_DISK: self._replace_disk,
            ClusterFault.FILL_DISK: self._fill_disk,
            ClusterFault.FAIL_DISK: self._fail_disk,
            ClusterFault.DAMAGE_LOG: self._damage_log,
            ClusterFault.DELAY_MARKERS: self._delay_markers,
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(_SEQUENCES):
                group.create_task(self._run_sequence(Random(f"{self._seed}/faults-{number}")))

    async def _run_sequence(self, choices: Random) -> None:
        while self._loop.time() < self._plan.seconds:
            await self._pause(choices.uniform(_QUIET_S_MIN, self._plan.quiet_s_max))
            self.count += 1
            await self._kinds[choices.choice(self._plan.faults)](choices)

    async def _pause(self, seconds: float) -> None:
        over = asyncio.Event()
        self._loop.call_later(seconds, over.set)
        await over.wait()

    # Ends of processes

    def _take_broker(self, choices: Random) -> int | None:
        """Choose a broker to stop, None if the other sequence has stopped it."""
        number = choices.choice(self._numbers)
        if number in self._cluster.stopped:
            return None
        self._cluster.stopped.add(number)
        return number

    async def _kill(self, choices: Random) -> None:
        number = self._take_broker(choices)
        if number is None:
            return
        await self._kill_broker(number, choices.choice((Variant.KEPT, Variant.LOST, Variant.TORN)), choices)

    async def _kill_broker(self, number: int, variant: Variant, choices: Random) -> None:
        self._note(f"kill broker {number}, unsynced bytes {variant.name}")
        await self._cluster.end_process(number, variant)
        await self._pause(choices.choice((0.02, 0.5, 2.0)) * self._lease_s * choices.random())
        await self._cluster.start_broker(number)

    async def _kill_all(self, choices: Random) -> None:
        """A power loss of all machines at once."""
        if self._cluster.stopped:
            return
        self._cluster.stopped.update(self._numbers)
        variant = choices.choice((Variant.LOST, Variant.TORN))
        self._note(f"kill all brokers, unsynced bytes {variant.name}")
        await asyncio.gather(*(self._cluster.end_process(number, variant) for number in self._numbers))
        await self._pause(choices.choice((0.02, 2.0)) * self._lease_s * choices.random())
        for number in choices.sample(self._numbers, len(self._numbers)):
            await self._cluster.start_broker(number)

    async def _restart(self, choices: Random) -> None:
        number = self._take_broker(choices)
        if number is None:
            return
        self._note(f"restart broker {number}")
        try:
            await self._cluster.brokers[number].stop()
        except LogbrookError as error:
            # The process exits without a clean stop, and its lease expires.
            self._note(f"broker {number} did not stop cleanly: {error}")
            await self._cluster.connections[number].close()
        await self._cluster.start_broker(number)

    async def _replace_disk(self, choices: Random) -> None:
        """Replace the disk of a broker that is not needed: every partition has another in-sync replica.

        A second disk is not replaced until the first one's broker is back, and has told that it lost its records.
        """
        if self._is_replacing:
            return
        number = self._take_broker(choices)
        if number is None:
            return
        self._is_replacing = True
        self._note(f"kill broker {number} to replace its disk")
        await self._cluster.end_process(number, Variant.KEPT)
        if self._has_other_replicas(number):
            self._cluster.brokers[number].replace_disk()
        else:
            self._note("not replaced: it is the last replica in sync")
        await self._cluster.start_broker(number)
        self._is_replacing = False

    def _has_other_replicas(self, number: int) -> bool:
        """True if every partition has an in-sync replica on another broker, and none is being moved away from it.

        A damaged log does not count.
        """
        if any(map(self._is_damaged, self._partitions)):
            return False
        registrations = [partition.registration for partition in self._cluster.image().partitions.values()]
        return all(set(each.isr) - {number} and not each.is_reassigning for each in registrations)

    async def _fill_disk(self, choices: Random) -> None:
        """A disk has no space for a while. The other sequence may kill the broker meanwhile; it may not start then."""
        number = choices.choice(self._numbers)
        disk = self._cluster.brokers[number].disk_faults
        if disk.is_full:
            return
        self._note(f"the disk of broker {number} is full")
        disk.is_full = True
        await self._pause(choices.uniform(0.05, 3.0) * self._lease_s)
        disk.is_full = False
        self._note(f"the disk of broker {number} has space")

    async def _fail_disk(self, choices: Random) -> None:
        """Syncs fail, or writes too, and what was not synced never is. After a while the broker is restarted."""
        number = self._take_broker(choices)
        if number is None:
            return
        disk = self._cluster.brokers[number].disk_faults
        # Where only syncs fail, writes go into the page cache.
        disk.failing_calls = choices.choice((SYNC_CALLS, MUTATING_CALLS))
        self._note(f"{'syncs' if disk.failing_calls == SYNC_CALLS else 'writes and syncs'} of broker {number} fail")
        await self._pause(choices.uniform(0.05, 3.0) * self._lease_s)
        disk.failing_calls = frozenset()
        await self._kill_broker(number, choices.choice((Variant.KEPT, Variant.LOST, Variant.TORN)), choices)

    async def _damage_log(self, choices: Random) -> None:
        """A read has found damage in a log, from any offset on; another replica of the partition is in sync."""
        partition = choices.choice(self._partitions)
        registration = self._cluster.registration_of(partition)
        number, part = choices.choice(registration.replicas), choices.random()
        if self._is_replacing or self._is_damaged(partition) or not set(registration.isr) - {number}:
            return
        if not self._cluster.brokers[number].is_up or registration.is_reassigning:
            return
        try:
            log = self._cluster.replica_log(number, partition)
        except LogbrookError as error:
            self._note(f"not damaged: {error}")
            return
        offset = Offset(log.log_start_offset + int(part * (log.log_end_offset - log.log_start_offset + 1)))
        self._note(f"the log of {partition} on broker {number} is damaged from offset {offset} on")
        self._damaged[partition] = number
        log.quarantine(CorruptLogError(partition, log.active.path, 0, offset, "damaged by the simulation"))

    def _is_damaged(self, partition: TopicPartition) -> bool:
        """True if a log that was damaged may not have been replaced yet."""
        number = self._damaged.get(partition)
        if number is None or number not in self._cluster.registration_of(partition).replicas:
            return False
        if not self._cluster.brokers[number].is_up:
            return True
        try:
            return self._cluster.replica_log(number, partition).corruption is not None
        except LogbrookError:
            # It is being replaced.
            return True

    # The network

    async def _isolate(self, choices: Random) -> None:
        """As a broker that is paused: nothing reaches it and nothing leaves it; what was sent arrives later."""
        number = choices.choice(self._numbers)
        self._note(f"broker {number} is isolated")
        network, host = self._loop.network, host_of(number)
        others = [other for other in self._hosts if other != host]
        for other in others:
            network.cut_off(host, other)
        self._cluster.connections[number].is_cut_off = True
        await self._pause(choices.uniform(0.05, 3.0) * self._lease_s)
        for other in others:
            network.reconnect(host, other)
        self._cluster.connections[number].is_cut_off = False
        self._note(f"broker {number} is back")

    async def _cut_from_broker(self, choices: Random) -> None:
        number, other = choices.sample(self._numbers, 2)
        one_way = choices.random() < 0.5
        self._note(f"broker {number} is cut off from {other}{', one-way' if one_way else ''}")
        self._loop.network.cut_off(host_of(number), host_of(other), one_way=one_way)
        await self._pause(choices.uniform(0.05, 3.0) * self._lease_s)
        self._loop.network.reconnect(host_of(number), host_of(other))

    async def _break_connections(self, choices: Random) -> None:
        """Break the connections between a broker and another host, several times in a row."""
        host = host_of(choices.choice(self._numbers))
        other = choices.choice([other for other in self._hosts if other != host])
        self._note(f"the connections of {host} with {other} break")
        for _ in range(choices.choice((1, 3))):
            self._loop.network.break_connections(host, other)
            await self._pause(choices.uniform(0.0, 0.2) * self._lease_s)

    # The metadata store

    async def _cut_from_store(self, choices: Random) -> None:
        number = choices.choice(self._numbers)
        self._note(f"broker {number} is cut off from the store")
        self._cluster.connections[number].is_cut_off = True
        # Shorter than the lease, or so long that others work in its place while it does not know.
        await self._pause(choices.choice((1.0, 4.0)) * choices.random() * self._lease_s)
        self._cluster.connections[number].is_cut_off = False

    async def _stop_store(self, choices: Random) -> None:
        self._note("the store is down")
        self._cluster.store.is_down = True
        await self._pause(choices.uniform(0.05, 2.0) * self._lease_s)
        self._cluster.store.is_down = False

    async def _lose_answer(self, choices: Random) -> None:
        number = choices.choice(self._numbers)
        self._note(f"the next answer of the store to broker {number} is lost")
        self._cluster.connections[number].loses_next_answer = True

    async def _compact_store(self, choices: Random) -> None:
        number = choices.choice(self._numbers)
        self._note(f"the store is compacted while broker {number} is cut off from it")
        self._cluster.connections[number].is_cut_off = True
        await self._pause(choices.uniform(0.05, 1.0) * self._lease_s)
        self._cluster.store.compact()
        self._cluster.connections[number].is_cut_off = False

    async def _expire_lease(self, choices: Random) -> None:
        number = choices.choice(self._numbers)
        self._note(f"the lease of broker {number} expires")
        self._cluster.expire_lease(number)

    # Leaders and replicas

    async def _depose_twice(self, choices: Random) -> None:
        """Two quick elections, while what a follower has sent to the first leader is on its way (KIP-279)."""
        partition = choices.choice(self._partitions)
        registration = self._cluster.registration_of(partition)
        if registration.leader not in self._numbers:
            return
        leader = registration.leader
        follower = choices.choice([replica for replica in registration.replicas if replica != leader])
        self._note(f"depose {leader} and its successor as leaders of {partition}; {follower} cannot reach {leader}")
        network = self._loop.network
        network.cut_off(host_of(follower), host_of(leader), one_way=True)
        for _ in range(2):
            self._cluster.expire_lease(self._cluster.registration_of(partition).leader)
            await self._pause(choices.choice((0.1, 0.4)) * choices.random())
        network.reconnect(host_of(follower), host_of(leader))

    async def _hand_over_twice(self, choices: Random) -> None:
        """Hand a partition over to a follower that lacks records, and back to its leader, while they cannot fetch.

        Another follower has more records, truncates them in between, and cannot reach the leader. What it had sent
        before arrives in the leader's next term, and names an end that it no longer has. Then the leader is killed.
        """
        partition = choices.choice(self._partitions)
        registration = self._cluster.registration_of(partition)
        leader = registration.leader
        if set(registration.isr) != set(self._numbers) or leader not in self._numbers:
            return
        behind, ahead = choices.sample([number for number in self._numbers if number != leader], 2)
        self._note(f"hand {partition} over from {leader} to {behind} and back, {ahead} cannot reach {leader}")
        network = self._loop.network
        network.cut_off(host_of(behind), host_of(leader))
        await self._pause(0.5 * self._lease_s * choices.random())
        network.cut_off(host_of(ahead), host_of(leader), one_way=True)
        await self._lead(partition, [behind, leader, ahead])
        await self._pause(0.3 * self._lease_s * choices.random())
        await self._lead(partition, [leader, ahead, behind])
        network.reconnect(host_of(behind), host_of(leader))
        await self._pause(0.3 * self._lease_s * choices.random())
        network.reconnect(host_of(ahead), host_of(leader))
        # What was sent has arrived; nothing new can be fetched before the leader is killed.
        network.cut_off(host_of(leader), host_of(ahead), one_way=True)
        await self._pause(choices.uniform(0.1, 0.7) * self._lease_s)
        if leader not in self._cluster.stopped:
            self._cluster.stopped.add(leader)
            await self._kill_broker(leader, Variant.KEPT, choices)
        network.reconnect(host_of(leader), host_of(ahead))

    async def _delay_markers(self, choices: Random) -> None:
        """Transaction markers to a leader are on their way for long, and another broker coordinates meanwhile."""
        leader = self._cluster.registration_of(choices.choice(self._partitions)).leader
        try:
            coordinator = self._cluster.registration_of(_COORDINATOR).leader
        except KeyError:
            return
        late_s = choices.uniform(0.2, 2.0) * self._lease_s
        if not self._cluster.delay_requests(coordinator, leader, late_s):
            return
        self._note(f"what coordinator {coordinator} sends to {leader} arrives late")
        await self._pause(0.5 * self._lease_s * choices.random())
        self._cluster.expire_lease(coordinator)
        await self._pause(late_s)

    async def _lead(self, partition: TopicPartition, replicas: list[int]) -> None:
        """Make the first of the replicas the leader."""
        await self._administer(replicas[-1], partition, replicas)
        await self._administer(replicas[-1], partition, None)

    async def _move(self, choices: Random) -> None:
        """Move a partition to two or three brokers."""
        if self._is_replacing:
            return
        replicas = choices.sample(self._numbers, choices.choice((2, 3)))
        partition = choices.choice(self._partitions)
        self._note(f"move {partition} to {replicas}")
        await self._administer(choices.choice(self._numbers), partition, replicas)

    async def _cancel_move(self, choices: Random) -> None:
        """Move a partition, perhaps on to other brokers, and cancel that: the new replicas may be in sync, and lead."""
        partition = choices.choice(self._partitions)
        for _ in range(choices.choice((1, 2))):
            if self._is_replacing:
                return
            replicas = choices.sample(self._numbers, choices.choice((2, 3)))
            self._note(f"move {partition} to {replicas}, for a while")
            await self._administer(choices.choice(self._numbers), partition, replicas)
            await self._pause(choices.uniform(0.0, 0.3) * self._lease_s)
        self._note(f"cancel the move of {partition}")
        await self._change(choices.choice(self._numbers), lambda admin: admin.reassign(partition, None))

    async def _elect(self, choices: Random) -> None:
        partition = choices.choice(self._partitions)
        self._note(f"elect the preferred leader of {partition}")
        await self._administer(choices.choice(self._numbers), partition, None)

    async def _administer(self, number: int, partition: TopicPartition, replicas: list[int] | None) -> None:
        """Move a partition, or with None elect its preferred leader."""
        if replicas is None:
            await self._change(number, lambda admin: admin.elect_preferred(partition))
        else:
            await self._change(number, lambda admin: admin.reassign(partition, replicas))

    async def _change(self, number: int, change: Callable[[ClusterAdmin], Awaitable[None]]) -> None:
        broker = self._cluster.brokers[number]
        if not broker.is_up:
            self._note("refused: the broker is down")
            return
        admin = broker.server.services.cluster_admin
        assert admin is not None
        try:
            async with asyncio.timeout(self._lease_s / 2):
                await change(admin)
        except (LogbrookError, TimeoutError) as error:
            self._note(f"refused: {error}")
