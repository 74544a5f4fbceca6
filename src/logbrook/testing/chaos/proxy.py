"""The process that forwards every connection of a chaos test, and holds the bytes of links that are cut.

It is this file run as a script, and imports nothing of Logbrook so that it starts immediately. Commands are JSON
objects, one per line of standard input, each answered by a line; it ends at the end of its input.

    listen     accept connections to `node` on `port` and forward them to `to_port`; `source` is the node that connects
               there, or empty: then it is the node whose name the client id of the first request is, or begins with
               up to a hyphen, as in `broker-1-fetcher-0` of Kafka
    cut        hold what `source` sends to `target`: nothing is lost, nothing arrives, and nothing is closed
    heal       forward it again, or with `is_reset` break the connections between the two
    refuse     refuse connections to `node` until it listens again

A node is `broker-N`, `etcd-N` or `client`. A cut link behaves as a network that drops packets: connections stay open,
the sender's buffers fill, and the end of a connection does not arrive either. New connections are accepted and held.
"""

import asyncio
import json
import socket
import struct
import sys
from typing import Any

CLIENT = "client"
_HOST = "127.0.0.1"
_PROBE_S = 0.02
_BUFFER_BYTES_MAX = 1 << 20
_RESET = struct.pack("ii", 1, 0)
# The start of a request of Kafka's protocol: length, API key, API version, correlation id, length of the client id.
_REQUEST_START = struct.Struct(">ihhih")


class ChaosProxy:
    """All listeners and connections, on one event loop."""

    def __init__(self) -> None:
        self.cuts: set[tuple[str, str]] = set()
        self.links: set[_Link] = set()
        self._listeners: list[_ProxyListener] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            await self._obey(json.loads(line))
            sys.stdout.write("done\n")
            sys.stdout.flush()

    async def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "listen":
                listener = _ProxyListener(self, command["node"], command["source"], command["port"], command["to_port"])
                self._listeners.append(listener)
                listener.refuse()
            case "cut":
                self.cuts.add((command["source"], command["target"]))
                for link in self._links_of(command):
                    link.apply_cuts()
            case "heal":
                self.cuts.discard((command["source"], command["target"]))
                for link in self._links_of(command):
                    link.heal(is_reset=command["is_reset"])
            case "refuse":
                for listener in [listener for listener in self._listeners if listener.node == command["node"]]:
                    listener.refuse()

    def _links_of(self, command: dict[str, Any]) -> list["_Link"]:
        ends = {command["source"], command["target"]}
        return [link for link in self.links if {link.source, link.target} == ends]

    def node_of(self, start: bytes) -> str | None:
        """Return the node that a request is from, CLIENT if it is no node, or None if more bytes must be known."""
        if len(start) < _REQUEST_START.size:
            return None
        length = _REQUEST_START.unpack_from(start)[-1]
        if len(start) < _REQUEST_START.size + max(0, length):
            return None
        name = start[_REQUEST_START.size : _REQUEST_START.size + max(0, length)].decode(errors="replace")
        nodes = {listener.node for listener in self._listeners}
        return next((node for node in nodes if name == node or name.startswith(f"{node}-")), CLIENT)


class _ProxyListener:
    """A port at which a node can be reached. While the node does not listen, the port refuses connections."""

    def __init__(self, proxy: ChaosProxy, node: str, source: str, port: int, to_port: int) -> None:
        self.proxy = proxy
        self.node = node
        self.source = source
        self.port = port
        self.to_port = to_port
        self._server: asyncio.Server | None = None
        self._probing: asyncio.Task[None] | None = None

    def refuse(self) -> None:
        """Refuse connections until the node listens."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._reopen())

    async def _reopen(self) -> None:
        never = asyncio.Event()
        while not await self._is_listening():
            try:
                async with asyncio.timeout(_PROBE_S):
                    await never.wait()
            except TimeoutError:
                pass
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _LinkEnd(_Link(self)), _HOST, self.port, backlog=512)

    async def _is_listening(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(_HOST, self.to_port)
        except OSError:
            return False
        writer.close()
        return True


class _Link:
    """A connection through the proxy: the end of its source, and that of its target once that is connected."""

    def __init__(self, listener: _ProxyListener) -> None:
        self._listener = listener
        self._proxy = listener.proxy
        self.source = listener.source
        self.target = listener.node
        self.near: _LinkEnd | None = None
        self.far: _LinkEnd | None = None
        # Received from the source before the target was connected.
        self._start = b""
        self._connecting: asyncio.Task[None] | None = None

    def accepted(self, near: "_LinkEnd") -> None:
        self.near = near
        if near.is_closed:
            return
        self._proxy.links.add(self)
        if self.source:
            self.apply_cuts()

    def received(self, end: "_LinkEnd", data: bytes) -> None:
        if self.source:
            other = self.other(end)
            assert other is not None, "nothing is read before the target is connected"
            other.write(data)
            return
        self._start += data
        source = self._proxy.node_of(self._start)
        if source is not None:
            self.source = source
            self.apply_cuts()

    def is_cut(self, end: "_LinkEnd") -> bool:
        """True if what this end receives must not reach the other one."""
        direction = (self.source, self.target) if end is self.near else (self.target, self.source)
        return direction in self._proxy.cuts

    def other(self, end: "_LinkEnd") -> "_LinkEnd | None":
        return self.far if end is self.near else self.near

    def apply_cuts(self) -> None:
        assert self.near is not None
        if self.far is None and self._connecting is None and not self.is_cut(self.near):
            self._connecting = asyncio.create_task(self._connect())
        if self.far is not None and self._start and not self.is_cut(self.near):
            self.far.write(self._start)
            self._start = b""
        for end in (self.near, self.far):
            if end is not None:
                end.update()

    def heal(self, *, is_reset: bool) -> None:
        if is_reset:
            self.reset()
        else:
            self.apply_cuts()

    async def _connect(self) -> None:
        assert self.near is not None
        loop = asyncio.get_running_loop()
        try:
            _, self.far = await loop.create_connection(lambda: _LinkEnd(self), _HOST, self._listener.to_port)
        except OSError:
            self.reset()
            self._listener.refuse()
            return
        if self not in self._proxy.links:
            self.far.abort()
            return
        self.apply_cuts()

    def ended(self, end: "_LinkEnd", *, is_reset: bool) -> None:
        """An end is closed. The other one learns of it, unless that direction is cut: then when it is healed."""
        other = self.other(end)
        if other is None or other.is_closed:
            self._proxy.links.discard(self)
        elif not self.is_cut(end):
            self._proxy.links.discard(self)
            if is_reset:
                other.abort()
            else:
                other.close()

    def reset(self) -> None:
        self._proxy.links.discard(self)
        for end in (self.near, self.far):
            if end is not None:
                end.abort()


class _LinkEnd(asyncio.Protocol):
    """One end of a link. It reads while the other end can take it and the direction is not cut."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._transport: asyncio.Transport | None = None
        self._is_full = False
        self._is_reset = False
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(_BUFFER_BYTES_MAX)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._link.near is None:
            # Not at once: a transport that is paused here reads nevertheless before Python 3.11.4.
            asyncio.get_running_loop().call_soon(self._link.accepted, self)

    def data_received(self, data: bytes) -> None:
        self._link.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._is_reset = exc is not None
        self._link.ended(self, is_reset=self._is_reset)

    def pause_writing(self) -> None:
        self._is_full = True
        self._update_other()

    def resume_writing(self) -> None:
        self._is_full = False
        self._update_other()

    def update(self) -> None:
        """Read, or stop reading, and end what has ended while it was cut."""
        assert self._transport is not None
        other = self._link.other(self)
        is_cut = self._link.is_cut(self)
        if self.is_closed:
            if not is_cut:
                self._link.ended(self, is_reset=self._is_reset)
        elif other is None or other.is_full or is_cut:
            # Nothing is read before the target is connected, except for what tells the source.
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    @property
    def is_full(self) -> bool:
        return self._is_full

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self.is_closed:
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Break the connection, so that its peer gets a reset."""
        if self._transport is not None and not self.is_closed:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def _update_other(self) -> None:
        other = self._link.other(self)
        if other is not None:
            other.update()


if __name__ == "__main__":
    asyncio.run(ChaosProxy().run())
