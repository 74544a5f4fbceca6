"""Bytes to and from a broker over a blocking socket, with or without TLS, each call with a deadline.

Memory for received bytes is allocated as they arrive, because their number is the peer's claim. Errors are OSErrors,
TimeoutError when the deadline has passed; those of the TLS layer become ClientErrors with advice.
"""

import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from logbrook.client.errors import ConnectFailedError
from logbrook.client.security import ClientSecurity
from logbrook.protocol.encoding import Piece

if TYPE_CHECKING:
    import ssl

# The first allocation for a response; it doubles as bytes arrive.
_GROWTH_BYTES = 256 * 1024
# The system's limit of buffers per sendmsg (IOV_MAX).
_PIECES_MAX = 1024
# Pieces are joined up to the size of a TLS record.
_RECORD_BYTES = 16 * 1024
_ALERT_S_MAX = 0.1


class Transport:
    """A connected TCP socket. `host` and `port` are those that it was asked for."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        """Raises ConnectFailedError."""
        self.host = host
        self.port = port
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise ConnectFailedError(host, port, str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def has_bytes(self) -> bool:
        """True if received bytes wait in this process, where polling the socket does not see them."""
        return False

    @property
    def is_ended(self) -> bool:
        """True if the broker has closed the connection, as far as is known here; only while no bytes are awaited."""
        # With a timeout Python would wait for bytes, whatever the flags say. `send` and `receive` set theirs.
        self._socket.setblocking(False)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def send(self, pieces: Sequence[Piece], until_s: float) -> None:
        unsent = deque(memoryview(piece) for piece in pieces if len(piece))
        while unsent:
            self._wait_until(until_s)
            count = self._socket.sendmsg([unsent[n] for n in range(min(len(unsent), _PIECES_MAX))])
            while unsent and count >= len(unsent[0]):
                count -= len(unsent.popleft())
            if count:
                unsent[0] = unsent[0][count:]

    def receive(self, size: int, until_s: float, memory: bytearray | None = None) -> memoryview:
        """Return the next `size` bytes, in `memory` if they fit. Raises ConnectionResetError at the stream's end."""
        received = bytearray(min(size, _GROWTH_BYTES)) if memory is None or len(memory) < size else memory
        filled = 0
        while filled < size:
            if filled == len(received):
                received += bytes(min(filled, size - filled))
            self._wait_until(until_s)
            count = self._socket.recv_into(memoryview(received)[filled:size])
            if not count:
                raise ConnectionResetError("the broker closed it")
            filled += count
        return memoryview(received)[:size]

    def _wait_until(self, until_s: float) -> None:
        """Set the timeout of the next socket call. Raises TimeoutError if `until_s` has passed."""
        remaining_s = until_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining_s)


class TlsTransport(Transport):
    """A TCP socket under TLS. The handshake is done when this is made."""

    def __init__(self, host: str, port: int, timeout_s: float, security: ClientSecurity) -> None:
        """Raises ConnectFailedError, ConnectionSecurityError, SecurityOptionError or TlsHandshakeClosedError."""
        # Slow to import, and not needed for plain text.
        from logbrook.client.tls import client_context  # noqa: PLC0415

        until_s = time.monotonic() + timeout_s
        context = client_context(security.tls)
        super().__init__(host, port, timeout_s)
        self._has_certificate = bool(security.tls.certificate_file or security.tls.certificate_pem)
        plain = self._socket
        try:
            plain.settimeout(max(0.001, until_s - time.monotonic()))
            with self._explaining(is_handshake=True):
                self._tls: ssl.SSLSocket = context.wrap_socket(plain, server_hostname=host)
        except TimeoutError:
            plain.close()
            raise ConnectFailedError(host, port, f"no TLS handshake within {timeout_s:g} s") from None
        except BaseException:
            plain.close()
            raise
        self._socket = self._tls

    @property
    def has_bytes(self) -> bool:
        return self._tls.pending() > 0

    @property
    def is_ended(self) -> bool:
        from logbrook.client.tls import SSLWantReadError  # noqa: PLC0415

        self._tls.setblocking(False)
        try:
            # Processes session tickets, which arrive unasked. Bytes of a response that nobody awaits are an error too.
            self._tls.recv(1)
        except SSLWantReadError:
            return False
        except OSError:
            return True
        return True

    def send(self, pieces: Sequence[Piece], until_s: float) -> None:
        with self._explaining():
            try:
                self._send(pieces, until_s)
            except TimeoutError:
                raise
            except OSError:
                # A broker that refuses the client's certificate sends an alert, which may be there already, and closes.
                self._tls.settimeout(_ALERT_S_MAX)
                self._tls.recv(1)
                raise

    def _send(self, pieces: Sequence[Piece], until_s: float) -> None:
        for chunk in _joined(pieces):
            unsent = memoryview(chunk)
            while unsent:
                self._wait_until(until_s)
                unsent = unsent[self._tls.send(unsent) :]

    def receive(self, size: int, until_s: float, memory: bytearray | None = None) -> memoryview:
        with self._explaining():
            return super().receive(size, until_s, memory)

    @contextmanager
    def _explaining(self, *, is_handshake: bool = False) -> Iterator[None]:
        """Raise a ClientError for errors of TLS. In the handshake, those of TCP are counted among them."""
        from logbrook.client.tls import SSLError, tls_error  # noqa: PLC0415

        try:
            yield
        except TimeoutError:
            raise
        except OSError as error:
            if not is_handshake and not isinstance(error, SSLError):
                raise
            raise tls_error(
                self.host, self.port, error, is_handshake=is_handshake, has_certificate=self._has_certificate
            ) from error


def open_transport(host: str, port: int, timeout_s: float, security: ClientSecurity) -> Transport:
    """Connect, and do the TLS handshake if the protocol has one, within `timeout_s`."""
    if security.protocol.uses_tls:
        return TlsTransport(host, port, timeout_s, security)
    return Transport(host, port, timeout_s)


def _joined(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the same bytes with small pieces joined: each send makes a TLS record of its own."""
    small: list[Piece] = []
    size = 0
    for piece in pieces:
        if size + len(piece) > _RECORD_BYTES and small:
            yield b"".join(small)
            small, size = [], 0
        if len(piece) > _RECORD_BYTES:
            yield piece
        elif len(piece):
            small.append(piece)
            size += len(piece)
    if small:
        yield b"".join(small)
