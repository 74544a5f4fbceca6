"""Brokers that join, lose their lease, or lose the metadata store; topics that several brokers change at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from logbrook.client import BrokerError, Client
from logbrook.client.admin import Admin
from logbrook.core.cluster.image import PartitionKey, encode_partition, partition_key
from logbrook.core.cluster.lifecycle import NodeIdInUseError
from logbrook.core.cluster.partition import new_partition
from logbrook.core.metadata import ClusterMetadata, TopicExistsError
from logbrook.model.identifiers import BrokerId
from logbrook.ports.metadata_store import (
    Delete,
    Put,
    Revision,
    StoreChange,
    StoreEntry,
    StoreTransaction,
    StoreUnavailableError,
)
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.cluster import cluster_maintenance, elector
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.identity_file import ClusterDirectoryError, SingleNodeDirectoryError, WrongNodeError
from logbrook.server.cluster.membership import Membership, WrongClusterError
from logbrook.server.cluster.metadata_follower import MetadataFollower
from logbrook.server.cluster.topics import ClusterTopics
from logbrook.server.topic_logs import TopicLogs
from logbrook.testing import Broker
from logbrook.testing.cluster import Cluster, ClusterBroker
from logbrook.testing.store_thread import StoreConnection


def another(cluster: Cluster, number: int, data: Path) -> ClusterBroker:
    return cluster.new_broker(number, data=data)


def test_an_id_that_another_broker_uses_is_refused(tmp_path: Path) -> None:
    with (
        Cluster(nodes=1, lease_s=0.5) as cluster,
        pytest.raises(NodeIdInUseError, match=r"node id 1 is in use by the broker at 127\.0\.0\.1"),
    ):
        another(cluster, 1, tmp_path).start()


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with Cluster(nodes=1) as cluster:
        with another(cluster, 2, tmp_path):
            pass
        with pytest.raises(WrongNodeError, match="belongs to node 2, not to node 3"):
            another(cluster, 3, tmp_path).start()


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with Cluster(nodes=1) as cluster, another(cluster, 2, tmp_path):
        pass
    with Cluster(nodes=1) as cluster, pytest.raises(WrongClusterError, match="belongs to the cluster"):
        another(cluster, 2, tmp_path).start()


def test_the_directory_of_a_single_node_is_refused_and_keeps_its_records(tmp_path: Path) -> None:
    with Broker(["orders"], data=tmp_path) as broker:
        broker.produce("orders", "kept")
    with Cluster(nodes=1) as cluster, pytest.raises(SingleNodeDirectoryError, match="belongs to a single node"):
        another(cluster, 2, tmp_path).start()
    with Broker(data=tmp_path) as broker:
        assert [record.value for record in broker.records("orders")] == [b"kept"]


def test_a_directory_of_another_cluster_with_the_same_topic_keeps_its_records(tmp_path: Path) -> None:
    with Cluster(nodes=1) as own, Cluster(nodes=1) as other:
        own.brokers[2] = broker = another(own, 2, tmp_path)
        broker.start()
        own.create_topic("orders", assignments=[[2]])
        own.produce("orders", "kept")
        broker.kill()
        with another(other, 2, tmp_path / "other") as namesake:
            other.brokers[2] = namesake
            other.create_topic("orders", assignments=[[2]])
        del other.brokers[2]
        with pytest.raises(WrongClusterError):
            another(other, 2, tmp_path).start()
        broker.restart()
        own.wait_for_leader("orders")
        assert [record.value for record in own.records("orders")] == [b"kept"]


def test_a_broker_takes_no_roles_before_it_has_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first start that ends before that can be repeated (found by the simulation, seed 70004)."""
    with Cluster(nodes=1) as cluster:
        with another(cluster, 2, tmp_path / "old") as broker:
            cluster.brokers[2] = broker
            cluster.create_topic("orders", assignments=[[1, 2]])
        del cluster.brokers[2]

        async def fail_later(*_: object) -> None:
            await pause(0.2)
            raise StoreUnavailableError("it is away")

        with monkeypatch.context() as patch:
            patch.setattr(Membership, "register", fail_later)
            with pytest.raises(StoreUnavailableError):
                another(cluster, 2, tmp_path / "new").start()
        assert not list((tmp_path / "new").rglob("orders-0"))
        with another(cluster, 2, tmp_path / "new"):
            cluster.wait_until_registered(2)


def test_a_registration_that_is_removed_before_its_broker_takes_roles_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    with Cluster(nodes=1, lease_s=300) as cluster:
        wait_for = MetadataFollower.wait_for

        async def wait_for_removal(follower: MetadataFollower, revision: Revision, timeout_s: float = 10.0) -> None:
            await wait_for(follower, revision, timeout_s)
            monkeypatch.undo()
            await asyncio.to_thread(cluster.expire_lease, 2)
            await follower.catch_up()

        monkeypatch.setattr(MetadataFollower, "wait_for", wait_for_removal)
        with another(cluster, 2, tmp_path) as broker:
            cluster.wait_until_registered(2)
            wait_until(lambda: broker.has_certain_lease)


def test_the_directory_of_a_cluster_is_refused_by_a_single_node(tmp_path: Path) -> None:
    with Cluster(nodes=1) as cluster, another(cluster, 2, tmp_path):
        pass
    with pytest.raises(ClusterDirectoryError, match="belongs to node 2 of a cluster"):
        Broker(data=tmp_path).start()


def test_logs_are_kept_if_the_store_was_restored_from_an_older_backup(tmp_path: Path) -> None:
    with Cluster(nodes=1) as cluster:
        with another(cluster, 2, tmp_path) as broker:
            cluster.brokers[2] = broker
            backup = cluster._store.call(lambda: dict(cluster._store.store.state.entries))
            cluster.create_topic("orders", assignments=[[2]])
            cluster.produce("orders", "kept")
        del cluster.brokers[2]
        restore(cluster, backup)
        with another(cluster, 2, tmp_path) as broker:
            assert broker.has_log("orders", 0)
            broker.restart()
            cluster.wait_until_registered(2)
            assert broker.has_log("orders", 0), "and at the next start"


def restore(cluster: Cluster, entries: dict[str, StoreEntry]) -> None:
    """Give the store the entries of a backup, without live brokers of that time."""

    def replace_state() -> None:
        store = cluster._store.store
        store.history_id = "restored"
        for key in [*store.state.entries]:
            if key not in entries:
                store.apply(StoreTransaction([], [Delete(key)]))

    cluster._store.call(replace_state)


def test_a_broker_that_joins_gets_replicas_of_new_topics() -> None:
    with Cluster(nodes=2) as cluster:
        assert cluster.add() == 3
        cluster.create_topic("orders", assignments=[[3, 1, 2]])
        cluster.produce("orders", "replicated")
        assert cluster.stored("orders", on=3) == [b"replicated"]


def test_a_broker_whose_lease_was_lost_registers_again(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster.create_topic("orders", assignments=[[1, 2, 3]])
    cluster.produce("orders", "before")
    cluster.expire_lease(1)
    wait_until(lambda: cluster.leader("orders") is not None)
    cluster.wait_until_registered(1)
    cluster.wait_for_leader("orders")
    cluster.produce("orders", "after")
    cluster.wait_for_isr("orders")
    for number in cluster.brokers:
        assert cluster.stored("orders", on=number) == [b"before", b"after"]


def test_a_broker_registers_again_as_soon_as_it_learns_that_its_registration_is_gone() -> None:
    """Its next renewal would find that the lease is lost after 75 s (simulation, seed 3084)."""
    with Cluster(nodes=2, lease_s=300) as cluster:
        cluster.expire_lease(1)
        cluster.wait_until_registered(1)


def test_a_stop_that_the_store_did_not_hear_of_is_announced_again() -> None:
    with Cluster(nodes=1) as cluster:
        broker = cluster.brokers[1]
        replicas = broker._running.services.replicas
        assert replicas is not None

        def begin_stop() -> None:
            broker._active.call(replicas.membership.begin_stop())

        cluster.stop_store()
        with pytest.raises(StoreUnavailableError):
            begin_stop()
        cluster.start_store()
        begin_stop()
        image, _ = cluster._store.read_image()
        assert image.brokers[BrokerId(1)].registration.is_stopping


def test_a_broker_without_a_registration_is_uncertain(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.brokers[1].has_certain_lease
    monkeypatch.setattr(Membership, "_try_register", never_register)
    cluster.expire_lease(1)
    wait_until(lambda: not cluster.brokers[1].has_certain_lease)
    assert cluster.brokers[2].has_certain_lease


async def never_register(_: Membership) -> bool:
    return False


def test_a_broker_without_a_registration_tells_clients_its_own_address(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients forget brokers that are not in the metadata. librdkafka would have none left to ask."""

    def known_to_the_first() -> list[int]:
        with Client(cluster.brokers[1].bootstrap_servers) as client:
            return [broker.node_id for broker in client.metadata().brokers]

    assert known_to_the_first() == [1, 2, 3]
    monkeypatch.setattr(Membership, "_try_register", never_register)
    for number in cluster.brokers:
        cluster.expire_lease(number)
    wait_until(lambda: not {2, 3} & set(known_to_the_first()))
    assert known_to_the_first() == [1]


def test_records_are_written_and_read_while_the_metadata_store_is_unavailable(cluster: Cluster) -> None:
    cluster.create_topic("orders")
    cluster.stop_store()
    cluster.produce("orders", "meanwhile")
    assert [record.value for record in cluster.records("orders")] == [b"meanwhile"]
    with Client(cluster.bootstrap_servers) as client, pytest.raises(BrokerError, match="REQUEST_TIMED_OUT"):
        Admin(client).topics.create("invoices", 1)
    cluster.start_store()
    cluster.create_topic("invoices")
    cluster.produce("invoices", "later")


def test_a_topic_that_several_brokers_create_at_once_is_created_once(cluster: Cluster) -> None:
    def create(number: int) -> bool:
        try:
            cluster.brokers[number].create_topic("orders", 3)
        except TopicExistsError:
            return False
        return True

    with ThreadPoolExecutor(3) as threads:
        created = list(threads.map(create, cluster.brokers))
    assert created.count(True) == 1
    for partition in range(3):
        cluster.wait_for_leader("orders", partition)
        cluster.produce("orders", "once", partition=partition)


def test_a_change_is_decided_on_what_other_brokers_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers learn of changes with a delay, all but the first here. They do not refuse a request for it."""
    watch = StoreConnection.watch
    connections: list[StoreConnection] = []

    async def watch_with_a_delay(connection: StoreConnection, after: Revision) -> AsyncIterator[StoreChange]:
        connections.append(connection)
        async for change in watch(connection, after):
            if connection is not connections[0]:
                await pause(0.5)
            yield change

    monkeypatch.setattr(StoreConnection, "watch", watch_with_a_delay)
    with Cluster(nodes=3, lease_s=30) as cluster:
        cluster.brokers[1].create_topic("orders")
        with Client(cluster.brokers[2].bootstrap_servers) as client:
            Admin(client).topics.set_partitions("orders", 2)
        with Client(cluster.brokers[3].bootstrap_servers) as client:
            Admin(client).topics.delete(["orders"])


def test_large_topics_are_created_and_deleted_in_several_transactions(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster.create_topic("large", 150, 1)
    with Client(cluster.bootstrap_servers) as client:
        assert len(client.partitions("large")) == 150
        cluster.produce("large", "last", partition=149)
        Admin(client).topics.delete(["large"])
    wait_until(lambda: not any(cluster.has_log("large", 149, on=number) for number in cluster.brokers))


def test_offsets_of_a_deleted_topic_are_deleted_by_the_broker_that_has_them(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster.create_topic("orders")
    cluster.produce("orders", "read")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.close()
    with Client(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        assert len(admin.groups.committed("readers")) == 1
        admin.topics.delete(["orders"])
        wait_until(lambda: not admin.groups.committed("readers"))


def test_settings_of_all_brokers_apply_on_every_broker(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster.create_topic("orders")
    with Client(cluster.brokers[1].bootstrap_servers) as client:
        Admin(client).configs.alter_all_brokers({"log.retention.ms": "123456"})
    # A follower may still be creating its log.
    wait_until(
        lambda: all(
            broker.has_log("orders", 0) and broker.log_config("orders", 0).retention_ms == 123_456
            for broker in cluster.brokers.values()
        )
    )


def test_internal_topics_get_the_missing_replicas_when_brokers_join() -> None:
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("orders")
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.close()
        assert cluster.replicas("__consumer_offsets") == [1]
        cluster.add()
        cluster.add()
        cluster.wait_for_isr("__consumer_offsets", size=3)
        assert sorted(cluster.replicas("__consumer_offsets")) == [1, 2, 3]
        assert cluster.replicas("orders") == [1], "other topics keep theirs"


def test_a_broker_with_a_failed_disk_hands_its_leadership_over(cluster: Cluster) -> None:
    cluster.create_topic("orders", assignments=[[1, 2, 3]])
    cluster.create_topic("alone", assignments=[[1]])
    cluster.produce("orders", "before")
    cluster.produce("alone", "kept")
    with cluster.brokers[1].fault("disk_failure"):
        with Client(cluster.bootstrap_servers) as client, pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
            client.produce("alone", 0, build_batch([Record(value=b"refused")]))
        cluster.wait_for_leader("orders", other_than=1)
        assert cluster.wait_for_isr("orders", size=2) == [2, 3]
        cluster.produce("orders", "meanwhile")
        assert cluster.leader("alone") == 1
        assert [record.value for record in cluster.records("alone")] == [b"kept"]
    cluster.restart(1)
    cluster.wait_for_isr("orders")
    assert cluster.stored("orders", on=1) == [b"before", b"meanwhile"]
    cluster.produce("alone", "again")


@pytest.mark.parametrize("is_deleting", [False, True])
def test_a_large_topic_that_a_dead_broker_was_creating_or_deleting_is_removed(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[[Callable[[], bool]], None],
    *,
    is_deleting: bool,
) -> None:
    monkeypatch.setattr(cluster_maintenance, "_ABANDONED_S", 0.1)
    metadata, topic_id = ClusterMetadata(), bytes(16)
    records = metadata.create_topic("large", 200, {}, topic_id)
    if is_deleting:
        metadata.replay(*records[0])
        records = metadata.undo_create("large")
    epochs = cluster._store.read_image()[0].broker_epochs
    registration = encode_partition(new_partition([BrokerId(1)], epochs.keys(), epochs))
    puts = [Put(key, value) for key, value in records if value is not None]
    puts += [Put(partition_key(PartitionKey(topic_id, number)), registration) for number in range(110)]
    cluster._store.call(lambda: cluster._store.store.apply(StoreTransaction([], puts)))
    wait_until(lambda: "large" not in cluster._store.read_image()[1])
    assert not any(key.topic_id == topic_id for key in cluster._store.read_image()[0].partitions)
    cluster.create_topic("large", 1)
    cluster.produce("large", "new")


def test_many_partitions_are_added_in_several_transactions(cluster: Cluster) -> None:
    cluster.create_topic("orders", 2, 1)
    with Client(cluster.bootstrap_servers) as client:
        Admin(client).topics.set_partitions("orders", 250)
        assert len(client.partitions("orders")) == 250
    cluster.wait_for_leader("orders", 249)
    cluster.produce("orders", "last", partition=249)


@pytest.mark.parametrize("is_enabled", [False, True])
def test_a_replica_that_lacks_records_leads_only_if_the_topic_allows_it(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[[Callable[[], bool]], None],
    *,
    is_enabled: bool,
) -> None:
    monkeypatch.setattr(elector, "_UNCLEAN_S", 0.1)
    settings = {"unclean.leader.election.enable": "true"} if is_enabled else {}
    cluster.create_topic("orders", settings=settings, assignments=[[1, 2]])
    cluster.produce("orders", "both have it")
    cluster.kill(2)
    cluster.expire_lease(2)
    cluster.produce("orders", "only the leader has it")
    cluster.kill(1)
    cluster.expire_lease(1)
    cluster.restart(2)
    cluster.wait_until_registered(2)
    if is_enabled:
        assert cluster.wait_for_leader("orders") == 2
        assert [record.value for record in cluster.records("orders")] == [b"both have it"]
    else:
        cluster.create_topic("later", assignments=[[2]])
        assert cluster.leader("orders") is None
        cluster.restart(1)
        assert cluster.wait_for_leader("orders") == 1
        assert len(cluster.records("orders")) == 2


def test_a_broker_whose_failed_disk_takes_no_new_log_hands_the_leadership_of_a_new_topic_over(cluster: Cluster) -> None:
    with cluster.brokers[1].fault("disk_failure"):
        cluster.create_topic("orders", assignments=[[1, 2, 3]])
        cluster.wait_for_leader("orders", other_than=1)
        cluster.produce("orders", "meanwhile")
    cluster.restart(1)
    cluster.wait_for_isr("orders")
    assert cluster.stored("orders", on=1) == [b"meanwhile"]


def test_a_replica_without_a_log_is_not_elected(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    create, topics = TopicLogs.create, cluster.brokers[2]._running.services.topics
    assert isinstance(topics, ClusterTopics)
    slow = topics.log_files

    async def create_slowly(logs: TopicLogs, *arguments: Any, topic_id: str) -> None:
        if logs is slow:
            await asyncio.Event().wait()
        await create(logs, *arguments, topic_id=topic_id)

    monkeypatch.setattr(TopicLogs, "create", create_slowly)
    cluster.create_topic("orders", assignments=[[1, 2, 3]])
    cluster.kill(1)
    cluster.expire_lease(1)
    assert cluster.wait_for_leader("orders", other_than=1) == 3
