"""A network in memory: byte streams between named hosts, with latency and faults.

Bytes of a connection arrive in order, each write after the latency of its time. Hosts that cannot reach each other
(`cut_off`) keep their connections, and what is sent waits, as in TCP; `reconnect` delivers it. `break_connections`
breaks those between two hosts, `reset` all those of a host. `take_down` does so too, and refuses new ones until
`bring_up`: the process has ended.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

if TYPE_CHECKING:
    from logbrook.testing.simulation.loop import SimulationLoop

_FIRST_PORT = 20_000
_TIME = Struct("<d")


class SimulatedNetwork:
    """All servers and connections. `latency_s()` is asked for each message."""

    def __init__(self, latency_s: Callable[[], float] = lambda: 0.0005) -> None:
        self.latency_s = latency_s
        self._servers: dict[tuple[str, int], SimulatedServer] = {}
        self._transports: set[SimulatedTransport] = set()
        # Nothing passes from the first host to the second.
        self._cut_off: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._next_port = _FIRST_PORT
        # Of all messages that were delivered, and when: two runs of a schedule have the same.
        self.digest = 0
        self._loop: SimulationLoop | None = None

    @property
    def loop(self) -> "SimulationLoop":
        assert self._loop is not None, "the network belongs to no loop"
        return self._loop

    def attach(self, loop: "SimulationLoop") -> None:
        self._loop = loop

    def listen(self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> "SimulatedServer":
        """Raises OSError if the address is in use."""
        port = port or self.new_port()
        if (host, port) in self._servers:
            raise OSError(98, "Address already in use")
        server = self._servers[host, port] = SimulatedServer(self, protocol_factory, host, port)
        return server

    def new_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def forget(self, server: "SimulatedServer") -> None:
        self._servers.pop(server.address, None)

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], local_host: str, host: str, port: int
    ) -> tuple["SimulatedTransport", asyncio.BaseProtocol]:
        """Raises ConnectionRefusedError, or TimeoutError if the hosts cannot reach each other."""
        arrived = asyncio.Event()
        self.loop.call_later(self.latency_s(), arrived.set)
        await arrived.wait()
        server = self._servers.get((host, port))
        if self.is_cut_off(local_host, host) or self.is_cut_off(host, local_host):
            raise TimeoutError(f"{host}:{port} cannot be reached")
        if server is None or not server.is_accepting or local_host in self._down:
            raise ConnectionRefusedError(111, f"nothing listens on {host}:{port}")
        local = (local_host, self.new_port())
        near = SimulatedTransport(self, protocol_factory(), local, server.address)
        far = SimulatedTransport(self, server.protocol_factory(), server.address, local)
        near.peer, far.peer = far, near
        self._transports |= {near, far}
        far.protocol.connection_made(far)
        near.protocol.connection_made(near)
        return near, near.protocol

    def on_delivered(self, transport: "SimulatedTransport", data: bytes) -> None:
        self.digest = crc32(data, crc32(_TIME.pack(self.loop.now_s), crc32(transport.addresses, self.digest)))

    def is_cut_off(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._cut_off

    def cut_off(self, host: str, other: str, *, one_way: bool = False) -> None:
        """Let nothing pass between two hosts, or with `one_way` nothing from the first to the second."""
        self._cut_off.add((host, other))
        if not one_way:
            self._cut_off.add((other, host))

    def reconnect(self, host: str, other: str) -> None:
        """End a `cut_off`. What was sent meanwhile arrives now."""
        self._cut_off -= {(host, other), (other, host)}
        for transport in self._sorted():
            transport.deliver()

    def break_connections(self, host: str, other: str) -> None:
        """Break the connections between two hosts, as a firewall that restarts does. New ones can be made at once."""
        for transport in self._sorted():
            if (transport.local[0], transport.remote[0]) == (host, other):
                transport.abort()

    def reset(self, host: str) -> None:
        """Break all connections of a host, and stop its servers."""
        for server in [server for server in self._servers.values() if server.address[0] == host]:
            server.close()
        for transport in self._sorted():
            if transport.local[0] == host:
                transport.abort()

    def take_down(self, host: str) -> None:
        """End the process of a host: whatever its tasks still do reaches nobody."""
        self._down.add(host)
        self.reset(host)

    def bring_up(self, host: str) -> None:
        """End a `take_down`."""
        self._down.discard(host)

    def delay(self, protocol: asyncio.BaseProtocol, seconds: float) -> None:
        """Let what one end of a connection sends arrive late, as after lost packets."""
        for transport in self._sorted():
            if transport.protocol is protocol:
                transport.peer.stall(seconds)

    def remove(self, transport: "SimulatedTransport") -> None:
        self._transports.discard(transport)

    def _sorted(self) -> list["SimulatedTransport"]:
        return sorted(self._transports, key=lambda transport: (transport.local, transport.remote))


class _BoundSocket:
    """The part of a listening socket that servers look at."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address


class SimulatedServer:
    """A listening address."""

    def __init__(
        self,
        network: SimulatedNetwork,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
    ) -> None:
        self.protocol_factory = protocol_factory
        self.address = (host, port)
        self.sockets = [_BoundSocket(self.address)]
        self.is_accepting = False
        self._network = network

    async def start_serving(self) -> None:
        self.is_accepting = True

    def close(self) -> None:
        self.is_accepting = False
        self._network.forget(self)

    async def wait_closed(self) -> None:
        """Connections that were accepted stay open."""


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    peer: "SimulatedTransport"

    def __init__(
        self,
        network: SimulatedNetwork,
        protocol: asyncio.BaseProtocol,
        local: tuple[str, int],
        remote: tuple[str, int],
    ) -> None:
        super().__init__({"peername": remote, "sockname": local})
        self.protocol = protocol
        self.local = local
        self.remote = remote
        # For the digest of the network.
        self.addresses = f"{remote} {local}".encode()
        self._network = network
        # Sent by the peer, not yet received; None is the end of the stream.
        self._incoming: deque[bytes | None] = deque()
        self._arrived = 0
        self._next_arrival_s = 0.0
        self._unsent_bytes = 0
        self._high_bytes, self._low_bytes = 64 * 1024, 16 * 1024
        self._is_paused = False
        self._is_stalled = False
        self._is_writing_paused = False
        self._is_closing = False
        self._is_lost = False

    # Writing

    def write(self, data: Any) -> None:
        if self._is_closing or not len(data):
            return
        copied = bytes(data)
        self._unsent_bytes += len(copied)
        self.peer.accept(copied)
        if self._unsent_bytes > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            cast(asyncio.Protocol, self.protocol).pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(bytes(data) for data in list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = 64 * 1024 if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def can_write_eof(self) -> bool:
        return False

    # Reading

    def accept(self, data: bytes | None) -> None:
        """Take bytes that the peer has sent; they arrive after the latency, in order."""
        loop = self._network.loop
        self._incoming.append(data)
        self._next_arrival_s = max(self._next_arrival_s, loop.time() + self._network.latency_s())
        loop.call_at(self._next_arrival_s, self._arrive)

    def _arrive(self) -> None:
        self._arrived += 1
        self.deliver()

    def deliver(self) -> None:
        """Hand what has arrived to the protocol, unless it reads no more, or the peer is cut off or delayed."""
        while self._arrived and self._incoming and not self._is_paused and not self._is_lost:
            if self._is_stalled or self._network.is_cut_off(self.remote[0], self.local[0]):
                return
            data = self._incoming.popleft()
            self._arrived -= 1
            if data is None:
                self.close()
                return
            self.peer.on_delivered(len(data))
            self._network.on_delivered(self, data)
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            cast(asyncio.Protocol, self.protocol).data_received(data)
            return
        view = memoryview(data)
        while view and not self._is_lost:
            buffer = memoryview(cast(bytearray, self.protocol.get_buffer(-1)))
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            self.protocol.buffer_updated(count)

    def on_delivered(self, count: int) -> None:
        self._unsent_bytes -= count
        if self._is_writing_paused and self._unsent_bytes <= self._low_bytes and not self._is_lost:
            self._is_writing_paused = False
            cast(asyncio.Protocol, self.protocol).resume_writing()

    def stall(self, seconds: float) -> None:
        """Receive nothing for a while. What the peer sends waits, in order."""
        self._is_stalled = True
        self._network.loop.call_later(seconds, self._end_stall)

    def _end_stall(self) -> None:
        self._is_stalled = False
        self.deliver()

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._network.loop.call_soon(self.deliver)

    def is_reading(self) -> bool:
        return not self._is_paused

    # The end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.peer.accept(None)
            self._network.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if not self._is_lost:
            self._is_closing = True
            self._network.loop.call_soon(self._lose, None)
            self._network.loop.call_later(self._network.latency_s(), self.peer.break_off)

    def break_off(self) -> None:
        """The peer has reset the connection."""
        self._is_closing = True
        self._lose(ConnectionResetError(104, "Connection reset by peer"))

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._incoming.clear()
            self._network.remove(self)
            self.protocol.connection_lost(error)
