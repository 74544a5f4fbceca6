"""Three simulated brokers and their metadata store."""

import asyncio
import json
from collections.abc import Callable
from random import Random

from logbrook.config import Durability
from logbrook.core.cluster.image import BROKER_PREFIX, ClusterImage, PartitionKey
from logbrook.core.cluster.partition import PartitionRegistration
from logbrook.core.metadata import TOPIC_PREFIX
from logbrook.model import LogbrookError, TopicPartition
from logbrook.server.cluster.node import ClusterLink
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.storage.log import Log
from logbrook.testing.memory_metadata_store import MemoryMetadataStore, MemoryStore
from logbrook.testing.simulation.broker import SimulatedBroker, simulation_config
from logbrook.testing.simulation.cluster_plan import ClusterPlan
from logbrook.testing.simulation.loop import SimulationLoop
from logbrook.testing.variants import Variant

NODES = 3
_START_RETRY_S = 0.05
_START_S_MAX = 120.0


class SimulatedCluster:
    """The brokers 1 to 3. `note` is called with each event, as a line of the schedule."""

    store: MemoryStore

    def __init__(
        self, seed: int, plan: ClusterPlan, loop: SimulationLoop, durability: Durability, note: Callable[[str], None]
    ) -> None:
        self.plan = plan
        self.loop = loop
        self.connections: dict[int, MemoryMetadataStore] = {}
        # Brokers that a fault has stopped.
        self.stopped: set[int] = set()
        # Number, host of the other broker and connection.
        self._peers: list[tuple[int, str, PeerConnection]] = []
        self._note = note
        travels = Random(f"{seed}/store")
        self._store_latency_s = lambda: travels.uniform(0.0, plan.store_s_max)
        syncs = Random(f"{seed}/syncs")
        self.brokers = {
            number: SimulatedBroker(
                loop,
                host_of(number),
                config=simulation_config(
                    host_of(number),
                    durability,
                    node_id=number,
                    session_ms_min=1,
                    rebalance_delay_ms=50,
                    maintenance_ms=1_000,
                ),
                seed=seed,
                sync_latency_s=lambda: syncs.uniform(0.0001, plan.sync_s_max),
                new_link=lambda number=number: self._new_link(number),  # type: ignore[misc]
            )
            for number in range(1, NODES + 1)
        }

    def _new_link(self, number: int) -> ClusterLink:
        self.connections[number] = connection = self.store.connect()
        host = host_of(number)

        async def connect(to_host: str, to_port: int) -> PeerConnection:
            peer = await PeerConnection.connect(to_host, to_port, host, local_host=host)
            self._peers = [entry for entry in self._peers if not entry[2].is_closed]
            self._peers.append((number, to_host, peer))
            return peer

        return ClusterLink(
            connection,
            connect,
            lease_s=self.plan.lease_s,
            replica_lag_ms_max=self.plan.replica_lag_ms_max,
            maintenance_interval_s=1.0,
        )

    async def start(self) -> None:
        self.store = MemoryStore(self._store_latency_s)
        for broker in self.brokers.values():
            await broker.start()

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.stop()
        self.store.close()

    async def end_process(self, number: int, variant: Variant) -> None:
        # The store gets no more requests of the process. Not `is_cut_off`, which another fault may reset.
        await self.connections[number].close()
        await self.brokers[number].kill(variant)

    async def start_broker(self, number: int) -> None:
        """Start a broker that was stopped, as often as it takes."""
        until_s = self.loop.time() + _START_S_MAX
        while True:
            try:
                await self.brokers[number].start()
            except (LogbrookError, OSError) as error:
                self._note(f"broker {number} did not start: {error}")
            else:
                self._note(f"broker {number} started")
                self.stopped.discard(number)
                return
            await self._pause(_START_RETRY_S)
            # Otherwise the schedule would never end.
            assert self.loop.time() < until_s, f"broker {number} does not start"

    def expire_lease(self, number: int) -> None:
        """End the lease of a broker before its time. No effect on a broker without a lease.

        The broker stops being certain at once: a real store ends a lease only after the broker has missed its renewals.
        """
        entry = self.store.state.entries.get(f"{BROKER_PREFIX}{number}")
        if entry is None or not entry.lease_id:
            return
        self.store.revoke_lease(entry.lease_id)
        if self.brokers[number].is_up:
            replicas = self.brokers[number].server.services.replicas
            assert replicas is not None
            replicas.membership._lease.lost(self.loop.time())

    def delay_requests(self, number: int, other: int, seconds: float) -> bool:
        """Let requests of a broker to another one arrive late. False if it has not sent any.

        Fetches of followers have connections of their own, and are not delayed.
        """
        delayed = [
            peer
            for sender, host, peer in self._peers
            if (sender, host) == (number, host_of(other)) and not peer.reuses_memory and not peer.is_closed
        ]
        for peer in delayed:
            self.loop.network.delay(peer, seconds)
        return bool(delayed)

    async def _pause(self, seconds: float) -> None:
        over = asyncio.Event()
        self.loop.call_later(seconds, over.set)
        await over.wait()

    def image(self) -> ClusterImage:
        image = ClusterImage()
        image.load(self.store.state.entries)
        return image

    def find_wrong_partitions(self) -> str | None:
        """Return a topic whose registered partitions are not those of its partition count, or that does not exist."""
        entries = self.store.state.entries.items()
        topics = [json.loads(entry.value) for key, entry in entries if key.startswith(TOPIC_PREFIX)]
        expected = {bytes.fromhex(topic["id"]): list(range(topic["partitions"])) for topic in topics}
        actual: dict[bytes, list[int]] = {}
        for topic_id, number in sorted(self.image().partitions):
            actual.setdefault(topic_id, []).append(number)
        for topic_id in expected.keys() | actual.keys():
            if expected.get(topic_id) != actual.get(topic_id):
                return f"topic {topic_id.hex()} has {actual.get(topic_id)} instead of {expected.get(topic_id)}"
        return None

    def partition_counts(self) -> dict[str, int]:
        return {
            key.removeprefix(TOPIC_PREFIX): json.loads(entry.value)["partitions"]
            for key, entry in self.store.state.entries.items()
            if key.startswith(TOPIC_PREFIX)
        }

    def registration_of(self, partition: TopicPartition) -> PartitionRegistration:
        topic_id = bytes.fromhex(json.loads(self.store.state.entries[TOPIC_PREFIX + partition.topic].value)["id"])
        return self.image().partitions[PartitionKey(topic_id, partition.partition)].registration

    def replica_log(self, number: int, partition: TopicPartition) -> Log:
        return self.brokers[number].server.directory.get(partition)

    def find_problem(self, topic: str, partitions: int) -> str | None:
        """Return what is missing until every partition has a leader that serves it and all replicas are in sync."""
        image = self.image()
        if len(image.brokers) < NODES:
            return f"only {sorted(image.brokers)} are registered"
        for key, partition in image.partitions.items():
            registration = partition.registration
            if not image.has_live_leader(registration):
                return f"partition {key.partition} has no leader: {registration}"
            if set(registration.isr) != set(registration.replicas) or registration.is_reassigning:
                return f"partition {key.partition} is not in sync: {registration}"
        for number in range(partitions):
            leader = self.registration_of(TopicPartition(topic, number)).leader
            for replica in self.registration_of(TopicPartition(topic, number)).replicas:
                if self.replica_log(replica, TopicPartition(topic, number)).corruption is not None:
                    return f"the log of partition {number} on broker {replica} is damaged"
            replicas = self.brokers[leader].server.services.replicas
            if replicas is None or not replicas.leading.is_serving(topic, number):
                return f"broker {leader} does not know what is committed in partition {number}"
        return None


def host_of(number: int) -> str:
    return f"broker-{number}"
