"""TLS and SASL of connections over real sockets, with a scripted broker and certificates that are right and wrong."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from logbrook.client import Connection, ConnectionClosedError, NotKafkaError
from logbrook.client.connection import poll_connections
from logbrook.client.errors import (
    BrokerCertificateError,
    ClientCertificateError,
    ClientError,
    ConnectFailedError,
    SaslRefusedError,
    SecurityOptionError,
    TlsHandshakeClosedError,
    WrongSecurityProtocolError,
)
from logbrook.client.security import ClientSecurity, parse_client_security
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.framing import read_request_start
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.certificates import Certificates, IssuedCertificate
from tests.unit.client.scripted_broker import ScriptedBroker, answer, api_version, request_in, supports

HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")
USER = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "s3cr3t"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def server_context(issued: IssuedCertificate, client_ca: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context


def tls(**options: object) -> ClientSecurity:
    named = {name.replace("_", "."): str(value) for name, value in options.items()}
    return parse_client_security({"security.protocol": "SSL"} | named)


def heartbeat(peer: ScriptedBroker, security: ClientSecurity, host: str = "127.0.0.1") -> None:
    with Connection(host, peer.port, timeout_s=10, security=security) as connection:
        connection.request(HEARTBEAT, HeartbeatResponse)


def broker(lifetime_ms: int = 0, password: bytes = b"\0alice\0s3cr3t") -> Callable[[memoryview], bytes]:
    """Answer heartbeats, and authenticate with PLAIN."""

    def respond(frame: memoryview) -> bytes:
        match read_request_start(frame).api_key:
            case SaslHandshakeRequest.API_KEY:
                return answer(frame, SaslHandshakeResponse(mechanisms=["PLAIN"]))
            case SaslAuthenticateRequest.API_KEY:
                if request_in(frame, SaslAuthenticateRequest).auth_bytes == password:
                    return answer(frame, SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))
                code = ErrorCode.SASL_AUTHENTICATION_FAILED
                return answer(frame, SaslAuthenticateResponse(error_code=code, error_message="no"))
            case ApiVersionsRequest.API_KEY:
                return supports(SaslHandshakeRequest, SaslAuthenticateRequest, HeartbeatRequest)(frame) or b""
            case _:
                return answer(frame, HeartbeatResponse())

    return respond


def test_a_trusted_broker_is_reached_by_name_and_by_address(certificates: Certificates) -> None:
    with ScriptedBroker(broker(), tls=server_context(certificates.issue())) as peer:
        heartbeat(peer, tls(ssl_ca_location=certificates.ca))
        heartbeat(peer, tls(ssl_ca_location=certificates.ca), "localhost")
        heartbeat(peer, tls(ssl_truststore_certificates=certificates.ca.read_text()))


def test_a_broker_of_another_authority_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    other = Certificates(tmp_path)
    with ScriptedBroker(broker(), tls=server_context(certificates.issue())) as peer:
        with pytest.raises(
            BrokerCertificateError, match=r"not from a trusted authority; set ssl.ca.location"
        ) as caught:
            heartbeat(peer, tls(ssl_ca_location=other.ca))
        assert not caught.value.is_retriable
        with pytest.raises(BrokerCertificateError, match="not from a trusted authority"):
            heartbeat(peer, tls())
        heartbeat(peer, tls(ssl_ca_location=other.ca, enable_ssl_certificate_verification="false"))


def test_an_expired_certificate_is_refused(certificates: Certificates) -> None:
    with (
        ScriptedBroker(broker(), tls=server_context(certificates.issue(is_expired=True))) as peer,
        pytest.raises(BrokerCertificateError, match="has expired; it must be renewed there"),
    ):
        heartbeat(peer, tls(ssl_ca_location=certificates.ca))


def test_a_certificate_for_another_host_is_refused(certificates: Certificates) -> None:
    with ScriptedBroker(broker(), tls=server_context(certificates.issue(hosts=("broker-9",)))) as peer:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(BrokerCertificateError, match=rf"is not for {host}: connect by a name that is in it"):
                heartbeat(peer, tls(ssl_ca_location=certificates.ca), host)
        heartbeat(peer, tls(ssl_ca_location=certificates.ca, ssl_endpoint_identification_algorithm=""))


def test_client_certificates_are_presented_from_files_and_from_text(certificates: Certificates) -> None:
    mine = certificates.issue("CN=alice", hosts=(), key_password="s3cr3t")
    open_key = certificates.issue("CN=bob", hosts=())
    text = {
        "ssl.keystore.certificate.chain": open_key.certificate.read_text(),
        "ssl.keystore.key": open_key.key.read_text(),
    }
    with ScriptedBroker(broker(), tls=server_context(certificates.issue(), certificates.ca)) as peer:
        ca = {"security.protocol": "SSL", "ssl.ca.location": str(certificates.ca)}
        files = {"ssl.certificate.location": str(mine.certificate), "ssl.key.location": str(mine.key)}
        heartbeat(peer, parse_client_security(ca | files | {"ssl.key.password": "s3cr3t"}))
        heartbeat(peer, parse_client_security(ca | text))
        for wrong in ({"ssl.key.password": "other-s3cr3t"}, {}):
            with pytest.raises(SecurityOptionError, match=r"is ssl.key.password right") as caught:
                heartbeat(peer, parse_client_security(ca | files | wrong))
            assert "s3cr3t" not in str(caught.value)


def test_a_missing_and_an_untrusted_client_certificate_are_told_apart(
    certificates: Certificates, tmp_path: Path
) -> None:
    stranger = Certificates(tmp_path).issue("CN=eve")
    with ScriptedBroker(broker(), tls=server_context(certificates.issue(), certificates.ca)) as peer:
        with pytest.raises(ClientCertificateError, match="requires a client certificate"):
            heartbeat(peer, tls(ssl_ca_location=certificates.ca))
        with pytest.raises(ClientCertificateError, match="refuses the client's certificate: unknown ca"):
            heartbeat(
                peer,
                tls(
                    ssl_ca_location=certificates.ca,
                    ssl_certificate_location=stranger.certificate,
                    ssl_key_location=stranger.key,
                ),
            )


def test_files_that_cannot_be_used_are_named(certificates: Certificates, tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"\xfe\xed\xfe\xed")
    (tmp_path / "bad.pem").write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    for name, reason in (("absent", "No such file"), ("store", "not a PEM file"), ("bad.pem", "cannot be used")):
        with pytest.raises(SecurityOptionError, match=reason) as caught:
            Connection("127.0.0.1", 1, security=tls(ssl_ca_location=tmp_path / name))
        assert name in str(caught.value)
    with pytest.raises(SecurityOptionError, match=r"ssl.cipher.suites"):
        Connection("127.0.0.1", 1, security=tls(ssl_cipher_suites="NOT_A_CIPHER"))


def test_a_tls_client_says_that_the_listener_is_plain_text(certificates: Certificates) -> None:
    # A broker closes the connection, because the hello looks like a frame that is too long.
    with listening(lambda connected: connected.recv(1)) as address, pytest.raises(TlsHandshakeClosedError) as closed:
        Connection(*address, timeout_s=10, security=tls(ssl_ca_location=certificates.ca))
    assert "the listener may be plain text" in str(closed.value)
    with listening(_answer_in_text) as address, pytest.raises(WrongSecurityProtocolError) as caught:
        Connection(*address, timeout_s=10, security=tls(ssl_ca_location=certificates.ca))
    assert "does not answer with TLS: the listener is plain text" in str(caught.value)


@contextmanager
def listening(serve: Callable[[socket.socket], object]) -> Iterator[tuple[str, int]]:
    """Accept one connection on a thread, serve it and close it."""

    def accept() -> None:
        connected, _ = listener.accept()
        with connected:
            serve(connected)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            thread.join()


def _answer_in_text(connected: socket.socket) -> None:
    connected.recv(1)
    connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    connected.recv(1 << 16)


def test_a_plain_client_says_that_the_listener_has_tls(certificates: Certificates) -> None:
    with ScriptedBroker(broker(), tls=server_context(certificates.issue())) as peer:
        with pytest.raises((NotKafkaError, ConnectionClosedError)) as caught:
            heartbeat(peer, ClientSecurity())
        assert "SASL_SSL" in str(caught.value)


def test_a_listener_that_does_not_answer_the_handshake_times_out(certificates: Certificates) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(ConnectFailedError, match="no TLS handshake"),
    ):
        Connection(*listener.getsockname(), timeout_s=0.05, security=tls(ssl_ca_location=certificates.ca))


def test_sasl_over_tls_authenticates_before_the_first_request(certificates: Certificates) -> None:
    options = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(certificates.ca)} | USER
    with ScriptedBroker(broker(), tls=server_context(certificates.issue())) as peer:
        heartbeat(peer, parse_client_security(options))
        assert [start.api_key for start in peer.starts] == [18, 17, 36, 12]
        with pytest.raises(SaslRefusedError, match="authentication of alice"):
            heartbeat(peer, parse_client_security(options | {"sasl.password": "wrong"}))


def test_a_connection_that_fails_to_authenticate_is_closed() -> None:
    options = {"security.protocol": "SASL_PLAINTEXT"} | USER | {"sasl.password": "wrong"}
    with ScriptedBroker(broker()) as peer, pytest.raises(SaslRefusedError):
        Connection(peer.host, peer.port, security=parse_client_security(options))


def test_a_session_is_renewed_before_the_next_request_and_keeps_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    security = parse_client_security({"security.protocol": "SASL_PLAINTEXT"} | USER)
    # Every request comes after the end of the session.
    monkeypatch.setattr("logbrook.client.connection.renewal_delay_s", lambda lifetime_ms: -lifetime_ms / 1000)
    with (
        ScriptedBroker(broker(lifetime_ms=60_000)) as peer,
        Connection(peer.host, peer.port, timeout_s=10, security=security) as connection,
    ):
        connection.version_of(HeartbeatRequest)
        first = connection.send(HEARTBEAT, HeartbeatResponse)
        second = connection.send(HEARTBEAT, HeartbeatResponse)
        assert connection.has_bytes
        assert poll_connections([connection], 10) == [connection]
        connection.receive(first)
        connection.receive(second)
        assert [start.api_key for start in peer.starts] == [18, 17, 36, 17, 36, 12, 17, 36, 12]


def test_bytes_that_tls_has_decrypted_already_are_seen(certificates: Certificates) -> None:
    def both(frame: memoryview) -> bytes | None:
        """Answer two heartbeats at once, in one TLS record."""
        if read_request_start(frame).api_key != HeartbeatRequest.API_KEY:
            return broker()(frame)
        waiting.append(frame)
        return None if len(waiting) < 2 else b"".join(answer(frame, HeartbeatResponse()) for frame in waiting)

    waiting: list[memoryview] = []
    security = tls(ssl_ca_location=certificates.ca)
    with (
        ScriptedBroker(both, tls=server_context(certificates.issue())) as peer,
        Connection("127.0.0.1", peer.port, timeout_s=10, security=security) as connection,
    ):
        sent = [connection.send(HEARTBEAT, HeartbeatResponse) for _ in range(2)]
        for request in sent:
            assert poll_connections([connection], 10) == [connection]
            connection.receive(request)


def test_an_old_broker_without_sasl_authenticate_is_refused() -> None:
    def old(frame: memoryview) -> bytes:
        return answer(frame, ApiVersionsResponse(api_keys=[api_version(SaslHandshakeRequest, 0, 0)]))

    security = parse_client_security({"security.protocol": "SASL_PLAINTEXT"} | USER)
    with ScriptedBroker(old) as peer, pytest.raises(Exception, match="SaslHandshake version 1 is not supported"):
        Connection(peer.host, peer.port, timeout_s=10, security=security)


def test_large_requests_and_responses_pass_through_tls(certificates: Certificates) -> None:
    member = "m" * 30_000
    received: list[str] = []

    def echo(frame: memoryview) -> bytes:
        if read_request_start(frame).api_key == HeartbeatRequest.API_KEY:
            received.append(request_in(frame, HeartbeatRequest).member_id)
        return broker()(frame)

    with (
        ScriptedBroker(echo, tls=server_context(certificates.issue())) as peer,
        Connection("127.0.0.1", peer.port, security=tls(ssl_ca_location=certificates.ca)) as connection,
    ):
        connection.request(HeartbeatRequest(group_id="g", member_id=member), HeartbeatResponse)
    assert received == [member]


def test_errors_of_security_are_client_errors() -> None:
    assert issubclass(BrokerCertificateError, ClientError)
    assert issubclass(TlsHandshakeClosedError, ClientError)
    assert TlsHandshakeClosedError.is_retriable
    assert not SaslRefusedError.is_retriable
