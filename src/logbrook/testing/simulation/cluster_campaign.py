"""Random schedules of a cluster of three brokers and its clients, by seed.

The clients are those of a single broker (`campaign`), and a consumer that reads from followers, too. A seed decides
which of them there are, and which faults (`cluster_plan`, `cluster_faults`). At the end all faults end, all replicas
get in sync, and what clients were told is compared with the logs, which are the same on all brokers.

A schedule is short, since most of its cost is in the requests of clients and followers: four simulated seconds with
about ten faults. Leases, sessions and timeouts are short in the same proportion.
"""

from collections.abc import Coroutine
from functools import partial
from random import Random
from typing import Any

from logbrook.config import Durability
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId, Offset
from logbrook.protocol.error_codes import RETRIABLE, ErrorCode
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.records.batch import iter_headers
from logbrook.records.reader import iter_records
from logbrook.storage.log import Log
from logbrook.testing.simulation.broker import PORT
from logbrook.testing.simulation.campaign import (
    ADMIN,
    IDEMPOTENT,
    PARTITIONS,
    TOPIC,
    TRANSACTIONAL,
    ClientTimes,
    SimulationFailureError,
    SimulationRun,
)
from logbrook.testing.simulation.client import REQUEST_S_MAX, ClusterClient, WorkloadClient
from logbrook.testing.simulation.cluster import SimulatedCluster, host_of
from logbrook.testing.simulation.cluster_faults import ClusterFaults
from logbrook.testing.simulation.cluster_plan import SECONDS, ClusterPlan, ClusterWorkload
from logbrook.testing.simulation.loop import SimulationLoop
from logbrook.testing.simulation.network import SimulatedNetwork
from logbrook.testing.simulation.runner import run_schedules

_HEALED_S_MAX = 120.0
_HEALED_POLL_S = 0.1
_FETCH = 12
_BYTES_MAX = 1 << 20
_PRODUCERS, _MEMBERS = 2, 2
_JUDGE = "judge"
_FOLLOWER_CONSUMER = "follower-consumer"
_OFFSET_READER = "offset-reader"
_DELETER = "deleter"
# Then a deletion may end within a batch.
_DELETED_BATCH_RECORDS = 3
# A schedule takes about 5,000.
_STEPS_MAX = 100_000


class ClusterSimulationRun(SimulationRun):
    """One seed of a cluster."""

    idempotent_codes = RETRIABLE | {ErrorCode.NONE}
    # A disk may be replaced, and a single replica would be lost with it.
    administered_replicas = 2

    def __init__(self, seed: int, seconds: float = SECONDS, durability: Durability = Durability.FSYNC) -> None:
        self.plan = plan = ClusterPlan.of(seed, seconds)
        self._clients: list[ClusterClient] = []
        self._cluster: SimulatedCluster
        times = ClientTimes(
            pause_s_max=plan.pause_s_max,
            retry_s=0.1,
            transaction_pause_s=plan.pause_s_max / 3,
            member_pause_s=plan.pause_s_max / 3,
            admin_pause_s=plan.lease_s / 2,
            request_s_max=0.75 * plan.lease_s,
            session_ms=int(2000 * plan.lease_s),
            transaction_ms=int(2000 * plan.lease_s),
        )
        super().__init__(seed, plan.seconds, durability, times)
        self._deletion_choices = Random(f"{seed}/deleted partitions")
        self._faults = ClusterFaults(
            seed,
            self._cluster,
            self._hosts(),
            [TopicPartition(TOPIC, number) for number in range(PARTITIONS)],
            self._note,
        )

    def _new_loop(self) -> SimulationLoop:
        latency = Random(f"{self._seed}/network")
        network = SimulatedNetwork(lambda: latency.uniform(0.0001, self.plan.network_s_max))
        loop = SimulationLoop(network, steps_max=_STEPS_MAX)
        self._cluster = SimulatedCluster(self._seed, self.plan, loop, self._durability, self._note)
        return loop

    def _hosts(self) -> list[str]:
        clients = ["creator", _JUDGE, IDEMPOTENT, TRANSACTIONAL, ADMIN, "consumer", _FOLLOWER_CONSUMER, _OFFSET_READER]
        clients.append(_DELETER)
        clients += [f"producer-{number}" for number in range(_PRODUCERS)]
        clients += [f"member-{number}" for number in range(_MEMBERS)]
        return [*(host_of(number) for number in self._cluster.brokers), *clients]

    @property
    def requests(self) -> int:
        """The number of requests that clients have sent."""
        return sum(client.requests for client in self._clients)

    @property
    def trace(self) -> tuple[int, int, float]:
        """A digest of all messages with their times, the last revision of the store, and the time at the end."""
        return self._loop.network.digest, self._cluster.store.state.revision, self._loop.time()

    async def _start(self) -> None:
        self._note(f"plan: {self.plan}")
        await self._cluster.start()

    async def _stop(self) -> None:
        await self._cluster.stop()

    # Clients

    def _actors(self) -> list[Coroutine[Any, Any, None]]:
        workloads = self.plan.workloads
        actors = [self._produce(f"producer-{number}") for number in range(_PRODUCERS)]
        actors.append(self._consume("consumer"))
        if ClusterWorkload.IDEMPOTENT in workloads:
            actors.append(self._produce_idempotently(IDEMPOTENT))
        if ClusterWorkload.TRANSACTIONAL in workloads:
            actors.append(self._repeat(TRANSACTIONAL, self._transact))
        if ClusterWorkload.FOLLOWER_CONSUMER in workloads:
            actors.append(self._consume_from_followers(_FOLLOWER_CONSUMER))
        if ClusterWorkload.GROUP in workloads:
            actors += [self._consume_as_member(f"member-{number}") for number in range(_MEMBERS)]
            actors.append(self._repeat(_OFFSET_READER, self._read_offsets))
        if ClusterWorkload.ADMIN in workloads:
            actors.append(self._repeat(ADMIN, self._administrate))
        if ClusterWorkload.DELETE_RECORDS in workloads:
            actors.append(self._repeat(_DELETER, self._delete_records))
        return actors

    async def _connect(self, name: str) -> WorkloadClient:
        hosts = [host_of(number) for number in self._cluster.brokers]
        request_s_max = REQUEST_S_MAX if name == _JUDGE else self._times.request_s_max
        client = ClusterClient(name, hosts, PORT, Random(f"{self._seed}/{name}/to"), request_s_max)
        self._clients.append(client)
        return client

    @property
    def topic_settings(self) -> dict[str, str]:
        return {"min.insync.replicas": str(self.plan.min_insync)}

    @property
    def transaction_version(self) -> int:
        return self.plan.transaction_version

    @property
    def batch_records_max(self) -> int:  # type: ignore[override]
        return _DELETED_BATCH_RECORDS if ClusterWorkload.DELETE_RECORDS in self.plan.workloads else 1

    async def _delete_records(self, client: WorkloadClient) -> None:
        """Delete some of the records that were read."""
        partition = self._deletion_choices.randrange(PARTITIONS)
        end = max((number + 1 for of, number in self.history.read if of == partition), default=0)
        await self._deletions.run_one(client, partition, end)
        await self._pause(self._times.pause_s_max)

    async def _read_offsets(self, client: WorkloadClient) -> None:
        """Ask any broker that says it coordinates the group for its offsets: committed ones must not fall."""
        assert isinstance(client, ClusterClient)
        client.forget()
        await self._group.fetch_offsets(client, list(range(PARTITIONS)))
        await self._pause(self._times.pause_s_max / 2)

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
            host = host_of(choices.choice(list(self._cluster.brokers)))
            response = await client.request_from(host, request, FetchResponse, _FETCH)
            for topic in response.responses:
                for data in topic.partitions:
                    is_gone = self._deletions.may_be_gone(partition, offsets[partition])
                    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and is_gone:
                        offsets[partition] = self._deletions.requested[partition]
                    if isinstance(data.records, memoryview):
                        for position, header in iter_headers(data.records):
                            for record in iter_records(data.records, position, bytes_max=_BYTES_MAX):
                                value = b"marker at %d" % record.offset if header.is_control else record.value or b""
                                self.history.on_read(partition, record.offset, value)
                                offsets[partition] = max(offsets[partition], record.offset + 1)
            await self._pause(choices.uniform(0.0, self._times.pause_s_max))

        await self._repeat(name, fetch)

    async def _break_things(self) -> None:
        try:
            await self._faults.run()
        finally:
            self.faults = self._faults.count

    # Judgement

    async def _judge(self) -> None:
        await self._wait_until_healed()
        await super()._judge()
        # A replica that lagged when it was cut off may have left the ISR since.
        await self._wait_until_healed()
        self._compare_replicas()
        await self._wait_for_partitions()

    async def _judge_group(self, client: WorkloadClient) -> None:
        if ClusterWorkload.GROUP in self.plan.workloads:
            await super()._judge_group(client)

    async def _wait_until_healed(self) -> None:
        """Wait until every partition has a leader that serves it, and all its replicas are in sync."""
        until_s = self._loop.time() + _HEALED_S_MAX
        while (problem := self._cluster.find_problem(TOPIC, PARTITIONS)) is not None:
            assert self._loop.time() < until_s, f"not healed after {_HEALED_S_MAX:g} s: {problem}"
            await self._pause(_HEALED_POLL_S)
        self._note("healed")

    async def _wait_for_partitions(self) -> None:
        """Wait until the registered partitions are those of the topics: changes that were interrupted are undone."""
        until_s = self._loop.time() + _HEALED_S_MAX
        while (problem := self._cluster.find_wrong_partitions()) is not None:
            assert self._loop.time() < until_s, f"not repaired after {_HEALED_S_MAX:g} s: {problem}"
            await self._pause(_HEALED_POLL_S)

    def _partition_counts(self) -> dict[str, int]:
        return self._cluster.partition_counts()

    def _log_of(self, partition: int) -> Log:
        return self._replica_log(self._cluster.registration_of(TopicPartition(TOPIC, partition)).leader, partition)

    def _replica_log(self, number: BrokerId, partition: int) -> Log:
        return self._cluster.replica_log(number, TopicPartition(TOPIC, partition))

    def _compare_replicas(self) -> None:
        for partition in range(PARTITIONS):
            registration = self._cluster.registration_of(TopicPartition(TOPIC, partition))
            end = self._log_of(partition).high_watermark
            logs = {replica: self._replica_log(replica, partition) for replica in registration.replicas}
            start = max(log.log_start_offset for log in logs.values())
            contents = {replica: _content(log, start, end) for replica, log in logs.items()}
            leader_content = contents[registration.leader]
            for replica, content in contents.items():
                assert content == leader_content, f"partition {partition} differs on broker {replica} from its leader"


def _content(log: Log, start: Offset, end: Offset) -> bytes:
    log.validate()
    parts = [bytes(part.data) for part in log.read(start, 1 << 30, up_to=end).slices]
    return b"".join(parts)


def run_cluster_seeds(
    first: int, count: int, seconds: float = SECONDS, durability: Durability = Durability.FSYNC
) -> SimulationFailureError | None:
    """Run seeds of a cluster until one fails. Returns its failure, or None."""
    tally = run_schedules(partial(ClusterSimulationRun, seconds=seconds, durability=durability), first, count)
    return SimulationFailureError(*tally.failures[0]) if tally.failures else None
