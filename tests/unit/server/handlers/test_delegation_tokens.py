"""Delegation tokens on a broker without authentication: every request about them is refused."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from logbrook.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from logbrook.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from logbrook.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from tests.unit.server.handlers.kit import Peer, distinct_versions

REFUSED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@distinct_versions(CreateDelegationTokenRequest)
def test_no_token_is_created(peer: Peer, version: int) -> None:
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type="User", principal_name="a")], max_lifetime_ms=-1
    )
    response = peer.ask(request, CreateDelegationTokenResponse, version)
    assert (response.error_code, response.token_id, response.hmac) == (REFUSED, "", b"")
    assert (response.principal_type, response.principal_name) == ("User", "ANONYMOUS")
    assert (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("owner", "answered"),
    [
        (("User", "bob"), ("User", "bob")),
        ((None, "bob"), ("", "bob")),
        (("User", None), ("User", "ANONYMOUS")),
        (("", ""), ("User", "ANONYMOUS")),
    ],
)
def test_the_refusal_names_the_owner_and_the_requester(
    peer: Peer, owner: tuple[str | None, str | None], answered: tuple[str, str]
) -> None:
    request = CreateDelegationTokenRequest(owner_principal_type=owner[0], owner_principal_name=owner[1])
    response = peer.ask(request, CreateDelegationTokenResponse)
    assert response.error_code == REFUSED
    assert (response.principal_type, response.principal_name) == answered
    requester = (response.token_requester_principal_type, response.token_requester_principal_name)
    assert requester == ("User", "ANONYMOUS")


@distinct_versions(RenewDelegationTokenRequest)
def test_no_token_is_renewed(peer: Peer, version: int) -> None:
    response = peer.ask(RenewDelegationTokenRequest(hmac=b"a"), RenewDelegationTokenResponse, version)
    assert (response.error_code, response.expiry_timestamp_ms) == (REFUSED, -1)


@distinct_versions(ExpireDelegationTokenRequest)
def test_no_token_expires(peer: Peer, version: int) -> None:
    response = peer.ask(ExpireDelegationTokenRequest(hmac=b"a"), ExpireDelegationTokenResponse, version)
    assert (response.error_code, response.expiry_timestamp_ms) == (REFUSED, -1)


@distinct_versions(DescribeDelegationTokenRequest)
def test_no_token_is_described(peer: Peer, version: int) -> None:
    for owners in (None, [], [DescribeDelegationTokenOwner(principal_type="User", principal_name="a")]):
        response = peer.ask(DescribeDelegationTokenRequest(owners=owners), DescribeDelegationTokenResponse, version)
        assert (response.error_code, response.tokens) == (REFUSED, [])
