"""Brokers that authenticate to each other, over TLS: replication, moved leaders, and settings that are incomplete."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from logbrook.config import BrokerConfig
from logbrook.config.loading import merge_sources, read_mapping
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataResponse
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.server.cluster.peer_security import InvalidPeerSecurityError, PeerSecurityError, peer_security
from logbrook.testing import Broker, Cluster
from tests.certificates import Certificates
from tests.users_file import write_users_file

PASSWORD = "s3cr3t-of-brokers"


def secured_settings(folder: Path, **security: Any) -> dict[str, Any]:
    certificates = Certificates(folder)
    issued = certificates.issue()
    (folder / "password").write_text(f"{PASSWORD}\n")
    users = write_users_file(folder / "users.json", {"broker": PASSWORD, "alice": "of-alice"})
    return {
        "security": {
            "protocol": "SASL_SSL",
            "certificate": str(issued.certificate),
            "key": str(issued.key),
            "users_file": str(users),
            "super_users": "User:broker",
            "failed_authentication_delay_ms": 0,
        }
        | security,
        "cluster": {
            "username": "broker",
            "password_file": str(folder / "password"),
            "ca": str(certificates.ca),
        },
    }


def client_options(folder: Path) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "of-alice",
        "ssl.ca.location": str(folder / "test-ca.pem"),
    }


def config(settings: dict[str, Any]) -> BrokerConfig:
    return merge_sources([read_mapping(settings, "test")]).config


def test_brokers_replicate_over_authenticated_connections(tmp_path: Path) -> None:
    settings = secured_settings(tmp_path, reauthentication_ms=300)
    with Cluster(2, ["orders"], settings=settings, client=client_options(tmp_path)) as cluster:
        cluster.produce("orders", "before")
        leader = cluster.wait_for_leader("orders")
        assert len(cluster.wait_for_isr("orders")) == 2
        cluster.kill(leader)
        cluster.wait_for_leader("orders", other_than=leader)
        cluster.produce("orders", "after")
        cluster.restart(leader)
        assert len(cluster.wait_for_isr("orders")) == 2
        assert cluster.brokers[leader].stored("orders", 0) == [b"before", b"after"]


def test_a_broker_with_a_wrong_password_says_why_and_does_not_count_as_gone(tmp_path: Path) -> None:
    settings = secured_settings(tmp_path)
    (tmp_path / "wrong").write_text("wrong")
    wrong = {"cluster": settings["cluster"] | {"password_file": str(tmp_path / "wrong")}}
    with Broker(settings=settings, client=client_options(tmp_path)) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        for changes, reason in (
            (wrong, "authentication of broker"),
            ({"cluster": settings["cluster"] | {"ca": ""}}, "not from a trusted authority"),
        ):
            security = peer_security(config(settings | changes))
            with pytest.raises(PeerSecurityError, match=reason) as caught:
                asyncio.run(PeerConnection.connect(host, int(port), "broker-2", security=security))
            assert not isinstance(caught.value, ConnectionRefusedError)
            assert PASSWORD not in str(caught.value)


def test_requests_wait_while_a_session_is_renewed(tmp_path: Path) -> None:
    settings = secured_settings(tmp_path, reauthentication_ms=200)

    async def ask(port: int) -> None:
        security = peer_security(config(settings))
        peer = await PeerConnection.connect("127.0.0.1", port, "broker-2", security=security)
        assert peer._authentication is not None
        renewals: set[float | None] = set()
        while len(renewals) < 3:
            requests = [peer.request(MetadataRequest(topics=[]), MetadataResponse, 12) for _ in range(5)]
            assert len(await asyncio.gather(*requests)) == 5
            renewals.add(peer._authentication._renew_at_s)
        assert None not in renewals
        # The event loop ends now, before TLS could be closed in order.
        assert peer._transport is not None
        peer._transport.abort()

    with Broker(settings=settings, client=client_options(tmp_path)) as broker:
        asyncio.run(ask(int(broker.bootstrap_servers.rpartition(":")[2])))


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        ({"username": ""}, r"cluster.username: it is required, because the brokers' listener has SASL"),
        ({"password_file": ""}, r"cluster.password_file: it is required"),
        ({"password_file": "/nowhere/password"}, r"cluster.password_file: /nowhere/password cannot be read"),
        ({"sasl_mechanism": "GSSAPI"}, r"cluster.sasl_mechanism: GSSAPI is not one of"),
        ({"sasl_mechanism": "PLAIN"}, r"PLAIN is not in security.sasl_mechanisms"),
    ],
)
def test_incomplete_settings_are_refused_by_name(tmp_path: Path, cluster: dict[str, str], reason: str) -> None:
    settings = secured_settings(tmp_path)
    with pytest.raises(InvalidPeerSecurityError, match=reason):
        peer_security(config(settings | {"cluster": settings["cluster"] | cluster}))


def test_a_plain_listener_needs_nothing() -> None:
    assert peer_security(config({})).sasl is None
