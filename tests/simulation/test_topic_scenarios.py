"""Changes of metadata that overtake each other, by different brokers, and a restored store, in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from logbrook.core.cluster.image import ClusterImage, PartitionKey, encode_partition, partition_key
from logbrook.core.cluster.partition import new_partition
from logbrook.core.cluster.placement import ReplicaPlacement
from logbrook.core.metadata import (
    PRODUCER_IDS_SKIPPED,
    TOPIC_PREFIX,
    ClusterMetadata,
    MetadataRecord,
    TopicNotFoundError,
)
from logbrook.model.identifiers import BrokerId
from logbrook.ports.metadata_store import Delete, Put, StoreTransaction
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from logbrook.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from logbrook.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from logbrook.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.topics import ClusterTopics
from logbrook.server.errors import RequestRefusedError
from logbrook.testing.simulation.broker import PORT
from logbrook.testing.simulation.client import SimulatedClient
from tests.simulation.test_failover_scenarios import NODES, TOPIC, ThreeBrokers, host_of

ON_TWO = ReplicaPlacement(replication_factor=2)
# More than a transaction of the store takes.
MANY = 150


def topics_of(cluster: ThreeBrokers, number: int) -> ClusterTopics:
    topics = cluster.brokers[number].server.services.topics
    assert isinstance(topics, ClusterTopics)
    return topics


def registered(cluster: ThreeBrokers) -> set[PartitionKey]:
    image = ClusterImage()
    image.load(cluster._store.state.entries)
    return set(image.partitions)


def overtake(topics: ClusterTopics, change: Callable[[], Awaitable[object]]) -> None:
    """Let another broker make a change while the next one of these topics waits for the store."""
    refresh = topics.refresh

    async def refresh_late() -> None:
        topics.refresh = refresh  # type: ignore[method-assign]
        await change()
        await refresh()

    topics.refresh = refresh_late  # type: ignore[method-assign]


@pytest.mark.parametrize("is_named_by_id", [False, True])
@pytest.mark.parametrize("partitions", [2, MANY])
def test_a_topic_that_is_created_again_during_its_deletion_is_not_deleted(
    partitions: int, *, is_named_by_id: bool
) -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        topics, other = topics_of(cluster, 1), topics_of(cluster, 2)
        topic_id = topics.metadata.topic(TOPIC).id

        async def create_again() -> None:
            await other.delete(TOPIC)
            await other.create(TOPIC, partitions, {}, ON_TWO)

        overtake(topics, create_again)
        if is_named_by_id:
            with pytest.raises(TopicNotFoundError):
                await topics.delete(TOPIC, topic_id)
            new = topics.metadata.topic(TOPIC)
            assert registered(cluster) == {PartitionKey(new.id, number) for number in range(partitions)}
        else:
            # The request is taken for one that came after the creation.
            await topics.delete(TOPIC)
            assert registered(cluster) == set()

    ThreeBrokers().run(scenario)


@pytest.mark.parametrize("partitions", [2, MANY])
def test_a_topic_that_grows_during_its_deletion_is_deleted_with_all_partitions(partitions: int) -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        topics, other = topics_of(cluster, 1), topics_of(cluster, 2)
        overtake(topics, lambda: other.add_partitions(TOPIC, partitions, ON_TWO))
        await topics.delete(TOPIC)
        assert registered(cluster) == set()
        await pause(0.5)
        for broker in cluster.brokers.values():
            replicas = broker.server.services.replicas
            assert replicas is not None
            assert replicas.count == 0

    ThreeBrokers().run(scenario)


@pytest.mark.parametrize("has_topic", [False, True])
def test_registrations_of_a_growth_that_was_not_finished_are_removed(*, has_topic: bool) -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        topics = topics_of(cluster, 1)
        topic_id = topics.metadata.topic(TOPIC).id if has_topic else bytes(16)
        value = next(
            entry.value for key, entry in cluster._store.state.entries.items() if key.startswith("partitions/")
        )
        puts = [Put(partition_key(PartitionKey(topic_id, number)), value) for number in range(1, MANY)]
        cluster._store.apply(StoreTransaction([], puts))
        await pause(10.0)
        assert len(registered(cluster)) == MANY
        await pause(60.0)
        assert registered(cluster) == {PartitionKey(topics.metadata.topic(TOPIC).id, 0)}
        assert await cluster.produce(1) == ErrorCode.NONE

    ThreeBrokers().run(scenario)


def test_a_growth_whose_registrations_were_removed_meanwhile_fails() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1, 2])
        topics, other = topics_of(cluster, 1), topics_of(cluster, 2)
        change = topics._change

        async def change_late(*args: Any, **kwargs: Any) -> None:
            topics._change = change  # type: ignore[method-assign]
            await other.refresh()
            await other.remove_surplus(topics.metadata.topic(TOPIC).id)
            await change(*args, **kwargs)

        topics._change = change_late  # type: ignore[method-assign]
        with pytest.raises(RequestRefusedError, match="changed meanwhile"):
            await topics.add_partitions(TOPIC, MANY, ON_TWO)
        assert len(registered(cluster)) == topics.metadata.topic(TOPIC).partition_count == 1
        await topics.add_partitions(TOPIC, MANY, ON_TWO)
        assert len(registered(cluster)) == topics.metadata.topic(TOPIC).partition_count == MANY

    ThreeBrokers().run(scenario)


def test_producer_ids_are_not_assigned_again_when_the_store_is_restored_from_a_backup() -> None:
    """The first batch of a new producer was taken for one of the earlier owner of its id, and not written."""

    async def scenario(cluster: ThreeBrokers) -> None:
        backup = cluster._store.state.entries["producer-ids"].value
        before = [await topics_of(cluster, number).new_producer_id() for number in NODES]
        for number in NODES:
            await topics_of(cluster, number).reserve_producer_ids()
        for broker in cluster.brokers.values():
            await broker.stop()
        cluster._store.apply(StoreTransaction([], [Put("producer-ids", backup)]))
        cluster._store.history_id = "restored"
        for broker in cluster.brokers.values():
            await broker.start()
        after = [await topics_of(cluster, number).new_producer_id() for number in NODES]
        assert len({*before, *after}) == 2 * len(NODES)
        skipped = [producer_id // PRODUCER_IDS_SKIPPED for producer_id in after]
        assert skipped == [1, 1, 1], "once, not by each broker"

    ThreeBrokers().run(scenario)


def apply_elsewhere(
    cluster: ThreeBrokers, records: Sequence[MetadataRecord], registrations: Sequence[Put] = ()
) -> None:
    """Change topics as another broker does; the brokers hear of it after the latency of the store."""
    operations = [Delete(key) if value is None else Put(key, value) for key, value in records]
    cluster._store.apply(StoreTransaction([], [*operations, *registrations]))


def create_elsewhere(cluster: ThreeBrokers, topic_id: bytes = bytes(16)) -> None:
    epochs = topics_of(cluster, 1)._image.broker_epochs
    value = encode_partition(new_partition([BrokerId(1), BrokerId(2)], epochs, epochs))
    registrations = [Put(partition_key(PartitionKey(topic_id, 0)), value)]
    apply_elsewhere(cluster, ClusterMetadata().create_topic(TOPIC, 1, {}, topic_id, is_creating=False), registrations)


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_topic_is_created_if_another_broker_has_just_deleted_it(*, is_deleted: bool, validate_only: bool) -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        if is_deleted:
            await cluster.create_topic([1, 2])
            await pause(1.0)
            apply_elsewhere(cluster, [(f"{TOPIC_PREFIX}{TOPIC}", None)])
        else:
            create_elsewhere(cluster)
        client = await SimulatedClient.connect(host_of(2), PORT)
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=2)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000, validate_only=validate_only)
        created = await client.request(request, CreateTopicsResponse, 5)
        client.close()
        expected = ErrorCode.NONE if is_deleted else ErrorCode.TOPIC_ALREADY_EXISTS
        assert created.topics[0].error_code == expected

    ThreeBrokers(store_s=0.2).run(scenario)


def test_a_topic_that_another_broker_has_just_created_can_be_administered() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await pause(1.0)
        create_elsewhere(cluster)
        clients = [await SimulatedClient.connect(host_of(number), PORT) for number in NODES]
        moved, elected, altered = await asyncio.gather(
            clients[0].request(
                AlterPartitionReassignmentsRequest(
                    topics=[
                        ReassignableTopic(
                            name=TOPIC, partitions=[ReassignablePartition(partition_index=0, replicas=[1, 2])]
                        )
                    ],
                    timeout_ms=5_000,
                ),
                AlterPartitionReassignmentsResponse,
                0,
            ),
            clients[1].request(
                ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])], timeout_ms=5_000),
                ElectLeadersResponse,
                2,
            ),
            clients[2].request(
                IncrementalAlterConfigsRequest(
                    resources=[AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[])],
                    validate_only=False,
                ),
                IncrementalAlterConfigsResponse,
                1,
            ),
        )
        for client in clients:
            client.close()
        assert moved.responses[0].partitions[0].error_code == ErrorCode.NONE
        result = elected.replica_election_results[0].partition_result[0]
        assert result.error_code == ErrorCode.ELECTION_NOT_NEEDED
        assert altered.responses[0].error_code == ErrorCode.NONE

    ThreeBrokers(store_s=0.2).run(scenario)


def test_a_topic_that_was_created_again_in_the_gap_of_a_reload_inherits_no_offsets() -> None:
    async def scenario(cluster: ThreeBrokers) -> None:
        await cluster.create_topic([1])
        topics = topics_of(cluster, 2)
        deleted: list[str] = []
        topics.on_deleted = deleted.extend
        cluster.cut_off_from_store(2)
        await topics_of(cluster, 1).delete(TOPIC)
        await cluster.create_topic([1])
        new_id = topics_of(cluster, 1).metadata.topic(TOPIC).id
        cluster._store.compact()
        cluster.cut_off_from_store(2, is_cut_off=False)
        while topics.metadata.topic(TOPIC).id != new_id:
            await pause(0.01)
        assert deleted == [TOPIC]
        await topics.change_topic(TOPIC, lambda _: {"retention.ms": "1000"})
        assert deleted == [TOPIC], "a change of its settings is none"

    ThreeBrokers().run(scenario)
