"""Coordinators and the partitions that their transactions write to, in trouble of one kind or another."""

import asyncio
from contextlib import closing
from typing import Any

import pytest

from logbrook.core.coordinator import ProducerIdentity
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from logbrook.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from logbrook.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from logbrook.records.batch import HEADER_BYTES, read_header
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.cluster.background import pause
from logbrook.server.coordinators.runtime import CoordinatorRuntime
from logbrook.server.topics import TRANSACTION_STATE
from logbrook.storage.paths import log_path
from logbrook.testing.simulation.broker import PORT
from logbrook.testing.simulation.client import SimulatedClient
from logbrook.testing.simulation.cluster import host_of
from tests.simulation.test_transaction_scenarios import TransactionWorld


class TransactionalProducer:
    def __init__(self, world: TransactionWorld, name: str, partition: TopicPartition, leader: int) -> None:
        self.world, self.name, self.partition, self.leader = world, name, partition, leader

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        while (answer := await self.world.client.request(request, InitProducerIdResponse, 4)).error_code:
            await pause(0.1)
        self.id = ProducerIdentity(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))

    async def produce(self) -> bool:
        """Write the first batch of a transaction. False if it is not accepted within a minute."""
        batch = build_batch(
            [Record(value=b"v")],
            producer_id=self.id.producer_id,
            producer_epoch=self.id.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [PartitionProduceData(index=self.partition.partition, records=batch)]
        topic = TopicProduceData(name=self.partition.topic, partition_data=data)
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=5_000, topic_data=[topic])
        until_s = self.world.loop.time() + 60
        while self.world.loop.time() < until_s:
            client = await SimulatedClient.connect(host_of(self.leader), PORT, "client")
            answer = await client.request(request, ProduceResponse, 12, timeout_s=10.0)
            client.close()
            code = answer.responses[0].partition_responses[0].error_code
            if code == ErrorCode.NONE:
                return True
            assert code == ErrorCode.NOT_ENOUGH_REPLICAS
            await pause(0.1)
        return False

    async def commit(self) -> None:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.id.producer_id,
            producer_epoch=self.id.producer_epoch,
            committed=True,
        )
        while (answer := await self.world.client.request(request, EndTxnResponse, 5, 30.0)).error_code:
            assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
            await pause(0.1)
        self.id = ProducerIdentity(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))


async def create(world: TransactionWorld, name: str, replicas: list[int]) -> TopicPartition:
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
        configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
    assert (await world.client.request(request, CreateTopicsResponse, 5)).topics[0].error_code == ErrorCode.NONE
    await pause(0.3)
    return TopicPartition(name, 0)


def test_a_marker_that_cannot_be_committed_does_not_hold_up_those_of_other_transactions() -> None:
    async def scenario(world: TransactionWorld) -> None:
        coordinator = world.coordinator
        leader, other = (number for number in (1, 2, 3) if number != coordinator)
        topic = world.cluster.brokers[1].server.services.transactions.runtime.topic
        names = [
            name
            for name in map("id{}".format, range(300))
            if world._leader_of(TRANSACTION_STATE, topic.partition_for(name)) == coordinator
        ]
        stuck = TransactionalProducer(world, names[0], await create(world, "stuck", [leader, other]), leader)
        healthy = TransactionalProducer(world, names[1], await create(world, "healthy", [leader, coordinator]), leader)
        await stuck.init()
        await healthy.init()
        assert await stuck.produce()
        await world.cluster.brokers[other].kill()
        await pause(10.0)
        for _ in range(2):
            assert await healthy.produce()
            await healthy.commit()
        end = asyncio.ensure_future(stuck.commit())
        await pause(0.2)
        try:
            for number in range(5):
                assert await healthy.produce(), f"transaction {number} cannot begin: the one before is not completed"
                await healthy.commit()
        finally:
            end.cancel()

    TransactionWorld().run(scenario)


def test_a_coordinator_whose_log_is_damaged_hands_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[tuple[float, str]] = []
    replay = CoordinatorRuntime._replay_log

    async def counted(self: Any, context: Any) -> None:
        try:
            await replay(self, context)
        except Exception as error:
            failed.append((self._loop.time(), type(error).__name__))
            raise

    monkeypatch.setattr(CoordinatorRuntime, "_replay_log", counted)

    async def scenario(world: TransactionWorld) -> None:
        client = await world.connect()
        for _ in range(5):
            await world.produce_until_accepted(client, b"x", 0)
            await world.end(is_commit=True)
        client.close()
        partition = TopicPartition(TRANSACTION_STATE, world._coordinator_partition())
        broker = world.cluster.brokers[world.coordinator]
        await pause(10.0)
        await broker.stop()
        with closing(broker.files.open(log_path(partition.directory, Offset(0)))) as file:
            position = read_header(file.pread(HEADER_BYTES, 0), 0).size - 3
            file.pwrite(bytes([file.pread(1, position)[0] ^ 1]), position)
        await world.cluster.start_broker(world.coordinator)
        await pause(10.0)
        administrator = broker.server.services.cluster_admin
        assert administrator is not None
        if world.cluster.registration_of(partition).leader != world.coordinator:
            await administrator.elect_preferred(partition)
        await pause(60.0)
        assert len(failed) < 4, f"{len(failed)} loads failed, the first {failed[0]}, the last {failed[-1]}"

    TransactionWorld().run(scenario)


def test_a_new_group_does_not_wait_for_the_end_of_the_grace_period() -> None:
    async def join(number: int, group: str) -> int:
        client = await SimulatedClient.connect(host_of(number), PORT, "client")
        # Creates the topic.
        await client.request(FindCoordinatorRequest(coordinator_keys=[group]), FindCoordinatorResponse, 4)
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"x")],
        )
        code = (await client.request(request, JoinGroupResponse, 3, timeout_s=200.0)).error_code
        client.close()
        return code

    async def join_any(group: str) -> None:
        while ErrorCode.NONE not in [await join(number, group) for number in (1, 2, 3)]:
            await pause(0.2)

    async def scenario(world: TransactionWorld) -> None:
        await join_any("before")
        for connection in world.cluster.connections.values():
            connection.is_cut_off = True
        await pause(5.0)
        for _ in range(70):
            for number in (1, 2, 3):
                assert await join(number, "new") == ErrorCode.NOT_COORDINATOR
            await pause(1.0)
        for connection in world.cluster.connections.values():
            connection.is_cut_off = False
        await pause(3.0)
        began_s = world.loop.time()
        await join_any("new")
        assert world.loop.time() - began_s < 10.0

    TransactionWorld().run(scenario)


@pytest.mark.parametrize("is_timed_out", [False, True])
def test_a_fenced_producer_of_transaction_version_2_is_told_so(*, is_timed_out: bool) -> None:
    async def scenario(world: TransactionWorld) -> None:
        client = await world.connect()
        await world.produce_until_accepted(client, b"0", 0)
        fenced = world.producer
        if is_timed_out:
            await pause(30.0)
        else:
            await world.begin_again()
        world.producer = fenced
        assert await world.produce(client, b"1", 1) == ErrorCode.INVALID_PRODUCER_EPOCH
        client.close()

    TransactionWorld().run(scenario)
