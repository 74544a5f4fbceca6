"""Admin requests get the error codes and contents that a real Kafka of one node, without an authorizer, answers."""

import socket
from collections.abc import Iterator
from contextlib import closing
from struct import Struct
from typing import Any

import pytest

from logbrook import Broker
from logbrook.client.connection import Connection
from logbrook.protocol.decoding import decode
from logbrook.protocol.encoding import encode
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import UnsupportedApiError
from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    create_topics,
    delete_acls,
    delete_records,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_user_scram_credentials,
    elect_leaders,
    expire_delegation_token,
    find_coordinator,
    get_telemetry_subscriptions,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
    metadata,
    produce,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from logbrook.protocol.reader import Reader
from logbrook.protocol.schema import ApiMessage, Message
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.processes import wait_until
from tests.interop.java.kafka_broker import KafkaBroker

TOPIC = "answered-alike"
COMPACTED = "compacted-alike"
_ANSWERED_S_MAX = 20.0
_NOT_LOADED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
BROKER_RESOURCE, LOGGERS, GROUP = 4, 8, 32
# Texts are our own; ids and addresses differ. Kafka has the log start offset in some errors of Produce.
DIFFERENT = {"error_message", "batch_index_error_message", "documentation", "synonyms"} | {
    *("cluster_id", "brokers", "topic_id", "log_start_offset")
}


class BothBrokers:
    """A connection to each broker; both have the topics TOPIC and COMPACTED."""

    def __init__(self, ours: Connection, theirs: Connection) -> None:
        self._ours = ours
        self._theirs = theirs

    def agree(self, request: ApiMessage, response: type[ApiMessage], version: int | None = None) -> Any:
        """Return our answer, if Kafka gives the same."""
        ours, theirs = (
            _contents(connection.request(request, response, version)) for connection in (self._ours, self._theirs)
        )
        assert ours == theirs, request
        return ours

    def wait_for_coordinators(self, request: describe_groups.DescribeGroupsRequest) -> None:
        find = find_coordinator.FindCoordinatorRequest(coordinator_keys=list(request.groups))
        for connection in (self._ours, self._theirs):

            def is_loaded(connection: Connection = connection) -> bool:
                connection.request(find, find_coordinator.FindCoordinatorResponse)
                (group,) = connection.request(request, describe_groups.DescribeGroupsResponse).groups
                return group.error_code not in _NOT_LOADED

            assert wait_until(is_loaded, _ANSWERED_S_MAX)


@pytest.fixture(scope="session")
def both(broker: Broker, kafka: KafkaBroker) -> Iterator[BothBrokers]:
    with closing(_connect(broker.bootstrap_servers)) as ours, closing(_connect(kafka.bootstrap_servers)) as theirs:
        compact = create_topics.CreatableTopicConfig(name="cleanup.policy", value="compact")
        topics = [
            create_topics.CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1),
            create_topics.CreatableTopic(name=COMPACTED, num_partitions=1, replication_factor=1, configs=[compact]),
        ]
        for connection in (ours, theirs):
            request = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=10_000)
            for created in connection.request(request, create_topics.CreateTopicsResponse).topics:
                assert created.error_code == ErrorCode.NONE, created
        yield BothBrokers(ours, theirs)


def _connect(address: str) -> Connection:
    host, _, port = address.partition(":")
    return Connection(host, int(port))


def _contents(value: Any) -> Any:
    if isinstance(value, Message):
        return {
            field.name: _contents(getattr(value, field.name)) for field in value.FIELDS if field.name not in DIFFERENT
        }
    if isinstance(value, list | tuple):
        contents = [_contents(element) for element in value]
        return sorted(contents, key=repr)
    return value


def _answer_to(address: str, frame: bytes) -> bytes:
    """Return the response to a request, without its length; nothing if the connection is closed instead."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), _ANSWERED_S_MAX) as connected, connected.makefile("rb") as stream:
        connected.sendall(frame)
        return stream.read(int.from_bytes(stream.read(4), "big"))


@pytest.mark.parametrize("api_key", [-1, 4, 7, 59, 999])
def test_an_unknown_api_key_closes_the_connection(broker: Broker, kafka: KafkaBroker, api_key: int) -> None:
    frame = Struct(">ihhi").pack(14, api_key, 0, 1) + bytes(6)
    for address in (broker.bootstrap_servers, kafka.bootstrap_servers):
        assert _answer_to(address, frame) == b""


def test_telemetry_is_answered_although_it_is_not_announced(broker: Broker, kafka: KafkaBroker) -> None:
    request = get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest()
    start = RequestStart(request.API_KEY, 0, 1)
    frame = b"".join(frame_request(start, None, encode(request, 0), has_tags=True))
    for address in (broker.bootstrap_servers, kafka.bootstrap_servers):
        # After the correlation id and the tags of the header.
        body = Reader(memoryview(_answer_to(address, frame)), 5)
        response = decode(get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse, 0, body)
        assert (response.error_code, response.requested_metrics) == (ErrorCode.NONE, [])
        with closing(_connect(address)) as connection, pytest.raises(UnsupportedApiError):
            connection.request(request, get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse)


def test_acls(both: BothBrokers) -> None:
    every: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    both.agree(describe_acls.DescribeAclsRequest(**every), describe_acls.DescribeAclsResponse)
    creation = create_acls.AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    both.agree(create_acls.CreateAclsRequest(creations=[creation]), create_acls.CreateAclsResponse)
    request = delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**every)])
    both.agree(request, delete_acls.DeleteAclsResponse)


def test_reassignments(both: BothBrokers) -> None:
    module = alter_partition_reassignments
    wanted: list[tuple[str, int, list[int] | None]] = [
        (TOPIC, 0, [1]),
        (TOPIC, 0, [1, 2]),
        (TOPIC, 0, [1, 1]),
        (TOPIC, 0, []),
        (TOPIC, 0, None),
        (TOPIC, 9, None),
        ("nobody", 0, [1]),
    ]
    for name, number, replicas in wanted:
        partition = module.ReassignablePartition(partition_index=number, replicas=replicas)
        topic = module.ReassignableTopic(name=name, partitions=[partition])
        request = module.AlterPartitionReassignmentsRequest(topics=[topic])
        both.agree(request, module.AlterPartitionReassignmentsResponse)
    listing = list_partition_reassignments
    for topics in (None, [listing.ListPartitionReassignmentsTopics(name="nobody", partition_indexes=[0])]):
        request_all = listing.ListPartitionReassignmentsRequest(topics=topics)
        both.agree(request_all, listing.ListPartitionReassignmentsResponse)


def test_elections(both: BothBrokers) -> None:
    partitions = [
        elect_leaders.TopicPartitions(topic=TOPIC, partitions=[0, 5]),
        elect_leaders.TopicPartitions(topic="nobody", partitions=[0]),
    ]
    for election_type in range(3):
        request = elect_leaders.ElectLeadersRequest(election_type=election_type, topic_partitions=partitions)
        both.agree(request, elect_leaders.ElectLeadersResponse)


def test_quotas(both: BothBrokers) -> None:
    module = describe_client_quotas
    filters = [
        ("user", 2, None),
        ("", 2, None),
        ("team", 2, None),
        ("user", 3, None),
        ("user", 0, None),
        ("ip", 1, "a"),
    ]
    components = [module.ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in filters]
    for wanted in ([], *([component] for component in components), components[:1] * 2):
        request = module.DescribeClientQuotasRequest(components=wanted)
        both.agree(request, module.DescribeClientQuotasResponse)
    entities: list[list[tuple[str, str | None]]] = [
        [("user", "a")],
        [("user", None), ("client-id", "c")],
        [("ip", "127.0.0.9")],
        [("ip", "127.0.0.9"), ("user", "a")],
        [("team", "a")],
        [("user", "")],
        [],
    ]
    values = [
        ("producer_byte_rate", 1e6),
        ("producer_byte_rate", 0.0),
        ("consumer_byte_rate", 1.5),
        ("consumer_byte_rate", 1e19),
        ("request_percentage", 12.5),
        ("controller_mutation_rate", -1.0),
        ("connection_creation_rate", 10.0),
        ("connection_creation_rate", 1e10),
        ("bytes", 1.0),
    ]
    for entity in entities:
        for key, value in values:
            both.agree(_alteration(entity, key, value), alter_client_quotas.AlterClientQuotasResponse)
    for wanted in ([], *([component] for component in components[:1])):
        for is_strict in (False, True):
            request = module.DescribeClientQuotasRequest(components=wanted, strict=is_strict)
            both.agree(request, module.DescribeClientQuotasResponse)
    for entity in entities[:3]:
        for key in {key for key, _ in values}:
            both.agree(_alteration(entity, key, None), alter_client_quotas.AlterClientQuotasResponse)


def _alteration(
    entity: list[tuple[str, str | None]], key: str, value: float | None
) -> alter_client_quotas.AlterClientQuotasRequest:
    entry = alter_client_quotas.EntryData(
        entity=[alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry])


def test_authentication(both: BothBrokers) -> None:
    both.agree(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), sasl_handshake.SaslHandshakeResponse)
    both.agree(sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"a"), sasl_authenticate.SaslAuthenticateResponse)
    module = describe_user_scram_credentials
    for users in (None, [module.UserName(name="a")]):
        request = module.DescribeUserScramCredentialsRequest(users=users)
        both.agree(request, module.DescribeUserScramCredentialsResponse)
    deletion = alter_user_scram_credentials.ScramCredentialDeletion(name="a", mechanism=1)
    removal = alter_user_scram_credentials.AlterUserScramCredentialsRequest(deletions=[deletion])
    both.agree(removal, alter_user_scram_credentials.AlterUserScramCredentialsResponse)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_delegation_tokens(both: BothBrokers, version: int) -> None:
    create, describe = create_delegation_token, describe_delegation_token
    owners: list[tuple[str | None, str | None]] = [(None, None), ("", ""), ("User", None), ("User", "a"), ("", "a")]
    for kind, name in owners:
        request = create.CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[create.CreatableRenewers(principal_type="User", principal_name="a")],
            max_lifetime_ms=-1,
        )
        answer = both.agree(request, create.CreateDelegationTokenResponse, version)
        assert answer["error_code"] == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    for wanted in (None, [], [describe.DescribeDelegationTokenOwner(principal_type="User", principal_name="a")]):
        both.agree(
            describe.DescribeDelegationTokenRequest(owners=wanted), describe.DescribeDelegationTokenResponse, version
        )


def test_changes_of_delegation_tokens(both: BothBrokers) -> None:
    renew, expire = renew_delegation_token, expire_delegation_token
    for version in (1, 2):
        both.agree(renew.RenewDelegationTokenRequest(hmac=b"a"), renew.RenewDelegationTokenResponse, version)
        both.agree(expire.ExpireDelegationTokenRequest(hmac=b"a"), expire.ExpireDelegationTokenResponse, version)


@pytest.mark.parametrize("broker_id", [-1, 2, 2**31 - 1])
def test_a_broker_that_is_not_registered(both: BothBrokers, broker_id: int) -> None:
    """The registered one is not asked for: Kafka unregisters it although it is running."""
    request = unregister_broker.UnregisterBrokerRequest(broker_id=broker_id)
    answer = both.agree(request, unregister_broker.UnregisterBrokerResponse)
    assert answer["error_code"] == ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize("version", range(3))
def test_features(both: BothBrokers, version: int) -> None:
    wanted = [("transaction.version", 2), ("transaction.version", 3), ("transaction.version", 1), ("nothing", 1)]
    for feature, level in wanted:
        update = update_features.FeatureUpdateKey(feature=feature, max_version_level=level)
        request = update_features.UpdateFeaturesRequest(feature_updates=[update], validate_only=True)
        both.agree(request, update_features.UpdateFeaturesResponse, version)


def test_log_directories_markers_and_config_resources(both: BothBrokers) -> None:
    topic = alter_replica_log_dirs.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0, 7])
    directory = alter_replica_log_dirs.AlterReplicaLogDir(path="/elsewhere", topics=[topic])
    both.agree(
        alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[directory]),
        alter_replica_log_dirs.AlterReplicaLogDirsResponse,
    )
    topics = [
        write_txn_markers.WritableTxnMarkerTopic(name="nobody", partition_indexes=[0]),
        write_txn_markers.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[7]),
    ]
    marker = write_txn_markers.WritableTxnMarker(producer_id=5, producer_epoch=0, coordinator_epoch=0, topics=topics)
    both.agree(write_txn_markers.WriteTxnMarkersRequest(markers=[marker]), write_txn_markers.WriteTxnMarkersResponse)
    for version, types in ((0, []), (1, [BROKER_RESOURCE, LOGGERS]), (1, [99])):
        request = list_config_resources.ListConfigResourcesRequest(resource_types=types)
        both.agree(request, list_config_resources.ListConfigResourcesResponse, version)


def test_authorized_operations(both: BothBrokers) -> None:
    cluster = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
    both.agree(cluster, describe_cluster.DescribeClusterResponse)
    names = [metadata.MetadataRequestTopic(name=name) for name in (TOPIC, "nobody")]
    for version in (8, 10, metadata.MetadataRequest.VERSIONS.last):
        request = metadata.MetadataRequest(
            topics=names,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        both.agree(request, metadata.MetadataResponse, version)


def test_authorized_operations_of_groups(both: BothBrokers) -> None:
    request = describe_groups.DescribeGroupsRequest(groups=["nobody"], include_authorized_operations=True)
    both.wait_for_coordinators(request)
    for version in (3, 5, describe_groups.DescribeGroupsRequest.VERSIONS.last):
        both.agree(request, describe_groups.DescribeGroupsResponse, version)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_records_without_a_key_in_a_compacted_topic(both: BothBrokers, codec: Codec) -> None:
    batch = build_batch([Record(key=key, value=b"v", timestamp=1_000) for key in (b"a", None, b"b", None)], codec=codec)
    partition = produce.PartitionProduceData(index=0, records=batch)
    topic = produce.TopicProduceData(name=COMPACTED, partition_data=[partition])
    request = produce.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
    answer = both.agree(request, produce.ProduceResponse, 9)
    (refused,) = answer["responses"][0]["partition_responses"]
    assert [error["batch_index"] for error in refused["record_errors"]] == [1, 3]


@pytest.mark.parametrize("offset", [-2, 1, 2**62])
def test_records_that_do_not_exist_cannot_be_deleted(both: BothBrokers, offset: int) -> None:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[partition])
    request = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
    answer = both.agree(request, delete_records.DeleteRecordsResponse)
    assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_settings_of_groups(both: BothBrokers) -> None:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=GROUP, resource_name="not-there", configuration_keys=None
    )
    request = describe_configs.DescribeConfigsRequest(resources=[resource])
    assert len(both.agree(request, describe_configs.DescribeConfigsResponse)["results"][0]["configs"]) > 15


@pytest.mark.parametrize(
    ("resource_type", "resource_name", "name", "operation", "value"),
    [
        (GROUP, "g", "consumer.session.timeout.ms", 0, "50000"),
        (GROUP, "g", "consumer.session.timeout.ms", 0, "44999"),
        (GROUP, "g", "consumer.heartbeat.interval.ms", 0, "15001"),
        (GROUP, "g", "share.delivery.count.limit", 0, "1"),
        (GROUP, "g", "share.auto.offset.reset", 0, "by_duration:PT1.5S"),
        (GROUP, "g", "share.auto.offset.reset", 0, "by_duration:P"),
        (GROUP, "g", "share.auto.offset.reset", 0, "LATEST"),
        (GROUP, "g", "share.isolation.level", 0, "read_committed"),
        (GROUP, "g", "retention.ms", 0, "1"),
        (GROUP, "", "consumer.session.timeout.ms", 0, "50000"),
        (LOGGERS, "1", "root", 0, "WARN"),
        (LOGGERS, "1", "root", 0, "warn"),
        (LOGGERS, "1", "root", 1, None),
        (LOGGERS, "1", "root", 2, "WARN"),
        (LOGGERS, "1", "nothing", 0, "WARN"),
        (LOGGERS, "1", "nothing", 1, None),
        (LOGGERS, "", "root", 0, "WARN"),
        (BROKER_RESOURCE, "", "log.retention.ms", 0, "1000"),
        (BROKER_RESOURCE, "2", "log.retention.ms", 0, "1000"),
    ],
)
def test_changes_of_settings(
    both: BothBrokers, resource_type: int, resource_name: str, name: str, operation: int, value: str | None
) -> None:
    module = incremental_alter_configs
    config = module.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = module.AlterConfigsResource(resource_type=resource_type, resource_name=resource_name, configs=[config])
    request = module.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    both.agree(request, module.IncrementalAlterConfigsResponse)
