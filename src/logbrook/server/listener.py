"""The doors for clients: they let connections in, as many as there may be, and none overstays.

All connections share the memory that is received into. What their unanswered requests hold is bounded over all of
them: beyond that, those with a large request half received wait, and one at a time goes on.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from logbrook.config import NetworkConfig
from logbrook.ports.lent_memory import LentMemory
from logbrook.protocol.frame_memory import FrameMemory
from logbrook.server.connection import Connection
from logbrook.server.dispatch import Dispatcher
from logbrook.server.logs import RepeatedWarnings
from logbrook.server.services import Services

_SWEEP_S_MIN, _SWEEP_S_MAX = 0.05, 1.0
_BACKLOG = 1024
# How long it takes at most until a connection that was hung up on is gone.
_ABORT_S_MAX = 1.0

_logger = logging.getLogger(__name__)

# What makes the connections of a door.
NewConnection: TypeAlias = Callable[["Listener", asyncio.AbstractEventLoop], Connection]


class Listener:
    """Made once per broker; `listen` takes the address of a door, and `start` opens them all."""

    def __init__(self, services: Services, dispatcher: Dispatcher, memory: LentMemory, connections_max: int) -> None:
        config: NetworkConfig = services.config.network
        self.dispatcher = dispatcher
        self.frame_memory = FrameMemory(pieces=memory)
        # What strangers cause is told once in a while, so that they cannot fill the log.
        self.warnings = RepeatedWarnings(_logger, services.clock)
        self.in_flight_bytes_max = config.in_flight_bytes_max
        self.in_flight_requests_max = config.in_flight_requests_max
        self.connections: set[Connection] = set()
        self._services = services
        self._loop = services.loop
        self._connections_max = connections_max
        self._received_bytes = 0
        self._received_bytes_max = config.received_bytes_max
        self._waiting: dict[Connection, None] = {}
        # What clients asked for that have gone since.
        self._orphans: set[asyncio.Task[Any]] = set()
        self._idle_s = config.connection_idle_ms / 1000
        self._stalled_s = config.connection_stalled_ms / 1000
        self._sweep_s = min(_SWEEP_S_MAX, max(_SWEEP_S_MIN, min(self._idle_s, self._stalled_s) / 4))
        self._sweeper: asyncio.TimerHandle | None = None
        self._servers: list[asyncio.Server] = []
        self._is_empty = asyncio.Event()

    async def listen(self, host: str, port: int, new_connection: NewConnection | None = None) -> tuple[str, int]:
        """Take an address: for Kafka clients, unless it is said what connections are made there.

        Returns the address that was taken. Raises OSError, with the address for a file name.
        """
        make = new_connection or (lambda listener, loop: Connection(listener, loop, listener.dispatcher))
        try:
            server = await self._loop.create_server(
                lambda: make(self, self._loop), host, port, backlog=_BACKLOG, reuse_address=True, start_serving=False
            )
        except OSError as error:
            error.filename = f"{host}:{port}"
            raise
        self._servers.append(server)
        address = server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def start(self) -> None:
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)
        for server in self._servers:
            await server.start_serving()

    async def stop(self, timeout_s: float) -> None:
        """Let nobody in, answer what was begun, and hang up, on those who take too long as well."""
        if not self._servers:
            return
        for server in self._servers:
            server.close()
        for connection in [*self.connections]:
            connection.close_when_done()
        until_s = self._loop.time() + timeout_s
        if not await self._is_empty_within(timeout_s):
            _logger.warning("hanging up on %d connections that did not take their answers", len(self.connections))
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

    def opened(self, connection: Connection) -> bool:
        probe = self._services.probe
        if len(self.connections) >= self._connections_max:
            probe.connections_refused += 1
            self.warnings.warn("", f"refusing connections: there are {self._connections_max}, and no more are allowed")
            return False
        probe.connections_accepted += 1
        self.connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._waiting.pop(connection, None)
        if not self.connections:
            self._is_empty.set()

    def outlives(self, task: "asyncio.Task[Any]") -> None:
        """Keep what is under way though its client has gone."""
        self._orphans.add(task)
        task.add_done_callback(self._orphans.discard)

    def unsent(self, more_bytes: int) -> None:
        """Count what clients have not taken."""
        self._services.unsent_bytes += more_bytes

    def holds(self, connection: Connection, more_bytes: int) -> bool:
        """Count what connections hold. False when that is as much as they may."""
        self._received_bytes += more_bytes
        if self._received_bytes < self._received_bytes_max:
            if self._waiting and more_bytes < 0:
                self._let_go_on(len(self._waiting))
            return True
        self._waiting[connection] = None
        return False

    async def _is_empty_within(self, seconds: float) -> bool:
        if self.connections:
            self._is_empty.clear()
            try:
                await asyncio.wait_for(self._is_empty.wait(), seconds)
            except TimeoutError:
                return False
        return True

    def _let_go_on(self, count: int) -> None:
        for connection in list(self._waiting)[:count]:
            del self._waiting[connection]
            connection.resume_reading()

    def _sweep(self) -> None:
        self.frame_memory.pieces.trim()
        now_s = self._loop.time()
        for connection in [*self.connections]:
            reason = connection.check(now_s, self._idle_s, self._stalled_s)
            if reason is not None:
                self._services.probe.connections_reaped += 1
                _logger.info("hanging up on %s, which is %s", connection.peer, reason)
                connection.reset()
        # Those who wait for memory might be waiting for each other: one always goes on.
        self._let_go_on(1)
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)
