"""TCP proxies in a process of their own that can cut the network of a node.

A route listens on a port, forwards to another, and belongs to a node. While a node is cut off, no byte is forwarded on
the connections of its routes, in either direction, nor on connections that its process has opened to other routes;
those are found by the file descriptors of the process. Connections stay open and new ones are accepted, so that nobody
is told: the same as if packets were dropped. When the cut ends, everything that was sent meanwhile arrives, as it would
by TCP's retransmissions.

The harness sends commands as lines of JSON on the standard input of the process, which answers each with a line.
"""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

_HOST = "127.0.0.1"
_ROOT = Path(__file__).parents[2]
_CONNECT_S_MAX = 10.0
# New connections are looked up together: the table of the kernel's sockets can be long.
_IDENTIFY_S = 0.05


class Route(NamedTuple):
    """Connections to `port` are forwarded to `target_port`. `node` is cut off with all its routes."""

    node: int
    port: int
    target_port: int


class Proxies:
    """The harness's side: `with Proxies(routes) as proxies:`."""

    def __init__(self, routes: list[Route]) -> None:
        self._routes = routes
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.clusters.proxy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            process_group=0,
        )
        self._command({"routes": self._routes})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    def cut(self, node: int, pid: int) -> None:
        """Cut off a node, whose process is `pid`."""
        self._command({"cut": node, "pid": pid})

    def heal(self) -> None:
        """End all cuts."""
        self._command({"heal": True})

    def _command(self, command: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError("the process of the proxies has failed; its error output is above")


class _Forwarder:
    """All routes and connections, in the process of the proxies."""

    def __init__(self) -> None:
        self.links: set[_Link] = set()
        self._cut: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        commands = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        while line := await commands.readline():
            command = json.loads(line)
            if "routes" in command:
                for route in command["routes"]:
                    await self._listen(Route(*route))
            elif "cut" in command:
                self._cut[command["cut"]] = command["pid"]
                self.apply()
            else:
                self._cut.clear()
                self.apply()
            print("done", flush=True)

    def add(self, link: "_Link") -> None:
        """A client has connected. During a cut its bytes wait until it is known whose connection it is."""
        self.links.add(link)
        if self._cut:
            link.set_cut(is_cut=True)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_IDENTIFY_S, self.apply)

    def apply(self) -> None:
        """Cut or heal every connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ports = set().union(*(_ports_of(pid) for pid in self._cut.values()))
        for link in self.links:
            link.set_cut(is_cut=link.route.node in self._cut or link.client_port in ports)

    async def _listen(self, route: Route) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: _Link(self, route).client, _HOST, route.port, backlog=1024)


class _Link:
    """A connection of a client and its counterpart to the target."""

    def __init__(self, forwarder: _Forwarder, route: Route) -> None:
        self.route = route
        self.client_port = 0
        self.is_cut = False
        self.forwarder = forwarder
        self.client = _End(self)
        self.target = _End(self)
        self._connecting: asyncio.Task[None] | None = None

    def set_cut(self, *, is_cut: bool) -> None:
        self.is_cut = is_cut
        for end in (self.client, self.target):
            end.adjust()

    def accepted(self, client_port: int) -> None:
        self.client_port = client_port
        self.forwarder.add(self)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S_MAX):
                await loop.create_connection(lambda: self.target, _HOST, self.route.target_port)
        except OSError:
            self.client.close()
        self.set_cut(is_cut=self.is_cut)

    def other(self, end: "_End") -> "_End":
        return self.target if end is self.client else self.client

    def lost(self, end: "_End") -> None:
        """One end is closed: close the other when everything is sent to it."""
        self.other(end).close()
        self.forwarder.links.discard(self)


class _End(asyncio.Protocol):
    """One of the two connections of a link. It is read from while the other end is connected and takes bytes."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._transport: asyncio.Transport | None = None
        self._takes_bytes = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()
        self._takes_bytes = True
        if self is self._link.client:
            self._link.accepted(transport.get_extra_info("peername")[1])
        self._link.other(self).adjust()

    def adjust(self) -> None:
        """Read, or stop to read."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._link.other(self)._takes_bytes and not self._link.is_cut:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        other = self._link.other(self)._transport
        assert other is not None
        other.write(data)

    def pause_writing(self) -> None:
        self._takes_bytes = False
        self._link.other(self).adjust()

    def resume_writing(self) -> None:
        self._takes_bytes = True
        self._link.other(self).adjust()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._takes_bytes = False
        self._link.lost(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _ports_of(pid: int) -> set[int]:
    """Return the local ports of the TCP sockets that a process has open."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            name = os.readlink(descriptor)
            if name.startswith("socket:["):
                inodes.add(name[8:-1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


if __name__ == "__main__":
    asyncio.run(_Forwarder().run())
