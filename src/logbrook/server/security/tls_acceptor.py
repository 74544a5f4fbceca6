"""Accepts connections with TLS: the handshakes in progress are bounded in number and time.

asyncio's own server would accept any number of them, and tells nobody of a handshake that fails. When there are too
many, the oldest one is given up: a client that connects and sends nothing cannot keep others out.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import TypeAlias

from logbrook.server.logs import RateLimitedWarnings
from logbrook.server.probe import ServerProbe
from logbrook.server.security.tls import TlsContexts

# Connections accepted in one turn of the event loop.
_ACCEPTED_PER_TURN_MAX = 64
# Without a file descriptor for another connection, accepting pauses for this long.
_PAUSE_S = 0.1
# An idle client does not answer the end of TLS, and would delay the broker's stop for longer.
_SHUTDOWN_S = 1.0
_RESOURCE_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BACKLOG = 1024

NewProtocol: TypeAlias = Callable[[], asyncio.BaseProtocol]


class TlsAcceptor:
    """One listening socket. `start` and `close` it once each, on the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        new_protocol: NewProtocol,
        tls: TlsContexts,
        warnings: RateLimitedWarnings,
        probe: ServerProbe,
        *,
        handshakes_max: int,
        handshake_s: float,
    ) -> None:
        self._loop = loop
        self._socket = listening
        self._new_protocol = new_protocol
        self._tls = tls
        self._warnings = warnings
        self._probe = probe
        self._handshakes_max = handshakes_max
        self._handshake_s = handshake_s
        # With their sockets, the oldest first.
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._pausing: asyncio.TimerHandle | None = None

    @property
    def sockets(self) -> list[socket.socket]:
        return [self._socket]

    async def start_serving(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        if self._pausing is not None:
            self._pausing.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        while self._handshakes:
            self._give_up_oldest()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_PER_TURN_MAX):
            try:
                connected, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _RESOURCE_ERRORS:
                    raise
                self._pause()
                return
            connected.setblocking(False)
            if len(self._handshakes) >= self._handshakes_max:
                self._give_up_oldest()
            handshake = self._loop.create_task(self._shake_hands(connected, str(address[0])))
            self._handshakes[handshake] = connected
            handshake.add_done_callback(lambda done: self._handshakes.pop(done, None))

    def _pause(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._pausing = self._loop.call_later(
            _PAUSE_S, lambda: self._loop.add_reader(self._socket.fileno(), self._accept)
        )

    def _give_up_oldest(self) -> None:
        oldest = next(iter(self._handshakes))
        connected = self._handshakes.pop(oldest)
        oldest.cancel()
        # The task may not have begun, and then nobody else closes it.
        connected.close()

    async def _shake_hands(self, connected: socket.socket, peer: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._new_protocol,
                connected,
                ssl=self._tls.context,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            self._probe.tls_handshake_failures += 1
            self._warnings.warn(f"tls {peer}", "tls handshake failed", peer=peer, error=_explain(error))
            connected.close()


# Makes the acceptor of a listening socket.
TlsAcceptorFactory: TypeAlias = Callable[[socket.socket, NewProtocol], TlsAcceptor]


async def listening_socket(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Return a non-blocking socket that listens. Raises OSError."""
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, address = addresses[0]
    listening = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    listening.setblocking(False)
    return listening


def _explain(error: BaseException) -> str:
    """Say why a handshake failed, in the words of OpenSSL without its source lines."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return str(error) or type(error).__name__
