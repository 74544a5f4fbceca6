"""Random schedules of a cluster of three brokers and its clients, by seed.

The workloads are those of a single broker (`campaign`). Faults are kills and power losses of one or all brokers, clean
restarts, replaced disks, brokers that are cut off from each other (also one-way), from the metadata store or from
everybody, outages of the store, leases that expire while their broker lives, elections and moves by operators. At the
end all faults end, all replicas get in sync, and what clients were told is compared with the logs, which are the same
on all brokers.
"""

import asyncio
from random import Random

from logbrook.config import Durability
from logbrook.core.cluster.image import ClusterImage, PartitionKey
from logbrook.core.cluster.partition import PartitionRegistration
from logbrook.core.metadata import TOPIC_PREFIX
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.ports.metadata_store import LeaseId
from logbrook.protocol.error_codes import RETRIABLE, ErrorCode
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.records.batch import iter_headers
from logbrook.records.reader import iter_records
from logbrook.server.cluster.node import ClusterLink
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.storage.log import Log
from logbrook.testing.memory_metadata_store import MemoryMetadataStore, MemoryStore
from logbrook.testing.simulation.broker import PORT, SimulatedBroker, simulation_config
from logbrook.testing.simulation.campaign import (
    ADMIN,
    IDEMPOTENT,
    PARTITIONS,
    SECONDS,
    TOPIC,
    TRANSACTIONAL,
    SimulationFailureError,
    SimulationRun,
)
from logbrook.testing.simulation.client import ClusterClient, WorkloadClient
from logbrook.testing.variants import Variant

NODES = 3
LEASE_S = 2.0
_LAG_MS_MAX = 1_500
_HEALED_S_MAX = 120.0
_RETRY_S = 0.2
_FAULT_SEQUENCES = 2
_FETCH = 12
_BYTES_MAX = 1 << 20


class ClusterSimulationRun(SimulationRun):
    """One seed of a cluster."""

    idempotent_codes = RETRIABLE | {ErrorCode.NONE}
    # A disk may be replaced, and a single replica would be lost with it.
    administered_replicas = 2

    def __init__(self, seed: int, seconds: float = SECONDS, durability: Durability = Durability.FSYNC) -> None:
        super().__init__(seed, seconds, durability)
        self._store: MemoryStore
        self._connections: dict[int, MemoryMetadataStore] = {}
        # Brokers that a fault has stopped.
        self._stopped: set[int] = set()
        self._is_replacing = False
        self._min_insync = self._random.choice((1, 2))
        store_s = self._random.choice((0.0, 0.002, 0.05))
        store_latency = Random(self._random.random())
        self._store_latency_s = lambda: store_latency.uniform(0.0, store_s)
        syncs = Random(self._random.random())
        self._brokers = {
            number: SimulatedBroker(
                self._loop,
                host_of(number),
                config=simulation_config(host_of(number), durability, node_id=number),
                seed=seed,
                sync_latency_s=lambda: syncs.uniform(0.0001, self._sync_s),
                new_link=lambda number=number: self._new_link(number),  # type: ignore[misc]
            )
            for number in range(1, NODES + 1)
        }

    def _new_link(self, number: int) -> ClusterLink:
        self._connections[number] = connection = self._store.connect()
        host = host_of(number)

        async def connect(to_host: str, to_port: int) -> PeerConnection:
            return await PeerConnection.connect(to_host, to_port, host, local_host=host)

        return ClusterLink(connection, connect, lease_s=LEASE_S, replica_lag_ms_max=_LAG_MS_MAX)

    async def _start(self) -> None:
        self._store = MemoryStore(self._store_latency_s)
        for broker in self._brokers.values():
            await broker.start()

    async def _stop(self) -> None:
        for broker in self._brokers.values():
            await broker.stop()
        self._store.close()

    async def _connect(self, name: str) -> WorkloadClient:
        return ClusterClient(
            name, [host_of(number) for number in self._brokers], PORT, Random(f"{self._seed}/{name}/to")
        )

    @property
    def topic_settings(self) -> dict[str, str]:
        return {"min.insync.replicas": str(self._min_insync)}

    async def _consume(self, name: str) -> None:
        if name.endswith("-1"):
            await self._consume_from_followers(name)
        else:
            await super()._consume(name)

    async def _consume_from_followers(self, name: str) -> None:
        """Read from any broker that has a replica: what it shows must never be taken back."""
        choices = Random(f"{self._seed}/{name}")
        offsets = dict.fromkeys(range(PARTITIONS), 0)

        async def fetch(client: WorkloadClient) -> None:
            assert isinstance(client, ClusterClient)
            partition = choices.randrange(PARTITIONS)
            wanted = FetchPartition(
                partition=partition, fetch_offset=offsets[partition], partition_max_bytes=_BYTES_MAX
            )
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=_BYTES_MAX,
                session_epoch=-1,
                topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
            )
            host = host_of(choices.choice(list(self._brokers)))
            response = await client.request_from(host, request, FetchResponse, _FETCH)
            for topic in response.responses:
                for data in topic.partitions:
                    if isinstance(data.records, memoryview):
                        for position, header in iter_headers(data.records):
                            for record in iter_records(data.records, position, bytes_max=_BYTES_MAX):
                                value = b"marker at %d" % record.offset if header.is_control else record.value or b""
                                self.history.on_read(partition, record.offset, value)
                                offsets[partition] = max(offsets[partition], record.offset + 1)
            await self._pause(choices.uniform(0.0, 0.2))

        await self._repeat(name, fetch)

    # Faults

    async def _break_things(self) -> None:
        """Two sequences of faults at the same time; a broker is stopped by one of them only."""
        async with asyncio.TaskGroup() as group:
            for number in range(_FAULT_SEQUENCES):
                group.create_task(self._break_in_sequence(Random(f"{self._seed}/faults-{number}")))

    async def _break_in_sequence(self, choices: Random) -> None:
        faults = [
            self._kill,
            self._kill,
            self._kill_all,
            self._restart,
            self._isolate,
            self._cut_from_broker,
            self._cut_from_store,
            self._stop_store,
            self._expire_lease,
            self._move,
            self._elect,
            self._replace_disk,
        ]
        while self._loop.time() < self._seconds:
            await self._pause(choices.uniform(0.05, 3.0))
            await choices.choice(faults)(choices)

    def _take_broker(self, choices: Random) -> int | None:
        """Choose a broker to stop, None if the other sequence has stopped it. Return it to `_stopped` afterwards."""
        number = choices.choice(list(self._brokers))
        if number in self._stopped:
            return None
        self._stopped.add(number)
        return number

    async def _kill(self, choices: Random) -> None:
        number = self._take_broker(choices)
        if number is None:
            return
        variant = choices.choice((Variant.KEPT, Variant.LOST, Variant.TORN))
        self._note(f"kill broker {number}, unsynced bytes {variant.name}")
        await self._end_process(number, variant)
        await self._pause(choices.choice((0.05, 1.0, 2 * LEASE_S)) * choices.random())
        await self._start_broker(number)

    async def _end_process(self, number: int, variant: Variant) -> None:
        # The store gets no more requests of the process.
        self._connections[number].is_cut_off = True
        await self._brokers[number].kill(variant)

    async def _kill_all(self, choices: Random) -> None:
        """A power loss of all machines at once."""
        if self._stopped:
            return
        self._stopped.update(self._brokers)
        variant = choices.choice((Variant.LOST, Variant.TORN))
        self._note(f"kill all brokers, unsynced bytes {variant.name}")
        await asyncio.gather(*(self._end_process(number, variant) for number in self._brokers))
        await self._pause(choices.choice((0.05, 2 * LEASE_S)) * choices.random())
        for number in choices.sample(list(self._brokers), NODES):
            await self._start_broker(number)

    async def _restart(self, choices: Random) -> None:
        number = self._take_broker(choices)
        if number is None:
            return
        self._note(f"restart broker {number}")
        await self._brokers[number].stop()
        await self._start_broker(number)

    async def _start_broker(self, number: int) -> None:
        while True:
            try:
                await self._brokers[number].start()
            except (LogbrookError, OSError) as error:
                self._note(f"broker {number} did not start: {error}")
                await self._pause(_RETRY_S)
                # Otherwise the schedule would never end.
                assert self._loop.time() < self._seconds + _HEALED_S_MAX, f"broker {number} does not start"
                continue
            self._note(f"broker {number} started")
            self._stopped.discard(number)
            return

    async def _isolate(self, choices: Random) -> None:
        """As a broker that is paused: nothing reaches it and nothing leaves it; what was sent arrives later."""
        number = choices.choice(list(self._brokers))
        self._note(f"broker {number} is isolated")
        network, host = self._loop.network, host_of(number)
        others = [other for other in self._all_hosts() if other != host]
        for other in others:
            network.cut_off(host, other)
        self._connections[number].is_cut_off = True
        await self._pause(choices.uniform(0.1, 3 * LEASE_S))
        for other in others:
            network.reconnect(host, other)
        self._connections[number].is_cut_off = False
        self._note(f"broker {number} is back")

    async def _cut_from_broker(self, choices: Random) -> None:
        number, other = choices.sample(list(self._brokers), 2)
        one_way = choices.random() < 0.5
        self._note(f"broker {number} is cut off from {other}{', one-way' if one_way else ''}")
        self._loop.network.cut_off(host_of(number), host_of(other), one_way=one_way)
        await self._pause(choices.uniform(0.1, 3 * LEASE_S))
        self._loop.network.reconnect(host_of(number), host_of(other))

    async def _cut_from_store(self, choices: Random) -> None:
        number = choices.choice(list(self._brokers))
        self._note(f"broker {number} is cut off from the store")
        self._connections[number].is_cut_off = True
        await self._pause(choices.uniform(0.1, 3 * LEASE_S))
        self._connections[number].is_cut_off = False

    async def _stop_store(self, choices: Random) -> None:
        self._note("the store is down")
        self._store.is_down = True
        await self._pause(choices.uniform(0.1, 2 * LEASE_S))
        self._store.is_down = False

    async def _expire_lease(self, choices: Random) -> None:
        leases = sorted({entry.lease_id for entry in self._store.state.entries.values() if entry.lease_id})
        if leases:
            lease_id: LeaseId = choices.choice(leases)
            self._note(f"lease {lease_id} expires")
            self._store.revoke_lease(lease_id)

    async def _move(self, choices: Random) -> None:
        """Move a partition to two or three brokers."""
        replicas = choices.sample(list(self._brokers), choices.choice((2, 3)))
        partition = TopicPartition(TOPIC, choices.randrange(PARTITIONS))
        self._note(f"move {partition} to {replicas}")
        await self._administer(choices, partition, replicas)

    async def _elect(self, choices: Random) -> None:
        partition = TopicPartition(TOPIC, choices.randrange(PARTITIONS))
        self._note(f"elect the preferred leader of {partition}")
        await self._administer(choices, partition, None)

    async def _administer(self, choices: Random, partition: TopicPartition, replicas: list[int] | None) -> None:
        broker = self._brokers[choices.choice(list(self._brokers))]
        if not broker.is_up:
            self._note("refused: the broker is down")
            return
        admin = broker.server.services.cluster_admin
        assert admin is not None
        try:
            async with asyncio.timeout(1.0):
                if replicas is None:
                    await admin.elect_preferred(partition)
                else:
                    await admin.reassign(partition, replicas)
        except (LogbrookError, TimeoutError) as error:
            self._note(f"refused: {error}")

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
        await self._end_process(number, Variant.KEPT)
        if self._has_other_replicas(number):
            self._brokers[number].replace_disk()
        else:
            self._note("not replaced: it is the last replica in sync")
        await self._start_broker(number)
        self._is_replacing = False

    def _has_other_replicas(self, number: int) -> bool:
        """True if every partition has an in-sync replica on another broker."""
        return all(set(partition.registration.isr) - {number} for partition in self._image().partitions.values())

    def _image(self) -> ClusterImage:
        image = ClusterImage()
        image.load(self._store.state.entries)
        return image

    def _all_hosts(self) -> list[str]:
        clients = ["creator", "judge", IDEMPOTENT, TRANSACTIONAL, ADMIN]
        clients += [f"{kind}-{number}" for kind in ("producer", "consumer", "member") for number in range(3)]
        return [*(host_of(number) for number in self._brokers), *clients]

    # Judgement

    async def _judge(self) -> None:
        await self._wait_until_healed()
        await super()._judge()
        self._compare_replicas()

    async def _wait_until_healed(self) -> None:
        """Wait until every partition has a leader that serves it, and all its replicas are in sync."""
        until_s = self._loop.time() + _HEALED_S_MAX
        while (problem := self._find_problem()) is not None:
            assert self._loop.time() < until_s, f"not healed after {_HEALED_S_MAX:g} s: {problem}"
            await self._pause(0.5)
        self._note("healed")

    def _find_problem(self) -> str | None:
        image = self._image()
        if len(image.brokers) < NODES:
            return f"only {sorted(image.brokers)} are registered"
        for key, partition in image.partitions.items():
            registration = partition.registration
            if not image.has_live_leader(registration):
                return f"partition {key.partition} has no leader: {registration}"
            if set(registration.isr) != set(registration.replicas) or registration.is_reassigning:
                return f"partition {key.partition} is not in sync: {registration}"
        for number in range(PARTITIONS):
            leader = self._registration_of(number).leader
            replicas = self._brokers[leader].server.services.replicas
            if replicas is None or not replicas.leading.is_serving(TOPIC, number):
                return f"broker {leader} does not know what is committed in partition {number}"
        return None

    def _topic_names(self) -> list[str]:
        return [key.removeprefix(TOPIC_PREFIX) for key in self._store.state.entries if key.startswith(TOPIC_PREFIX)]

    def _log_of(self, partition: int) -> Log:
        return self._replica_log(self._registration_of(partition).leader, partition)

    def _registration_of(self, partition: int) -> PartitionRegistration:
        topic_id = self._brokers[1].server.services.topics.metadata.topic(TOPIC).id
        return self._image().partitions[PartitionKey(topic_id, partition)].registration

    def _replica_log(self, number: BrokerId, partition: int) -> Log:
        return self._brokers[number].server.directory.get(TopicPartition(TOPIC, partition))

    def _compare_replicas(self) -> None:
        for partition in range(PARTITIONS):
            registration = self._registration_of(partition)
            end = self._log_of(partition).high_watermark
            contents = {
                replica: _content(self._replica_log(replica, partition), end) for replica in registration.replicas
            }
            leader_content = contents[registration.leader]
            for replica, content in contents.items():
                assert content == leader_content, f"partition {partition} differs on broker {replica} from its leader"


def _content(log: Log, end: int) -> bytes:
    log.validate()
    parts = [bytes(part.data) for part in log.read(log.log_start_offset, 1 << 30, up_to=end).slices]
    return b"".join(parts)


def host_of(number: int) -> str:
    return f"broker-{number}"


def run_cluster_seeds(
    first: int, count: int, seconds: float = SECONDS, durability: Durability = Durability.FSYNC
) -> SimulationFailureError | None:
    """Run seeds of a cluster until one fails. Returns its failure, or None."""
    for seed in range(first, first + count):
        try:
            ClusterSimulationRun(seed, seconds, durability).run()
        except SimulationFailureError as failure:
            return failure
    return None
