"""Metadata: what clients are told of topics, and topics that are made by asking for them."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from logbrook.client.connection import Connection
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.server.handlers.kit import every_version, fresh
from tests.unit.server.shell_kit import Shell

LAST = MetadataRequest.VERSIONS.last
NULL_NAMES_SINCE = 10
NOBODY = bytes([7]) * 16
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with Shell({"topics": {"auto_create": True, "partitions": 3}}) as shell:
        yield shell


@pytest.fixture
def client(shell: Shell) -> Iterator[Connection]:
    with closing(shell.client()) as client:
        yield client


def ask(client: Connection, *names: str, version: int = LAST, create: bool = False) -> list[MetadataResponseTopic]:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return of_request(client, MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)


def of_request(client: Connection, request: MetadataRequest, version: int = LAST) -> list[MetadataResponseTopic]:
    return list(client.request(request, MetadataResponse, version).topics)


def codes(topics: Sequence[MetadataResponseTopic]) -> list[ErrorCode]:
    return [ErrorCode(topic.error_code) for topic in topics]


@every_version(MetadataRequest)
def test_every_version_tells_where_the_partitions_are(shell: Shell, client: Connection, version: int) -> None:
    name = shell.create(fresh(), 2)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    response = client.request(request, MetadataResponse, version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", shell.address[1])
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (ErrorCode.NONE, name, False)
    assert [(one.partition_index, one.leader_id, one.error_code) for one in topic.partitions] == [(0, 1, 0), (1, 1, 0)]
    assert all(one.replica_nodes == one.isr_nodes == [1] for one in topic.partitions)
    if version >= 7:
        assert {one.leader_epoch for one in topic.partitions} == {shell.services.appends.leader_epoch}
    if version >= 2:
        assert response.cluster_id == shell.services.topics.metadata.cluster_id
    if version >= 10:
        assert topic.topic_id == shell.services.topics.metadata.topic(name).id


@every_version(MetadataRequest)
def test_all_topics_are_asked_for_by_none_or_in_the_first_version_by_an_empty_list(
    shell: Shell, client: Connection, version: int
) -> None:
    name = shell.create(fresh())
    every = MetadataRequest(topics=[] if version == 0 else None)
    assert name in [topic.name for topic in of_request(client, every, version)]
    if version > 0:
        assert of_request(client, MetadataRequest(topics=[]), version) == []


def test_the_metadata_itself_is_no_topic(client: Connection) -> None:
    assert "__cluster_metadata" not in [topic.name for topic in of_request(client, MetadataRequest(topics=None))]
    assert codes(ask(client, "__cluster_metadata")) == [UNKNOWN]


def test_a_topic_is_found_by_its_id(shell: Shell, client: Connection) -> None:
    name = shell.create(fresh())
    topic_id = shell.services.topics.metadata.topic(name).id
    wanted = [MetadataRequestTopic(topic_id=topic_id, name=None), MetadataRequestTopic(topic_id=NOBODY, name=None)]
    request = MetadataRequest(topics=wanted)
    found, missing = of_request(client, request)
    assert (found.name, found.topic_id, found.error_code) == (name, topic_id, ErrorCode.NONE)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, NOBODY, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a" * 250, "a/b"])
def test_a_name_that_is_no_name_is_told_and_never_made(shell: Shell, client: Connection, name: str) -> None:
    (topic,) = ask(client, name, create=True)
    assert (topic.name, topic.error_code) == (name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert name not in shell.services.topics.metadata.topics


# Topics that are made by asking for them


def test_a_topic_is_made_where_the_client_and_the_broker_allow_it(shell: Shell, client: Connection) -> None:
    name = fresh("new")
    assert codes(ask(client, name, create=False)) == [UNKNOWN]
    (topic,) = ask(client, name, create=True)
    assert (topic.error_code, len(topic.partitions)) == (ErrorCode.NONE, 3)
    assert {one.error_code for one in topic.partitions} == {ErrorCode.NONE}
    assert TopicPartition(name, 2) in shell.broker.directory


def test_no_topic_is_made_where_the_broker_does_not_allow_it() -> None:
    with Shell() as shell, closing(shell.client()) as client:
        assert codes(ask(client, "new", create=True)) == [UNKNOWN]
        assert len(shell.services.topics.metadata) == 0


def test_a_topic_that_is_named_twice_is_made_and_told_once(shell: Shell, client: Connection) -> None:
    name = fresh("new")
    (topic,) = ask(client, name, name, create=True)
    assert (topic.name, topic.error_code) == (name, ErrorCode.NONE)


def test_two_clients_that_ask_at_once_get_the_same_topic(shell: Shell, client: Connection) -> None:
    name = fresh("new")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    with closing(shell.client()) as other:
        sent = [one.send(request, MetadataResponse, LAST) for one in (client, other)]
        answers = [one.receive(each).topics[0] for one, each in zip((client, other), sent, strict=True)]
    assert codes(answers) == [ErrorCode.NONE] * 2
    assert answers[0].topic_id == answers[1].topic_id


def test_what_cannot_be_made_is_told_and_the_others_are_made(shell: Shell, client: Connection) -> None:
    good = fresh("new")
    shell.create("a.b")
    topics = ask(client, "a_b", good, "__cluster_metadata", create=True)
    assert codes(topics) == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE, UNKNOWN]
    assert [topic.name for topic in topics] == ["a_b", good, "__cluster_metadata"]


def test_a_disk_that_fails_is_told() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with Shell({"topics": {"auto_create": True}}, files=files) as shell, closing(shell.client()) as client:
        files.fail_at = files.calls + 1
        assert codes(ask(client, "new", create=True)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert codes(ask(client, "new", create=True)) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_where_the_broker_is_reached_is_what_it_was_told_to_say() -> None:
    network = {"advertise": "broker.example.org:1234"}
    with Shell({"network": network}) as shell, closing(shell.client()) as client:
        (broker,) = client.request(MetadataRequest(topics=[]), MetadataResponse, LAST).brokers
        assert (broker.host, broker.port) == ("broker.example.org", 1234)
