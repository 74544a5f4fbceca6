"""Access to the HTTP listener: authentication, ACLs, TLS, and requests that web pages send."""

import http.client
import json
import ssl
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from logbrook.config import BrokerConfig, MetricsConfig, NetworkConfig
from logbrook.config.network import PortAuthentication
from logbrook.config.security import SecurityConfig
from logbrook.core.acls import AclOperation
from logbrook.server.advertised import needs_authentication
from logbrook.server.http import HttpError, HttpPeer, HttpRequest
from logbrook.server.security.http_access import check_same_origin
from tests.certificates import Certificates
from tests.security_kit import TokenIssuer, allow, basic, security_settings
from tests.unit.server.http_kit import TIMEOUT_S, Served


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, issuer: TokenIssuer) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("secured")
    security = security_settings(folder, oauth_jwks=str(issuer.jwks))
    with Served(folder / "data", {"security": security}) as served:
        served.call(allow(served.broker.services, "alice", AclOperation.DESCRIBE))
        yield served


@pytest.fixture(scope="module")
def open_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("open")) as served:
        yield served


def test_health_is_open_and_everything_else_needs_authentication(secured: Served) -> None:
    assert secured.ask("/healthz").status == 200
    assert secured.ask("/readyz").status == 200
    for path, method in (("/", "GET"), ("/metrics", "GET"), ("/maintenance", "POST"), ("/verify", "POST")):
        answer = secured.ask(path, method)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == (
            'Basic realm="logbrook", charset="UTF-8", Bearer realm="logbrook"'
        )


@pytest.mark.parametrize(
    "header",
    [
        basic("alice", "wrong"),
        basic("nobody", "wonderland"),
        basic("alice", ""),
        "Basic",
        "Basic !!!",
        "Basic /w==",
        "Bearer nonsense",
        "Digest username=alice",
    ],
)
def test_wrong_credentials_are_refused(secured: Served, header: str) -> None:
    assert secured.ask("/metrics", Authorization=header).status == 401


def test_passwords_and_tokens_identify_the_client_and_acls_decide(secured: Served, issuer: TokenIssuer) -> None:
    bearer = f"Bearer {issuer.token('alice')}"
    for header in (basic("alice"), bearer):
        assert secured.ask("/metrics", Authorization=header).status == 200
        denied = secured.ask("/verify", "POST", Authorization=header)
        assert denied.status == 403
        assert "User:alice is not authorized to ALTER" in json.loads(denied.text)["errors"][0]
    assert secured.ask("/metrics", Authorization=basic("bob")).status == 403
    assert secured.ask("/verify", "POST", Authorization=basic("admin")).status == 200
    expired = f"Bearer {issuer.token('alice', lifetime_s=-600)}"
    assert secured.ask("/metrics", Authorization=expired).status == 401


def test_a_page_of_another_site_is_refused_with_any_credentials(secured: Served) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = secured.ask("/verify", "POST", Authorization=basic("admin"), **headers)
        assert answer.status == 403
    host, port = secured.address
    own = {"Origin": f"http://{host}:{port}", "Sec-Fetch-Site": "same-origin"}
    assert secured.ask("/verify", "POST", Authorization=basic("admin"), **own).status == 200


def test_a_change_is_audited_with_its_principal(secured: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "logbrook.audit"):
        secured.ask("/maintenance?step=retention", "POST", Authorization=basic("admin"))
    (line,) = [record.getMessage() for record in caplog.records if "administrative change" in record.getMessage()]
    assert "admin" in line
    assert "maintenance" in line


def test_without_security_nothing_changes_for_local_clients(open_broker: Served) -> None:
    assert open_broker.ask("/metrics").status == 200
    assert open_broker.ask("/verify", "POST").status == 200


def test_a_forwarded_change_needs_authentication(open_broker: Served) -> None:
    """A proxy on this machine is a local peer, its clients are not."""
    assert open_broker.ask("/verify", "POST", **{"X-Forwarded-For": "192.0.2.1"}).status == 401
    assert open_broker.ask("/metrics", **{"X-Forwarded-For": "192.0.2.1"}).status == 200


def test_dns_rebinding_cannot_change_anything(open_broker: Served) -> None:
    rebound = {"Host": "evil.example:9644", "Origin": "http://evil.example:9644", "Sec-Fetch-Site": "same-origin"}
    assert open_broker.ask("/verify", "POST", **rebound).status == 421


@pytest.mark.parametrize(
    ("headers", "is_allowed"),
    [
        ({}, True),
        ({"origin": "http://broker:9644"}, True),
        ({"origin": "http://BROKER:9644"}, True),
        ({"origin": "https://broker:9644"}, False),
        ({"origin": "http://broker"}, False),
        ({"origin": "http://[::1"}, False),
        ({"origin": ""}, False),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"origin": "http://broker:9644", "sec-fetch-site": "cross-site"}, False),
    ],
)
def test_origins(headers: dict[str, str], is_allowed: bool) -> None:
    request = HttpRequest("POST", "/", "", {"host": "broker:9644", **headers}, HttpPeer("127.0.0.1"))
    if is_allowed:
        check_same_origin(request)
        return
    with pytest.raises(HttpError) as refused:
        check_same_origin(request)
    assert refused.value.status is HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(
    ("security", "policy", "is_needed"),
    [
        ({}, "auto", False),
        ({}, "required", True),
        ({"authorization": True}, "auto", True),
        ({"authorization": True}, "none", False),
        ({"protocol": "SASL_SSL"}, "auto", True),
        ({"protocol": "SSL"}, "auto", False),
        ({"protocols": "INSIDE=SASL_PLAINTEXT"}, "auto", True),
    ],
)
def test_authentication_is_required_with_sasl_or_acls(security: dict[str, Any], policy: str, is_needed: bool) -> None:
    config = BrokerConfig(
        security=SecurityConfig(**security),
        metrics=MetricsConfig(authentication=PortAuthentication(policy)),
        network=NetworkConfig(listeners="INSIDE=127.0.0.1:0"),
    )
    assert needs_authentication(config, config.metrics.authentication) is is_needed


def test_failed_authentications_do_not_keep_others_out(tmp_path: Path) -> None:
    """Attempts that wait for their answer give way to new connections."""
    security = security_settings(tmp_path, failed_authentication_delay_ms=5_000)
    with Served(tmp_path / "data", {"security": security}, connections_max=2) as served:
        guesses = [http.client.HTTPConnection(*served.address, timeout=TIMEOUT_S) for _ in range(12)]
        for guess in guesses:
            guess.request("GET", "/metrics", headers={"Authorization": basic("alice", "guess")})
        assert served.ask("/metrics", Authorization=basic("admin")).status == 200
        for guess in guesses:
            guess.close()


def test_https_with_a_clients_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "ca")
    broker, client = certificates.issue("broker"), certificates.issue("CN=alice,O=Example")
    security = security_settings(
        tmp_path,
        certificate=str(broker.certificate),
        key=str(broker.key),
        client_ca=str(certificates.ca),
        client_certificates="requested",
        principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/",
    )
    metrics = {"listen": "127.0.0.1:0", "tls": True}
    with Served(tmp_path / "data", {"security": security, "metrics": metrics}) as served:
        served.call(allow(served.broker.services, "alice", AclOperation.DESCRIBE))
        address = served.broker.http_address
        assert address is not None
        context = ssl.create_default_context(cafile=str(certificates.ca))
        assert https_status(address, context, "/healthz") == 200
        assert https_status(address, context, "/metrics") == 401
        assert https_status(address, context, "/metrics", Authorization=basic("admin")) == 200
        context.load_cert_chain(client.certificate, client.key)
        assert https_status(address, context, "/metrics") == 200
        assert https_status(address, context, "/metrics", Authorization=basic("bob")) == 403
        plain = http.client.HTTPConnection(*address, timeout=TIMEOUT_S)
        plain.request("GET", "/healthz")
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.getresponse()
        plain.close()


def https_status(address: tuple[str, int], context: ssl.SSLContext, path: str, **headers: str) -> int:
    connection = http.client.HTTPSConnection(*address, timeout=TIMEOUT_S, context=context)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()
