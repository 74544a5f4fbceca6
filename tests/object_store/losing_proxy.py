"""An HTTP proxy that forwards a chosen request, waits for its answer and then loses it: the request took effect.

It is a process of its own, because some calls of delta-rs keep Python's global lock while they wait for an answer. The
test controls it by requests to paths that begin with `/_proxy/`.
"""

import http.client
import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock
from typing import Any
from urllib.parse import unquote

from tests.processes import running

CONTROL = "/_proxy/"
_HOP_HEADERS = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})
_UPSTREAM_S_MAX = 30.0
_SILENCE_S_MAX = 60.0


class Loss(Enum):
    """The way in which a response is lost."""

    # The connection is closed.
    CUT = "cut"
    # No response, until the client's own timeout.
    SILENCE = "silence"


class LosingProxy:
    """Listens at `address`; `lose` chooses the requests whose answers are lost."""

    def __init__(self, address: str) -> None:
        self.address = address

    def lose(self, method: str, pattern: str, loss: Loss) -> None:
        """Lose the answer of the next successful request of this method whose unescaped path matches."""
        self._control("lose", {"method": method, "pattern": pattern, "loss": loss.value})

    def lost(self) -> list[str]:
        """Return the paths of the requests whose answers were lost."""
        paths: list[str] = self._control("lost", {})
        return paths

    def _control(self, command: str, document: dict[str, str]) -> Any:
        connection = http.client.HTTPConnection(self.address, timeout=_UPSTREAM_S_MAX)
        try:
            connection.request("POST", f"{CONTROL}{command}", json.dumps(document))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


@contextmanager
def running_proxy(upstream: str) -> Iterator[LosingProxy]:
    """Run a proxy in front of the server at `upstream` for the duration of the block."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "tests.object_store.losing_proxy", upstream]
    with running(command, stdout=-1, env=environment) as process:
        assert process.stdout is not None
        yield LosingProxy(process.stdout.readline().strip())


class _Losses:
    """The request to lose next, and those that were lost."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._next: tuple[str, re.Pattern[str], Loss] | None = None
        self._lost: list[str] = []

    def control(self, command: str, document: dict[str, str]) -> Any:
        with self._lock:
            if command == "lost":
                return self._lost
            self._next = (document["method"], re.compile(document["pattern"]), Loss(document["loss"]))
            return None

    def loss_of(self, method: str, path: str, status: int) -> Loss | None:
        with self._lock:
            if self._next is None or status >= http.HTTPStatus.MULTIPLE_CHOICES:
                return None
            chosen_method, pattern, loss = self._next
            if method != chosen_method or not pattern.search(unquote(path)):
                return None
            self._next = None
            self._lost.append(path)
            return loss


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    upstream = ""
    losses = _Losses()

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith(CONTROL):
            document = self.losses.control(self.path.removeprefix(CONTROL), json.loads(body))
            self._answer(http.HTTPStatus.OK, [], json.dumps(document).encode(), None)
            return
        # The signature of a request covers its Host header, so that is passed on as it is.
        upstream = http.client.HTTPConnection(self.upstream, timeout=_UPSTREAM_S_MAX)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, text in self.headers.items():
                upstream.putheader(name, text)
            upstream.endheaders(body)
            response = upstream.getresponse()
            content = response.read()
        finally:
            upstream.close()
        loss = self.losses.loss_of(self.command, self.path, response.status)
        if loss is not None:
            self._lose(loss)
            return
        length = response.getheader("Content-Length") if self.command == "HEAD" else None
        self._answer(response.status, response.getheaders(), content, length)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, length: str | None) -> None:
        # A client that has given up closes its end.
        with suppress(OSError):
            self.send_response_only(status)
            for name, text in headers:
                if name.lower() not in _HOP_HEADERS:
                    self.send_header(name, text)
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def _lose(self, loss: Loss) -> None:
        if loss is Loss.SILENCE:
            Event().wait(_SILENCE_S_MAX)
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815 - http.server's names

    def log_message(self, *_: Any) -> None:
        """Write nothing to the test's output."""


def _serve(upstream: str) -> None:
    _Handler.upstream = upstream
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    sys.stdout.write(f"127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    _serve(sys.argv[1])
