"""The client's SASL exchange against the server's side of SCRAM, and against answers of misbehaving brokers."""

import pytest

from logbrook.client.errors import (
    BrokerError,
    MechanismNotOfferedError,
    SaslRefusedError,
    WrongSecurityProtocolError,
)
from logbrook.client.sasl import SaslClientExchange, renewal_delay_s
from logbrook.client.sasl_options import OauthOptions, SaslOptions
from logbrook.model.security import SaslMechanism
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from logbrook.protocol.scram import ScramServerExchange, credential_of, salted_password

SALT = bytes(range(16))
PASSWORD = "pencil"
SCRAM = SaslOptions(SaslMechanism.SCRAM_SHA_256, "alice", PASSWORD)
PLAIN = SaslOptions(SaslMechanism.PLAIN, "alice", PASSWORD)


def exchange_with(options: SaslOptions, token: str = "") -> SaslClientExchange:
    return SaslClientExchange(options, "broker-1", 9094, nonce="client-nonce", token=token)


def sent(exchange: SaslClientExchange) -> bytes:
    assert isinstance(exchange.request, SaslAuthenticateRequest)
    assert exchange.response is SaslAuthenticateResponse
    return exchange.request.auth_bytes


def begin(options: SaslOptions, token: str = "") -> SaslClientExchange:
    exchange = exchange_with(options, token)
    assert isinstance(exchange.request, SaslHandshakeRequest)
    assert exchange.request.mechanism == options.mechanism
    exchange.receive(SaslHandshakeResponse(mechanisms=[options.mechanism]))
    return exchange


def test_plain_sends_user_and_password_once() -> None:
    exchange = begin(PLAIN)
    assert sent(exchange) == b"\0alice\0pencil"
    exchange.receive(SaslAuthenticateResponse(session_lifetime_ms=60_000))
    assert exchange.request is None
    assert exchange.session_lifetime_ms == 60_000


def test_scram_proves_the_password_and_verifies_the_server() -> None:
    exchange, server = begin(SCRAM), ScramServerExchange(SaslMechanism.SCRAM_SHA_256, "server-nonce")
    salted = salted_password(SCRAM.mechanism, PASSWORD, SALT, 4096)
    server.read_first(sent(exchange))
    first = server.first_message(credential_of(SCRAM.mechanism, salted, SALT, 4096))
    exchange.receive(SaslAuthenticateResponse(auth_bytes=first))
    exchange.receive(SaslAuthenticateResponse(auth_bytes=server.final_message(sent(exchange))))
    assert exchange.request is None
    assert server.username == "alice"


def test_scram_refuses_a_server_that_does_not_know_the_user() -> None:
    exchange, server = begin(SCRAM), ScramServerExchange(SaslMechanism.SCRAM_SHA_256, "server-nonce")
    server.read_first(sent(exchange))
    salted = salted_password(SCRAM.mechanism, "other", SALT, 4096)
    first = server.first_message(credential_of(SCRAM.mechanism, salted, SALT, 4096))
    exchange.receive(SaslAuthenticateResponse(auth_bytes=first))
    with pytest.raises(SaslRefusedError, match="did not prove"):
        exchange.receive(SaslAuthenticateResponse(auth_bytes=b"v=AAAA"))


def test_a_token_is_sent_with_extensions() -> None:
    options = SaslOptions(SaslMechanism.OAUTHBEARER, oauth=OauthOptions(token="t", extensions=(("tenant", "a"),)))
    exchange = begin(options, "t0ken")
    assert sent(exchange) == b"n,,\x01auth=Bearer t0ken\x01tenant=a\x01\x01"
    exchange.receive(SaslAuthenticateResponse())
    assert exchange.request is None


def test_a_refused_token_ends_with_the_brokers_message() -> None:
    exchange = begin(SaslOptions(SaslMechanism.OAUTHBEARER, oauth=OauthOptions(token="t", client_id="me")), "t0ken")
    exchange.receive(SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'))
    assert sent(exchange) == b"\x01"
    failure = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="expired")
    with pytest.raises(SaslRefusedError, match="authentication of me at broker-1:9094 with OAUTHBEARER failed: exp"):
        exchange.receive(failure)


def test_a_broker_that_goes_on_after_refusing_a_token_is_not_trusted() -> None:
    exchange = begin(SaslOptions(SaslMechanism.OAUTHBEARER, oauth=OauthOptions(token="t")), "t0ken")
    exchange.receive(SaslAuthenticateResponse(auth_bytes=b"{}"))
    with pytest.raises(SaslRefusedError):
        exchange.receive(SaslAuthenticateResponse())


def test_a_wrong_password_is_not_in_the_error() -> None:
    exchange = begin(PLAIN)
    failure = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="Invalid username or password"
    )
    with pytest.raises(SaslRefusedError) as caught:
        exchange.receive(failure)
    assert str(caught.value) == (
        "authentication of alice at broker-1:9094 with PLAIN failed: Invalid username or password"
    )
    assert not caught.value.is_retriable


def test_a_mechanism_that_is_not_offered_names_those_that_are() -> None:
    refusal = SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["SCRAM-SHA-512", "OAUTHBEARER"]
    )
    with pytest.raises(MechanismNotOfferedError, match="does not accept PLAIN: it offers SCRAM-SHA-512, OAUTHBEARER"):
        exchange_with(PLAIN).receive(refusal)


def test_a_listener_without_sasl_is_named() -> None:
    with pytest.raises(WrongSecurityProtocolError, match=r"set security.protocol to PLAINTEXT"):
        exchange_with(PLAIN).receive(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def test_other_errors_keep_their_code() -> None:
    with pytest.raises(BrokerError, match="NOT_CONTROLLER"):
        exchange_with(PLAIN).receive(SaslHandshakeResponse(error_code=ErrorCode.NOT_CONTROLLER))
    with pytest.raises(BrokerError, match="ILLEGAL_SASL_STATE"):
        begin(PLAIN).receive(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def test_a_session_is_renewed_before_it_ends() -> None:
    assert renewal_delay_s(0) is None
    delays = [renewal_delay_s(100_000) for _ in range(100)]
    assert all(delay is not None and 85 <= delay <= 95 for delay in delays)
