"""The table of rights: which API needs which operation on which resource, as in Kafka 4.

Every need of an API must be met, by any one of its rights. What a client without it gets: an error code for the
resource, or, if `is_hidden`, a response that leaves the resource out. Handlers enforce the table with
`services.authorizer`; a test compares the two, for every API and every need. docs/SECURITY.md prints it.
"""

import sys
from typing import NamedTuple

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.security.authorizer import DENIED_CODES

_ANY = "any"


class Right(NamedTuple):
    operation: AclOperation
    resource_type: ResourceType
    # True: a right on any resource of the type will do.
    is_on_any: bool = False

    def __str__(self) -> str:
        return f"{self.operation.name} {_ANY + ' ' if self.is_on_any else ''}{self.resource_type.name}"


class ApiNeed(NamedTuple):
    """Met by any one of the rights. `code` is the error of a client without them."""

    rights: tuple[Right, ...]
    code: ErrorCode
    is_hidden: bool = False
    # When it is needed; empty if always.
    when: str = ""

    @property
    def denial(self) -> str:
        return "left out" if self.is_hidden else self.code.name


def _need(
    operation: AclOperation,
    resource_type: ResourceType,
    *others: Right,
    code: ErrorCode | None = None,
    is_hidden: bool = False,
    when: str = "",
) -> ApiNeed:
    return ApiNeed(
        (Right(operation, resource_type), *others), code or DENIED_CODES[resource_type], is_hidden=is_hidden, when=when
    )


_TOPIC, _GROUP, _CLUSTER, _TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
)
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
_CLUSTER_ACTION, _IDEMPOTENT_WRITE = AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE
_BY_BROKERS = "sent by brokers"
_ALTER_CONFIG_NEEDS = (
    _need(_ALTER_CONFIGS, _TOPIC, when="settings of a topic"),
    _need(_ALTER_CONFIGS, _GROUP, when="settings of a group"),
    _need(_ALTER_CONFIGS, _CLUSTER, when="settings of a broker or its loggers"),
)

# Without needs: the API is open to every client that is authenticated.
API_RIGHTS: dict[str, tuple[ApiNeed, ...]] = {
    "AddOffsetsToTxn": (_need(_WRITE, _TRANSACTION), _need(_READ, _GROUP)),
    "AddPartitionsToTxn": (
        _need(_WRITE, _TRANSACTION, when="versions up to 3"),
        _need(_WRITE, _TOPIC, when="versions up to 3"),
        _need(_CLUSTER_ACTION, _CLUSTER, when="from version 4 on, " + _BY_BROKERS),
    ),
    "AlterClientQuotas": (_need(_ALTER_CONFIGS, _CLUSTER),),
    "AlterConfigs": _ALTER_CONFIG_NEEDS,
    "AlterPartitionReassignments": (_need(_ALTER, _CLUSTER),),
    "AlterReplicaLogDirs": (_need(_ALTER, _CLUSTER),),
    "AlterUserScramCredentials": (_need(_ALTER, _CLUSTER),),
    "ApiVersions": (),
    "CreateAcls": (_need(_ALTER, _CLUSTER),),
    "CreateDelegationToken": (),
    "CreatePartitions": (_need(_ALTER, _TOPIC),),
    "CreateTopics": (
        _need(_CREATE, _TOPIC, Right(_CREATE, _CLUSTER)),
        _need(_DESCRIBE_CONFIGS, _TOPIC, when="the settings in the response"),
    ),
    "DeleteAcls": (_need(_ALTER, _CLUSTER),),
    "DeleteGroups": (_need(_DELETE, _GROUP),),
    "DeleteRecords": (_need(_DELETE, _TOPIC),),
    "DeleteTopics": (_need(_DELETE, _TOPIC, Right(_DELETE, _CLUSTER)),),
    "DescribeAcls": (_need(_DESCRIBE, _CLUSTER),),
    "DescribeClientQuotas": (_need(_DESCRIBE_CONFIGS, _CLUSTER),),
    "DescribeCluster": (),
    "DescribeConfigs": (
        _need(_DESCRIBE_CONFIGS, _TOPIC, when="settings of a topic"),
        _need(_DESCRIBE_CONFIGS, _GROUP, when="settings of a group"),
        _need(_DESCRIBE_CONFIGS, _CLUSTER, when="settings of a broker or its loggers"),
    ),
    "DescribeDelegationToken": (),
    "DescribeGroups": (_need(_DESCRIBE, _GROUP),),
    "DescribeLogDirs": (_need(_DESCRIBE, _CLUSTER),),
    "DescribeProducers": (_need(_READ, _TOPIC),),
    "DescribeQuorum": (_need(_DESCRIBE, _CLUSTER),),
    "DescribeTopicPartitions": (
        _need(_DESCRIBE, _TOPIC, when="topics by name"),
        _need(_DESCRIBE, _TOPIC, is_hidden=True, when="all topics"),
    ),
    "DescribeTransactions": (
        _need(_DESCRIBE, _TRANSACTION),
        _need(_DESCRIBE, _TOPIC, is_hidden=True, when="the partitions of a transaction"),
    ),
    "DescribeUserScramCredentials": (_need(_DESCRIBE, _CLUSTER),),
    "ElectLeaders": (_need(_ALTER, _CLUSTER),),
    "EndTxn": (_need(_WRITE, _TRANSACTION),),
    "ExpireDelegationToken": (),
    "Fetch": (
        _need(_READ, _TOPIC, when="of a consumer"),
        _need(
            _CLUSTER_ACTION, _CLUSTER, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, when="of a follower, " + _BY_BROKERS
        ),
    ),
    "FindCoordinator": (
        _need(_DESCRIBE, _GROUP, when="of a group"),
        _need(_DESCRIBE, _TRANSACTION, when="of a transactional id"),
    ),
    "GetTelemetrySubscriptions": (),
    "Heartbeat": (_need(_READ, _GROUP),),
    "IncrementalAlterConfigs": _ALTER_CONFIG_NEEDS,
    "InitProducerId": (
        _need(_WRITE, _TRANSACTION, when="with a transactional id"),
        _need(_IDEMPOTENT_WRITE, _CLUSTER, Right(_WRITE, _TOPIC, is_on_any=True), when="without a transactional id"),
    ),
    "JoinGroup": (_need(_READ, _GROUP),),
    "LeaveGroup": (_need(_READ, _GROUP),),
    "ListConfigResources": (_need(_DESCRIBE_CONFIGS, _CLUSTER),),
    "ListGroups": (_need(_DESCRIBE, _GROUP, Right(_DESCRIBE, _CLUSTER), is_hidden=True),),
    "ListOffsets": (_need(_DESCRIBE, _TOPIC),),
    "ListPartitionReassignments": (_need(_DESCRIBE, _CLUSTER),),
    "ListTransactions": (_need(_DESCRIBE, _TRANSACTION, is_hidden=True),),
    "Metadata": (
        _need(_DESCRIBE, _TOPIC, when="topics by name or id"),
        _need(_DESCRIBE, _TOPIC, is_hidden=True, when="all topics"),
        _need(_CREATE, _TOPIC, Right(_CREATE, _CLUSTER), when="a topic that is created by it"),
    ),
    "OffsetCommit": (_need(_READ, _GROUP), _need(_READ, _TOPIC)),
    "OffsetDelete": (_need(_DELETE, _GROUP), _need(_READ, _TOPIC)),
    "OffsetFetch": (
        _need(_DESCRIBE, _GROUP),
        _need(_DESCRIBE, _TOPIC, when="topics by name or id"),
        _need(_DESCRIBE, _TOPIC, is_hidden=True, when="all topics of the group"),
    ),
    "OffsetForLeaderEpoch": (_need(_DESCRIBE, _TOPIC, Right(_CLUSTER_ACTION, _CLUSTER)),),
    "Produce": (_need(_WRITE, _TOPIC), _need(_WRITE, _TRANSACTION, when="with a transactional id")),
    "RenewDelegationToken": (),
    "SaslAuthenticate": (),
    "SaslHandshake": (),
    "SyncGroup": (_need(_READ, _GROUP),),
    "TxnOffsetCommit": (_need(_WRITE, _TRANSACTION), _need(_READ, _GROUP), _need(_READ, _TOPIC)),
    "UnregisterBroker": (_need(_ALTER, _CLUSTER),),
    "UpdateFeatures": (_need(_ALTER, _CLUSTER),),
    "WriteTxnMarkers": (_need(_ALTER, _CLUSTER, Right(_CLUSTER_ACTION, _CLUSTER)),),
}


def rights_table() -> str:
    """Return the table as Markdown, for docs/SECURITY.md."""
    lines = ["| API | needs | when | without it |", "|---|---|---|---|"]
    for name, needs in sorted(API_RIGHTS.items()):
        if not needs:
            lines.append(f"| {name} | nothing | | |")
        for number, need in enumerate(needs):
            rights = " or ".join(f"`{right}`" for right in need.rights)
            denial = need.denial if need.is_hidden else f"`{need.denial}`"
            lines.append(f"| {'' if number else name} | {rights} | {need.when} | {denial} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(rights_table())
