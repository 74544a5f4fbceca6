"""Changes of metadata that overtake each other, by different brokers, and a restored store, in simulated time."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from logbrook.core.cluster.image import ClusterImage, PartitionKey, partition_key
from logbrook.core.cluster.placement import ReplicaPlacement
from logbrook.core.metadata import PRODUCER_IDS_SKIPPED, TopicNotFoundError
from logbrook.ports.metadata_store import Put, StoreTransaction
from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.topics import ClusterTopics
from logbrook.server.errors import RequestRefusedError
from tests.simulation.test_failover_scenarios import NODES, TOPIC, ThreeBrokers

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
