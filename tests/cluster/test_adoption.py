"""The data directory of a single node becomes that of the first node of a cluster."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.config import StorageConfig
from logbrook.core.acls import AclOperation, PatternType, PermissionType, ResourceType
from logbrook.core.metadata import ClusterMetadata
from logbrook.model.identifiers import BrokerId
from logbrook.model.security import ANONYMOUS
from logbrook.ports import OsFiles, SystemClock, SystemRandom
from logbrook.ports.metadata_store import (
    MetadataStore,
    Put,
    StoreTransaction,
    StoreUnavailableError,
    TransactionResult,
)
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from logbrook.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from logbrook.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from logbrook.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from logbrook.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from logbrook.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from logbrook.server.cluster.adoption import Adoption, AdoptionError, adopt
from logbrook.server.cluster.identity_file import AdoptionPendingError, ClusterDirectoryError, WrongNodeError
from logbrook.storage.log_directory import LogDirectory
from logbrook.testing import Broker
from logbrook.testing.cluster import Cluster
from logbrook.testing.memory_metadata_store import MemoryMetadataStore, MemoryStore
from logbrook.testing.store_thread import StoreConnection
from tests.cluster.test_administration import connect, move

WAIT_S = 30
ADD_USER = AlterUserScramCredentialsRequest(
    upsertions=[
        ScramCredentialUpsertion(name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"hash")
    ]
)
SECURED = {"security.authorization": True, "security.super_users": str(ANONYMOUS)}
ANY = 1
ALL_ACLS = DescribeAclsRequest(resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)
ACL = AclCreation(
    resource_type=ResourceType.TOPIC,
    resource_name="orders",
    resource_pattern_type=PatternType.LITERAL,
    principal="User:alice",
    host="*",
    operation=AclOperation.READ,
    permission_type=PermissionType.ALLOW,
)
QUOTA = EntryData(
    entity=[EntityData(entity_type="user", entity_name="alice")], ops=[OpData(key="consumer_byte_rate", value=1e6)]
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A metadata store without brokers."""
    with Cluster(nodes=0, lease_s=30) as cluster:
        yield cluster


def adopt_into(store: MetadataStore, data: Path, node: int = 1) -> Adoption:
    clock = SystemClock()
    directory = LogDirectory.open(OsFiles(str(data)), StorageConfig(), clock=clock, now_ms=clock.now_ms())
    try:
        return asyncio.run(adopt(directory, BrokerId(node), store, clock, SystemRandom()))
    finally:
        directory.close()


def start(cluster: Cluster, data: Path) -> None:
    """Start the adopted node, and two new ones."""
    cluster.brokers[1] = cluster.new_broker(1, data=data)
    cluster.brokers[1].start()
    cluster.wait_until_registered(1)
    cluster.add()
    cluster.add()


def move_to_all(cluster: Cluster, topic: str) -> None:
    with connect(cluster, 2) as connection:
        assert move(connection, topic, [1, 2, 3]) == ErrorCode.NONE
    cluster.wait_for_isr(topic, size=3)


def consumer_of(broker: Broker | Cluster) -> Consumer:
    return Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "isolation.level": "read_committed"}
    )


def transactional(broker: Broker | Cluster) -> Producer:
    return Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "writer", "transaction.timeout.ms": 60_000}
    )


def test_records_groups_transactions_and_settings_are_there_and_survive_the_loss_of_the_node(
    cluster: Cluster, tmp_path: Path
) -> None:
    with Broker(["orders", "paid"], data=tmp_path) as broker:
        broker.produce("orders", "1", "2", "3")
        consumer = consumer_of(broker)
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.close()
        producer = transactional(broker)
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("paid", b"committed", partition=0)
        producer.commit_transaction()
        # Still open when the broker stops: the next `init_transactions` aborts it.
        producer.begin_transaction()
        producer.produce("paid", b"open", partition=0)
        producer.flush(WAIT_S)
        with Client(broker.bootstrap_servers) as client:
            admin = Admin(client)
            admin.configs.alter_topic("orders", {"max.message.bytes": "54321"}, [])
            admin.configs.alter_all_brokers({"log.retention.ms": "123456"})
            client.request(ADD_USER, AlterUserScramCredentialsResponse)
            topic_id = admin.topics.describe("orders").id
            cluster_id = admin.describe_cluster().cluster_id

    adopted = adopt_into(StoreConnection(cluster._store), tmp_path)
    assert (adopted.cluster_id, adopted.topic_count) == (cluster_id, 4)
    start(cluster, tmp_path)
    with Client(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        assert admin.describe_cluster().cluster_id == cluster_id
        assert admin.topics.describe("orders").id == topic_id
        settings = {entry.name: entry.value for entry in admin.configs.of_topic("orders")}
        assert (settings["max.message.bytes"], settings["retention.ms"]) == ("54321", "123456")
        users = client.request(DescribeUserScramCredentialsRequest(), DescribeUserScramCredentialsResponse).results
        assert [user.user for user in users] == ["alice"]
    for topic in ("orders", "paid"):
        move_to_all(cluster, topic)
    for topic in ("__consumer_offsets", "__transaction_state"):
        cluster.wait_for_isr(topic, size=3)
    cluster.kill(1)

    producer = transactional(cluster)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("paid", b"after", partition=0)
    producer.commit_transaction(WAIT_S)
    cluster.produce("orders", "4")
    assert [record.value for record in cluster.records("paid")] == [b"committed", b"after"]
    assert [record.value for record in cluster.records("orders")] == [b"1", b"2", b"3", b"4"]
    consumer = consumer_of(cluster)
    (committed,) = consumer.committed([TopicPartition("orders", 0)], timeout=WAIT_S)
    consumer.close()
    assert committed.offset == 2


def test_acls_and_quotas_are_there_on_every_broker(tmp_path: Path) -> None:
    with (
        Broker(["orders"], data=tmp_path, settings=SECURED) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        (created,) = client.request(CreateAclsRequest(creations=[ACL]), CreateAclsResponse).results
        (altered,) = client.request(AlterClientQuotasRequest(entries=[QUOTA]), AlterClientQuotasResponse).entries
        assert (created.error_code, altered.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    with Cluster(nodes=0, settings=SECURED, lease_s=WAIT_S) as cluster:
        adopt_into(StoreConnection(cluster._store), tmp_path)
        start(cluster, tmp_path)
        for number in cluster.brokers:
            with connect(cluster, number) as connection:
                (resource,) = connection.request(ALL_ACLS, DescribeAclsResponse).resources
                assert (resource.resource_type, resource.resource_name) == (ResourceType.TOPIC, "orders")
                (acl,) = resource.acls
                assert (acl.principal, acl.operation) == ("User:alice", AclOperation.READ)
                quotas = connection.request(DescribeClientQuotasRequest(), DescribeClientQuotasResponse).entries
                (entry,) = quotas or ()
                assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("user", "alice")]
                assert [(value.key, value.value) for value in entry.values] == [("consumer_byte_rate", 1e6)]


def test_a_deleted_topic_is_deleted_on_the_adopted_node_too(cluster: Cluster, tmp_path: Path) -> None:
    with Broker(["orders"], data=tmp_path) as broker:
        broker.produce("orders", "old")
    adopt_into(StoreConnection(cluster._store), tmp_path)
    start(cluster, tmp_path)
    cluster.wait_for_leader("orders")
    cluster.brokers[1].stop()
    with Client(cluster.brokers[2].bootstrap_servers) as client:
        Admin(client).topics.delete(["orders"])
    cluster.create_topic("orders", assignments=[[2]])
    cluster.brokers[1] = cluster.new_broker(1, data=tmp_path)
    cluster.brokers[1].start()
    move_to_all(cluster, "orders")
    cluster.produce("orders", "new")
    assert [record.value for record in cluster.records("orders")] == [b"new"]


def test_a_cluster_that_exists_is_refused_and_the_directory_is_unchanged(tmp_path: Path) -> None:
    with Broker(["orders"], data=tmp_path) as broker:
        broker.produce("orders", "kept")

    async def run() -> None:
        store = MemoryStore().connect()
        key, value = ClusterMetadata().found_cluster("another")[0]
        assert value is not None
        await store.commit(StoreTransaction([], [Put(key, value)]))
        clock = SystemClock()
        directory = LogDirectory.open(OsFiles(str(tmp_path)), StorageConfig(), clock=clock, now_ms=clock.now_ms())
        try:
            with pytest.raises(AdoptionError, match="exists already"):
                await adopt(directory, BrokerId(1), store, clock, SystemRandom())
        finally:
            directory.close()

    asyncio.run(run())
    with Broker(data=tmp_path) as broker:
        assert [record.value for record in broker.records("orders")] == [b"kept"]


class InterruptedStore(MemoryMetadataStore):
    """Fails at the nth transaction, before or after it is carried out."""

    def interrupt(self, at: int, *, after: bool) -> None:
        self._remaining, self._after = at, after

    async def commit(self, transaction: StoreTransaction) -> TransactionResult:
        self._remaining -= 1
        if self._remaining == 0 and not self._after:
            raise StoreUnavailableError("interrupted")
        result = await super().commit(transaction)
        if self._remaining == 0:
            raise StoreUnavailableError("interrupted")
        return result


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupted_adoption_is_finished_by_the_next_one(tmp_path: Path, at: int, *, after: bool) -> None:
    with Broker({"orders": 150}, data=tmp_path) as broker:
        broker.produce("orders", "kept", partition=3)

    async def run() -> None:
        clock, memory = SystemClock(), MemoryStore()

        async def attempt(store: MetadataStore, node: int = 1) -> Adoption:
            directory = LogDirectory.open(OsFiles(str(tmp_path)), StorageConfig(), clock=clock, now_ms=clock.now_ms())
            try:
                return await adopt(directory, BrokerId(node), store, clock, SystemRandom())
            finally:
                directory.close()

        interrupted = InterruptedStore(memory)
        interrupted.interrupt(at, after=after)
        with pytest.raises(StoreUnavailableError):
            await attempt(interrupted)
        with pytest.raises(AdoptionPendingError):
            Broker(data=tmp_path).start()
        with pytest.raises(WrongNodeError):
            await attempt(memory.connect(), node=2)
        adopted = await attempt(memory.connect())
        assert (adopted.topic_count, adopted.partition_count) == (1, 150)
        image_keys = memory.state.entries.keys()
        assert sum(key.startswith("partitions/") for key in image_keys) == 150
        with pytest.raises(ClusterDirectoryError):
            await attempt(memory.connect())

    asyncio.run(run())
