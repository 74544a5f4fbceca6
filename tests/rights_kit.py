"""Requests of every API that needs rights, for tests that compare what is denied with `server.security.api_rights`.

A request is harmless: where it changes something, it names what does not exist, or is only validated. Whether a client
has the right shows in the error codes nevertheless, since authorization comes first. A need whose denial hides the
resource is tested with resources that exist: `existing` creates them.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeVar

from logbrook.core.acls import CLUSTER_NAME, ResourceType
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from logbrook.protocol.schema import ApiMessage, Message
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.handlers import all_apis
from logbrook.server.security.api_rights import API_RIGHTS, ApiNeed

R = TypeVar("R", bound=ApiMessage)

TOPIC_CONFIG, BROKER_CONFIG, GROUP_CONFIG = 2, 4, 32
_UNKNOWN_PRODUCER = 1_000_000
_RESPONSES = {api.request: api.response for api in all_apis()}
_numbers = count(1)


class Asking(Protocol):
    """A client: `HandlerClient` or `Connection`."""

    def request(self, message: ApiMessage, response: type[R], version: int | None = None) -> R: ...


class ResourceNames(NamedTuple):
    topic: str
    topic_id: bytes
    group: str
    transactional_id: str

    def of(self, resource_type: ResourceType) -> str:
        names = {
            ResourceType.TOPIC: self.topic,
            ResourceType.GROUP: self.group,
            ResourceType.TRANSACTIONAL_ID: self.transactional_id,
            ResourceType.CLUSTER: CLUSTER_NAME,
        }
        return names[resource_type]

    def fresh(self) -> "ResourceNames":
        """Return names of resources that do not exist."""
        number = next(_numbers)
        return self._replace(topic=f"new-{number}", group=f"new-{number}", transactional_id=f"new-{number}")


class RightsCase(NamedTuple):
    """A request, and the indexes of its API's needs that apply to it."""

    api: str
    request: Callable[[ResourceNames], ApiMessage]
    indexes: tuple[int, ...] = (0,)
    version: int | None = None
    # True: the request needs names of resources that do not exist; except for a topic, if the request deletes it.
    is_fresh: bool = False
    deletes: bool = False

    @property
    def needs(self) -> list[ApiNeed]:
        return [API_RIGHTS[self.api][index] for index in self.indexes]

    def names(self, admin: Asking, existing: ResourceNames) -> ResourceNames:
        if not self.is_fresh:
            return existing
        names = existing.fresh()
        if self.deletes:
            created = _create_existing_topic(admin, names.topic)
            names = names._replace(topic_id=created.topic_id)
        return names

    def ask(self, client: Asking, names: ResourceNames) -> ApiMessage:
        request = self.request(names)
        return client.request(request, _RESPONSES[type(request)], self.version)

    def __str__(self) -> str:
        return f"{self.api}-{''.join(map(str, self.indexes))}"


def is_denied(need: ApiNeed, response: ApiMessage, names: ResourceNames) -> bool:
    if need.is_hidden:
        return names.of(need.rights[0].resource_type) not in _texts(response)
    return need.code in error_codes(response)


def error_codes(message: ApiMessage) -> set[ErrorCode]:
    """Return the error codes of a response and of its parts."""
    codes = {value for name, value in _values(message) if name.endswith("error_code") and isinstance(value, int)}
    return {ErrorCode(code) for code in codes}


def _texts(message: Message) -> set[str]:
    return {value for _, value in _values(message) if isinstance(value, str)}


def _values(message: Message) -> Iterator[tuple[str, Any]]:
    for field in message.FIELDS:
        value = getattr(message, field.name)
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, Message):
                yield from _values(part)
            else:
                yield field.name, part


def existing(admin: Asking, word: str) -> ResourceNames:
    """Create a topic, a group with an offset of it, and a transaction with a partition of it."""
    created = _create_existing_topic(admin, f"{word}-topic")
    names = ResourceNames(created.name, created.topic_id, f"{word}-group", f"{word}-id")
    _succeed(admin, _commit(names), 9)
    init = init_producer_id.InitProducerIdRequest(
        transactional_id=names.transactional_id, transaction_timeout_ms=60_000
    )
    producer = admin.request(init, init_producer_id.InitProducerIdResponse, 4)
    assert producer.error_code == ErrorCode.NONE
    added = add_partitions_to_txn.AddPartitionsToTxnTopic(name=names.topic, partitions=[0])
    add = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=names.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[added],
    )
    _succeed(admin, add, 3)
    return names


def _create_existing_topic(admin: Asking, name: str) -> create_topics.CreatableTopicResult:
    topic = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    (created,) = admin.request(request, create_topics.CreateTopicsResponse).topics
    assert created.error_code == ErrorCode.NONE, created.error_message
    return created


def _succeed(admin: Asking, request: ApiMessage, version: int) -> None:
    assert error_codes(admin.request(request, _RESPONSES[type(request)], version)) == {ErrorCode.NONE}


def _commit(names: ResourceNames) -> ApiMessage:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topic = offset_commit.OffsetCommitRequestTopic(name=names.topic, topic_id=names.topic_id, partitions=[partition])
    return offset_commit.OffsetCommitRequest(
        group_id=names.group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )


def _produce(names: ResourceNames, transactional_id: str | None) -> ApiMessage:
    record = Record(value=b"value", timestamp=1_600_000_000_000)
    batch = build_batch([record])
    if transactional_id is not None:
        batch = build_batch(
            [record],
            producer_id=ProducerId(_UNKNOWN_PRODUCER),
            producer_epoch=ProducerEpoch(0),
            base_sequence=0,
            transactional=True,
        )
    data = produce.PartitionProduceData(index=0, records=batch)
    topic = produce.TopicProduceData(name=names.topic, topic_id=names.topic_id, partition_data=[data])
    return produce.ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=5_000, topic_data=[topic])


def _fetch(names: ResourceNames) -> ApiMessage:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topic = fetch.FetchTopic(topic=names.topic, topic_id=names.topic_id, partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=0, max_bytes=1_000, topics=[topic])


def _describe_configs(resource_type: int, name: str) -> ApiMessage:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    return describe_configs.DescribeConfigsRequest(resources=[resource])


def _alter_configs(resource_type: int, name: str) -> ApiMessage:
    resource = alter_configs.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[])
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True)


def _incremental(resource_type: int, name: str) -> ApiMessage:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=[]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def _create_topic(names: ResourceNames) -> ApiMessage:
    topic = create_topics.CreatableTopic(name=names.topic, num_partitions=1, replication_factor=1)
    return create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)


def _add_partitions(names: ResourceNames) -> ApiMessage:
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name=names.topic, partitions=[0])
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=names.transactional_id,
        v3_and_below_producer_id=_UNKNOWN_PRODUCER,
        v3_and_below_topics=[topic],
        transactions=[
            add_partitions_to_txn.AddPartitionsToTxnTransaction(
                transactional_id=names.transactional_id, producer_id=_UNKNOWN_PRODUCER, verify_only=True, topics=[topic]
            )
        ],
    )


def _txn_offset_commit(names: ResourceNames) -> ApiMessage:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name=names.topic, partitions=[partition])
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=names.transactional_id, group_id=names.group, producer_id=_UNKNOWN_PRODUCER, topics=[topic]
    )


def _offset_fetch(names: ResourceNames, *, is_all: bool) -> ApiMessage:
    topic = offset_fetch.OffsetFetchRequestTopics(name=names.topic, topic_id=names.topic_id, partition_indexes=[0])
    group = offset_fetch.OffsetFetchRequestGroup(group_id=names.group, topics=None if is_all else [topic])
    return offset_fetch.OffsetFetchRequest(groups=[group])


def _create_acl(names: ResourceNames) -> ApiMessage:
    # Without a name: it is never created.
    creation = create_acls.AclCreation(
        resource_type=2, resource_name="", principal=f"User:{names.topic}", host="*", operation=3, permission_type=3
    )
    return create_acls.CreateAclsRequest(creations=[creation])


def _marker(names: ResourceNames) -> ApiMessage:
    topic = write_txn_markers.WritableTxnMarkerTopic(name=names.topic, partition_indexes=[0])
    marker = write_txn_markers.WritableTxnMarker(producer_id=_UNKNOWN_PRODUCER, producer_epoch=0, topics=[topic])
    return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])


def _reassignment(names: ResourceNames) -> ApiMessage:
    partition = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=None)
    topic = alter_partition_reassignments.ReassignableTopic(name=names.topic, partitions=[partition])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=5_000)


def _move(names: ResourceNames) -> ApiMessage:
    topic = alter_replica_log_dirs.AlterReplicaLogDirTopic(name=names.topic, partitions=[0])
    directory = alter_replica_log_dirs.AlterReplicaLogDir(path="/nowhere", topics=[topic])
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[directory])


def _named_metadata(names: ResourceNames, *, by_id: bool = False, creates: bool = False) -> ApiMessage:
    topic = metadata.MetadataRequestTopic(name=names.topic)
    if by_id:
        topic = metadata.MetadataRequestTopic(name=None, topic_id=names.topic_id)
    return metadata.MetadataRequest(topics=[topic], allow_auto_topic_creation=creates)


def _create_partitions(names: ResourceNames) -> ApiMessage:
    topic = create_partitions.CreatePartitionsTopic(name=names.topic, count=1)
    return create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=5_000, validate_only=True)


def _delete_records(names: ResourceNames) -> ApiMessage:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = delete_records.DeleteRecordsTopic(name=names.topic, partitions=[partition])
    return delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)


def _list_offsets(names: ResourceNames) -> ApiMessage:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = list_offsets.ListOffsetsTopic(name=names.topic, partitions=[partition])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])


def _offset_delete(names: ResourceNames) -> ApiMessage:
    # There is no such partition: the offset of the other one has to stay.
    partition = offset_delete.OffsetDeleteRequestPartition(partition_index=9)
    topic = offset_delete.OffsetDeleteRequestTopic(name=names.topic, partitions=[partition])
    return offset_delete.OffsetDeleteRequest(group_id=names.group, topics=[topic])


def _leader_epoch(names: ResourceNames) -> ApiMessage:
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=names.topic, partitions=[partition])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


def _join(names: ResourceNames) -> ApiMessage:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    return join_group.JoinGroupRequest(
        group_id=names.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def _quota(_: ResourceNames) -> ApiMessage:
    entity = alter_client_quotas.EntityData(entity_type="user", entity_name="nobody")
    operation = alter_client_quotas.OpData(key="producer_byte_rate", remove=True)
    entry = alter_client_quotas.EntryData(entity=[entity], ops=[operation])
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=True)


def _scram(_: ResourceNames) -> ApiMessage:
    deletion = alter_user_scram_credentials.ScramCredentialDeletion(name="nobody", mechanism=1)
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest(deletions=[deletion])


def _feature(_: ResourceNames) -> ApiMessage:
    update = update_features.FeatureUpdateKey(feature="nothing", max_version_level=1, upgrade_type=1)
    return update_features.UpdateFeaturesRequest(feature_updates=[update], validate_only=True)


def _quorum(_: ResourceNames) -> ApiMessage:
    partition = describe_quorum.PartitionData(partition_index=0)
    topic = describe_quorum.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    return describe_quorum.DescribeQuorumRequest(topics=[topic])


def _deletion(names: ResourceNames) -> ApiMessage:
    return delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name=names.topic)], topic_names=[names.topic], timeout_ms=5_000
    )


def _election(names: ResourceNames) -> ApiMessage:
    topic = elect_leaders.TopicPartitions(topic=names.topic, partitions=[0])
    return elect_leaders.ElectLeadersRequest(topic_partitions=[topic], timeout_ms=5_000)


def _acl_filter(names: ResourceNames) -> ApiMessage:
    wanted = delete_acls.DeleteAclsFilter(
        resource_type_filter=2, resource_name_filter=f"no-{names.topic}", operation=1, permission_type=1
    )
    return delete_acls.DeleteAclsRequest(filters=[wanted])


CASES = [
    RightsCase(
        "AddOffsetsToTxn",
        lambda names: add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=names.transactional_id, group_id=names.group, producer_id=_UNKNOWN_PRODUCER
        ),
        (0, 1),
    ),
    RightsCase("AddPartitionsToTxn", _add_partitions, (0, 1), 3),
    RightsCase("AddPartitionsToTxn", _add_partitions, (2,), 5),
    RightsCase("AlterClientQuotas", _quota),
    RightsCase("AlterConfigs", lambda names: _alter_configs(TOPIC_CONFIG, names.topic), (0,)),
    RightsCase("AlterConfigs", lambda names: _alter_configs(GROUP_CONFIG, names.group), (1,)),
    RightsCase("AlterConfigs", lambda _: _alter_configs(BROKER_CONFIG, ""), (2,)),
    RightsCase("AlterPartitionReassignments", _reassignment),
    RightsCase("AlterReplicaLogDirs", _move),
    RightsCase("AlterUserScramCredentials", _scram),
    RightsCase("CreateAcls", _create_acl),
    RightsCase("CreatePartitions", _create_partitions),
    RightsCase("CreateTopics", _create_topic, (0, 1), is_fresh=True),
    RightsCase("DeleteAcls", _acl_filter),
    RightsCase(
        "DeleteGroups", lambda names: delete_groups.DeleteGroupsRequest(groups_names=[names.group]), is_fresh=True
    ),
    RightsCase("DeleteRecords", _delete_records),
    RightsCase("DeleteTopics", _deletion, is_fresh=True, deletes=True),
    RightsCase(
        "DescribeAcls",
        lambda _: describe_acls.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1),
    ),
    RightsCase("DescribeClientQuotas", lambda _: describe_client_quotas.DescribeClientQuotasRequest()),
    RightsCase("DescribeConfigs", lambda names: _describe_configs(TOPIC_CONFIG, names.topic), (0,)),
    RightsCase("DescribeConfigs", lambda names: _describe_configs(GROUP_CONFIG, names.group), (1,)),
    RightsCase("DescribeConfigs", lambda _: _describe_configs(BROKER_CONFIG, "1"), (2,)),
    RightsCase("DescribeGroups", lambda names: describe_groups.DescribeGroupsRequest(groups=[names.group])),
    RightsCase("DescribeLogDirs", lambda _: describe_log_dirs.DescribeLogDirsRequest(topics=None)),
    RightsCase(
        "DescribeProducers",
        lambda names: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name=names.topic, partition_indexes=[0])]
        ),
    ),
    RightsCase("DescribeQuorum", _quorum),
    RightsCase(
        "DescribeTopicPartitions",
        lambda names: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=names.topic)]
        ),
        (0,),
    ),
    RightsCase("DescribeTopicPartitions", lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(), (1,)),
    RightsCase(
        "DescribeTransactions",
        lambda names: describe_transactions.DescribeTransactionsRequest(transactional_ids=[names.transactional_id]),
        (0, 1),
    ),
    RightsCase(
        "DescribeUserScramCredentials",
        # With null for all users Kafka never answers a client that is denied.
        lambda _: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            users=[describe_user_scram_credentials.UserName(name="nobody")]
        ),
    ),
    RightsCase("ElectLeaders", _election),
    RightsCase(
        "EndTxn",
        lambda names: end_txn.EndTxnRequest(transactional_id=names.transactional_id, producer_id=_UNKNOWN_PRODUCER),
    ),
    RightsCase("Fetch", _fetch, (0,)),
    RightsCase(
        "FindCoordinator",
        lambda names: find_coordinator.FindCoordinatorRequest(
            key_type=0, key=names.group, coordinator_keys=[names.group]
        ),
        (0,),
    ),
    RightsCase(
        "FindCoordinator",
        lambda names: find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[names.transactional_id]),
        (1,),
    ),
    RightsCase("Heartbeat", lambda names: heartbeat.HeartbeatRequest(group_id=names.group, member_id="nobody")),
    RightsCase("IncrementalAlterConfigs", lambda names: _incremental(TOPIC_CONFIG, names.topic), (0,)),
    RightsCase("IncrementalAlterConfigs", lambda names: _incremental(GROUP_CONFIG, names.group), (1,)),
    RightsCase("IncrementalAlterConfigs", lambda _: _incremental(BROKER_CONFIG, ""), (2,)),
    RightsCase(
        "InitProducerId",
        lambda names: init_producer_id.InitProducerIdRequest(
            transactional_id=names.transactional_id, transaction_timeout_ms=1_000
        ),
        (0,),
        is_fresh=True,
    ),
    RightsCase(
        "InitProducerId",
        lambda _: init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000),
        (1,),
    ),
    RightsCase("JoinGroup", _join, is_fresh=True),
    RightsCase(
        "LeaveGroup",
        lambda names: leave_group.LeaveGroupRequest(
            group_id=names.group, members=[leave_group.MemberIdentity(member_id="nobody")]
        ),
    ),
    RightsCase("ListConfigResources", lambda _: list_config_resources.ListConfigResourcesRequest()),
    RightsCase("ListGroups", lambda _: list_groups.ListGroupsRequest()),
    RightsCase("ListOffsets", _list_offsets),
    RightsCase(
        "ListPartitionReassignments",
        lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None, timeout_ms=5_000),
    ),
    RightsCase("ListTransactions", lambda _: list_transactions.ListTransactionsRequest()),
    RightsCase("Metadata", _named_metadata, (0,)),
    RightsCase("Metadata", lambda names: _named_metadata(names, by_id=True), (0,)),
    RightsCase("Metadata", lambda _: metadata.MetadataRequest(topics=None), (1,)),
    RightsCase("Metadata", lambda names: _named_metadata(names, creates=True), (0, 2), is_fresh=True),
    RightsCase("OffsetCommit", _commit, (0, 1), 9),
    RightsCase("OffsetCommit", _commit, (0, 1), 10),
    RightsCase("OffsetDelete", _offset_delete, (0, 1)),
    RightsCase("OffsetFetch", lambda names: _offset_fetch(names, is_all=False), (0, 1), 9),
    RightsCase("OffsetFetch", lambda names: _offset_fetch(names, is_all=False), (0, 1), 10),
    RightsCase("OffsetFetch", lambda names: _offset_fetch(names, is_all=True), (0, 2), 9),
    RightsCase("OffsetForLeaderEpoch", _leader_epoch),
    RightsCase("Produce", lambda names: _produce(names, None), (0,), 12),
    RightsCase("Produce", lambda names: _produce(names, None), (0,), 13),
    RightsCase("Produce", lambda names: _produce(names, names.transactional_id), (1, 0), 11),
    RightsCase(
        "SyncGroup",
        lambda names: sync_group.SyncGroupRequest(
            group_id=names.group, member_id="nobody", protocol_type="consumer", protocol_name="range"
        ),
    ),
    RightsCase("TxnOffsetCommit", _txn_offset_commit, (0, 1, 2)),
    RightsCase("UnregisterBroker", lambda _: unregister_broker.UnregisterBrokerRequest(broker_id=999)),
    RightsCase("UpdateFeatures", _feature),
    RightsCase("WriteTxnMarkers", _marker),
]
