"""Security of the connections to other brokers: settings of the cluster's listener, TLS, and SASL on the event loop.

Brokers connect to each other's cluster listener with its protocol. They trust `cluster.ca`, and identify themselves
with `cluster.certificate`, or as a user (`cluster.username`). Files are read and keys derived in threads.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from logbrook.client.errors import ClientError
from logbrook.client.sasl import SaslClientExchange, new_nonce, renewal_delay_s
from logbrook.client.sasl_options import SaslOptions
from logbrook.client.security import ClientSecurity
from logbrook.client.tls import client_context, tls_error
from logbrook.client.tls_options import TlsOptions
from logbrook.config import BrokerConfig
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.model.security import ANONYMOUS, USER, Principal, SaslMechanism, SecurityProtocol
from logbrook.protocol.schema import ApiMessage
from logbrook.server.advertised import cluster_listener

_logger = event_logger(__name__)

# Sends a message and returns its response: message, type and version of the response.
Send: TypeAlias = Callable[[ApiMessage, type[Any], int], Awaitable[Any]]


class InvalidPeerSecurityError(LogbrookError):
    """The settings of the connections between brokers cannot be used."""


class PeerSecurityError(ConnectionError):
    """TLS or SASL with another broker failed. The broker is reachable, so it does not count as gone."""


def peer_security(config: BrokerConfig) -> ClientSecurity:
    """Return the security of connections to other brokers. Raises InvalidPeerSecurityError."""
    protocol = config.security.protocol_of(cluster_listener(config))
    tls = _tls_options(config) if protocol.uses_tls else TlsOptions()
    return ClientSecurity(protocol, tls, _sasl_options(config) if protocol.uses_sasl else None)


def warn_of_missing_rights(config: BrokerConfig) -> None:
    """Log a warning if brokers that enforce ACLs connect to each other as a principal that is no super user.

    It may have an ACL for CLUSTER_ACTION; without one, followers cannot fetch. The principal of a certificate is not
    known here.
    """
    security = config.security
    protocol = security.protocol_of(cluster_listener(config))
    if not security.authorization or protocol is SecurityProtocol.SSL:
        return
    principal = Principal(USER, config.cluster.username) if protocol.uses_sasl else ANONYMOUS
    if principal not in security.super_principals:
        _logger.warning(
            "brokers may not be allowed to replicate",
            principal=principal,
            action="add the brokers' user to security.super_users of every broker",
        )


def _tls_options(config: BrokerConfig) -> TlsOptions:
    cluster, security = config.cluster, config.security
    certificate, key, password_file = cluster.certificate, cluster.key, ""
    if not certificate:
        certificate, key, password_file = security.certificate, security.key, security.key_password_file
    return TlsOptions(
        ca_file=cluster.ca or security.client_ca,
        certificate_file=certificate,
        # As for the broker's own: a key may be in the file of its certificate.
        key_file=key or certificate,
        key_password=_secret(password_file, "security.key_password_file") if password_file else "",
    )


def _sasl_options(config: BrokerConfig) -> SaslOptions:
    cluster = config.cluster
    try:
        mechanism = SaslMechanism(cluster.sasl_mechanism.upper())
    except ValueError:
        raise InvalidPeerSecurityError(
            f"cluster.sasl_mechanism: {cluster.sasl_mechanism} is not one of {', '.join(SaslMechanism)}"
        ) from None
    if mechanism is SaslMechanism.OAUTHBEARER:
        raise InvalidPeerSecurityError(
            "cluster.sasl_mechanism: brokers authenticate with SCRAM or PLAIN, not with tokens"
        )
    if mechanism not in config.security.sasl_mechanisms:
        raise InvalidPeerSecurityError(f"cluster.sasl_mechanism: {mechanism} is not in security.sasl_mechanisms")
    for name in ("username", "password_file"):
        if not getattr(cluster, name):
            raise InvalidPeerSecurityError(
                f"cluster.{name}: it is required, because the brokers' listener has SASL; the user is in "
                "security.users_file of every broker"
            )
    return SaslOptions(mechanism, cluster.username, _secret(cluster.password_file, "cluster.password_file"))


def _secret(path: str, setting: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidPeerSecurityError(f"{setting}: {path} cannot be read: {reason}") from None


async def peer_context(security: ClientSecurity) -> ssl.SSLContext | None:
    """Return the TLS context for a connection, None without TLS. Raises PeerSecurityError."""
    if not security.protocol.uses_tls:
        return None
    try:
        return await asyncio.to_thread(client_context, security.tls)
    except ClientError as error:
        raise PeerSecurityError(str(error)) from None


def peer_tls_error(host: str, port: int, error: ssl.SSLError, security: ClientSecurity) -> PeerSecurityError:
    """Return the error of a failed TLS handshake, with its cause in one sentence."""
    has_certificate = bool(security.tls.certificate_file)
    return PeerSecurityError(str(tls_error(host, port, error, is_handshake=True, has_certificate=has_certificate)))


class PeerAuthentication:
    """The SASL session of a connection: it is authenticated when made, and again before the session ends (KIP-368)."""

    def __init__(self, sasl: SaslOptions, host: str, port: int) -> None:
        self._sasl = sasl
        self._host = host
        self._port = port
        self._renew_at_s: float | None = None
        # Requests wait while the connection is authenticated.
        self._lock = asyncio.Lock()

    async def renew_if_due(self, send: Send) -> None:
        """Raises PeerSecurityError, and what `send` raises."""
        if not self._lock.locked() and not self._is_due:
            return
        async with self._lock:
            if self._is_due:
                await self._exchange(send)

    async def authenticate(self, send: Send) -> None:
        """Raises PeerSecurityError, and what `send` raises."""
        async with self._lock:
            await self._exchange(send)

    @property
    def _is_due(self) -> bool:
        return self._renew_at_s is not None and asyncio.get_running_loop().time() >= self._renew_at_s

    async def _exchange(self, send: Send) -> None:
        started_s = asyncio.get_running_loop().time()
        try:
            exchange = SaslClientExchange(self._sasl, self._host, self._port, nonce=new_nonce())
            while exchange.request is not None:
                response = await send(exchange.request, exchange.response, exchange.version)
                await asyncio.to_thread(exchange.receive, response)
        except ClientError as error:
            raise PeerSecurityError(str(error)) from None
        delay_s = renewal_delay_s(exchange.session_lifetime_ms)
        self._renew_at_s = None if delay_s is None else started_s + delay_s
