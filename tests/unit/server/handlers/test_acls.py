"""CreateAcls, DescribeAcls and DeleteAcls: with an authorizer, and SECURITY_DISABLED on a broker without one."""

from collections.abc import Iterator
from typing import Any

import pytest

from logbrook.core.acls import AclBinding, AclFilter, AclOperation, PatternType, PermissionType, ResourceType
from logbrook.model.security import ANONYMOUS
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from logbrook.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from logbrook.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from logbrook.testing.memory_files import MemoryFiles
from tests.unit.server.handler_kit import HandlerClient, HandlerShell
from tests.unit.server.handlers.kit import Peer, distinct_versions

ANY = 1
SECURED = {"security": {"authorization": True, "super_users": str(ANONYMOUS)}}
ALLOWED = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    AclOperation.READ,
    PermissionType.ALLOW,
)


@pytest.fixture
def secured() -> Iterator[HandlerShell]:
    with HandlerShell(SECURED) as shell:
        yield shell


def creation_of(acl: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def create(client: HandlerClient, *acls: AclBinding) -> list[int]:
    request = CreateAclsRequest(creations=[creation_of(acl) for acl in acls])
    return [result.error_code for result in client.request(request, CreateAclsResponse).results]


def delete(client: HandlerClient, **fields: Any) -> DeleteAclsResponse:
    wanted = DeleteAclsFilter(
        **{"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY, **fields}
    )
    return client.request(DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse)


@distinct_versions(DescribeAclsRequest)
def test_acls_cannot_be_described_without_an_authorizer(peer: Peer, version: int) -> None:
    request = DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1)
    response = peer.ask(request, DescribeAclsResponse, version)
    assert (response.error_code, response.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert response.error_message == "No Authorizer is configured."


@distinct_versions(CreateAclsRequest)
def test_acls_are_not_created_without_an_authorizer(peer: Peer, version: int) -> None:
    request = CreateAclsRequest(creations=[creation_of(ALLOWED)] * 2)
    response = peer.ask(request, CreateAclsResponse, version)
    assert [result.error_code for result in response.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert all(result.error_message for result in response.results)


@distinct_versions(DeleteAclsRequest)
def test_there_is_no_acl_to_delete_without_an_authorizer(peer: Peer, version: int) -> None:
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)])
    (result,) = peer.ask(request, DeleteAclsResponse, version).filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.SECURITY_DISABLED, [])


def test_an_invalid_acl_does_not_affect_the_others(secured: HandlerShell) -> None:
    client = secured.client()
    invalid = ALLOWED._replace(name="")
    unknown = creation_of(ALLOWED)
    unknown.operation = 99
    assert create(client, ALLOWED, invalid, ALLOWED) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    (result,) = client.request(CreateAclsRequest(creations=[unknown]), CreateAclsResponse).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "99" in (result.error_message or "")
    assert secured.services.security.acls.matching(AclFilter()) == [ALLOWED]


def test_acls_are_described_by_resource_pattern(secured: HandlerShell) -> None:
    client = secured.client()
    write = ALLOWED._replace(operation=AclOperation.WRITE)
    prefixed = ALLOWED._replace(pattern_type=PatternType.PREFIXED, name="or", permission=PermissionType.DENY)
    create(client, ALLOWED, write, prefixed, ALLOWED._replace(name="payments"))
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter="orders",
        pattern_type_filter=PatternType.MATCH,
        operation=ANY,
        permission_type=ANY,
    )
    described = client.request(request, DescribeAclsResponse)
    assert described.error_code == ErrorCode.NONE
    assert [
        (
            resource.resource_type,
            resource.pattern_type,
            resource.resource_name,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in described.resources
        for acl in resource.acls
    ] == sorted([ALLOWED, write, prefixed])
    assert len(described.resources) == 2


def test_an_unknown_filter_is_refused(secured: HandlerShell) -> None:
    request = DescribeAclsRequest(resource_type_filter=99, operation=ANY, permission_type=ANY)
    assert secured.client().request(request, DescribeAclsResponse).error_code == ErrorCode.INVALID_REQUEST
    (result,) = delete(secured.client(), permission_type=0).filter_results
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_a_deletion_lists_what_it_deleted(secured: HandlerShell) -> None:
    client = secured.client()
    other = ALLOWED._replace(principal="User:bob")
    create(client, ALLOWED, other)
    (result,) = delete(client, principal_filter="User:alice").filter_results
    assert [(acl.principal, acl.resource_name, acl.error_code) for acl in result.matching_acls] == [
        ("User:alice", "orders", ErrorCode.NONE)
    ]
    assert secured.services.security.acls.matching(AclFilter()) == [other]
    (result,) = delete(client, principal_filter="User:alice").filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.NONE, [])


def test_acls_survive_a_restart() -> None:
    files = MemoryFiles()
    many = [ALLOWED._replace(name=f"topic/{number}") for number in range(250)]
    with HandlerShell(SECURED, files=files) as shell:
        assert set(create(shell.client(), *many)) == {ErrorCode.NONE}
        delete(shell.client(), resource_name_filter="topic/7")
    with HandlerShell(SECURED, files=files) as shell:
        acls = shell.services.security.acls
        acls.validate()
        assert set(acls.matching(AclFilter())) == set(many) - {ALLOWED._replace(name="topic/7")}
