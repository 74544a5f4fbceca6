"""The changes that are audited, by API."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages import alter_client_quotas as quotas
from logbrook.protocol.messages import create_acls as acls
from logbrook.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from logbrook.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from logbrook.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from logbrook.server.handlers import all_apis
from logbrook.server.security.audited_apis import AUDITED, AuditedChange, changes_of

# APIs that read, or that belong to the work of producers, consumers and brokers.
NOT_ADMINISTRATIVE = {
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "ApiVersions",
    "ConsumerGroupDescribe",
    "DescribeAcls",
    "DescribeClientQuotas",
    "DescribeCluster",
    "DescribeConfigs",
    "DescribeDelegationToken",
    "DescribeGroups",
    "DescribeLogDirs",
    "DescribeProducers",
    "DescribeQuorum",
    "DescribeTopicPartitions",
    "DescribeTransactions",
    "DescribeUserScramCredentials",
    "EndTxn",
    "Fetch",
    "FindCoordinator",
    "GetTelemetrySubscriptions",
    "Heartbeat",
    "InitProducerId",
    "JoinGroup",
    "LeaveGroup",
    "ListConfigResources",
    "ListGroups",
    "ListOffsets",
    "ListPartitionReassignments",
    "ListTransactions",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "Produce",
    "SaslAuthenticate",
    "SaslHandshake",
    "SyncGroup",
    "TxnOffsetCommit",
}
# Delegation tokens are not supported: these requests change nothing.
NOT_SUPPORTED = {"CreateDelegationToken", "ExpireDelegationToken", "RenewDelegationToken"}


def test_every_api_is_audited_or_known_not_to_be_administrative() -> None:
    apis = {api.name: api.key for api in all_apis()}
    others = NOT_ADMINISTRATIVE | NOT_SUPPORTED
    assert {name for name, key in apis.items() if key not in AUDITED} == others & apis.keys()
    assert AUDITED.keys() <= set(apis.values())


def test_topics_are_named_with_their_result() -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name="a", configs=[CreatableTopicConfig(name="retention.ms", value="1")]),
            CreatableTopic(name="b"),
        ]
    )
    response = CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name="a", num_partitions=3),
            CreatableTopicResult(name="b", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
        ]
    )
    assert changes_of(request, response) == [
        AuditedChange("create topic", "topic a", 0, {"settings": {"retention.ms": "1"}, "partitions": 3}),
        AuditedChange("create topic", "topic b", ErrorCode.TOPIC_ALREADY_EXISTS, {}),
    ]
    request.validate_only = True
    assert changes_of(request, response) == []


def test_a_topic_that_is_deleted_by_its_id_is_named_by_it() -> None:
    response = DeleteTopicsResponse(responses=[DeletableTopicResult(name=None, topic_id=bytes(15) + b"\1")])
    (change,) = changes_of(DeleteTopicsRequest(), response)
    assert change.resource == "topic id AAAAAAAAAAAAAAAAAAAAAQ"


def test_changes_of_users_have_no_secrets() -> None:
    upsertion = ScramCredentialUpsertion(
        name="alice", mechanism=2, iterations=4096, salt=b"the-salt", salted_password=b"the-secret"
    )
    deletion = ScramCredentialDeletion(name="bob", mechanism=1)
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion], deletions=[deletion])
    results = [
        AlterUserScramCredentialsResult(user="alice"),
        AlterUserScramCredentialsResult(user="bob", error_code=ErrorCode.RESOURCE_NOT_FOUND),
    ]
    assert changes_of(request, AlterUserScramCredentialsResponse(results=results)) == [
        AuditedChange("set password", "user alice", 0, {"mechanism": "SCRAM-SHA-512"}),
        AuditedChange("delete user", "user bob", ErrorCode.RESOURCE_NOT_FOUND, {"mechanism": "SCRAM-SHA-256"}),
    ]


def test_acls_are_written_out() -> None:
    creation = acls.AclCreation(
        resource_type=2,
        resource_name="orders-",
        resource_pattern_type=4,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    request = acls.CreateAclsRequest(creations=[creation])
    (change,) = changes_of(request, acls.CreateAclsResponse(results=[acls.AclCreationResult()]))
    fields = {"acl_principal": "User:alice", "acl_host": "*", "operation": "read", "permission": "allow"}
    assert change == AuditedChange("add ACL", "topic orders- (prefixed)", 0, fields)


def test_quotas_are_written_out() -> None:
    entity = [quotas.EntityData(entity_type="user", entity_name=None)]
    changes = [quotas.OpData(key="producer_byte_rate", value=5.0), quotas.OpData(key="request_percentage", remove=True)]
    request = quotas.AlterClientQuotasRequest(entries=[quotas.EntryData(entity=entity, ops=changes)])
    response = quotas.AlterClientQuotasResponse(entries=[quotas.ResponseEntryData(entity=entity)])
    (change,) = changes_of(request, response)
    fields = {"quotas": {"producer_byte_rate": 5.0, "request_percentage": None}}
    assert change == AuditedChange("change quotas", "user <default>", 0, fields)
