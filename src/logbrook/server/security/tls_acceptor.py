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
from logbrook.server.security.tls import TlsContexts, accepted_socket

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
    """The sockets of one listener. `start_serving` and `close` it once each, on the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        new_protocol: NewProtocol,
        tls: TlsContexts,
        warnings: RateLimitedWarnings,
        probe: ServerProbe,
        *,
        handshakes_max: int,
        handshake_s: float,
    ) -> None:
        self._loop = loop
        self.sockets = sockets
        self._new_protocol = new_protocol
        self._tls = tls
        self._warnings = warnings
        self._probe = probe
        self._handshakes_max = handshakes_max
        self._handshake_s = handshake_s
        # With their sockets, the oldest first.
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._pausing: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def start_serving(self) -> None:
        self._resume()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_accepting()
        for listening in self.sockets:
            listening.close()
        while self._handshakes:
            self._give_up_oldest()

    def _resume(self) -> None:
        self._pausing = None
        for listening in self.sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _stop_accepting(self) -> None:
        if self._pausing is not None:
            self._pausing.cancel()
        for listening in self.sockets:
            self._loop.remove_reader(listening.fileno())

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_PER_TURN_MAX):
            try:
                connected, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                # The client has gone already, or there is no descriptor for it.
                if error.errno in _RESOURCE_ERRORS:
                    self._warnings.warn("tls accept", "accepting paused", error=error.strerror)
                    self._pause()
                return
            connected.setblocking(False)
            if len(self._handshakes) >= self._handshakes_max:
                self._probe.tls_handshake_failures += 1
                self._warnings.warn(
                    "tls handshakes", "tls handshake given up", limit="handshakes_max", handshakes=self._handshakes_max
                )
                self._give_up_oldest()
            handshake = self._loop.create_task(self._shake_hands(connected, str(address[0])))
            self._handshakes[handshake] = connected
            handshake.add_done_callback(lambda done: self._handshakes.pop(done, None))

    def _pause(self) -> None:
        self._stop_accepting()
        self._pausing = self._loop.call_later(_PAUSE_S, self._resume)

    def _give_up_oldest(self) -> None:
        oldest = next(iter(self._handshakes))
        connected = self._handshakes.pop(oldest)
        oldest.cancel()
        # The task may not have begun, and then nobody else closes it.
        connected.close()

    async def _shake_hands(self, connected: socket.socket, peer: str) -> None:
        accepted_socket.set(connected)
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
TlsAcceptorFactory: TypeAlias = Callable[[list[socket.socket], NewProtocol], TlsAcceptor]


async def listening_sockets(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """Return non-blocking sockets that listen: a name such as localhost may have several addresses. Raises OSError."""
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address[0]) for family, *_, address in addresses):
            # If the kernel chooses the port, it is the same for all addresses.
            chosen = sockets[0].getsockname()[1] if sockets else port
            sockets.append(socket.create_server((address, chosen), family=family, backlog=_BACKLOG))
            sockets[-1].setblocking(False)
    except OSError:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def _explain(error: BaseException) -> str:
    """Say why a handshake failed, in the words of OpenSSL without its source lines."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return str(error) or type(error).__name__
