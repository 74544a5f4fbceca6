"""Apache Kafka with its StandardAuthorizer, and Logbrook, refuse the same requests of a client with the same ACLs.

The requests are those of the authorization matrix (`tests/unit/server/security/test_api_rights.py`). Kafka's client is
authenticated by SASL; Logbrook's handlers are called without a socket.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest

from logbrook.client.connection import Connection
from logbrook.config.network import split_address
from logbrook.core.acls import CLUSTER_NAME, AclBinding, AclOperation, PatternType, PermissionType, ResourceType
from logbrook.model.security import ANONYMOUS, Principal
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from logbrook.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from logbrook.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from logbrook.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from logbrook.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from logbrook.server.security.api_rights import API_RIGHTS, Right
from logbrook.server.session import ConnectionSession
from logbrook.testing.processes import free_port, wait_until
from tests.interop.java.kafka_broker import KafkaBroker
from tests.rights_kit import CASES, Asking, ResourceNames, RightsCase, error_codes, existing, is_denied
from tests.unit.server.handler_kit import CLIENT_HOST, HandlerClient, HandlerShell

ALICE = Principal("User", "alice")
ANY = 1
AUTHORIZATION_CODES = {need.code for needs in API_RIGHTS.values() for need in needs}
_ANSWERED_S_MAX = 30.0
_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": str(ANONYMOUS),
    "auto.create.topics.enable": "true",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    ),
}


class SecuredKafka(KafkaBroker):
    """Anonymous clients are super users; `sasl_port` is that of a listener on which alice authenticates."""

    sasl_port = 0

    def _required(self, port: int, controller_port: int) -> dict[str, str]:
        required = super()._required(port, controller_port)
        self.sasl_port = free_port()
        listener = f",SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}"
        return required | {
            "listeners": required["listeners"] + listener,
            "advertised.listeners": required["advertised.listeners"] + listener,
            "listener.security.protocol.map": (
                required["listener.security.protocol.map"] + ",SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
        }


class SecuredBroker(NamedTuple):
    """A broker as an administrator and alice see it."""

    admin: Asking
    alice: Asking
    existing: ResourceNames

    def outcome(self, case: RightsCase, allowed: list[Right], denied: list[Right]) -> tuple[set[ErrorCode], list[bool]]:
        """Return the authorization errors of the case, and which of its needs are denied."""
        names = case.names(self.admin, self.existing)
        acls = [_acl(right, names, PermissionType.ALLOW) for right in allowed]
        self._set_acls({*acls, *(_acl(right, names, PermissionType.DENY) for right in denied)})
        response = case.ask(self.alice, names)
        return error_codes(response) & AUTHORIZATION_CODES, [is_denied(need, response, names) for need in case.needs]

    def _set_acls(self, acls: set[AclBinding]) -> None:
        every = DeleteAclsFilter(resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)
        self.admin.request(DeleteAclsRequest(filters=[every]), DeleteAclsResponse)
        creations = [
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in sorted(acls)
        ]
        results = self.admin.request(CreateAclsRequest(creations=creations), CreateAclsResponse).results
        assert {result.error_code for result in results} <= {ErrorCode.NONE}
        # Kafka's controller has them before its broker does.
        assert wait_until(lambda: self._acls() == acls, _ANSWERED_S_MAX)

    def _acls(self) -> set[AclBinding]:
        every = DescribeAclsRequest(
            resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY
        )
        return {
            AclBinding(
                ResourceType(resource.resource_type),
                PatternType(resource.pattern_type),
                resource.resource_name,
                acl.principal,
                acl.host,
                AclOperation(acl.operation),
                PermissionType(acl.permission_type),
            )
            for resource in self.admin.request(every, DescribeAclsResponse).resources
            for acl in resource.acls
        }


def _acl(right: Right, names: ResourceNames, permission: PermissionType) -> AclBinding:
    name = "*" if right.is_on_any and permission is PermissionType.DENY else names.of(right.resource_type)
    assert right.resource_type is not ResourceType.CLUSTER or name == CLUSTER_NAME
    return AclBinding(right.resource_type, PatternType.LITERAL, name, str(ALICE), "*", right.operation, permission)


@pytest.fixture(scope="module")
def ours() -> Iterator[SecuredBroker]:
    settings = {
        "topics": {"auto_create": True},
        "storage": {"durability": "interval"},
        "security": {"authorization": True, "super_users": str(ANONYMOUS)},
    }
    with HandlerShell(settings) as shell:
        alice = HandlerClient(shell, "alice", ConnectionSession(CLIENT_HOST, principal=ALICE))
        admin = shell.client("admin")
        yield SecuredBroker(admin, alice, existing(admin, "matrix"))


@pytest.fixture(scope="module")
def theirs(tools_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with ExitStack() as opened:
        kafka = opened.enter_context(SecuredKafka(tools_jars, Path(tmp_path_factory.mktemp("kafka")), _AUTHORIZER))
        admin = opened.enter_context(closing(Connection(*split_address(kafka.bootstrap_servers))))
        alice = opened.enter_context(closing(Connection("127.0.0.1", kafka.sasl_port)))
        _authenticate(alice)
        _wait_for_coordinators(admin)
        yield SecuredBroker(admin, alice, existing(admin, "matrix"))


def _authenticate(connection: Connection) -> None:
    handshake = connection.request(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
    assert handshake.error_code == ErrorCode.NONE
    authenticated = connection.request(
        SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), SaslAuthenticateResponse, 2
    )
    assert authenticated.error_code == ErrorCode.NONE, authenticated.error_message


def _wait_for_coordinators(admin: Connection) -> None:
    """Wait until groups and transactions are served: Kafka creates the internal topics when they are needed."""

    def is_ready() -> bool:
        for key_type in (0, 1):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
            if error_codes(admin.request(find, FindCoordinatorResponse)) != {ErrorCode.NONE}:
                return False
        groups = admin.request(DescribeGroupsRequest(groups=["any"]), DescribeGroupsResponse, 5)
        init = InitProducerIdRequest(transactional_id="any", transaction_timeout_ms=1_000)
        producer = admin.request(init, InitProducerIdResponse, 4)
        return error_codes(groups) | error_codes(producer) == {ErrorCode.NONE}

    assert wait_until(is_ready, _ANSWERED_S_MAX)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kafka_refuses_the_same_requests(ours: SecuredBroker, theirs: SecuredBroker, case: RightsCase) -> None:
    first = [need.rights[0] for need in case.needs]
    situations: list[tuple[list[Right], list[Right]]] = [([], []), (first, [])]
    for number, need in enumerate(case.needs):
        others = first[:number] + first[number + 1 :]
        situations += [(others, [])] if others else []
        situations += [([*others, right], []) for right in need.rights[1:]]
        situations += [([*others, right], [right]) for right in need.rights]
    for allowed, denied in situations:
        assert ours.outcome(case, allowed, denied) == theirs.outcome(case, allowed, denied), (allowed, denied)
