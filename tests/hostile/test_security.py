"""Attacks on TLS and SASL: whatever unauthenticated clients send, others are served and memory stays bounded."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from logbrook.model.security import SaslMechanism
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.metadata import MetadataRequest
from logbrook.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from logbrook.protocol.messages.sasl_handshake import SaslHandshakeRequest
from logbrook.protocol.scram import ScramClientExchange
from logbrook.server.session import UNAUTHENTICATED_APIS, UNAUTHENTICATED_BYTES_MAX
from tests.hostile.secure_victim import HANDSHAKES_MAX, SecureVictim
from tests.hostile.victim import MIB
from tests.hostile.wire import raw_frame
from tests.sasl_kit import SaslSocket, frame_of

# The broker looks for such connections at intervals, and the machine may be busy.
CLOSED_S_MAX = 20.0
API_KEYS = 100


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureVictim]:
    with SecureVictim(tmp_path_factory.mktemp("secure")) as victim:
        yield victim


@pytest.fixture(autouse=True)
def still_secure(victim: SecureVictim, unharmed: None) -> Iterator[None]:
    yield
    victim.check_secure()


# TLS


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 64,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        os.urandom(4096),
        frame_of(MetadataRequest(topics=[]), 9),
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        b"\x16\x03\x03\x00\x04\x01\x00\x00\x00",
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x80\x2e\x01\x03\x01" + bytes(40),
    ],
    ids=["zeros", "http", "random", "kafka", "record too long", "empty hello", "alert", "ssl 2"],
)
def test_garbage_on_a_tls_port_closes_the_connection_and_is_logged(victim: SecureVictim, garbage: bytes) -> None:
    failures = "logbrook_tls_handshake_failures_total"
    before = victim.metric(failures)
    with victim.connect(port=victim.ports["TLS"]) as connected:
        connected.sendall(garbage)
        drain(connected)
    assert victim.wait_until(lambda: victim.metric(failures) == before + 1, CLOSED_S_MAX)


def test_plain_text_on_a_tls_port_and_tls_on_a_plain_one_are_refused_with_a_reason(victim: SecureVictim) -> None:
    with closing(victim.connect(port=victim.ports["SASL"])) as plain, pytest.raises(OSError, match=r".*"):
        victim.context().wrap_socket(plain, server_hostname="127.0.0.1")
    assert victim.wait_until(lambda: bool(victim.events("invalid request")), CLOSED_S_MAX)
    assert "TLS" in victim.events("invalid request")[0]["error"]


def test_handshakes_that_are_not_finished_are_bounded_in_number_and_time(victim: SecureVictim) -> None:
    before = victim.open_files
    hello = client_hello()
    with ExitStack() as stack:
        half_open = [stack.enter_context(victim.connect(port=victim.ports["TLS"])) for _ in range(4 * HANDSHAKES_MAX)]
        for number, connected in enumerate(half_open):
            with suppress(ConnectionError):
                connected.sendall(hello[: number % len(hello)])
        victim.check_secure()
        assert victim.open_files <= before + HANDSHAKES_MAX + 10
        for connected in half_open:
            drain(connected)
    assert victim.wait_until(lambda: victim.open_files <= before + 2, CLOSED_S_MAX)


def test_renegotiation_is_refused(victim: SecureVictim, tmp_path: Path) -> None:
    """OpenSSL's own client asks for it with the letter R."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl on this machine, so renegotiation is not tested")
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{victim.ports['TLS']}", "-tls1_2"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        said = ""
        while "Verify return code" not in said:
            line = client.stdout.readline()
            assert line, said
            said += line
        client.stdin.write("R\n")
        client.stdin.flush()
        said, _ = client.communicate(timeout=20)
    assert "no renegotiation" in said


def test_versions_before_tls_1_2_are_refused(victim: SecureVictim) -> None:
    context = victim.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        victim.connect_tls(context=context)


def test_a_session_is_not_resumed_after_a_reload(victim: SecureVictim) -> None:
    """It would keep the rights of a certificate that is not trusted any more. With TLS 1.3 none is ever resumed."""
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = victim.context(version)
        with victim.connect_tls(context=context) as first:
            SaslSocket(first).ask_versions()
            session = first.session
        if version is ssl.TLSVersion.TLSv1_2:
            victim.signal(signal.SIGHUP)
            assert victim.wait_until(lambda: bool(victim.events("certificate reloaded")), CLOSED_S_MAX)
        with (
            victim.connect(port=victim.ports["TLS"]) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as second,
        ):
            SaslSocket(second).ask_versions()
            assert not second.session_reused


def test_many_handshakes_leave_no_memory_behind(victim: SecureVictim) -> None:
    context = victim.context(ssl.TLSVersion.TLSv1_2)
    for _ in range(50):
        victim.connect_tls(context=context).close()
    before = victim.memory_bytes
    for _ in range(300):
        victim.connect_tls(context=context).close()
    assert victim.memory_bytes - before < 4 * MIB


def test_a_certificate_replaced_under_load_is_used_by_new_connections_and_old_ones_live(victim: SecureVictim) -> None:
    with victim.connect_sasl("BOTH") as old:
        old.log_in("alice", "wonderland")
        first = served_certificate(victim)
        issued = victim.certificates.issue("replaced")
        # Half of a replacement: the key does not belong to the certificate.
        replace(issued.certificate, victim.certificate)
        victim.signal(signal.SIGHUP)
        assert victim.wait_until(lambda: bool(victim.events("certificate not reloaded")), CLOSED_S_MAX)
        assert served_certificate(victim) == first
        replace(issued.key, victim.key)
        victim.signal(signal.SIGHUP)
        assert victim.wait_until(lambda: served_certificate(victim) != first, CLOSED_S_MAX)
        assert old.is_served()
    assert [line["event"] for line in victim.errors] == ["certificate not reloaded"]
    victim.forget_errors()


# SASL


def test_before_authentication_every_other_api_closes_the_connection(victim: SecureVictim) -> None:
    for api_key in set(range(-1, API_KEYS)) - UNAUTHENTICATED_APIS:
        with victim.connect_sasl() as connected:
            connected.socket.sendall(raw_frame(api_key, 0, bytes(20)))
            assert connected.is_closed(), api_key


def test_a_request_that_is_pipelined_behind_the_password_is_not_served(victim: SecureVictim) -> None:
    token = frame_of(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    for ahead in (b"", token):
        with victim.connect_sasl() as connected:
            connected.shake("PLAIN")
            connected.socket.sendall(ahead + frame_of(MetadataRequest(topics=[]), 9))
            assert connected.is_closed()


def test_large_frames_are_refused_before_authentication_and_without_memory(victim: SecureVictim) -> None:
    with victim.peak_below(16 * MIB), ExitStack() as stack:
        for size in (UNAUTHENTICATED_BYTES_MAX + 1, 100 * MIB, 2**31 - 1):
            connected = stack.enter_context(victim.connect_sasl())
            connected.shake("PLAIN")
            connected.socket.sendall(raw_frame(SaslAuthenticateRequest.API_KEY, 1, size=size))
            assert connected.is_closed()


def test_a_large_token_is_refused(victim: SecureVictim) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        for token in (b"n,,n=" + b"a" * 500_000 + b",r=x", b"\0" * 500_000, b"\0a\0" + b"p" * 500_000):
            with victim.connect_sasl() as connected:
                connected.shake(mechanism)
                assert connected.step(token).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert connected.is_closed()


def test_a_second_authentication_in_flight_is_refused(victim: SecureVictim) -> None:
    token = frame_of(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonderland"), 2)
    with victim.connect_sasl() as connected:
        connected.shake("PLAIN")
        connected.socket.sendall(token + token)
        codes = [connected.receive(SaslAuthenticateResponse, 2).error_code for _ in range(2)]
        assert codes == [ErrorCode.NONE, ErrorCode.ILLEGAL_SASL_STATE]
        assert connected.is_closed()


def test_a_handshake_within_an_exchange_begins_it_anew(victim: SecureVictim) -> None:
    exchange = ScramClientExchange(SaslMechanism.SCRAM_SHA_256, "alice", "wonderland", "nonce")
    with victim.connect_sasl() as connected:
        connected.shake("SCRAM-SHA-256")
        final = exchange.final_message(bytes(connected.step(exchange.first_message()).auth_bytes))
        connected.shake("SCRAM-SHA-256")
        assert connected.step(final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    # A proof for one mechanism is worth nothing in another.
    with victim.connect_sasl() as connected:
        connected.shake("SCRAM-SHA-512")
        first = bytes(connected.step(exchange.first_message()).auth_bytes)
        final = ScramClientExchange(SaslMechanism.SCRAM_SHA_256, "alice", "wonderland", "nonce").final_message(first)
        assert connected.step(final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_scram_is_not_replayed_downgraded_or_continued_with_another_nonce(victim: SecureVictim) -> None:
    def replaced(change: Callable[[str], str]) -> int:
        with victim.connect_sasl() as connected:
            exchange = ScramClientExchange(SaslMechanism.SCRAM_SHA_256, "alice", "wonderland", "nonce")
            connected.shake("SCRAM-SHA-256")
            final = exchange.final_message(bytes(connected.step(exchange.first_message()).auth_bytes))
            return connected.step(change(final.decode()).encode()).error_code

    assert replaced(lambda final: final) == ErrorCode.NONE
    for change in (
        lambda final: final.replace("r=nonce", "r=nonc3"),
        lambda final: final.replace(",p=", "x,p="),
        lambda final: final.replace("c=biws", "c=eSws"),
        lambda final: final.replace("c=biws", "c=cD10bHMsLA=="),
        lambda final: final[:-8],
        lambda final: final.replace(",p=", ",m=x,p="),
        lambda final: "",
        lambda final: final * 2,
    ):
        assert replaced(change) == ErrorCode.SASL_AUTHENTICATION_FAILED
    for first in ("p=tls-unique,,n=alice,r=nonce", "n,a=admin,n=alice,r=nonce", "n,,m=x,n=alice,r=nonce", "n,,n=alice"):
        with victim.connect_sasl() as connected:
            connected.shake("SCRAM-SHA-256")
            assert connected.step(first.encode()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_connections_that_do_not_log_in_in_time_are_closed(victim: SecureVictim) -> None:
    with ExitStack() as stack:
        waiting = [stack.enter_context(victim.connect_sasl(name)) for name in ("SASL", "BOTH")]
        for connected in waiting:
            connected.ask_versions()
            connected.shake("SCRAM-SHA-256")
            connected.step(b"n,,n=alice,r=nonce")
        assert all(connected.is_closed() for connected in waiting)
        # Nor does a client that keeps the connection busy have more time.
        busy = stack.enter_context(victim.connect_sasl())
        assert asks_until_closed(busy)
    assert {line["reason"] for line in victim.events("connection closed")} == {"not authenticated"}


@pytest.mark.parametrize("logins", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_failed_logins_leave_others_served_and_memory_flat(victim: SecureVictim, logins: int) -> None:
    """The bound of memory is the same for any number; half of the clients do not wait for the answer."""

    def fail(mechanism: str, token: bytes, count: int) -> None:
        for number in range(count):
            with suppress(EOFError, ConnectionError), victim.connect_sasl() as connected:
                connected.shake(mechanism)
                connected.socket.sendall(frame_of(SaslAuthenticateRequest(auth_bytes=token), 2))
                if number % 2:
                    response = connected.receive(SaslAuthenticateResponse, 2)
                    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    scram = ("SCRAM-SHA-256", b"n,a=admin,n=alice,r=nonce")
    fail(*scram, 100)
    before = victim.memory_bytes
    attacks = [(*scram, logins // 4)] * 3 + [("PLAIN", b"\0alice\0wrong", logins // 4)]
    attackers = [threading.Thread(target=fail, args=attack) for attack in attacks]
    for attacker in attackers:
        attacker.start()
    served = 0
    while any(attacker.is_alive() for attacker in attackers):
        victim.check_secure()
        served += 1
    for attacker in attackers:
        attacker.join()
    assert served >= 3
    assert victim.memory_bytes - before < 8 * MIB


def test_a_storm_of_handshake_requests_is_served_in_bounded_memory(victim: SecureVictim) -> None:
    storm = frame_of(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1) * 2_000
    with victim.peak_below(16 * MIB), victim.connect_sasl() as connected:
        with suppress(ConnectionError):
            connected.socket.sendall(storm)
        victim.check_secure()


def asks_until_closed(connected: SaslSocket) -> bool:
    until_s = time.monotonic() + CLOSED_S_MAX
    while time.monotonic() < until_s:
        try:
            connected.ask_versions()
        except (EOFError, ConnectionError):
            return True
    return False


def drain(connected: socket.socket) -> None:
    """Read until the broker closes the connection."""
    with suppress(ConnectionError):
        while connected.recv(4096):
            pass


def replace(source: Path, target: Path) -> None:
    new = target.with_suffix(".new")
    shutil.copy(source, new)
    new.replace(target)


def served_certificate(victim: SecureVictim) -> bytes:
    with victim.connect_tls() as connected:
        return connected.getpeercert(binary_form=True) or b""


def client_hello() -> bytes:
    """Return the first bytes of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
