"""Schedules in which the simulation of clusters found bugs, reduced to what they need."""

import asyncio
from collections.abc import Awaitable, Callable

from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.node import ClusterLink
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.testing.memory_metadata_store import MemoryStore
from logbrook.testing.simulation.broker import PORT, SimulatedBroker, simulation_config
from logbrook.testing.simulation.client import SimulatedClient
from logbrook.testing.simulation.loop import SimulationLoop
from logbrook.testing.simulation.network import SimulatedNetwork

HOST = "broker-1"
TOPIC = "t"
LEASE_S = 1.0
SYNC_S = 2.0


class SingleBrokerCluster:
    """A cluster of one broker in simulated time, whose syncs take two seconds."""

    def __init__(self) -> None:
        self._loop = SimulationLoop(SimulatedNetwork(lambda: 0.001))
        self.store: MemoryStore
        self.broker = SimulatedBroker(
            self._loop,
            HOST,
            config=simulation_config(HOST),
            sync_latency_s=lambda: SYNC_S,
            new_link=lambda: ClusterLink(self.store.connect(), self._connect, lease_s=LEASE_S),
        )

    @staticmethod
    async def _connect(host: str, port: int) -> PeerConnection:
        return await PeerConnection.connect(host, port, HOST)

    def run(self, scenario: Callable[["SingleBrokerCluster"], Awaitable[None]]) -> None:
        async def run() -> None:
            self.store = MemoryStore()
            await self.broker.start()
            await scenario(self)
            await self.broker.stop()
            self.store.close()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(run())

    def expire_lease(self) -> None:
        (lease_id,) = {entry.lease_id for entry in self.store.state.entries.values() if entry.lease_id}
        self.store.revoke_lease(lease_id)


async def connect_and_create_topic() -> SimulatedClient:
    client = await SimulatedClient.connect(HOST, PORT)
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    created = await client.request(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), CreateTopicsResponse, 5)
    assert created.topics[0].error_code == ErrorCode.NONE
    return client


def produce_of(producer_id: int = -1, base_sequence: int = -1) -> ProduceRequest:
    batch = build_batch(
        [Record(value=b"v")],
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(min(producer_id, 0)),
        base_sequence=base_sequence,
    )
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])])


def test_records_that_are_synced_after_their_leader_was_elected_again_count() -> None:
    """Seed 522: the high watermark stayed below them, and coordinators never loaded."""

    async def scenario(cluster: SingleBrokerCluster) -> None:
        client = await connect_and_create_topic()
        answer = asyncio.create_task(client.request(produce_of(), ProduceResponse, 12))
        await pause(SYNC_S / 10)
        cluster.expire_lease()
        partition = (await answer).responses[0].partition_responses[0]
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await pause(2 * SYNC_S)
        replicas = cluster.broker.server.services.replicas
        assert replicas is not None
        assert replicas.leading.leader_of(TopicPartition(TOPIC, 0)).leader_epoch > 0
        assert replicas.leading.is_serving(TOPIC, 0)
        assert cluster.broker.server.directory.get(TopicPartition(TOPIC, 0)).high_watermark == 1
        client.close()

    SingleBrokerCluster().run(scenario)


def test_a_leader_that_may_be_deposed_does_not_tell_producers_that_records_are_missing() -> None:
    """Seed 20292: a deposed leader that was cut off from the store did, upon which producers give up."""

    async def scenario(cluster: SingleBrokerCluster) -> None:
        client = await connect_and_create_topic()

        async def error_of(base_sequence: int) -> ErrorCode:
            answer = await client.request(produce_of(1, base_sequence), ProduceResponse, 12)
            return ErrorCode(answer.responses[0].partition_responses[0].error_code)

        assert await error_of(0) == ErrorCode.NONE
        assert await error_of(2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        cluster.store.is_down = True
        await pause(2 * LEASE_S)
        assert await error_of(2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.store.is_down = False
        await pause(2 * LEASE_S)
        assert await error_of(2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        client.close()

    SingleBrokerCluster().run(scenario)
