"""SASL on a broker that does not authenticate: answers instead of a closed connection."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from logbrook.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.server.handlers.kit import Peer, distinct_versions


@distinct_versions(SaslHandshakeRequest)
def test_no_mechanism_is_offered(peer: Peer, version: int) -> None:
    response = peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, version)
    assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@distinct_versions(SaslAuthenticateRequest)
def test_no_client_is_authenticated(peer: Peer, version: int) -> None:
    response = peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), SaslAuthenticateResponse, version)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert "PLAINTEXT" in (response.error_message or "")


def test_no_user_has_credentials(peer: Peer) -> None:
    for every in (DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsRequest(users=[])):
        response = peer.ask(every, DescribeUserScramCredentialsResponse)
        assert (response.error_code, response.results) == (ErrorCode.NONE, [])
    request = DescribeUserScramCredentialsRequest(users=[UserName(name="alice")] * 2)
    (result,) = peer.ask(request, DescribeUserScramCredentialsResponse).results
    assert (result.user, result.error_code) == ("alice", ErrorCode.RESOURCE_NOT_FOUND)


def test_credentials_are_refused_and_there_are_none_to_delete(peer: Peer) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="alice", mechanism=1)],
        upsertions=[ScramCredentialUpsertion(name="bob", mechanism=1, iterations=4096)],
    )
    results = peer.ask(request, AlterUserScramCredentialsResponse).results
    assert [(result.user, result.error_code) for result in results] == [
        ("alice", ErrorCode.RESOURCE_NOT_FOUND),
        ("bob", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ]
