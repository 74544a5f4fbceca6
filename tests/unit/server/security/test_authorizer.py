"""Responses to clients without all rights. The rights that each API needs are tested in `test_api_rights.py`."""

from collections.abc import Iterator

import pytest

from logbrook.core.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from logbrook.model.security import ANONYMOUS, Principal
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from logbrook.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.protocol.schema import ZERO_UUID
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.session import ConnectionSession
from tests.unit.server.handler_kit import CLIENT_HOST, HandlerClient, HandlerShell
from tests.unit.server.handlers.kit import operations

ALICE = Principal("User", "alice")
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


class SecuredShell(HandlerShell):
    """A broker with an authorizer. `admin` may do everything, `alice` what `allow` has allowed."""

    def __init__(self) -> None:
        super().__init__({"security": {"authorization": True, "super_users": str(ANONYMOUS)}})

    def __enter__(self) -> "SecuredShell":
        super().__enter__()
        self.admin = self.client("admin")
        self.alice = HandlerClient(self, "alice", ConnectionSession(CLIENT_HOST, principal=ALICE))
        return self

    def allow(self, operation: AclOperation, name: str, resource_type: ResourceType = ResourceType.TOPIC) -> None:
        acl = AclBinding(
            resource_type, PatternType.LITERAL, name, str(ALICE), CLIENT_HOST, operation, PermissionType.ALLOW
        )
        acls = self.services.security.acls
        self.run(self.services.topics.change_security(lambda: acls.create([acl])))

    def revoke_all(self) -> None:
        acls = self.services.security.acls
        self.run(self.services.topics.change_security(lambda: acls.delete(acls.matching(AclFilter()))))

    def create_topic(self, name: str) -> bytes:
        """Create a topic and return its id."""
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        (created,) = self.admin.request(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics
        assert created.error_code == ErrorCode.NONE
        return created.topic_id

    def metadata(self, *topics: MetadataRequestTopic) -> list[tuple[int, str | None, bytes]]:
        request = MetadataRequest(topics=topics or None, allow_auto_topic_creation=False)
        response = self.alice.request(request, MetadataResponse)
        return [(topic.error_code, topic.name, topic.topic_id) for topic in response.topics]


@pytest.fixture
def shell() -> Iterator[SecuredShell]:
    with SecuredShell() as shell:
        yield shell


def test_metadata_does_not_reveal_whether_a_topic_exists(shell: SecuredShell) -> None:
    topic_id = shell.create_topic("secret")
    named = shell.metadata(MetadataRequestTopic(name="secret"), MetadataRequestTopic(name="missing"))
    assert named == [(DENIED, "secret", ZERO_UUID), (DENIED, "missing", ZERO_UUID)]
    assert shell.metadata() == []
    # As in Kafka: a topic id is not a secret, the name is.
    assert shell.metadata(MetadataRequestTopic(name=None, topic_id=topic_id)) == [(DENIED, None, topic_id)]


def test_authorized_operations_are_those_that_the_acls_allow(shell: SecuredShell) -> None:
    shell.create_topic("orders")
    shell.allow(READ, "orders")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="orders")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response = shell.alice.request(request, MetadataResponse, 10)
    assert operations(response.topics[0].topic_authorized_operations) == [READ, DESCRIBE]
    assert response.cluster_authorized_operations == 0, "the cluster may not be described"
    shell.allow(AclOperation.ALTER, CLUSTER_NAME, ResourceType.CLUSTER)
    cluster = shell.alice.request(
        DescribeClusterRequest(include_cluster_authorized_operations=True), DescribeClusterResponse
    )
    assert operations(cluster.cluster_authorized_operations) == [AclOperation.ALTER, DESCRIBE]


def test_a_host_without_an_acl_is_denied(shell: SecuredShell) -> None:
    shell.create_topic("orders")
    shell.allow(DESCRIBE, "orders")
    assert [code for code, _, _ in shell.metadata(MetadataRequestTopic(name="orders"))] == [ErrorCode.NONE]
    shell.alice = HandlerClient(shell, "alice", ConnectionSession("10.0.0.9", principal=ALICE))
    assert [code for code, _, _ in shell.metadata(MetadataRequestTopic(name="orders"))] == [DENIED]


def test_only_the_unauthorized_topics_of_a_produce_request_fail(shell: SecuredShell) -> None:
    batch = bytes(build_batch([Record(value=b"value", timestamp=1)]))
    topics = []
    for name in ("mine", "theirs", "missing"):
        topic_id = shell.create_topic(name) if name != "missing" else ZERO_UUID
        data = PartitionProduceData(index=0, records=batch)
        topics.append(TopicProduceData(name=name, topic_id=topic_id, partition_data=[data]))
    shell.allow(WRITE, "mine")
    response = shell.alice.request(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics), ProduceResponse, 12)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
    assert codes == {"mine": ErrorCode.NONE, "theirs": DENIED, "missing": DENIED}


def test_a_revoked_right_ends_an_incremental_fetch_session(shell: SecuredShell) -> None:
    topic = FetchTopic(topic_id=shell.create_topic("orders"), partitions=[FetchPartition(partition=0)])
    shell.allow(READ, "orders")
    first = shell.alice.request(FetchRequest(max_wait_ms=0, session_epoch=0, topics=[topic]), FetchResponse)
    assert first.responses[0].partitions[0].error_code == ErrorCode.NONE

    def fetch_again(epoch: int) -> FetchResponse:
        request = FetchRequest(max_wait_ms=0, session_id=first.session_id, session_epoch=epoch)
        return shell.alice.request(request, FetchResponse)

    assert first.session_id
    assert fetch_again(1).responses == []
    shell.revoke_all()
    assert fetch_again(2).responses[0].partitions[0].error_code == DENIED
    shell.allow(READ, "orders")
    assert fetch_again(3).responses[0].partitions[0].error_code == ErrorCode.NONE


def test_a_right_that_is_revoked_while_a_fetch_waits_is_missed_when_it_is_woken(shell: SecuredShell) -> None:
    topic_id = shell.create_topic("orders")
    shell.allow(READ, "orders")
    topic = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0)])
    waiting = shell.alice.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[topic]), FetchResponse)
    assert shell.alice.unanswered == 1
    shell.revoke_all()
    data = PartitionProduceData(index=0, records=bytes(build_batch([Record(value=b"secret", timestamp=1)])))
    produced = ProduceRequest(
        acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])]
    )
    assert shell.admin.request(produced, ProduceResponse).responses[0].partition_responses[0].error_code == 0
    partition = shell.alice.receive(waiting).responses[0].partitions[0]
    assert (partition.error_code, partition.records) == (DENIED, b"")


def test_deleting_by_id_reveals_the_name_only_to_those_who_may_describe_it(shell: SecuredShell) -> None:
    topic_id = shell.create_topic("secret")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=1_000)

    def deleted() -> tuple[int, str | None]:
        (result,) = shell.alice.request(request, DeleteTopicsResponse).responses
        return result.error_code, result.name

    assert deleted() == (DENIED, None)
    shell.allow(DESCRIBE, "secret")
    assert deleted() == (DENIED, "secret")
    shell.allow(AclOperation.DELETE, "secret")
    assert deleted() == (ErrorCode.NONE, "secret")


def test_the_settings_of_a_new_topic_are_hidden_from_those_who_may_not_describe_them(shell: SecuredShell) -> None:
    shell.allow(AclOperation.CREATE, "orders")
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    (created,) = shell.alice.request(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics
    assert (created.error_code, created.topic_config_error_code) == (ErrorCode.NONE, DENIED)
    assert (created.num_partitions, created.replication_factor, list(created.configs or ())) == (-1, -1, [])


def test_denials_are_audited_unless_the_client_did_not_name_the_resource(
    shell: SecuredShell, caplog: pytest.LogCaptureFixture
) -> None:
    shell.create_topic("secret")
    with caplog.at_level("INFO", "logbrook.audit"):
        shell.metadata()
        assert not caplog.records
        shell.metadata(MetadataRequestTopic(name="secret"))
        (record,) = caplog.records
    text = record.getMessage() + str(record.__dict__)
    assert all(part in text for part in ("alice", "DESCRIBE", "TOPIC", "secret", CLIENT_HOST))
