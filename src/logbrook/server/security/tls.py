"""TLS of the listeners: the context of new connections, made anew when its files change.

A context is never changed: open connections keep theirs. If the new files cannot be used, the last context stays in use
and the error is logged, so that a half-written certificate does not stop the broker from accepting connections.
"""

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from logbrook.config.security import ClientCertificates, SecurityConfig, TlsVersion
from logbrook.model.event_log import event_logger
from logbrook.server.security.errors import InvalidSecurityError

# The files are looked at this often.
_CHECK_S = 5.0
# Forward secrecy and authenticated encryption only.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL:!eNULL"
_VERSIONS = {TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2, TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    ClientCertificates.NONE: ssl.CERT_NONE,
    ClientCertificates.REQUESTED: ssl.CERT_OPTIONAL,
    ClientCertificates.REQUIRED: ssl.CERT_REQUIRED,
}

# The socket of the handshake that the current task does.
accepted_socket: ContextVar[socket.socket | None] = ContextVar("accepted_socket", default=None)

_logger = event_logger(__name__)


class TlsContexts:
    """The TLS context for new connections of all listeners with TLS. On the event loop; `stop` it once."""

    def __init__(self, config: SecurityConfig, loop: asyncio.AbstractEventLoop) -> None:
        """Raises InvalidSecurityError."""
        self._config = config
        self._loop = loop
        self._stamps = _file_stamps(config)
        self.context = new_server_context(config)
        self._is_due = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watching = self._loop.create_task(self._watch())

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def reload_soon(self) -> None:
        self._is_due.set()

    async def reload(self) -> None:
        """Read the files again. An error is logged, and the current context stays in use."""
        try:
            self._stamps = await asyncio.to_thread(_file_stamps, self._config)
            self.context = await asyncio.to_thread(new_server_context, self._config)
        except InvalidSecurityError as error:
            _logger.error("certificate not reloaded", error=error)
        else:
            _logger.info("certificate reloaded", certificate=self._config.certificate)

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_due.wait(), _CHECK_S)
            is_due = self._is_due.is_set()
            self._is_due.clear()
            if is_due or await asyncio.to_thread(_file_stamps, self._config) != self._stamps:
                await self.reload()


class HandshakeObject(ssl.SSLObject):
    """One connection with TLS. It sends the alert that tells the client why its handshake failed.

    Event loops close the connection without it: the client would see a reset, and try again instead of giving up.
    """

    outgoing: ssl.MemoryBIO
    accepted: socket.socket | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            alert = self.outgoing.read()
            if self.accepted is not None and alert:
                with suppress(OSError):
                    self.accepted.send(alert)
            raise


class AlertingContext(ssl.SSLContext):
    """Makes `HandshakeObject`s, with the socket that `accepted_socket` has."""

    sslobject_class = HandshakeObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        wrapped = super().wrap_bio(incoming, outgoing, *args, **options)
        assert isinstance(wrapped, HandshakeObject)
        wrapped.outgoing, wrapped.accepted = outgoing, accepted_socket.get()
        return wrapped


def new_server_context(config: SecurityConfig) -> ssl.SSLContext:
    """Read the files of the settings. Raises InvalidSecurityError."""
    if not config.certificate:
        raise InvalidSecurityError(
            "a listener with TLS needs security.certificate and security.key; `logbrook security init` makes both"
        )
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.tls_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # A resumed session would keep the rights of a certificate whose authority is not trusted any more. Clients with
    # TLS 1.2 can still resume one of the same context, for minutes; a reload ends that.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        context.set_ciphers(config.ciphers or _CIPHERS)
    except ssl.SSLError:
        raise InvalidSecurityError(f"security.ciphers: OpenSSL has no cipher in {config.ciphers!r}") from None
    try:
        context.load_cert_chain(config.certificate, config.key or None, lambda: _key_password(config))
    except (OSError, ValueError) as error:
        raise InvalidSecurityError(_explain(error, config.certificate, config.key)) from None
    _require_client_certificates(context, config)
    return context


def _require_client_certificates(context: ssl.SSLContext, config: SecurityConfig) -> None:
    """Raises InvalidSecurityError."""
    context.verify_mode = _VERIFY[config.client_certificates]
    if config.client_certificates is ClientCertificates.NONE:
        return
    if not config.client_ca:
        raise InvalidSecurityError("security.client_certificates needs security.client_ca, the authorities of clients")
    try:
        context.load_verify_locations(config.client_ca)
    except OSError as error:
        raise InvalidSecurityError(_explain(error, config.client_ca)) from None


def _key_password(config: SecurityConfig) -> str:
    """Raises OSError; ValueError without a password, because OpenSSL would otherwise ask on the terminal."""
    if not config.key_password_file:
        raise ValueError("the key is encrypted; set security.key_password_file")
    return Path(config.key_password_file).read_text().strip()


def _explain(error: OSError | ValueError, *paths: str) -> str:
    files = " and ".join(path for path in paths if path)
    if isinstance(error, ssl.SSLError):
        return f"{files} cannot be used for TLS: {error.reason or error}"
    if isinstance(error, OSError):
        return f"{files} cannot be read: {error.strerror}"
    return f"{files} cannot be used for TLS: {error}"


def _file_stamps(config: SecurityConfig) -> list[tuple[int, int, int] | None]:
    """Return what identifies the contents of the files, None for one that cannot be read."""
    stamps: list[tuple[int, int, int] | None] = []
    for path in (config.certificate, config.key, config.client_ca, config.key_password_file):
        try:
            status = os.stat(path)
        except OSError:
            stamps.append(None)
        else:
            stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
    return stamps
