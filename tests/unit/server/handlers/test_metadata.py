"""Metadata: descriptions of topics, and automatic creation of topics."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from logbrook.storage.errors import CorruptLogError
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.server.handler_kit import HandlerClient, HandlerShell
from tests.unit.server.handlers.kit import (
    ALTER,
    ALTER_CONFIGS,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    NOT_REQUESTED,
    READ,
    WRITE,
    distinct_versions,
    fresh,
    operations,
)
from tests.unit.server.shell_kit import Shell

LAST = MetadataRequest.VERSIONS.last
NULL_NAMES_SINCE = 10
OPERATIONS_SINCE = 8
CLUSTER_OPERATIONS_LAST = 10
NOBODY = bytes([7]) * 16
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module")
def shell() -> Iterator[HandlerShell]:
    with HandlerShell({"topics": {"auto_create": True, "partitions": 3}}) as shell:
        yield shell


@pytest.fixture
def client(shell: HandlerShell) -> Iterator[HandlerClient]:
    with closing(shell.client()) as client:
        yield client


def ask(client: HandlerClient, *names: str, version: int = LAST, create: bool = False) -> list[MetadataResponseTopic]:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return of_request(client, MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)


def of_request(client: HandlerClient, request: MetadataRequest, version: int = LAST) -> list[MetadataResponseTopic]:
    return list(client.request(request, MetadataResponse, version).topics)


def codes(topics: Sequence[MetadataResponseTopic]) -> list[ErrorCode]:
    return [ErrorCode(topic.error_code) for topic in topics]


@distinct_versions(MetadataRequest)
def test_every_version_returns_the_leaders_of_partitions(
    shell: HandlerShell, client: HandlerClient, version: int
) -> None:
    name = shell.create(fresh(), 2)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    response = client.request(request, MetadataResponse, version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", shell.address[1])
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (ErrorCode.NONE, name, False)
    assert [
        (partition.partition_index, partition.leader_id, partition.error_code) for partition in topic.partitions
    ] == [(0, 1, 0), (1, 1, 0)]
    assert all(partition.replica_nodes == partition.isr_nodes == [1] for partition in topic.partitions)
    if version >= 7:
        assert {partition.leader_epoch for partition in topic.partitions} == {shell.services.appender.leader_epoch}
    if version >= 2:
        assert response.cluster_id == shell.services.topics.metadata.cluster_id
    if version >= 10:
        assert topic.topic_id == shell.services.topics.metadata.topic(name).id


@distinct_versions(MetadataRequest)
def test_all_topics_are_asked_for_by_none_or_in_the_first_version_by_an_empty_list(
    shell: HandlerShell, client: HandlerClient, version: int
) -> None:
    name = shell.create(fresh())
    every = MetadataRequest(topics=[] if version == 0 else None)
    assert name in [topic.name for topic in of_request(client, every, version)]
    if version > 0:
        assert of_request(client, MetadataRequest(topics=[]), version) == []


def test_the_metadata_itself_is_no_topic(client: HandlerClient) -> None:
    assert "__cluster_metadata" not in [topic.name for topic in of_request(client, MetadataRequest(topics=None))]
    assert codes(ask(client, "__cluster_metadata")) == [UNKNOWN]


def test_a_topic_is_found_by_its_id(shell: HandlerShell, client: HandlerClient) -> None:
    name = shell.create(fresh())
    topic_id = shell.services.topics.metadata.topic(name).id
    wanted = [MetadataRequestTopic(topic_id=topic_id, name=None), MetadataRequestTopic(topic_id=NOBODY, name=None)]
    request = MetadataRequest(topics=wanted)
    by_id, missing = of_request(client, request)
    assert (by_id.name, by_id.topic_id, by_id.error_code) == (name, topic_id, ErrorCode.NONE)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, NOBODY, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a" * 250, "a/b"])
def test_an_invalid_name_is_an_error_and_never_created(shell: HandlerShell, client: HandlerClient, name: str) -> None:
    (topic,) = ask(client, name, create=True)
    assert (topic.name, topic.error_code) == (name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert name not in shell.services.topics.metadata.topics


# Authorized operations (KIP-430)


@distinct_versions(MetadataRequest, first=OPERATIONS_SINCE)
def test_authorized_operations_are_returned_on_request(
    shell: HandlerShell, client: HandlerClient, version: int
) -> None:
    name = shell.create(fresh())
    topics = [MetadataRequestTopic(name=name), MetadataRequestTopic(name=fresh())]
    plain = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response = client.request(plain, MetadataResponse, version)
    assert {topic.topic_authorized_operations for topic in response.topics} == {NOT_REQUESTED}
    assert response.cluster_authorized_operations == NOT_REQUESTED
    asking = MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    response = client.request(asking, MetadataResponse, version)
    allowed = [READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]
    assert [operations(topic.topic_authorized_operations) for topic in response.topics] == [allowed, allowed]
    if version <= CLUSTER_OPERATIONS_LAST:
        assert CREATE in operations(response.cluster_authorized_operations)
        assert READ not in operations(response.cluster_authorized_operations)


def test_a_topic_without_a_name_has_no_authorized_operations(client: HandlerClient) -> None:
    wanted = [MetadataRequestTopic(topic_id=NOBODY, name=None)]
    (topic,) = of_request(client, MetadataRequest(topics=wanted, include_topic_authorized_operations=True))
    assert (topic.error_code, topic.topic_authorized_operations) == (ErrorCode.UNKNOWN_TOPIC_ID, NOT_REQUESTED)


# Automatic topic creation


def test_a_topic_is_created_where_the_client_and_the_broker_allow_it(
    shell: HandlerShell, client: HandlerClient
) -> None:
    name = fresh("new")
    assert codes(ask(client, name, create=False)) == [UNKNOWN]
    (topic,) = ask(client, name, create=True)
    assert (topic.error_code, len(topic.partitions)) == (ErrorCode.NONE, 3)
    assert {partition.error_code for partition in topic.partitions} == {ErrorCode.NONE}
    assert TopicPartition(name, 2) in shell.broker.directory


def test_no_topic_is_made_where_the_broker_does_not_allow_it() -> None:
    with HandlerShell() as shell, closing(shell.client()) as client:
        assert codes(ask(client, "new", create=True)) == [UNKNOWN]
        assert len(shell.services.topics.metadata) == 0


def test_a_topic_that_is_requested_twice_is_created_and_described_once(
    shell: HandlerShell, client: HandlerClient
) -> None:
    name = fresh("new")
    (topic,) = ask(client, name, name, create=True)
    assert (topic.name, topic.error_code) == (name, ErrorCode.NONE)


def test_two_clients_that_ask_at_once_get_the_same_topic(shell: HandlerShell, client: HandlerClient) -> None:
    name = fresh("new")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    with closing(shell.client()) as second:
        sent = [asking.send(request, MetadataResponse, LAST) for asking in (client, second)]
        answers = [asking.receive(ticket).topics[0] for asking, ticket in zip((client, second), sent, strict=True)]
    assert codes(answers) == [ErrorCode.NONE] * 2
    assert answers[0].topic_id == answers[1].topic_id


def test_topics_that_cannot_be_created_are_errors_and_the_others_are_created(
    shell: HandlerShell, client: HandlerClient
) -> None:
    good = fresh("new")
    shell.create("a.b")
    topics = ask(client, "a_b", good, "__cluster_metadata", create=True)
    assert codes(topics) == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE, UNKNOWN]
    assert [topic.name for topic in topics] == ["a_b", good, "__cluster_metadata"]


def test_a_failed_disk_is_an_error() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with HandlerShell({"topics": {"auto_create": True}}, files=files) as shell, closing(shell.client()) as client:
        files.fail_at = files.calls + 1
        assert codes(ask(client, "new", create=True)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert codes(ask(client, "new", create=True)) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_the_brokers_address_is_the_advertised_one() -> None:
    network = {"advertise": "broker.example.org:1234"}
    with Shell({"network": network}) as shell, closing(shell.client()) as client:
        (broker,) = client.request(MetadataRequest(topics=[]), MetadataResponse, LAST).brokers
        assert (broker.host, broker.port) == ("broker.example.org", 1234)


def test_a_quarantined_log_is_an_offline_replica_of_its_leader(shell: HandlerShell, client: HandlerClient) -> None:
    name = fresh()
    ask(client, name, create=True)
    log = shell.services.topics.log(TopicPartition(name, 1))
    shell.call(lambda: log.quarantine(CorruptLogError(log.partition, log.active.path, 0, Offset(0), "for the test")))
    (topic,) = ask(client, name)
    partitions = {partition.partition_index: partition for partition in topic.partitions}
    assert {number: list(entry.offline_replicas) for number, entry in partitions.items()} == {0: [], 1: [1], 2: []}
    assert {(entry.leader_id, entry.error_code) for entry in partitions.values()} == {(1, ErrorCode.NONE)}
