"""Clients over every security protocol and mechanism, and the errors of those that must not get in."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.interop.client_leaks import collect_leaks, forget_connection_errors
from tests.interop.clients.secure_clients import SECURE_CLIENTS, VALUE, LoginFailedError, RoundTrip, kcat
from tests.interop.secure_broker import MECHANISMS, USER, Login, SecureBroker

# Clients leave the sockets of failed connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
# Some clients try again, whatever the error.
PATIENCE_MS = 1_000
CASES = [("SSL", ""), *[(protocol, name) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for name in MECHANISMS]]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure")).running() as secure:
        yield secure


@pytest.fixture(autouse=True)
def nothing_leaked(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect the sockets that the clients of a test have left, before another test is told of them."""
    yield
    forget_connection_errors(caplog)
    collect_leaks()


@pytest.fixture(autouse=True)
def nothing_recorded(secure: SecureBroker) -> None:
    secure.failures.clear()
    secure.handshake_failures.clear()


@pytest.fixture(params=[*SECURE_CLIENTS, "kcat"])
def round_trip(request: pytest.FixtureRequest) -> RoundTrip:
    if request.param == "kcat":
        return partial(kcat, request.getfixturevalue("kcat_path"))
    return SECURE_CLIENTS[request.param]


@pytest.fixture(params=SECURE_CLIENTS)
def library(request: pytest.FixtureRequest) -> RoundTrip:
    """Clients of different code, for rules in which a second librdkafka adds nothing."""
    return SECURE_CLIENTS[request.param]


@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
def test_a_client_writes_and_reads(secure: SecureBroker, round_trip: RoundTrip, protocol: str, mechanism: str) -> None:
    if mechanism == "OAUTHBEARER" and isinstance(round_trip, partial):
        pytest.skip("kcat gets tokens from an identity provider only")
    before = secure.authenticated
    assert round_trip(secure.login(protocol, mechanism), secure.new_topic()) == VALUE
    assert (secure.authenticated > before) == bool(mechanism)
    assert (secure.failures, secure.handshake_failures) == ([], [])


def test_a_clients_certificate_is_its_principal(
    secure: SecureBroker, round_trip: RoundTrip, monkeypatch: pytest.MonkeyPatch
) -> None:
    principals: set[str] = set()
    register = secure.broker._running.dispatchers["SSL"].new_session

    def new_session(host: str, certificate: object) -> object:
        session = register(host, certificate)  # type: ignore[arg-type]
        principals.add(str(session.principal))
        return session

    monkeypatch.setattr(secure.broker._running.dispatchers["SSL"], "new_session", new_session)
    certificate = secure.certificates.issue("CN=carol,OU=Tests")
    assert round_trip(secure.login("SSL", certificate=certificate), secure.new_topic()) == VALUE
    assert principals == {"User:carol"}


def refusal(round_trip: RoundTrip, login: Login, topic: str) -> str:
    with pytest.raises(LoginFailedError) as failed:
        # librdkafka asks for a token once a second.
        round_trip(replace(login, patience_ms=3 * PATIENCE_MS if login.token else PATIENCE_MS), topic)
    return str(failed.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(
    secure: SecureBroker, library: RoundTrip, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("kafka", "aiokafka"):
        caplog.set_level(logging.WARNING, logger=name)
    login = secure.login("SASL_PLAINTEXT", mechanism)
    topic = secure.new_topic()
    for changed in (replace(login, password="wrong"), replace(login, user="mallory")):
        # kafka-python and aiokafka log the reason of each attempt, and raise an error of their own.
        said = refusal(library, changed, topic) + caplog.text
        assert f"Authentication failed: invalid credentials or token ({mechanism})" in said
    failures = [(user, reason) for name, user, reason in secure.failures if name == mechanism]
    assert {user for user, _ in failures} == {USER, "mallory"}
    if mechanism == "PLAIN":
        assert {reason for _, reason in failures} == {"wrong password", "unknown user"}


def test_an_expired_or_forged_token_is_refused(secure: SecureBroker, library: RoundTrip) -> None:
    login = secure.login("SASL_PLAINTEXT", "OAUTHBEARER")
    for token, reason in (
        (secure.issuer.token(USER, lifetime_s=-60, iat=None), "the token has expired"),
        (login.token[:-6] + "AAAAAA", "bad_signature"),
    ):
        secure.failures.clear()
        refusal(library, replace(login, token=token), secure.new_topic())
        assert any(reason in failure for _, _, failure in secure.failures), secure.failures


def test_a_certificate_that_is_expired_or_of_another_authority_is_refused(
    secure: SecureBroker, round_trip: RoundTrip
) -> None:
    for certificate, reason in (
        (secure.certificates.issue("CN=carol", is_expired=True), "certificate has expired"),
        (secure.strangers.issue("CN=carol"), "unable to get local issuer certificate"),
    ):
        secure.handshake_failures.clear()
        refusal(round_trip, secure.login("SSL", certificate=certificate), secure.new_topic())
        secure.wait_for_handshake_failure(reason)


def test_a_client_that_trusts_another_authority_does_not_connect(secure: SecureBroker, round_trip: RoundTrip) -> None:
    refusal(round_trip, secure.login("SSL", ca=secure.strangers.ca), secure.new_topic())
    # kafka-python closes the connection without telling why.
    secure.wait_for_handshake_failure("unknown ca", "ConnectionResetError")


def test_a_broker_with_an_expired_certificate_or_another_name_is_refused(library: RoundTrip, tmp_path: Path) -> None:
    other = SecureBroker(tmp_path)
    for number, issued in enumerate(
        (other.certificates.issue(is_expired=True), other.certificates.issue(hosts=("elsewhere",)))
    ):
        settings = {"certificate": str(issued.certificate), "key": str(issued.key)}
        bad = SecureBroker(tmp_path / str(number), **settings)
        with bad.running():
            login = bad.login("SSL", ca=other.certificates.ca)
            refusal(library, login, bad.new_topic())
            bad.wait_for_handshake_failure("certificate", "ConnectionResetError")


def test_a_certificate_is_required_where_the_broker_says_so(library: RoundTrip, tmp_path: Path) -> None:
    with SecureBroker(tmp_path, client_certificates="required").running() as strict:
        refusal(library, strict.login("SSL"), strict.new_topic())
        strict.wait_for_handshake_failure("peer did not return a certificate")
        certificate = strict.certificates.issue("CN=carol")
        assert library(strict.login("SSL", certificate=certificate), strict.new_topic()) == VALUE


def test_plain_text_clients_do_not_reach_a_listener_with_tls_nor_the_reverse(
    secure: SecureBroker, library: RoundTrip
) -> None:
    both, plain = secure.login("SASL_SSL", "PLAIN"), secure.login("SASL_PLAINTEXT", "PLAIN")
    before = secure.authenticated
    refusal(library, replace(plain, servers=both.servers), "none")
    refusal(library, replace(both, servers=plain.servers), "none")
    assert secure.authenticated == before
