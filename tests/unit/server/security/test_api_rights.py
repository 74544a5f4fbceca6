"""The authorization matrix: every API with no right, with exactly the needed rights, and with a deny.

The outcome is compared with the table of `server.security.api_rights`, need by need. A client with all rights but the
one in question shows that the handler asks for that one.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook.core.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    Acls,
    PatternType,
    PermissionType,
    ResourceType,
)
from logbrook.model.security import ANONYMOUS, Principal
from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.handlers import all_apis
from logbrook.server.security.api_rights import API_RIGHTS, Right, rights_table
from logbrook.server.session import ConnectionSession
from tests.rights_kit import CASES, ResourceNames, RightsCase, error_codes, existing, is_denied
from tests.unit.server.handler_kit import CLIENT_HOST, HandlerClient, HandlerShell

DOCUMENT = Path(__file__).parents[4] / "docs" / "SECURITY.md"
ALICE = Principal("User", "alice")
# Needs the shell of a cluster: see `tests/unit/server/cluster`.
ELSEWHERE = {("Fetch", 1)}
AUTHORIZATION_CODES = {need.code for needs in API_RIGHTS.values() for need in needs}


class Matrix:
    """A broker with an authorizer, and a client whose rights are chosen for each request."""

    def __init__(self, shell: HandlerShell) -> None:
        self._acls: Acls = shell.services.security.acls
        self._client = HandlerClient(shell, "alice", ConnectionSession(CLIENT_HOST, principal=ALICE))
        self._admin = shell.client("admin")
        self._existing = existing(self._admin, "matrix")

    def check(self, case: RightsCase, allowed: list[Right], denied: list[Right], *, has_all: bool = False) -> None:
        """Check the outcome of the case: a need is denied if no right of it is allowed, or all of them are denied."""
        names = case.names(self._admin, self._existing)
        self._reset()
        acls = [_acl(right, names, PermissionType.ALLOW) for right in allowed]
        acls += [_acl(right, names, PermissionType.DENY) for right in denied]
        if has_all:
            acls += [
                _everything(resource_type) for resource_type in ResourceType if resource_type is not ResourceType.ANY
            ]
        self._replay(self._acls.create(acls))
        response = case.ask(self._client, names)
        granted = set(allowed) - set(denied)
        lacking = [
            need
            for need in case.needs
            if not (has_all and not set(need.rights) & set(denied)) and not granted & set(need.rights)
        ]
        context = f"{case} allowed {allowed} denied {denied}: {error_codes(response)}"
        if lacking:
            assert is_denied(lacking[0], response, names), context
        else:
            assert not error_codes(response) & AUTHORIZATION_CODES, context
            assert not any(is_denied(need, response, names) for need in case.needs), context

    def _reset(self) -> None:
        self._replay(self._acls.delete(self._acls.matching(AclFilter())))

    def _replay(self, records: list[tuple[str, bytes | None]]) -> None:
        for key, value in records:
            self._acls.replay(key, value)


def _acl(right: Right, names: ResourceNames, permission: PermissionType) -> AclBinding:
    # A right on any topic is denied by one on all topics.
    name = "*" if right.is_on_any and permission is PermissionType.DENY else names.of(right.resource_type)
    return AclBinding(right.resource_type, PatternType.LITERAL, name, str(ALICE), "*", right.operation, permission)


def _everything(resource_type: ResourceType) -> AclBinding:
    name = "kafka-cluster" if resource_type is ResourceType.CLUSTER else "*"
    return AclBinding(resource_type, PatternType.LITERAL, name, "User:*", "*", AclOperation.ALL, PermissionType.ALLOW)


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    settings = {
        "topics": {"auto_create": True},
        "storage": {"durability": "interval"},
        "security": {"authorization": True, "super_users": str(ANONYMOUS)},
    }
    with HandlerShell(settings) as shell:
        yield Matrix(shell)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_api_needs_exactly_the_rights_of_the_table(matrix: Matrix, case: RightsCase) -> None:
    first = [need.rights[0] for need in case.needs]
    matrix.check(case, [], [])
    for number, need in enumerate(case.needs):
        others = first[:number] + first[number + 1 :]
        matrix.check(case, others, [])
        for right in need.rights:
            matrix.check(case, [*others, right], [])
            matrix.check(case, [*others, right], [right])
        matrix.check(case, [], list(need.rights), has_all=True)


def test_every_api_is_in_the_table() -> None:
    assert sorted(api.name for api in all_apis()) == sorted(API_RIGHTS)


def test_every_need_of_the_table_is_tested() -> None:
    tested = {(case.api, index) for case in CASES for index in case.indexes}
    assert {(name, index) for name, needs in API_RIGHTS.items() for index in range(len(needs))} == tested | ELSEWHERE


def test_the_document_has_the_table() -> None:
    """`python -m logbrook.server.security.api_rights` prints it."""
    between = re.search(r"<!-- rights -->\n\n(.*)\n<!-- end of rights -->", DOCUMENT.read_text(), re.DOTALL)
    assert between is not None
    assert between[1] == rights_table()


def test_codes_of_denials_are_those_of_authorization() -> None:
    assert {code.name.removesuffix("_AUTHORIZATION_FAILED") for code in AUTHORIZATION_CODES} == {
        *("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
    }
    assert ErrorCode.NONE not in AUTHORIZATION_CODES
