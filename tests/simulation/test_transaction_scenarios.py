"""Transactions whose coordinator is another broker than the leader of their partition, in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from logbrook.config import Durability
from logbrook.core.coordinator import CoordinatorNotAvailableError, ProducerIdentity
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId, ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from logbrook.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from logbrook.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.errors import NotLeaderError
from logbrook.server.coordinators.transaction_peers import TransactionPeers
from logbrook.server.topics import TRANSACTION_STATE
from logbrook.storage.log import Log
from logbrook.testing.simulation.broker import PORT
from logbrook.testing.simulation.client import ClusterClient, SimulatedClient
from logbrook.testing.simulation.cluster import SimulatedCluster, host_of
from logbrook.testing.simulation.cluster_plan import ClusterPlan
from logbrook.testing.simulation.loop import SimulationLoop
from logbrook.testing.simulation.network import SimulatedNetwork
from logbrook.testing.simulation.transactions import read_committed
from logbrook.testing.variants import Variant

ID = "writer"
TOPIC = "t"
PARTITIONS = 6
LATENCY_S = 0.0005
LEASE_S = 3.0
# A client of transaction version 1 adds partitions by AddPartitionsToTxn, one of version 2 by writing to them.
PRODUCE_VERSIONS = {1: 11, 2: 12}
END_VERSIONS = {1: 4, 2: 5}


class TransactionWorld:
    """Three brokers, and a producer whose coordinator does not lead the partition that it writes to."""

    producer: ProducerIdentity

    def __init__(self, version: int = 2) -> None:
        plan = replace(
            ClusterPlan.of(1), network_s_max=LATENCY_S, sync_s_max=0.001, store_s_max=0.0, lease_s=LEASE_S, min_insync=2
        )
        self.network = SimulatedNetwork(lambda: LATENCY_S)
        self.loop = SimulationLoop(self.network, steps_max=3_000_000)
        self.cluster = SimulatedCluster(1, plan, self.loop, Durability.FSYNC, lambda _: None)
        self.client = ClusterClient("client", [host_of(number) for number in self.cluster.brokers], PORT, Random(1))
        self._version = version

    def run(self, scenario: Callable[["TransactionWorld"], Awaitable[None]]) -> None:
        async def run() -> None:
            await self.cluster.start()
            await self.create(TOPIC)
            await self.begin_again()
            self.use(TOPIC)
            await scenario(self)
            self.client.close()
            await self.cluster.stop()

        failures: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _loop, context: failures.append(context))
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(run())
        assert failures == []

    async def create(self, topic: str) -> None:
        wanted = CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=-1)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=5_000)
        other = next(number for number in self.cluster.brokers if not self.cluster.connections[number].is_cut_off)
        created = await self.client.request_from(host_of(other), request, CreateTopicsResponse, 5)
        assert created.topics[0].error_code == ErrorCode.NONE

    async def begin_again(self) -> None:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=10_000)
        while True:
            answer = await self.client.request(request, InitProducerIdResponse, 4)
            if answer.error_code == ErrorCode.NONE:
                break
            await pause(0.1)
        self.producer = ProducerIdentity(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))

    def use(self, topic: str) -> None:
        """Write to a partition of this topic from now on."""
        self.coordinator = self._leader_of(TRANSACTION_STATE, self._coordinator_partition())
        number = next(n for n in range(PARTITIONS) if self._leader_of(topic, n) != self.coordinator)
        self.partition = TopicPartition(topic, number)
        self.leader = self._leader_of(topic, number)

    def _coordinator_partition(self) -> int:
        return self.cluster.brokers[1].server.services.transactions.runtime.topic.partition_for(ID)

    def _leader_of(self, topic: str, number: int) -> BrokerId:
        return self.cluster.registration_of(TopicPartition(topic, number)).leader

    @property
    def log(self) -> Log:
        return self.cluster.replica_log(self.leader, self.partition)

    async def connect(self) -> SimulatedClient:
        return await SimulatedClient.connect(host_of(self.leader), PORT, "client")

    async def add(self) -> None:
        """AddPartitionsToTxn, of a client with transaction version 1."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=self.partition.topic, partitions=[self.partition.partition])
            ],
        )
        answer = await self.client.request(request, AddPartitionsToTxnResponse, 3)
        assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == ErrorCode.NONE

    async def produce(self, client: SimulatedClient, value: bytes, sequence: int) -> ErrorCode:
        batch = build_batch(
            [Record(value=value)],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(
            name=self.partition.topic,
            partition_data=[PartitionProduceData(index=self.partition.partition, records=batch)],
        )
        request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=5_000, topic_data=[data])
        answer = await client.request(request, ProduceResponse, PRODUCE_VERSIONS[self._version], timeout_s=10.0)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def produce_until_accepted(self, client: SimulatedClient, value: bytes, sequence: int) -> None:
        while (code := await self.produce(client, value, sequence)) != ErrorCode.NONE:
            assert code == ErrorCode.NOT_ENOUGH_REPLICAS
            await pause(0.02)

    async def pipeline(
        self, client: SimulatedClient, values: Sequence[bytes], first: int, gap_s: float
    ) -> list[ErrorCode]:
        """Produce batches without waiting for answers."""
        requests = []
        for number, value in enumerate(values):
            requests.append(asyncio.ensure_future(self.produce(client, value, first + number)))
            await pause(gap_s)
        return await asyncio.gather(*requests)

    async def end(self, *, is_commit: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            committed=is_commit,
        )
        while True:
            try:
                answer = await self.client.request(request, EndTxnResponse, END_VERSIONS[self._version], 10.0)
            except ConnectionRefusedError:
                # The client looks for another coordinator.
                await pause(0.1)
                continue
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await pause(0.02)
        if self._version > 1 and answer.error_code == ErrorCode.NONE:
            self.producer = ProducerIdentity(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))
        return ErrorCode(answer.error_code)

    async def committed(self) -> list[bytes]:
        return await read_committed(
            self.client, self.partition.topic, self.partition.partition, self.log.high_watermark
        )

    def delay_answers_to_leader(self, seconds: float) -> None:
        """Let what the coordinator answers the leader arrive late."""
        for sender, host, peer in self.cluster._peers:
            is_asking = (sender, host) == (self.leader, host_of(self.coordinator)) and not peer.reuses_memory
            for transport in self.network._sorted():
                if is_asking and transport.protocol is peer:
                    transport.stall(seconds)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("gap_s", [0.0, 0.0006, 0.001])
def test_batches_that_are_sent_without_waiting_stay_in_order(version: int, gap_s: float) -> None:
    """Batches that came after the answer of the coordinator overtook those that had waited for it."""

    async def scenario(world: TransactionWorld) -> None:
        client = await world.connect()
        for number in range(5):
            if version == 1:
                await world.add()
            first = 5 * number if version == 1 else 0
            codes = await world.pipeline(client, [b"%d.%d" % (number, each) for each in range(5)], first, gap_s)
            assert codes == [ErrorCode.NONE] * 5
            assert await world.end(is_commit=True) == ErrorCode.NONE
        assert await world.committed() == [b"%d.%d" % (number, each) for number in range(5) for each in range(5)]
        client.close()

    TransactionWorld(version).run(scenario)


def test_batches_after_a_refused_one_are_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one was accepted, and the repeated first one was out of order for ever."""
    ask = TransactionPeers.add_partitions
    asked = 0

    async def refuse_once(*args: Any, **keywords: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise CoordinatorNotAvailableError(ID)
        await ask(*args, **keywords)

    async def scenario(world: TransactionWorld) -> None:
        monkeypatch.setattr(TransactionPeers, "add_partitions", refuse_once)
        client = await world.connect()
        codes = await world.pipeline(client, [b"0", b"1", b"2"], 0, 0.0)
        assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
        assert await world.pipeline(client, [b"0", b"1", b"2"], 0, 0.0) == [ErrorCode.NONE] * 3
        client.close()

    TransactionWorld().run(scenario)


def test_batches_of_a_producer_that_begins_again_are_not_refused_with_its_earlier_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They waited for a question with the old epoch, and were refused with its answer, INVALID_PRODUCER_EPOCH."""
    ask = TransactionPeers.add_partitions
    asked = 0

    async def ask_late_once(*args: Any, **keywords: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            await pause(0.2)
        await ask(*args, **keywords)

    async def scenario(world: TransactionWorld) -> None:
        monkeypatch.setattr(TransactionPeers, "add_partitions", ask_late_once)
        client, other = await world.connect(), await world.connect()
        late = asyncio.ensure_future(world.produce(client, b"late", 0))
        await pause(0.05)
        await world.begin_again()
        assert await world.pipeline(other, [b"0", b"1", b"2"], 0, 0.0) == [ErrorCode.NONE] * 3
        assert await late == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await world.end(is_commit=True) == ErrorCode.NONE
        assert await world.committed() == [b"0", b"1", b"2"]
        client.close()
        other.close()

    TransactionWorld().run(scenario)


def test_a_marker_that_arrives_twice_does_not_end_the_next_transaction() -> None:
    """The network repeats the first one after the coordinator has repeated it over another connection."""

    async def scenario(world: TransactionWorld) -> None:
        client = await world.connect()
        await world.produce_until_accepted(client, b"first", 0)
        assert await world.end(is_commit=True) == ErrorCode.NONE
        await world.produce_until_accepted(client, b"second", 0)
        assert world.cluster.delay_requests(world.coordinator, world.leader, 6.2)
        assert await world.end(is_commit=True) == ErrorCode.NONE
        await world.produce_until_accepted(client, b"aborted", 0)
        await pause(1.0)
        assert len(world.log.producers.open_transactions()) == 1
        assert await world.end(is_commit=False) == ErrorCode.NONE
        assert await world.committed() == [b"first", b"second"]
        client.close()

    TransactionWorld().run(scenario)


def test_a_batch_that_was_verified_before_its_transaction_ended_is_refused() -> None:
    """It opened a transaction that no coordinator knew, and the next one decided it (KIP-890)."""

    async def scenario(world: TransactionWorld) -> None:
        client = await world.connect()
        await world.add()
        await world.produce_until_accepted(client, b"first", 0)
        assert await world.end(is_commit=True) == ErrorCode.NONE
        await world.add()
        world.delay_answers_to_leader(0.1)
        late = asyncio.ensure_future(world.produce(client, b"aborted", 1))
        await pause(0.01)
        assert await world.end(is_commit=False) == ErrorCode.NONE
        assert await late == ErrorCode.NOT_ENOUGH_REPLICAS
        assert world.log.producers.open_transactions() == []
        await world.add()
        await world.produce_until_accepted(client, b"third", 1)
        assert await world.end(is_commit=True) == ErrorCode.NONE
        assert await world.committed() == [b"first", b"third"]
        client.close()

    TransactionWorld(version=1).run(scenario)


def test_a_coordinator_does_not_add_a_partition_that_it_does_not_know_yet() -> None:
    """It took the topic for a deleted one, and committed the transaction without a marker."""

    async def scenario(world: TransactionWorld) -> None:
        store = world.cluster.connections[world.coordinator]
        store.is_cut_off = True
        await world.create("new")
        world.use("new")
        client = await world.connect()
        assert await world.produce(client, b"new", 0) == ErrorCode.NOT_ENOUGH_REPLICAS
        store.is_cut_off = False
        await world.produce_until_accepted(client, b"new", 0)
        assert await world.end(is_commit=True) == ErrorCode.NONE
        assert await world.committed() == [b"new"]
        client.close()

    TransactionWorld().run(scenario)


def test_transactions_do_not_time_out_while_the_store_is_away() -> None:
    """Their coordinator refuses to end them then, since another broker may have taken over."""

    async def scenario(world: TransactionWorld) -> None:
        client = await world.connect()
        await world.produce_until_accepted(client, b"first", 0)
        world.cluster.store.is_down = True
        await pause(15.0)
        world.cluster.store.is_down = False
        await pause(2.0)
        assert await world.end(is_commit=True) == ErrorCode.NONE
        assert await world.committed() == [b"first"]
        client.close()

    TransactionWorld().run(scenario)


def test_a_transaction_does_not_time_out_early_at_the_next_coordinator() -> None:
    """The clock of the first one had stood still while the store was away, and the second one's had not."""

    async def scenario(world: TransactionWorld) -> None:
        client = await world.connect()
        await world.produce_until_accepted(client, b"first", 0)
        world.cluster.store.is_down = True
        await pause(15.0)
        world.cluster.store.is_down = False
        await pause(2.0)
        assert await world.end(is_commit=True) == ErrorCode.NONE
        await world.produce_until_accepted(client, b"second", 0)
        await world.cluster.end_process(world.coordinator, Variant.LOST)
        await pause(2 * LEASE_S)
        assert await world.end(is_commit=True) == ErrorCode.NONE
        assert await world.committed() == [b"first", b"second"]
        client.close()
        await world.cluster.start_broker(world.coordinator)

    TransactionWorld().run(scenario)


def test_a_transaction_whose_producer_is_gone_times_out_after_an_outage_of_the_store() -> None:
    async def scenario(world: TransactionWorld) -> None:
        client = await world.connect()
        await world.produce_until_accepted(client, b"first", 0)
        world.cluster.store.is_down = True
        await pause(15.0)
        world.cluster.store.is_down = False
        await pause(5.0)
        assert len(world.log.producers.open_transactions()) == 1
        await pause(15.0)
        assert world.log.producers.open_transactions() == []
        assert await world.committed() == []
        client.close()

    TransactionWorld().run(scenario)


@pytest.mark.parametrize("hands_over", [False, True])
def test_a_short_suspension_does_not_end_the_grace_of_a_long_one(hands_over: bool) -> None:
    """A coordinator is not certain while its broker hands a leadership over, as often after an outage."""

    async def scenario(world: TransactionWorld) -> None:
        client = await world.connect()
        await world.produce_until_accepted(client, b"first", 0)
        services = world.cluster.brokers[world.coordinator].server.services
        assert services.replicas is not None
        membership, runtime = services.replicas.membership, services.transactions.runtime
        world.cluster.store.is_down = True
        await pause(30.0)
        world.cluster.store.is_down = False
        while not membership.is_certain:
            await pause(0.01)
        runtime.tick()
        if hands_over:
            with membership.resigning():
                runtime.tick()
                await pause(0.005)
        await pause(1.0)
        assert await world.end(is_commit=True) == ErrorCode.NONE
        assert await world.committed() == [b"first"]
        client.close()

    TransactionWorld().run(scenario)


def test_batches_are_answered_if_the_question_of_the_first_one_fails_by_a_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one was not answered, nor any request after it on its connection."""
    ask = TransactionPeers.add_partitions
    asked = 0

    async def fail_once(*args: Any, **keywords: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            await pause(0.05)
            raise ValueError("planted")
        await ask(*args, **keywords)

    async def scenario(world: TransactionWorld) -> None:
        monkeypatch.setattr(TransactionPeers, "add_partitions", fail_once)
        client = await world.connect()
        assert await world.pipeline(client, [b"0", b"1"], 0, 0.0) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
        assert await world.pipeline(client, [b"0", b"1"], 0, 0.0) == [ErrorCode.NONE] * 2
        client.close()

    world = TransactionWorld()
    with pytest.raises(AssertionError, match="planted"):
        world.run(scenario)


def test_the_first_batch_of_an_epoch_has_sequence_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one was accepted when the first one had met a leader that was not ready yet."""

    async def scenario(world: TransactionWorld) -> None:
        client = await world.connect()
        replicas = world.cluster.brokers[world.leader].server.services.replicas
        assert replicas is not None
        leader_log = replicas.leading.leader_log
        refused: list[TopicPartition] = []

        def refuse_once(partition: TopicPartition) -> Log:
            if partition == world.partition and not refused:
                refused.append(partition)
                raise NotLeaderError(partition)
            return leader_log(partition)

        monkeypatch.setattr(replicas.leading, "leader_log", refuse_once)
        codes = await world.pipeline(client, [b"0", b"1"], 0, 0.0)
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        assert await world.pipeline(client, [b"0", b"1"], 0, 0.0) == [ErrorCode.NONE] * 2
        client.close()

    TransactionWorld().run(scenario)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("gap_s", [0.0, 0.1])
def test_batches_after_one_that_is_too_large_are_repeated_after_its_parts(version: int, gap_s: float) -> None:
    """They were refused as too large, or accepted before the parts, which were out of order forever."""

    async def scenario(world: TransactionWorld) -> None:
        client = await world.connect()
        if version == 1:
            await world.add()
        codes = await world.pipeline(client, [bytes(1_200_000), b"1"], 0, gap_s)
        assert codes[0] == ErrorCode.MESSAGE_TOO_LARGE
        assert codes[1] in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert await world.pipeline(client, [b"0", b"1"], 0, gap_s) == [ErrorCode.NONE] * 2
        client.close()

    TransactionWorld(version).run(scenario)
