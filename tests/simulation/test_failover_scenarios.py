"""Writes when a broker of three is killed, stopped or cut off, and the time for which they wait, in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from logbrook.config import BrokerConfig
from logbrook.core.cluster.image import ClusterImage, PartitionKey, broker_key
from logbrook.core.cluster.partition import PartitionRegistration
from logbrook.core.metadata import TOPIC_PREFIX
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId, Offset, ProducerEpoch, ProducerId
from logbrook.ports.metadata_store import Delete, StoreTransaction
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from logbrook.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.follower_fetch import FollowerFetch
from logbrook.server.cluster.node import ClusterLink
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.server.cluster.replica_fetcher import ReplicaFetcher
from logbrook.server.cluster.topics import ClusterTopics
from logbrook.server.errors import RequestRefusedError
from logbrook.server.pending_fetch import PartitionRead
from logbrook.storage.errors import CorruptLogError, TooManyOpenFilesError
from logbrook.storage.log import Log
from logbrook.storage.partition_files import SavedHighWatermark, read_high_watermarks, write_high_watermarks
from logbrook.testing.forwarding import SYNC_CALLS
from logbrook.testing.memory_metadata_store import MemoryMetadataStore, MemoryStore
from logbrook.testing.simulation.broker import PORT, SimulatedBroker, simulation_config
from logbrook.testing.simulation.client import SimulatedClient
from logbrook.testing.simulation.loop import SimulationLoop
from logbrook.testing.simulation.network import SimulatedNetwork

TOPIC = "t"
NODES = (1, 2, 3)
# No scenario ends a lease.
LEASE_S = 60.0
LAG_MS_MAX = 2_000
# A fetch of a follower waits for half a second.
SOON_S = 0.45


def host_of(number: int) -> str:
    return f"broker-{number}"


def config_of(number: int, segment_sync_min_bytes: int) -> BrokerConfig:
    config = simulation_config(host_of(number), node_id=number)
    return replace(config, storage=replace(config.storage, segment_sync_min_bytes=segment_sync_min_bytes))


class ThreeBrokers:
    """A cluster of three brokers. `sync_s` has the time of a sync of each, `store_s` the latency of the store."""

    def __init__(
        self,
        sync_s: tuple[float, float, float] = (0.001, 0.001, 0.001),
        store_s: float = 0.001,
        segment_sync_min_bytes: int = 1 << 20,
    ) -> None:
        self.loop = SimulationLoop(SimulatedNetwork(lambda: 0.001))
        self._store: MemoryStore
        self._store_s = store_s
        self._connections: dict[int, MemoryMetadataStore] = {}
        self.brokers = {
            number: SimulatedBroker(
                self.loop,
                host_of(number),
                config=config_of(number, segment_sync_min_bytes),
                sync_latency_s=lambda number=number: sync_s[number - 1],  # type: ignore[misc]
                new_link=lambda number=number: self._new_link(number),  # type: ignore[misc]
            )
            for number in NODES
        }

    def _new_link(self, number: int) -> ClusterLink:
        self._connections[number] = connection = self._store.connect()

        async def connect(host: str, port: int) -> PeerConnection:
            return await PeerConnection.connect(host, port, host_of(number), local_host=host_of(number))

        return ClusterLink(connection, connect, lease_s=LEASE_S, replica_lag_ms_max=LAG_MS_MAX)

    def run(self, scenario: Callable[["ThreeBrokers"], Awaitable[None]]) -> None:
        async def run() -> None:
            self._store = MemoryStore(lambda: self._store_s)
            for broker in self.brokers.values():
                await broker.start()
            await scenario(self)
            for broker in self.brokers.values():
                if broker.is_up:
                    await broker.stop()
            self._store.close()

        failures: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _loop, context: failures.append(context))
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(run())
        assert failures == []

    def cut_off_from_store(self, number: int, *, is_cut_off: bool = True) -> None:
        self._connections[number].is_cut_off = is_cut_off

    def expire(self, number: int) -> None:
        """End the lease of a broker."""
        self._store.apply(StoreTransaction([], [Delete(broker_key(BrokerId(number)))]))

    async def kill(self, number: int) -> None:
        self.cut_off_from_store(number)
        await self.brokers[number].kill()

    async def create_topic(self, *replicas: list[int], name: str = TOPIC, min_insync: int = 1) -> None:
        """Create a topic with a partition for each list of replicas."""
        assignments = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in enumerate(replicas)
        ]
        setting = CreatableTopicConfig(name="min.insync.replicas", value=str(min_insync))
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[setting]
        )
        client = await SimulatedClient.connect(host_of(1), PORT)
        created = await client.request(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), CreateTopicsResponse, 5)
        assert created.topics[0].error_code == ErrorCode.NONE
        client.close()
        await pause(0.1)

    async def produce(
        self,
        leader: int,
        partition: int = 0,
        name: str = TOPIC,
        value: bytes = b"v",
        timeout_ms: int = 30_000,
        count: int = 1,
    ) -> ErrorCode:
        """Write a batch of records with acks=all."""
        data = PartitionProduceData(index=partition, records=build_batch([Record(value=value)] * count))
        topic = TopicProduceData(name=name, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])
        client = await SimulatedClient.connect(host_of(leader), PORT)
        response = await client.request(request, ProduceResponse, 12, timeout_s=60.0)
        client.close()
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def delete_records(self, leader: int, offset: int, timeout_ms: int = 5_000) -> tuple[ErrorCode, int]:
        """Delete the records of partition 0 before an offset. Return the error code and the low watermark."""
        topic = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
        client = await SimulatedClient.connect(host_of(leader), PORT)
        response = await client.request(request, DeleteRecordsResponse, 2, timeout_s=60.0)
        client.close()
        result = response.topics[0].partitions[0]
        return ErrorCode(result.error_code), result.low_watermark

    def log(self, number: int) -> Log:
        """Return a broker's log of partition 0."""
        return self.brokers[number].server.directory.get(TopicPartition(TOPIC, 0))

    async def leader_known_by(self, number: int) -> int:
        """Return the leader of partition 0 that a broker tells a client."""
        client = await SimulatedClient.connect(host_of(number), PORT)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        response = await client.request(request, MetadataResponse, 12)
        client.close()
        return response.topics[0].partitions[0].leader_id

    @property
    def revision(self) -> int:
        return self._store.state.revision

    def registration(self, partition: int = 0, name: str = TOPIC) -> PartitionRegistration:
        image = ClusterImage()
        image.load(self._store.state.entries)
        services = next(broker for broker in self.brokers.values() if broker.is_up).server.services
        topic = services.topics.metadata.topic(name)
        assert f"{TOPIC_PREFIX}{name}" in self._store.state.entries
        return image.partitions[PartitionKey(topic.id, partition)].registration

    def is_registered(self, number: int) -> bool:
        image = ClusterImage()
        image.load(self._store.state.entries)
        return number in image.brokers


@pytest.mark.parametrize("other", [[1, 2, 3], [3, 1, 2]], ids=["that only follows", "that leads another partition"])
def test_writes_do_not_wait_for_the_lease_of_a_killed_broker(other: list[int]) -> None:
    """The leader connects to the killed broker only to find out, or also as its follower."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3], other)
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        await cluster.kill(3)
        began_s = cluster.loop.time()
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        assert cluster.loop.time() - began_s < SOON_S
        assert cluster.registration().isr == (1, 2)
        assert cluster.is_registered(3)

    ThreeBrokers().run(scenario)


def test_the_isr_of_many_partitions_is_changed_in_few_transactions() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic(*[[1, 2, 3]] * 100)
        await pause(1.0)
        revision = cluster.revision
        await cluster.kill(3)
        for partition in range(100):
            assert await cluster.produce(leader=1, partition=partition) == ErrorCode.NONE
            assert cluster.registration(partition).isr == (1, 2)
        # One transaction for 40 partitions.
        assert cluster.revision - revision == 3

    ThreeBrokers().run(scenario)


def test_followers_that_lag_are_dropped_by_a_tick() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3], [1, 3, 2])
        revision = cluster.revision
        for number in (1, 2):
            cluster.loop.network.cut_off(host_of(number), host_of(3))
        await pause(2 * LAG_MS_MAX / 1000)
        assert [cluster.registration(partition).isr for partition in (0, 1)] == [(1, 2), (1, 2)]
        assert cluster.revision == revision + 1
        for number in (1, 2):
            cluster.loop.network.reconnect(host_of(number), host_of(3))

    ThreeBrokers().run(scenario)


def test_a_write_whose_isr_shrinks_after_the_append_is_not_acknowledged_but_kept() -> None:
    """The client learns that the record is in the leader's log, and that too few replicas have it."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3], min_insync=3)
        cluster.loop.network.cut_off(host_of(1), host_of(3))
        code = await cluster.produce(leader=1, timeout_ms=2 * LAG_MS_MAX)
        assert code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        registration = cluster.registration()
        assert (registration.isr, registration.elr) == ((1, 2), (3,))
        assert await cluster.produce(leader=1) == ErrorCode.NOT_ENOUGH_REPLICAS
        log = cluster.brokers[1].server.directory.get(TopicPartition(TOPIC, 0))
        assert (log.log_end_offset, log.high_watermark) == (1, 0)
        cluster.loop.network.reconnect(host_of(1), host_of(3))
        await pause(2.0)
        assert (log.log_end_offset, log.high_watermark) == (1, 1)

    ThreeBrokers().run(scenario)


def test_a_write_that_times_out_with_enough_replicas_in_sync_says_so() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3], min_insync=3)
        cluster.loop.network.cut_off(host_of(1), host_of(3))
        assert await cluster.produce(leader=1, timeout_ms=LAG_MS_MAX // 2) == ErrorCode.REQUEST_TIMED_OUT
        cluster.loop.network.reconnect(host_of(1), host_of(3))

    ThreeBrokers().run(scenario)


def test_a_follower_that_catches_up_fetches_while_it_syncs_and_joins_when_all_is_synced() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3])
        for number in (1, 2):
            cluster.loop.network.cut_off(host_of(number), host_of(3))
        # More than a response may have of a partition.
        values = [bytes([number]) * 700_000 for number in range(4)]
        for value in values:
            assert await cluster.produce(leader=1, value=value) == ErrorCode.NONE
        assert cluster.registration().isr == (1, 2)
        for number in (1, 2):
            cluster.loop.network.reconnect(host_of(number), host_of(3))

        log = cluster.brokers[3].server.directory.get(TopicPartition(TOPIC, 0))
        unsynced_max = 0
        while log.synced_end_offset < len(values):
            unsynced_max = max(unsynced_max, log.log_end_offset - log.synced_end_offset)
            assert cluster.registration().isr == (1, 2)
            await pause(0.1)
        # The records of two responses.
        assert unsynced_max == 2
        await pause(SOON_S)
        assert cluster.registration().isr == (1, 2, 3)

    ThreeBrokers(sync_s=(0.001, 0.001, 2.0)).run(scenario)


def test_a_follower_killed_between_two_fetches_is_detected() -> None:
    """No fetch waits on its connection, since it syncs what it has fetched."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3])
        writing = asyncio.create_task(cluster.produce(leader=1))
        await pause(0.5)
        await cluster.kill(3)
        began_s = cluster.loop.time()
        assert await writing == ErrorCode.NONE
        # The others need a second for the sync.
        assert cluster.loop.time() - began_s < 1.0 + SOON_S
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        assert cluster.registration().isr == (1, 2)

    ThreeBrokers(sync_s=(1.0, 1.0, 1.0)).run(scenario)


def test_a_broker_that_restarts_after_a_kill_gets_in_sync_again() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3])
        await cluster.kill(3)
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        await cluster.brokers[3].start()
        await pause(1.0)
        assert set(cluster.registration().isr) == {1, 2, 3}
        # The refused connections of its earlier life do not count any more.
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        assert set(cluster.registration().isr) == {1, 2, 3}

    ThreeBrokers().run(scenario)


def test_a_replica_that_comes_back_before_its_log_is_deleted_gets_a_new_log() -> None:
    """It got the old one, and at the next truncation its files were missing, as on a failed disk (seed 24899)."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        partition = TopicPartition(TOPIC, 0)
        administrator = cluster.brokers[1].server.services.cluster_admin
        assert administrator is not None
        directory = cluster.brokers[2].server.directory
        old_log = directory.get(partition)
        # Broker 2 learns of both moves at once.
        cluster.cut_off_from_store(2)
        await administrator.reassign(partition, [1, 3])
        while 2 in cluster.registration().replicas:
            await pause(0.05)
        await administrator.reassign(partition, [1, 2])
        await pause(0.1)
        cluster.cut_off_from_store(2, is_cut_off=False)
        await pause(5.0)
        log = directory.get(partition)
        assert log is not old_log
        assert (old_log.is_deleted, log.is_deleted, log.log_end_offset) == (True, False, 1)
        assert set(cluster.registration().isr) == {1, 2}

    ThreeBrokers(store_s=0.0).run(scenario)


def test_the_log_of_a_replica_that_is_dropped_while_it_is_created_is_deleted() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        partition, broker = TopicPartition(TOPIC, 0), cluster.brokers[3].server
        assert isinstance(broker.services.topics, ClusterTopics)
        files = broker.services.topics.log_files
        run = files._run

        async def run_slowly(work: Callable[[], None]) -> Any:
            await pause(1.0)
            return await run(work)

        files._run = run_slowly  # type: ignore[method-assign]
        administrator = cluster.brokers[1].server.services.cluster_admin
        assert administrator is not None
        await administrator.reassign(partition, [1, 3])
        await pause(0.5)
        await administrator.reassign(partition, None)
        await pause(5.0)
        assert cluster.registration().replicas == (1, 2)
        assert partition not in broker.directory

    ThreeBrokers().run(scenario)


def test_a_replica_whose_log_cannot_be_replaced_gets_one_when_the_disk_has_space() -> None:
    """It kept the deleted log until the broker was restarted."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        partition, broker = TopicPartition(TOPIC, 0), cluster.brokers[2]
        log = broker.server.directory.get(partition)
        broker.disk_faults.is_full = True
        log.quarantine(CorruptLogError(partition, "segment", 0, Offset(0), "damaged by the test"))
        await pause(5.0)
        assert log.is_deleted
        assert partition not in broker.server.directory
        assert set(cluster.registration().isr) == {1}
        broker.disk_faults.is_full = False
        await pause(5.0)
        assert broker.server.directory.get(partition).log_end_offset == 1
        assert set(cluster.registration().isr) == {1, 2}

    ThreeBrokers().run(scenario)


def test_a_deletion_that_a_follower_could_not_carry_out_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader tells only what is new: the follower kept the records, and one that caught up never joined the ISR."""
    raise_start = Log.raise_start
    failures = 1

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        for _ in range(3):
            assert await cluster.produce(leader=1) == ErrorCode.NONE
        follower = cluster.log(2)

        def fail_once(log: Log, offset: Offset) -> None:
            nonlocal failures
            if log is follower and failures:
                failures -= 1
                raise TooManyOpenFilesError("state")
            raise_start(log, offset)

        monkeypatch.setattr(Log, "raise_start", fail_once)
        assert await cluster.delete_records(leader=1, offset=2, timeout_ms=1_000) == (ErrorCode.NONE, 2)
        assert failures == 0
        assert follower.log_start_offset == 2

    ThreeBrokers().run(scenario)


def test_a_broker_that_hands_over_is_uncertain_until_it_knows_the_new_leader() -> None:
    """Its coordinators answered from old state, while another broker coordinated (seed 114910)."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        # Until all brokers know the topic.
        await pause(1.0)
        broker, partition = cluster.brokers[1].server, TopicPartition(TOPIC, 0)
        replicas = broker.services.replicas
        assert replicas is not None
        assert replicas.membership.is_certain
        replicas.leading.on_disk_full(broker.directory.get(partition))
        waits = 0
        while replicas.leading.leads(partition):
            await pause(0.01)
            assert not replicas.membership.is_certain or not replicas.leading.leads(partition)
            waits += 1
        # The latency of the store, to it and back.
        assert waits > 5
        await pause(1.0)
        assert replicas.membership.is_certain
        assert cluster.registration().leader == 2

    ThreeBrokers(store_s=0.1).run(scenario)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_leader_that_is_dropped_by_another_broker_leads_until_it_knows(*, is_cancelled: bool) -> None:
    """The other replicas committed records while its coordinators answered from old state."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1])
        partition = TopicPartition(TOPIC, 0)
        admin = cluster.brokers[1].server.services.cluster_admin
        old = cluster.brokers[2].server.services.replicas
        assert admin is not None
        assert old is not None
        await admin.reassign(partition, [2, 3])
        # The move does not end.
        await cluster.kill(3)
        await pause(1.0)
        await admin.elect_preferred(partition)
        await pause(0.1)
        assert cluster.registration().leader == 2
        cluster.cut_off_from_store(2)
        for _ in range(2):
            await admin.reassign(partition, None if is_cancelled else [1])
        await pause(1.0)
        assert old.leading.leads(partition)
        assert old.membership.is_certain
        assert cluster.registration().leader == 2
        client = await SimulatedClient.connect(host_of(1), PORT)
        listed = await client.request(
            ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse, 0
        )
        client.close()
        moving = listed.topics[0].partitions[0]
        assert (list(moving.replicas), list(moving.adding_replicas), list(moving.removing_replicas)) == (
            [1, 2],
            [],
            [2],
        )
        cluster.cut_off_from_store(2, is_cut_off=False)
        while (registration := cluster.registration()).leader != 1:
            await pause(0.01)
        assert (registration.replicas, registration.isr, registration.is_reassigning) == ((1,), (1,), False)
        await pause(0.1)
        assert await cluster.produce(1) == ErrorCode.NONE
        with pytest.raises(RequestRefusedError, match="not being moved"):
            await admin.reassign(partition, None)

    ThreeBrokers().run(scenario)


def test_clients_learn_of_the_new_leader_when_they_have_lost_the_old_one() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3])
        # Fetchers connect anew at once if their connection was of some age.
        await pause(2.0)
        await cluster.kill(1)
        assert await cluster.leader_known_by(3) == 2
        assert await cluster.produce(leader=2) == ErrorCode.NONE

    ThreeBrokers().run(scenario)


def test_writes_do_not_wait_for_a_broker_that_stops() -> None:
    """The new leaders drop it from the ISR at once, and it goes on to fetch until they have."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([3, 1, 2], [1, 2, 3])
        stopping = asyncio.create_task(cluster.brokers[3].stop())
        while cluster.registration().leader == 3:
            await pause(0.001)
        for partition in (0, 1):
            began_s = cluster.loop.time()
            assert await cluster.produce(leader=1, partition=partition) == ErrorCode.NONE
            # Not even for the tick at which leaders look after their followers.
            assert cluster.loop.time() - began_s < 0.1
        await stopping
        assert cluster.registration(1).isr == (1, 2)

    ThreeBrokers().run(scenario)


def test_a_broker_that_stops_stays_eligible_if_too_few_are_left_without_it() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([3, 1], min_insync=2)
        await cluster.brokers[3].stop()
        registration = cluster.registration()
        assert (registration.leader, registration.isr, registration.elr) == (1, (1,), (3,))

    ThreeBrokers().run(scenario)


def test_a_broker_whose_disk_failed_is_dropped_by_its_leader_and_hands_over_what_it_leads() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([3, 1, 2], [1, 2, 3])
        cluster.brokers[3].disk_faults.failing_calls = SYNC_CALLS
        assert await cluster.produce(leader=1, partition=1) == ErrorCode.NONE
        await pause(1.0)
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        assert [cluster.registration(partition).isr for partition in (0, 1)] == [(1, 2), (1, 2)]
        await cluster.kill(3)

    ThreeBrokers().run(scenario)


def test_a_broker_whose_disk_failed_stays_in_the_isr_if_its_leader_has_just_died() -> None:
    """The leader may have lost its disk: then the failed one has the last complete copy."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([2, 3], [3, 1])
        assert await cluster.produce(leader=2) == ErrorCode.NONE
        cluster.loop.network.cut_off(host_of(2), host_of(3))
        cluster.brokers[3].disk_faults.failing_calls = SYNC_CALLS
        await cluster.produce(leader=3, partition=1)
        await cluster.kill(2)
        await pause(1.0)
        assert cluster.registration(1).leader == 1
        assert 3 in cluster.registration().isr
        await cluster.kill(3)

    ThreeBrokers().run(scenario)


def test_a_partition_that_is_not_synced_yet_does_not_wait_for_the_fetch_of_the_others() -> None:
    """A follower gets another leader, from which it fetches already, while it syncs records of the old one."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([2, 1, 3], name="other")
        await cluster.create_topic([1, 2, 3])
        # It waits on the connection by which broker 3 fetches from broker 2.
        await pause(1.0)
        writing = asyncio.create_task(cluster.produce(leader=1))
        await pause(0.005)
        await cluster.kill(1)
        with pytest.raises(ConnectionResetError):
            await writing
        while cluster.registration().leader != 2:
            await pause(0.001)
        began_s = cluster.loop.time()
        assert await cluster.produce(leader=2) == ErrorCode.NONE
        assert cluster.loop.time() - began_s < SOON_S

    ThreeBrokers(sync_s=(0.12, 0.001, 0.12)).run(scenario)


def test_readers_of_a_follower_that_lost_records_in_an_unclean_election_see_the_new_ones() -> None:
    """Its high watermark stood still until the leader's was above the one from before the truncation."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        cluster.loop.network.cut_off(host_of(1), host_of(2))
        for _ in range(4):
            assert await cluster.produce(leader=1) == ErrorCode.NONE
        assert cluster.registration().isr == (1,)
        cluster.cut_off_from_store(1)
        await pause(2 * LEASE_S)
        assert not cluster.is_registered(1)
        administrator = cluster.brokers[2].server.services.cluster_admin
        assert administrator is not None
        await administrator.elect_unclean(TopicPartition(TOPIC, 0))
        await pause(0.1)
        assert await cluster.produce(leader=2) == ErrorCode.NONE
        log = cluster.brokers[1].server.directory.get(TopicPartition(TOPIC, 0))
        assert (log.log_end_offset, log.high_watermark) == (5, 5)
        cluster.cut_off_from_store(1, is_cut_off=False)
        cluster.loop.network.reconnect(host_of(1), host_of(2))
        await pause(5.0)
        assert set(cluster.registration().isr) == {1, 2}
        assert (log.log_end_offset, log.high_watermark) == (2, 2)

    ThreeBrokers().run(scenario)


def test_a_new_replica_of_a_log_that_starts_within_a_batch_gets_in_sync() -> None:
    """It started at an offset of which the leader returns the whole batch, and refused that forever."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1])
        assert await cluster.produce(leader=1, count=10) == ErrorCode.NONE
        assert await cluster.delete_records(leader=1, offset=5) == (ErrorCode.NONE, 5)
        administrator = cluster.brokers[1].server.services.cluster_admin
        assert administrator is not None
        await administrator.reassign(TopicPartition(TOPIC, 0), [1, 2])
        await pause(2.0)
        assert set(cluster.registration().isr) == {1, 2}
        log = cluster.log(2)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 10, 10)

    ThreeBrokers().run(scenario)


def test_a_damaged_replica_whose_log_starts_within_a_batch_is_fetched_again() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        assert await cluster.produce(leader=1, count=10) == ErrorCode.NONE
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        assert await cluster.delete_records(leader=1, offset=5) == (ErrorCode.NONE, 5)
        await pause(2.0)
        damaged = cluster.log(2)
        assert damaged.log_start_offset == 5
        damaged.quarantine(CorruptLogError(damaged.partition, "segment", 0, Offset(5), "damaged by the test"))
        await pause(2.0)
        log = cluster.log(2)
        assert log is not damaged
        assert set(cluster.registration().isr) == {1, 2}
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 11, 11)

    ThreeBrokers().run(scenario)


def test_a_saved_high_watermark_above_the_end_of_the_log_is_lowered_at_the_start() -> None:
    """A power loss has cut the log. After another one, records that replaced its end would count as committed."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        await pause(1.0)
        state = cluster.log(2).state
        await cluster.kill(2)
        files = cluster.brokers[2].files
        write_high_watermarks(files, {TopicPartition(TOPIC, 0).directory: SavedHighWatermark.of(Offset(9), state)})
        await cluster.brokers[2].start()
        saved = read_high_watermarks(files)[TopicPartition(TOPIC, 0).directory]
        assert saved.is_of(cluster.log(2).state)
        assert saved.offset <= 1

    ThreeBrokers().run(scenario)


def test_saved_high_watermarks_that_cannot_be_replaced_on_a_full_disk_are_removed() -> None:
    """They may be above the end of a log that a power loss has cut."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        broker = cluster.brokers[2]
        replicas = broker.server.services.replicas
        assert replicas is not None
        replicas.save_high_watermarks()
        assert read_high_watermarks(broker.files)
        broker.disk_faults.is_full = True
        replicas.save_high_watermarks()
        assert not read_high_watermarks(broker.files)
        broker.disk_faults.is_full = False
        replicas.save_high_watermarks()
        assert read_high_watermarks(broker.files)

    ThreeBrokers().run(scenario)


@pytest.mark.parametrize("offset", [2, -1], ids=["an offset", "the high watermark"])
def test_a_deletion_of_records_is_acknowledged_when_all_in_sync_replicas_have_it(offset: int) -> None:
    """A failover undid it: the next leader had not heard of it."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3])
        for _ in range(3):
            assert await cluster.produce(leader=1) == ErrorCode.NONE
        await pause(1.0)
        began_s = cluster.loop.time()
        start = 3 if offset < 0 else offset
        assert await cluster.delete_records(leader=1, offset=offset) == (ErrorCode.NONE, start)
        assert [cluster.log(number).log_start_offset for number in NODES] == [start] * 3
        # The followers do not wait for the end of their fetches.
        assert cluster.loop.time() - began_s < 0.1

    ThreeBrokers().run(scenario)


def test_a_deletion_of_records_times_out_while_an_in_sync_replica_lacks_it() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3])
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        cluster.loop.network.cut_off(host_of(1), host_of(3))
        began_s = cluster.loop.time()
        assert await cluster.delete_records(1, 1, timeout_ms=500) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert 0.5 <= cluster.loop.time() - began_s < 0.6
        # Broker 3 leaves the ISR.
        assert await cluster.delete_records(1, 1, timeout_ms=2 * LAG_MS_MAX) == (ErrorCode.NONE, 1)
        assert cluster.registration().isr == (1, 2)
        cluster.loop.network.reconnect(host_of(1), host_of(3))
        while 3 not in cluster.registration().isr:
            await pause(0.01)
        assert cluster.log(3).log_start_offset == 1

    ThreeBrokers().run(scenario)


def test_a_deletion_of_records_fails_when_another_broker_leads() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3])
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        cluster.loop.network.cut_off(host_of(1), host_of(3))
        deleting = asyncio.create_task(cluster.delete_records(1, 1))
        await pause(0.1)
        replicas = cluster.brokers[1].server.services.replicas
        assert replicas is not None
        replicas.leading.on_disk_full(cluster.log(1))
        assert await deleting == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert cluster.registration().leader == 2
        cluster.loop.network.reconnect(host_of(1), host_of(3))

    ThreeBrokers().run(scenario)


def test_a_repeated_change_of_the_isr_does_not_let_in_a_broker_that_has_lost_its_disk_since() -> None:
    """KIP-903: its leader had not heard of the later life, and only the leader checked which life is registered."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        cluster.loop.network.cut_off(host_of(1), host_of(2))
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        assert cluster.registration().isr == (1,)
        cluster.cut_off_from_store(1)
        cluster.loop.network.reconnect(host_of(1), host_of(2))
        log = cluster.brokers[2].server.directory.get(TopicPartition(TOPIC, 0))
        while log.high_watermark == 0:
            await pause(0.01)
        await pause(1.0)
        # Broker 1 hears of nothing else.
        replicas = cluster.brokers[1].server.services.replicas
        assert replicas is not None
        follower = replicas._metadata_follower
        apply, held = follower._apply, list[tuple[Any, Any]]()
        follower._apply = lambda revision, events: held.append((revision, events))  # type: ignore[method-assign]
        await cluster.kill(2)
        cluster.brokers[2].replace_disk()
        cluster.expire(2)
        await cluster.brokers[2].start()
        cluster.loop.network.cut_off(host_of(1), host_of(2))
        cluster.cut_off_from_store(1, is_cut_off=False)
        for _ in range(200):
            await pause(0.01)
            assert cluster.registration().isr == (1,)
        follower._apply = apply  # type: ignore[method-assign]
        for change in held:
            apply(*change)
        # The change is given up: it needs nobody else.
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        cluster.loop.network.reconnect(host_of(1), host_of(2))
        await pause(2.0)
        assert set(cluster.registration().isr) == {1, 2}
        assert cluster.brokers[2].server.directory.get(TopicPartition(TOPIC, 0)).log_end_offset == 2

    ThreeBrokers().run(scenario)


def test_a_fetch_from_before_a_repair_does_not_bring_the_emptied_replica_into_the_isr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It arrives late, for example over the connection of the other fetcher."""
    report, reports = FollowerFetch._report, list[tuple[FollowerFetch, PartitionRead]]()

    def report_and_keep(fetch: FollowerFetch, read: PartitionRead) -> None:
        reports.append((fetch, copy(read)))
        report(fetch, read)

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        monkeypatch.setattr(FollowerFetch, "_report", report_and_keep)
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        # Until broker 2 has fetched at the end of the log.
        await pause(1.0)
        partition, directory = TopicPartition(TOPIC, 0), cluster.brokers[2].server.directory
        log, epoch = directory.get(partition), cluster.registration().leader_epoch
        late = reports[-1]
        log.quarantine(CorruptLogError(partition, "segment", 0, Offset(0), "damaged by the test"))
        while partition in directory and directory.get(partition) is log:
            await pause(0.001)
        cluster.loop.network.cut_off(host_of(1), host_of(2))
        report(*late)
        await pause(0.5)
        assert cluster.registration().isr == (1,)
        assert cluster.registration().leader_epoch == epoch + 1
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        cluster.loop.network.reconnect(host_of(1), host_of(2))
        await pause(2.0)
        assert set(cluster.registration().isr) == {1, 2}
        assert directory.get(partition).log_end_offset == 2

    ThreeBrokers().run(scenario)


def test_a_write_that_waits_while_a_replica_is_repaired_can_be_retried() -> None:
    """The leader begins a new term of its own."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2, 3])
        writing = asyncio.create_task(cluster.produce(leader=1))
        await pause(0.1)
        log = cluster.brokers[2].server.directory.get(TopicPartition(TOPIC, 0))
        log.quarantine(CorruptLogError(log.partition, "segment", 0, Offset(0), "damaged by the test"))
        assert await writing == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        await pause(3.0)
        registration = cluster.registration()
        assert (registration.leader, set(registration.isr)) == (1, {1, 2, 3})
        ends = [broker.server.directory.get(log.partition).log_end_offset for broker in cluster.brokers.values()]
        assert ends == [2, 2, 2]

    ThreeBrokers(sync_s=(0.001, 0.001, 1.0)).run(scenario)


def test_a_fetcher_that_fails_with_a_bug_reports_it_and_fetches_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task ended, and the partitions of that leader were not fetched until a restart."""
    accept = ReplicaFetcher._accept_partition
    failures: list[dict[str, Any]] = []

    def fail(*_: Any) -> None:
        monkeypatch.setattr(ReplicaFetcher, "_accept_partition", accept)
        raise AssertionError("planted by the test")

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        await pause(2.0)
        cluster.loop.set_exception_handler(lambda _loop, context: failures.append(context))
        monkeypatch.setattr(ReplicaFetcher, "_accept_partition", fail)
        assert await cluster.produce(leader=1) == ErrorCode.NONE
        assert [str(failure["exception"]) for failure in failures] == ["planted by the test"]
        assert set(cluster.registration().isr) == {1, 2}

    ThreeBrokers().run(scenario)


@pytest.mark.parametrize("is_disk_full", [False, True])
def test_records_of_a_deposed_leader_do_not_survive_below_the_log_start_of_the_next_one(is_disk_full: bool) -> None:
    """The next leader had deleted the records that it could compare them with (seed 1000312 of the simulation).

    Its follower took over the high watermark before the log start offset: with a full disk readers saw them. The state
    of their producers stayed in any case, and a later batch with their sequence numbers was taken for a duplicate.
    """

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        assert await cluster.produce(leader=1, value=b"first") == ErrorCode.NONE
        await pause(1.0)
        cluster.loop.network.cut_off(host_of(1), host_of(2))
        log = cluster.log(1)
        stale = build_batch(
            [Record(value=b"stale")] * 2, producer_id=ProducerId(7), producer_epoch=ProducerEpoch(0), base_sequence=0
        )
        cluster.brokers[1].server.services.appender.append(log, stale, lambda _: None, waits_for_replicas=True)
        await pause(0.1)
        assert log.log_end_offset == 3
        cluster.expire(1)
        await pause(1.0)
        assert cluster.registration().leader == 2
        assert await cluster.produce(leader=2, value=b"second", count=2) == ErrorCode.NONE
        assert (await cluster.delete_records(leader=2, offset=3))[0] == ErrorCode.NONE
        if is_disk_full:
            cluster.brokers[1].disk_faults.is_full = True
        cluster.loop.network.reconnect(host_of(1), host_of(2))
        await pause(2.0)
        assert not set(range(log.log_start_offset, log.high_watermark)) & {1, 2}
        if is_disk_full:
            cluster.brokers[1].disk_faults.is_full = False
        await pause(5.0)
        assert set(cluster.registration().isr) == {1, 2}
        assert (cluster.log(1).log_start_offset, cluster.log(1).log_end_offset) == (3, 3)
        assert cluster.log(1).producers.get(ProducerId(7)) is None

    ThreeBrokers().run(scenario)


def test_a_waiting_reader_gets_records_of_an_earlier_term_when_they_are_committed() -> None:
    """Their size was unknown, so that the fetch waited for its whole `max_wait_ms`."""

    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([2, 3])
        network = cluster.loop.network
        network.cut_off(host_of(2), host_of(3))
        cluster.cut_off_from_store(3)
        writing = asyncio.ensure_future(cluster.produce(leader=2))
        await pause(0.1)
        cluster.expire(2)
        await pause(0.5)
        assert cluster.registration().leader == 2
        assert await writing == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (cluster.log(2).high_watermark, cluster.log(2).log_end_offset) == (0, 1)
        client = await SimulatedClient.connect(host_of(2), PORT)
        wanted = FetchPartition(partition=0, fetch_offset=Offset(0), partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=20_000, min_bytes=1, session_epoch=-1, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])]
        )
        reading = asyncio.ensure_future(client.request(request, FetchResponse, 12, timeout_s=30.0))
        await pause(0.1)
        network.reconnect(host_of(2), host_of(3))
        cluster.cut_off_from_store(3, is_cut_off=False)
        await pause(3.0)
        assert cluster.log(2).high_watermark == 1
        assert reading.done()
        assert (await reading).responses[0].partitions[0].records
        client.close()

    ThreeBrokers().run(scenario)
