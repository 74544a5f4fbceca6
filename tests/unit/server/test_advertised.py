"""Listeners: what they bind, what their clients are told, and which settings are refused."""

from typing import Any

import pytest

from logbrook.client import Client
from logbrook.config import BrokerConfig
from logbrook.config.network import DEFAULT_LISTENER, parse_listeners
from logbrook.server.advertised import (
    NotAdvertisedError,
    UnknownListenerError,
    advertised_address,
    check_listeners,
    check_security,
    listen_addresses,
    warn_of_open_listeners,
)
from logbrook.server.cluster_view import AdvertisedAddress
from logbrook.server.security.errors import InvalidSecurityError
from logbrook.testing import Broker


def config_of(cluster_listener: str = "", **network: str) -> BrokerConfig:
    return BrokerConfig(network=network, cluster={"listener": cluster_listener})  # type: ignore[arg-type]


def test_listeners_have_names_in_capitals() -> None:
    text = "internal=10.0.0.1:9093, OUTSIDE=[::1]:9094"
    assert parse_listeners(text) == {"INTERNAL": ("10.0.0.1", 9093), "OUTSIDE": ("::1", 9094)}
    assert list(listen_addresses(config_of(listeners=text).network)) == [DEFAULT_LISTENER, "INTERNAL", "OUTSIDE"]


@pytest.mark.parametrize("text", ["10.0.0.1:9093", "A=10.0.0.1", "=h:1", "A=h:1,a=h:2", "clients=h:1", "A B=h:1"])
def test_an_invalid_listener_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"NAME=HOST:PORT|HOST:PORT|two listeners"):
        parse_listeners(text)


def test_the_address_of_a_listener_is_its_own_unless_another_is_advertised() -> None:
    network = config_of(
        listen="127.0.0.1:0", listeners="A=127.0.0.2:0,B=0.0.0.0:5", advertised_listeners="B=b.example.com:0"
    ).network
    assert advertised_address(network, DEFAULT_LISTENER, 1) == AdvertisedAddress("127.0.0.1", 1)
    assert advertised_address(network, "A", 2) == AdvertisedAddress("127.0.0.2", 2)
    assert advertised_address(network, "B", 5) == AdvertisedAddress("b.example.com", 5)


def test_a_wildcard_that_is_not_advertised_is_refused() -> None:
    with pytest.raises(NotAdvertisedError, match="--advertised-listener A=HOST:PORT"):
        check_listeners(config_of(listeners="A=0.0.0.0:9093"))


def test_a_listener_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownListenerError, match="--cluster-listener names the listener INTERNAL"):
        check_listeners(config_of("INTERNAL"))
    with pytest.raises(UnknownListenerError, match="--advertised-listener"):
        check_listeners(config_of(advertised_listeners="A=h:1"))
    check_listeners(config_of("internal", listeners="INTERNAL=127.0.0.1:0"))


def test_clients_are_told_the_address_of_the_listener_that_they_use() -> None:
    settings = {"network.listeners": "OUTSIDE=127.0.0.1:0", "network.advertised_listeners": "OUTSIDE=localhost:0"}
    with Broker(["orders"], settings=settings) as broker:
        outside = broker._running.endpoints["OUTSIDE"]
        assert outside.host == "localhost"
        for servers, host in ((broker.bootstrap_servers, "127.0.0.1"), (f"127.0.0.1:{outside.port}", "localhost")):
            with Client(servers) as client:
                (advertised,) = client.metadata().brokers
                assert (advertised.host, f"{advertised.port}") == (host, servers.rpartition(":")[2])


def secured(listen: str = "127.0.0.1:0", listeners: str = "", **security: Any) -> BrokerConfig:
    return BrokerConfig(network={"listen": listen, "listeners": listeners}, security=security)  # type: ignore[arg-type]


def test_protocols_of_listeners_are_checked() -> None:
    check_security(secured(listeners="A=127.0.0.1:0", protocols="a=sasl_ssl"))
    with pytest.raises(UnknownListenerError, match="--listener-protocol names the listener B"):
        check_security(secured(listeners="A=127.0.0.1:0", protocols="B=SSL"))
    for protocols in ("A=TLS", "A", "A=SSL,A=SSL", "CLIENTS=SSL", "A="):
        with pytest.raises(InvalidSecurityError, match=r"security\.protocols"):
            check_security(secured(listeners="A=127.0.0.1:0", protocols=protocols))
    check_security(secured(super_users="User:admin; User:CN=a,OU=b;"))
    with pytest.raises(InvalidSecurityError, match="super_users"):
        check_security(secured(super_users="admin"))


def test_a_listener_that_is_not_named_has_the_protocol_of_the_default_one() -> None:
    config = secured(listeners="A=127.0.0.1:0,B=127.0.0.1:0", protocol="SASL_SSL", protocols="B=PLAINTEXT")
    assert [config.security.protocol_of(name) for name in (DEFAULT_LISTENER, "A", "B")] == [
        "SASL_SSL",
        "SASL_SSL",
        "PLAINTEXT",
    ]


@pytest.mark.parametrize(
    ("config", "is_warned"),
    [
        (secured(protocol="SASL_PLAINTEXT", sasl_mechanisms=["PLAIN"]), False),
        (secured("10.0.0.1:9092", protocol="SASL_PLAINTEXT", sasl_mechanisms=["PLAIN"]), True),
        (secured("10.0.0.1:9092", protocol="SASL_PLAINTEXT"), False),
        (secured("10.0.0.1:9092", protocol="SASL_SSL", sasl_mechanisms=["PLAIN"]), False),
    ],
)
def test_passwords_in_plain_text_are_warned_of(
    config: BrokerConfig, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    check_security(config)
    assert ("passwords are sent in plain text" in caplog.text) == is_warned


@pytest.mark.parametrize(
    ("config", "open_listeners"),
    [
        (secured(), ""),
        (secured("localhost:9092"), ""),
        (secured("0.0.0.0:9092"), "CLIENTS"),
        (secured("[::]:9092"), "CLIENTS"),
        (secured("broker.example.com:9092", protocol="SSL"), "CLIENTS"),
        (secured("0.0.0.0:9092", protocol="SSL", client_certificates="requested"), "CLIENTS"),
        (secured("0.0.0.0:9092", protocol="SSL", client_certificates="required"), ""),
        (secured("0.0.0.0:9092", client_certificates="required"), "CLIENTS"),
        (secured("0.0.0.0:9092", protocol="SASL_PLAINTEXT"), ""),
        (secured("0.0.0.0:9092", "A=0.0.0.0:9093", protocol="SASL_SSL", protocols="A=PLAINTEXT"), "A"),
    ],
)
def test_a_listener_that_others_reach_without_authentication_is_warned_of(
    config: BrokerConfig, open_listeners: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_open_listeners(config)
    assert ("clients from other hosts need no authentication" in caplog.text) == bool(open_listeners)
    assert f"listeners=['{open_listeners}']" in caplog.text or not open_listeners
