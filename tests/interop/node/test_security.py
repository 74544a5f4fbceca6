"""kafkajs over every security protocol and mechanism, and the errors that it reports."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.node.node_scenarios import HERE, NodeScenarios
from tests.interop.secure_broker import MECHANISMS, Login, SecureBroker

CASES = [("SSL", ""), *[(protocol, name) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for name in MECHANISMS]]
_STOP_S_MAX = 10.0

RoundTrip = Callable[[SecureBroker, Login], dict[str, str]]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure")).running() as secure:
        yield secure


@pytest.fixture(scope="module")
def round_trip(node: NodeScenarios) -> Iterator[RoundTrip]:
    """Write and read with kafkajs, in one process for all tests. Returns the value, or the error."""
    with subprocess.Popen(
        ["node", str(HERE / "security.js")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=node.environment,
    ) as process:

        def run(secure: SecureBroker, login: Login) -> dict[str, str]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"topic": secure.new_topic(), "options": options(login)}) + "\n")
            process.stdin.flush()
            answer: dict[str, str] = json.loads(process.stdout.readline())
            return answer

        yield run
        assert process.stdin is not None
        process.stdin.close()
        process.wait(_STOP_S_MAX)


def options(login: Login) -> dict[str, Any]:
    chosen: dict[str, Any] = {"servers": login.servers, "mechanism": login.mechanism.lower()}
    chosen |= {"user": login.user, "password": login.password, "token": login.token}
    if login.protocol.uses_tls:
        chosen["ca"] = str(login.ca)
    if login.certificate is not None:
        chosen |= {"certificate": str(login.certificate.certificate), "key": str(login.certificate.key)}
    return chosen


@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
def test_kafkajs_writes_and_reads(secure: SecureBroker, round_trip: RoundTrip, protocol: str, mechanism: str) -> None:
    assert round_trip(secure, secure.login(protocol, mechanism)) == {"value": "secret"}


def test_kafkajs_with_a_certificate_writes_and_reads(secure: SecureBroker, round_trip: RoundTrip) -> None:
    certificate = secure.certificates.issue("CN=carol,OU=Tests")
    assert round_trip(secure, secure.login("SSL", certificate=certificate)) == {"value": "secret"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafkajs_reports_a_wrong_password(secure: SecureBroker, round_trip: RoundTrip, mechanism: str) -> None:
    secure.failures.clear()
    answer = round_trip(secure, secure.login("SASL_SSL", mechanism, password="wrong"))
    assert answer["error"].startswith("KafkaJSSASLAuthenticationError"), answer
    assert secure.failures


def test_kafkajs_reports_an_expired_token(secure: SecureBroker, round_trip: RoundTrip) -> None:
    secure.failures.clear()
    token = secure.issuer.token(lifetime_s=-60)
    answer = round_trip(secure, secure.login("SASL_SSL", "OAUTHBEARER", token=token))
    assert "error" in answer
    assert secure.failures[0][2] == "the token has expired"


def test_kafkajs_reports_certificates_that_are_refused(secure: SecureBroker, round_trip: RoundTrip) -> None:
    secure.handshake_failures.clear()
    assert "self-signed certificate" in round_trip(secure, secure.login("SSL", ca=secure.strangers.ca))["error"]
    expired = secure.certificates.issue("CN=carol", is_expired=True)
    assert "error" in round_trip(secure, secure.login("SSL", certificate=expired))
    secure.wait_for_handshake_failure("certificate has expired")
