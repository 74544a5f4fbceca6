"""The administrative APIs, and the changes that a request asked for, with their results.

The dispatcher calls `changes_of` when a request of one of these APIs has been handled, also if its client has
disconnected meanwhile. So no handler can forget its audit events, and a test proves that every API is here or is known
to change nothing administrative. Requests that only validate are left out. Values of settings of topics are given; of
other settings, also of unknown ones, only the names.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from logbrook.config.cluster import ClusterConfig
from logbrook.config.kafka_settings import TOPIC_SETTINGS
from logbrook.core.acl_bindings import AclOperation, PatternType, PermissionType, ResourceType
from logbrook.model.security import USER, Principal
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from logbrook.protocol.messages.alter_configs import AlterConfigsRequest
from logbrook.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from logbrook.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from logbrook.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from logbrook.protocol.messages.create_acls import CreateAclsRequest
from logbrook.protocol.messages.create_partitions import CreatePartitionsRequest
from logbrook.protocol.messages.create_topics import CreateTopicsRequest
from logbrook.protocol.messages.delete_acls import DeleteAclsRequest
from logbrook.protocol.messages.delete_groups import DeleteGroupsRequest
from logbrook.protocol.messages.delete_records import DeleteRecordsRequest
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest
from logbrook.protocol.messages.elect_leaders import ElectLeadersRequest
from logbrook.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from logbrook.protocol.messages.offset_delete import OffsetDeleteRequest
from logbrook.protocol.messages.unregister_broker import UnregisterBrokerRequest
from logbrook.protocol.messages.update_features import UpdateFeaturesRequest
from logbrook.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from logbrook.protocol.schema import ApiMessage


class AuditedChange(NamedTuple):
    """A change that was asked for: made, or refused with an error code."""

    action: str
    resource: str
    error_code: int
    fields: Mapping[str, Any]


_Changes: TypeAlias = Iterator[AuditedChange]


class _ResourceKind(IntEnum):
    """Types of resources with settings (ConfigResource), with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def audited_keys(cluster: ClusterConfig, *, is_cluster: bool) -> frozenset[int]:
    """Return the keys of the audited APIs.

    Brokers of a cluster send markers all the time. Without a user of their own they cannot be told from operators.
    """
    is_ambiguous = is_cluster and not cluster.username
    return frozenset(AUDITED) - ({WriteTxnMarkersRequest.API_KEY} if is_ambiguous else set())


def is_of_broker(request: ApiMessage, principal: Principal, cluster: ClusterConfig) -> bool:
    """True for markers that a broker of the cluster sends."""
    is_marker = request.API_KEY == WriteTxnMarkersRequest.API_KEY
    return is_marker and bool(cluster.username) and principal == Principal(USER, cluster.username)


def changes_of(request: ApiMessage, response: ApiMessage | None) -> list[AuditedChange]:
    """Return the changes of a request of an audited API; none if it only validates."""
    if response is None or getattr(request, "validate_only", False):
        return []
    return list(AUDITED[request.API_KEY](request, response))


def _topics_created(request: Any, response: Any) -> _Changes:
    wanted = {topic.name: topic for topic in request.topics}
    for result in response.topics:
        topic = wanted.get(result.name)
        fields = {} if result.error_code else {"partitions": result.num_partitions}
        if topic is not None and topic.configs:
            fields["settings"] = _topic_settings(topic.configs)
        yield AuditedChange("create topic", f"topic {result.name}", result.error_code, fields)


def _topics_deleted(_request: Any, response: Any) -> _Changes:
    for result in response.responses:
        name = result.name or f"id {urlsafe_b64encode(result.topic_id).decode().rstrip('=')}"
        yield AuditedChange("delete topic", f"topic {name}", result.error_code, {})


def _partitions_created(request: Any, response: Any) -> _Changes:
    counts = {topic.name: topic.count for topic in request.topics}
    for result in response.results:
        fields = {"partitions": counts.get(result.name)}
        yield AuditedChange("add partitions", f"topic {result.name}", result.error_code, fields)


def _settings_altered(request: Any, response: Any) -> _Changes:
    wanted = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    for result in response.responses:
        resource = wanted.get((result.resource_type, result.resource_name))
        configs = [] if resource is None else resource.configs
        is_topic = result.resource_type == _ResourceKind.TOPIC
        settings: Any = _topic_settings(configs) if is_topic else [config.name for config in configs]
        name = f"{_word(_ResourceKind, result.resource_type)} {result.resource_name or 'default'}"
        yield AuditedChange("change settings", name, result.error_code, {"settings": settings})


def _topic_settings(configs: Iterable[Any]) -> dict[str, str | None]:
    """Return the settings by name. A setting that does not exist may be a misplaced secret of another program."""
    return {config.name: config.value if config.name in TOPIC_SETTINGS else None for config in configs}


def _records_deleted(_request: Any, response: Any) -> _Changes:
    for topic in response.topics:
        for result in topic.partitions:
            fields = {"log_start_offset": result.low_watermark}
            name = f"partition {topic.name}-{result.partition_index}"
            yield AuditedChange("delete records", name, result.error_code, fields)


def _groups_deleted(_request: Any, response: Any) -> _Changes:
    for result in response.results:
        yield AuditedChange("delete group", f"group {result.group_id}", result.error_code, {})


def _offsets_deleted(request: Any, response: Any) -> _Changes:
    if response.error_code:
        yield AuditedChange("delete offsets", f"group {request.group_id}", response.error_code, {})
        return
    for topic in response.topics:
        for result in topic.partitions:
            fields = {"partition": f"{topic.name}-{result.partition_index}"}
            yield AuditedChange("delete offsets", f"group {request.group_id}", result.error_code, fields)


def _acls_created(request: Any, response: Any) -> _Changes:
    for acl, result in zip(request.creations, response.results, strict=False):
        resource = _acl_resource(acl.resource_type, acl.resource_pattern_type, acl.resource_name)
        yield AuditedChange("add ACL", resource, result.error_code, _acl_fields(acl))


def _acls_deleted(_request: Any, response: Any) -> _Changes:
    for result in response.filter_results:
        if result.error_code:
            yield AuditedChange("remove ACL", "matching ACLs", result.error_code, {})
        for acl in result.matching_acls:
            resource = _acl_resource(acl.resource_type, acl.pattern_type, acl.resource_name)
            yield AuditedChange("remove ACL", resource, acl.error_code, _acl_fields(acl))


def _acl_resource(kind: int, pattern: int, name: str) -> str:
    suffix = "" if pattern == PatternType.LITERAL else f" ({_word(PatternType, pattern)})"
    return f"{_word(ResourceType, kind)} {name}{suffix}"


def _acl_fields(acl: Any) -> dict[str, Any]:
    return {
        "acl_principal": acl.principal,
        "acl_host": acl.host,
        "operation": _word(AclOperation, acl.operation),
        "permission": _word(PermissionType, acl.permission_type),
    }


def _word(kind: type[IntEnum], number: int) -> str:
    """Return the name of a number, in lower case; the number itself if it has none."""
    return kind(number).name.lower() if number in kind._value2member_map_ else str(number)


def _quotas_altered(request: Any, response: Any) -> _Changes:
    for entry, result in zip(request.entries, response.entries, strict=False):
        parts = [f"{part.entity_type} {part.entity_name or '<default>'}" for part in entry.entity]
        quotas = {change.key: None if change.remove else change.value for change in entry.ops}
        yield AuditedChange("change quotas", ", ".join(parts), result.error_code, {"quotas": quotas})


def _users_altered(request: Any, response: Any) -> _Changes:
    """Neither salts nor salted passwords are in the events."""
    results = {result.user: result.error_code for result in response.results}
    for action, changes in (("set password", request.upsertions), ("delete user", request.deletions)):
        for change in changes:
            fields = {"mechanism": _MECHANISMS.get(change.mechanism, change.mechanism)}
            error_code = results.get(change.name, ErrorCode.UNKNOWN_SERVER_ERROR)
            yield AuditedChange(action, f"user {change.name}", error_code, fields)


def _replicas_reassigned(request: Any, response: Any) -> _Changes:
    wanted = {
        (topic.name, partition.partition_index): partition.replicas
        for topic in request.topics
        for partition in topic.partitions
    }
    for topic in response.responses:
        for result in topic.partitions:
            replicas = wanted.get((topic.name, result.partition_index))
            fields = {"replicas": "cancelled" if replicas is None else list(replicas)}
            name = f"partition {topic.name}-{result.partition_index}"
            yield AuditedChange("reassign replicas", name, result.error_code or response.error_code, fields)
    if response.error_code and not response.responses:
        yield AuditedChange("reassign replicas", "partitions", response.error_code, {})


def _leaders_elected(request: Any, response: Any) -> _Changes:
    fields = {"election": "unclean" if request.election_type else "preferred"}
    for topic in response.replica_election_results:
        for result in topic.partition_result:
            name = f"partition {topic.topic}-{result.partition_id}"
            if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                yield AuditedChange("elect leader", name, result.error_code, fields)
    if response.error_code and not response.replica_election_results:
        yield AuditedChange("elect leader", "partitions", response.error_code, fields)


def _directories_altered(_request: Any, response: Any) -> _Changes:
    for topic in response.results:
        for result in topic.partitions:
            name = f"partition {topic.topic_name}-{result.partition_index}"
            yield AuditedChange("move to directory", name, result.error_code, {})


def _features_updated(request: Any, response: Any) -> _Changes:
    results = {result.feature: result.error_code for result in response.results}
    for update in request.feature_updates:
        error_code = response.error_code or results.get(update.feature, 0)
        fields = {"level": update.max_version_level}
        yield AuditedChange("change feature level", f"feature {update.feature}", error_code, fields)


def _broker_unregistered(request: Any, response: Any) -> _Changes:
    yield AuditedChange("unregister broker", f"broker {request.broker_id}", response.error_code, {})


def _markers_written(request: Any, response: Any) -> _Changes:
    """Operators abort hanging transactions with markers (KIP-664)."""
    for marker, answer in zip(request.markers, response.markers, strict=False):
        for topic in answer.topics:
            for result in topic.partitions:
                fields = {"producer_id": marker.producer_id, "producer_epoch": marker.producer_epoch}
                name = f"partition {topic.name}-{result.partition_index}"
                action = "commit transaction" if marker.transaction_result else "abort transaction"
                yield AuditedChange(action, name, result.error_code, fields)


AUDITED: Mapping[int, Callable[[Any, Any], _Changes]] = {
    CreateTopicsRequest.API_KEY: _topics_created,
    DeleteTopicsRequest.API_KEY: _topics_deleted,
    CreatePartitionsRequest.API_KEY: _partitions_created,
    AlterConfigsRequest.API_KEY: _settings_altered,
    IncrementalAlterConfigsRequest.API_KEY: _settings_altered,
    DeleteRecordsRequest.API_KEY: _records_deleted,
    DeleteGroupsRequest.API_KEY: _groups_deleted,
    OffsetDeleteRequest.API_KEY: _offsets_deleted,
    CreateAclsRequest.API_KEY: _acls_created,
    DeleteAclsRequest.API_KEY: _acls_deleted,
    AlterClientQuotasRequest.API_KEY: _quotas_altered,
    AlterUserScramCredentialsRequest.API_KEY: _users_altered,
    AlterPartitionReassignmentsRequest.API_KEY: _replicas_reassigned,
    AlterReplicaLogDirsRequest.API_KEY: _directories_altered,
    ElectLeadersRequest.API_KEY: _leaders_elected,
    UpdateFeaturesRequest.API_KEY: _features_updated,
    UnregisterBrokerRequest.API_KEY: _broker_unregistered,
    WriteTxnMarkersRequest.API_KEY: _markers_written,
}
