"""TLS contexts: what the settings must have, and the reload of certificates."""

import asyncio
import shutil
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logbrook.config.security import SecurityConfig
from logbrook.server.cluster.background import pause
from logbrook.server.security import tls
from logbrook.server.security.errors import InvalidSecurityError
from logbrook.server.security.tls import TlsContexts, new_server_context
from tests.certificates import Certificates


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "ca")


def config_of(certificates: Certificates, **settings: Any) -> SecurityConfig:
    issued = certificates.issue()
    return SecurityConfig(**{"certificate": str(issued.certificate), "key": str(issued.key), **settings})


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Do a handshake in memory. Returns the client's side; raises ssl.SSLError of either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    # Two round trips, at most.
    for side in 4 * sides:
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return sides[0]


def client_context(certificates: Certificates, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def test_a_context_is_hardened(certificates: Certificates) -> None:
    context = new_server_context(config_of(certificates))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    for option in (ssl.OP_NO_RENEGOTIATION, ssl.OP_NO_COMPRESSION, ssl.OP_NO_TICKET, ssl.OP_CIPHER_SERVER_PREFERENCE):
        assert context.options & option
    names = {cipher["name"] for cipher in context.get_ciphers()}
    assert all(name.startswith(("ECDHE-", "TLS_")) and ("GCM" in name or "POLY1305" in name) for name in names), names
    assert context.verify_mode is ssl.CERT_NONE
    client = shake_hands(context, client_context(certificates, ssl.TLSVersion.TLSv1_2))
    assert client.version() == "TLSv1.2"


def test_the_oldest_version_and_the_ciphers_can_be_set(certificates: Certificates) -> None:
    context = new_server_context(config_of(certificates, tls_version="1.3"))
    with pytest.raises(ssl.SSLError):
        shake_hands(context, client_context(certificates, ssl.TLSVersion.TLSv1_2))
    assert shake_hands(context, client_context(certificates)).version() == "TLSv1.3"
    context = new_server_context(config_of(certificates, ciphers="ECDHE-ECDSA-AES128-GCM-SHA256"))
    client = shake_hands(context, client_context(certificates, ssl.TLSVersion.TLSv1_2))
    assert (client.cipher() or ("",))[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
    with pytest.raises(InvalidSecurityError, match=r"security\.ciphers"):
        new_server_context(config_of(certificates, ciphers="ROT13"))


def test_settings_that_cannot_be_used_are_named(certificates: Certificates, tmp_path: Path) -> None:
    issued, other = certificates.issue(), certificates.issue()
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for settings, text in (
        ({"certificate": ""}, "logbrook security init"),
        ({"certificate": str(tmp_path / "none.pem")}, "cannot be read"),
        ({"certificate": str(garbage)}, "cannot be used for TLS"),
        ({"certificate": str(issued.certificate), "key": str(other.key)}, "cannot be used for TLS"),
        ({"certificate": str(issued.certificate), "key": ""}, "cannot be used for TLS"),
        ({"client_certificates": "required"}, "client_ca"),
        ({"client_certificates": "requested", "client_ca": str(tmp_path / "none.pem")}, "cannot be read"),
        ({"client_certificates": "requested", "client_ca": str(garbage)}, "cannot be used for TLS"),
    ):
        with pytest.raises(InvalidSecurityError, match=text):
            new_server_context(config_of(certificates, **settings))


def test_an_encrypted_key_needs_its_password_and_never_asks_for_it(certificates: Certificates, tmp_path: Path) -> None:
    issued = certificates.issue(key_password="opensesame")
    files: dict[str, Any] = {"certificate": str(issued.certificate), "key": str(issued.key)}
    with pytest.raises(InvalidSecurityError, match="key_password_file"):
        new_server_context(SecurityConfig(**files))
    password = tmp_path / "password"
    password.write_text("wrong")
    with pytest.raises(InvalidSecurityError) as refused:
        new_server_context(SecurityConfig(**files, key_password_file=str(password)))
    assert "wrong" not in str(refused.value)
    password.write_text("opensesame\n")
    new_server_context(SecurityConfig(**files, key_password_file=str(password)))
    password.unlink()
    with pytest.raises(InvalidSecurityError, match="cannot be read"):
        new_server_context(SecurityConfig(**files, key_password_file=str(password)))


def test_a_required_certificate_of_a_client_is_verified(certificates: Certificates) -> None:
    config = config_of(certificates, client_certificates="required", client_ca=str(certificates.ca))
    client = client_context(certificates, ssl.TLSVersion.TLSv1_2)
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        shake_hands(new_server_context(config), client)
    stranger = Certificates(certificates.ca.parent / "strangers").issue("CN=carol")
    client.load_cert_chain(stranger.certificate, stranger.key)
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        shake_hands(new_server_context(config), client)
    issued = certificates.issue("CN=carol")
    client.load_cert_chain(issued.certificate, issued.key)
    shake_hands(new_server_context(config), client)


def test_files_that_change_are_read_again_and_broken_ones_are_not_used(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls, "_CHECK_S", 0.01)
    certificate, key = tmp_path / "broker.crt", tmp_path / "broker.key"

    def replace(source: Path, target: Path) -> None:
        shutil.copy(source, target.with_suffix(".new"))
        target.with_suffix(".new").replace(target)

    first, second = certificates.issue(), certificates.issue()
    replace(first.certificate, certificate)
    replace(first.key, key)

    async def run() -> None:
        config = SecurityConfig(certificate=str(certificate), key=str(key))
        contexts = TlsContexts(config, asyncio.get_running_loop())
        contexts.start()
        before = contexts.context
        replace(second.certificate, certificate)
        while "certificate not reloaded" not in caplog.text:
            await pause(0.01)
        assert contexts.context is before
        replace(second.key, key)
        while contexts.context is before:
            await pause(0.01)
        # An error is logged once per change.
        assert caplog.text.count("certificate not reloaded") == 1
        replaced = contexts.context
        contexts.reload_soon()
        while contexts.context is replaced:
            await pause(0.01)
        key.unlink()
        await contexts.reload()
        assert "cannot be read" in caplog.text
        shake_hands(contexts.context, client_context(certificates))
        contexts.stop()

    asyncio.run(asyncio.wait_for(run(), 20))
