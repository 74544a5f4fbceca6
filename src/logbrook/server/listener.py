"""Listeners for clients: they accept connections up to a limit, and disconnect silent, idle and stalled clients.

All connections share the memory that they receive into, and the limits of `connection_limits`, `receive_memory` and
`response_memory`.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from logbrook.config import NetworkConfig
from logbrook.model.event_log import event_logger
from logbrook.ports.buffer_pool import BufferPool
from logbrook.protocol.framing import ReceiveBuffers
from logbrook.server.connection import ServerConnection
from logbrook.server.connection_limits import ConnectionLimits
from logbrook.server.logs import RateLimitedWarnings
from logbrook.server.peer_progress import ConnectionTimeouts
from logbrook.server.receive_memory import ReceiveMemory
from logbrook.server.security.tls import TlsContexts
from logbrook.server.security.tls_acceptor import NewProtocol, TlsAcceptor, listening_sockets
from logbrook.server.services import Services

_SWEEP_S_MIN, _SWEEP_S_MAX = 0.05, 1.0
_BACKLOG = 1024
# Connections that wait for memory are resumed after this time.
_RESUME_S = 0.01
# Maximum wait for aborted connections to close.
_ABORT_S_MAX = 1.0

_logger = event_logger(__name__)

NewConnection: TypeAlias = Callable[["Listener", asyncio.AbstractEventLoop], ServerConnection]


class Listener:
    """All client connections of a broker. `listen` binds an address, `start` accepts connections on all of them."""

    def __init__(self, services: Services, buffers: BufferPool, connections_max: int, handshakes_max: int = 1) -> None:
        """`handshakes_max` is the maximum number of TLS handshakes in progress, per address that `listen` binds."""
        config: NetworkConfig = services.config.network
        self.receive_buffers = ReceiveBuffers(pool=buffers)
        # Rate-limited: clients must not be able to fill the log.
        self.warnings = RateLimitedWarnings(_logger, services.clock)
        self.response_memory = services.response_memory
        self.region_loader = services.cold_reads
        self.in_flight_bytes_max = config.in_flight_bytes_max
        self.in_flight_requests_max = config.in_flight_requests_max
        self._limits = ConnectionLimits(connections_max, config.connections_per_address_max)
        self.connections = self._limits.connections
        self._handshakes_max = handshakes_max
        self._services = services
        self._loop = services.loop
        self.receive_memory = ReceiveMemory(config.received_bytes_max, self._set_scarce)
        self._is_resume_due = False
        self._unflushed: deque[ServerConnection] = deque()
        self._is_flush_due = False
        # Handlers that finish although their client has disconnected.
        self._orphans: set[asyncio.Task[Any]] = set()
        self._timeouts = ConnectionTimeouts(
            config.connection_first_request_ms / 1000,
            config.connection_idle_ms / 1000,
            config.connection_stalled_ms / 1000,
            services.config.security.handshake_ms / 1000,
        )
        self._sweep_s = min(_SWEEP_S_MAX, max(_SWEEP_S_MIN, min(self._timeouts) / 4))
        self._sweeper: asyncio.TimerHandle | None = None
        self._servers: list[asyncio.Server | TlsAcceptor] = []
        # The addresses that `listen` has bound, with what makes their connections.
        self._addresses: list[tuple[NewConnection, str, int, TlsContexts | None]] = []
        self._is_empty = asyncio.Event()
        services.appender.on_drained = self._flush

    async def listen(
        self, host: str, port: int, new_connection: NewConnection, tls: TlsContexts | None = None
    ) -> tuple[str, int]:
        """Bind an address, and return it. Raises OSError with the address as its file name."""
        server = await self._bind(new_connection, host, port, tls)
        address = server.sockets[0].getsockname()
        bound = str(address[0]), int(address[1])
        self._addresses.append((new_connection, *bound, tls))
        return bound

    async def _bind(
        self, make: NewConnection, host: str, port: int, tls: TlsContexts | None
    ) -> asyncio.Server | TlsAcceptor:
        try:
            server: asyncio.Server | TlsAcceptor
            if tls is None:
                server = await self._loop.create_server(
                    lambda: make(self, self._loop),
                    host,
                    port,
                    backlog=_BACKLOG,
                    reuse_address=True,
                    start_serving=False,
                )
            else:
                server = await self._bind_tls(make, host, port, tls)
        except OSError as error:
            error.filename = f"{host}:{port}"
            raise
        self._servers.append(server)
        return server

    async def _bind_tls(self, make: NewConnection, host: str, port: int, tls: TlsContexts) -> TlsAcceptor:
        """Raises OSError."""
        sockets = await listening_sockets(self._loop, host, port)
        return self.new_tls_acceptor(sockets, lambda: make(self, self._loop), tls)

    def new_tls_acceptor(
        self, sockets: list[socket.socket], new_protocol: NewProtocol, tls: TlsContexts
    ) -> TlsAcceptor:
        """Return the acceptor of listening sockets, of this listener or of the HTTP listener."""
        return TlsAcceptor(
            self._loop,
            sockets,
            new_protocol,
            tls,
            self.warnings,
            self._services.probe,
            handshakes_max=self._handshakes_max,
            handshake_s=self._timeouts.authentication_s,
        )

    async def start(self) -> None:
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)
        for server in self._servers:
            await server.start_serving()

    def suspend(self) -> None:
        """Refuse new connections and abort the open ones, until `resume`."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in [*self.connections]:
            connection.abort()

    async def resume(self) -> None:
        """Accept connections at the same addresses again. Raises OSError."""
        for make, host, port, tls in self._addresses:
            server = await self._bind(make, host, port, tls)
            await server.start_serving()

    async def stop(self, timeout_s: float) -> None:
        """Stop accepting, send the responses in flight, and close; after `timeout_s`, abort what is still open."""
        if not self._addresses:
            return
        for server in self._servers:
            server.close()
        for connection in [*self.connections]:
            connection.close_when_done()
        until_s = self._loop.time() + timeout_s
        if not await self._is_empty_within(timeout_s):
            _logger.warning("connections aborted at stop", connections=len(self.connections))
            for connection in [*self.connections]:
                connection.abort()
            await self._is_empty_within(_ABORT_S_MAX)
        if self._orphans:
            _, unfinished = await asyncio.wait(self._orphans, timeout=max(0.0, until_s - self._loop.time()))
            for task in unfinished:
                task.cancel()
            if unfinished:
                await asyncio.wait(unfinished)
        if self._sweeper is not None:
            self._sweeper.cancel()

    def register(self, connection: ServerConnection) -> bool:
        """Return False if there is no room for the connection: not even a silent one could be closed for it."""
        probe, limits = self._services.probe, self._limits
        while (limit := limits.reached_by(connection.peer)) is not None:
            silent = limits.oldest_silent(connection.peer, limit)
            if silent is None:
                probe.connections_refused += 1
                self.warnings.warn(f"refused {limit}", "connection refused", limit=limit, peer=connection.peer)
                return False
            limits.remove(silent)
            self._close(silent, "silent")
        probe.connections_accepted += 1
        limits.add(connection)
        return True

    def refusal_delay_s(self, connection: ServerConnection) -> float:
        """Return the time after which a new connection is closed, because its address has exceeded its quota."""
        quotas = self._services.quotas
        return quotas.connection_delay_s(connection.peer) if quotas.quotas.has_address_quotas else 0.0

    def heard_from(self, connection: ServerConnection) -> None:
        self._limits.heard_from(connection)

    def unregister(self, connection: ServerConnection) -> None:
        self._limits.remove(connection)
        self.receive_memory.remove(connection)
        self._resume_soon()
        if not self.connections:
            self._is_empty.set()

    def adopt(self, task: "asyncio.Task[Any]") -> None:
        """Keep a handler running although its client has disconnected."""
        self._orphans.add(task)
        task.add_done_callback(self._orphans.discard)

    def flush_soon(self, connection: ServerConnection) -> None:
        """Call `connection.flush` at the end of this drain of completed appends, or in the next event-loop turn."""
        self._unflushed.append(connection)
        if not self._is_flush_due and not self._services.appender.is_draining:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        unflushed = self._unflushed
        try:
            for _ in range(len(unflushed)):
                unflushed.popleft().flush()
        finally:
            # A flush raised, which the event loop reports, or a connection has queued another flush.
            if unflushed and not self._is_flush_due:
                self._is_flush_due = True
                self._loop.call_soon(self._flush)

    def set_held_bytes(self, connection: ServerConnection, held_bytes: int, *, is_receiving: bool) -> None:
        """Set the memory that the requests of a connection hold."""
        self.receive_memory.set_held_bytes(connection, held_bytes)
        if not is_receiving:
            self.end_exemption(connection)

    def end_exemption(self, connection: ServerConnection) -> None:
        """Let the next connection exceed its share of memory, if `connection` did."""
        self.receive_memory.end_exemption(connection)
        self._resume_soon()

    def reserve(self, connection: ServerConnection, more_bytes: int) -> bool:
        """Count memory that a request is about to take. False if `connection` has to wait for it."""
        return self.receive_memory.reserve(connection, more_bytes)

    async def _is_empty_within(self, seconds: float) -> bool:
        if self.connections:
            self._is_empty.clear()
            try:
                await asyncio.wait_for(self._is_empty.wait(), seconds)
            except TimeoutError:
                return False
        return True

    def _set_scarce(self, is_scarce: bool) -> None:
        self.receive_buffers.is_scarce = is_scarce

    def _resume_soon(self) -> None:
        if self.receive_memory.waiting and not self._is_resume_due:
            self._is_resume_due = True
            self._loop.call_later(_RESUME_S, self._resume_waiting)

    def _resume_waiting(self) -> None:
        self._is_resume_due = False
        for connection in self.receive_memory.take_resumable():
            connection.resume_reading()

    def _close(self, connection: ServerConnection, reason: str) -> None:
        """Close a connection that holds resources and does not use them."""
        self._services.probe.connections_reaped += 1
        if reason in ("idle", "expired"):
            _logger.info("connection closed", peer=connection.peer, reason=reason)
        else:
            self.warnings.warn(f"{reason} {connection.peer}", "connection closed", peer=connection.peer, reason=reason)
        connection.reset()

    def _sweep(self) -> None:
        self.receive_buffers.pool.trim()
        now_s = self._loop.time()
        for connection in [*self.connections]:
            reason = connection.check(now_s, self._timeouts)
            if reason is not None:
                self._close(connection, reason)
        self.receive_memory.end_unused_exemption()
        self._resume_waiting()
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)
