"""An HTTP gateway that translates uploads of Google's XML protocol to its JSON protocol.

delta-rs and obstore use the XML protocol. fake-gcs-server takes its uploads only as signed ones, and its listings are
not sorted and ignore where they should start. Everything else is passed on as it is. The condition of a put is passed
on too, and the server checks it.
"""

import http.client
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote
from xml.etree import ElementTree

from tests.processes import running

_SERVER_S_MAX = 30.0
# All tests of a run share the gateway.
_TESTS_S_MAX = 3600.0
_CONDITION = "x-goog-if-generation-match"
_HOP_HEADERS = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})


@contextmanager
def running_gateway(server: str) -> Iterator[str]:
    """Run a gateway in front of the server at an address for the duration of the block, and yield its address."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "tests.object_store.google_gateway", server]
    with running(command, _TESTS_S_MAX, stdout=-1, env=environment) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


class _GatewayHandler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server_address = ""

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: text for name, text in self.headers.items() if name.lower() not in {"host", "content-length"}}
        status, answer, content = self._ask(self.command, self.path, headers, body)
        path, _, query = self.path.partition("?")
        if self.command == "GET" and status == http.HTTPStatus.OK and path.count("/") == 1:
            content = _sorted_listing(content, parse_qs(query).get("start-after", [""])[0])
        self._answer(status, answer, content)

    def _upload(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        assert "?" not in self.path, f"{self.path} is a part of a large file, which this gateway does not translate"
        _, bucket, name = self.path.split("/", 2)
        query = f"uploadType=media&name={quote(unquote(name), safe='')}"
        if condition := self.headers.get(_CONDITION):
            query += f"&ifGenerationMatch={condition}"
        headers = {"Content-Type": self.headers.get("Content-Type") or "application/octet-stream"}
        status, answer, content = self._ask("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", headers, body)
        if status == http.HTTPStatus.OK:
            stored = json.loads(content)
            answer = [("ETag", stored["etag"]), ("x-goog-generation", stored["generation"])]
            content = b""
        self._answer(status, answer, content)

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        # The connection's own Host header is the address under which the server knows itself.
        connection = http.client.HTTPConnection(self.server_address, timeout=_SERVER_S_MAX)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        answer = response.getheaders()
        if method == "HEAD":
            content = b"\0" * int(response.getheader("Content-Length") or 0)
        return response.status, answer, content

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for name, text in headers:
            if name.lower() not in _HOP_HEADERS:
                self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_DELETE = _forward  # noqa: N815 - http.server's names
    do_PUT = _upload  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Write nothing to the test's output."""


def _sorted_listing(content: bytes, after: str) -> bytes:
    """Return a listing with the names above `after` in their order."""
    listing = ElementTree.fromstring(content)
    entries = listing.findall("Contents")
    for entry in entries:
        listing.remove(entry)
    named = {entry.findtext("Key") or "": entry for entry in entries}
    listing.extend(named[name] for name in sorted(named) if name > after)
    return ElementTree.tostring(listing)


def _serve(server: str) -> None:
    _GatewayHandler.server_address = server
    gateway = ThreadingHTTPServer(("127.0.0.1", 0), _GatewayHandler)
    gateway.daemon_threads = True
    sys.stdout.write(f"127.0.0.1:{gateway.server_port}\n")
    sys.stdout.flush()
    gateway.serve_forever()


if __name__ == "__main__":
    _serve(sys.argv[1])
