"""DescribeAcls, CreateAcls and DeleteAcls on a broker without an authorizer."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from logbrook.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from logbrook.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tests.unit.server.handlers.kit import Peer, distinct_versions

TOPIC_RESOURCE, LITERAL, READ_OPERATION, ALLOW = 2, 3, 3, 3


@distinct_versions(DescribeAclsRequest)
def test_acls_cannot_be_described(peer: Peer, version: int) -> None:
    request = DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1)
    response = peer.ask(request, DescribeAclsResponse, version)
    assert (response.error_code, response.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert response.error_message == "No Authorizer is configured."


@distinct_versions(CreateAclsRequest)
def test_every_acl_is_refused(peer: Peer, version: int) -> None:
    creation = AclCreation(
        resource_type=TOPIC_RESOURCE,
        resource_name="orders",
        resource_pattern_type=LITERAL,
        principal="User:alice",
        host="*",
        operation=READ_OPERATION,
        permission_type=ALLOW,
    )
    response = peer.ask(CreateAclsRequest(creations=[creation, creation]), CreateAclsResponse, version)
    assert [result.error_code for result in response.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert all(result.error_message for result in response.results)


@distinct_versions(DeleteAclsRequest)
def test_there_is_no_acl_to_delete(peer: Peer, version: int) -> None:
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)])
    (result,) = peer.ask(request, DeleteAclsResponse, version).filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.SECURITY_DISABLED, [])
