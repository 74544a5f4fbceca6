"""The HTTP listener over real sockets: responses, refusals, and limits against slow clients."""

import asyncio
import http.client
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, closing
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace

import pytest

from logbrook.server.api import RequestContext
from logbrook.server.http import BODY_BYTES_MAX, HEAD_BYTES_MAX, PLAIN_TEXT, HttpRequest, HttpResponse
from logbrook.server.operations import Operations
from logbrook.storage.errors import StorageOfflineError
from tests.unit.server.http_kit import Served, connections, head, read_all, status_of


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as served:
        yield served


GET = head("GET /healthz HTTP/1.1", "Host: x")


# Endpoints


def test_prometheus_gets_its_page(served: Served) -> None:
    answer = served.ask("/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE logbrook_build_info gauge\n" in answer.text
    assert served.ask("/metrics?name=value").text.startswith("# HELP logbrook_build_info")


def test_a_client_without_chunked_encoding_gets_the_same_page(served: Served) -> None:
    answer = served.send(head("GET /metrics HTTP/1.0"))
    start, _, body = answer.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in start
    assert body.startswith(b"# HELP logbrook_build_info")
    assert body.endswith(b"\n")


def test_the_index_page_lists_all_paths(served: Served) -> None:
    answer = served.ask("/")
    assert answer.headers["Content-Type"] == PLAIN_TEXT
    for path in ("/metrics", "/healthz", "/readyz", "/maintenance", "/verify"):
        assert path in answer.text


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz"])
def test_head_is_get_without_the_body(served: Served, path: str) -> None:
    answer = served.send(head(f"HEAD {path} HTTP/1.1", "Host: x"))
    assert status_of(answer) == 200
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_curl_is_content(served: Served) -> None:
    host, port = served.address
    command = ["curl", "--silent", "--fail", "--max-time", "30", f"http://{host}:{port}/metrics"]
    assert b"logbrook_build_info{" in subprocess.run(command, check=True, capture_output=True, timeout=60).stdout


def test_a_broker_that_serves_is_healthy_and_ready(served: Served) -> None:
    assert served.ask("/healthz")[::2] == (200, "ok\n")
    assert served.ask("/readyz")[::2] == (200, "ready\n")


def test_storage_that_is_offline_is_not_healthy(served: Served) -> None:
    async def fail() -> None:
        failure = StorageOfflineError("sync", "wal/1", OSError("the disk is on fire"))
        served.broker.directory.environment.health.fail(failure)

    served.call(fail())
    answer = served.ask("/healthz")
    assert answer.status == 503
    assert "the disk is on fire" in answer.text
    # The existing records can still be read.
    assert served.ask("/readyz").status == 200


@pytest.mark.parametrize("name", ["groups", "transactions"])
def test_a_broker_whose_coordinators_are_loading_is_not_ready(
    served: Served, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(getattr(served.broker.services, name), "runtime", SimpleNamespace(is_ready=False))
        assert served.ask("/readyz")[::2] == (503, "groups and transactions are loading\n")
    assert served.ask("/readyz").status == 200


def test_a_broker_that_stops_is_not_ready(served: Served) -> None:
    served.broker.is_ready = False
    assert served.ask("/readyz").status == 503
    assert served.ask("/healthz").status == 200
    assert served.ask("/maintenance", "POST").status == 503


# Invalid requests


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "//metrics", "/..", "/healthz/../metrics", "/%6detrics"])
def test_a_path_that_does_not_exist_is_not_found(served: Served, path: str) -> None:
    assert served.ask(path).status == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/metrics", "GET, HEAD"),
        ("DELETE", "/healthz", "GET, HEAD"),
        ("OPTIONS", "/", "GET, HEAD"),
        ("GET", "/maintenance", "POST"),
        ("HEAD", "/maintenance", "POST"),
        ("GET", "/verify", "POST"),
    ],
)
def test_a_disallowed_method_is_answered_with_the_allowed_ones(
    served: Served, method: str, path: str, allowed: str
) -> None:
    answer = served.ask(path, method)
    assert (answer.status, answer.headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
        b"GET / HTTP/11\r\nHost: x\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"G(T / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nbroken\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
        b"GET http://x/metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: \xb2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n",
        bytes(range(256)) + b"\r\n\r\n",
    ],
)
def test_invalid_bytes_are_a_bad_request(served: Served, request_bytes: bytes) -> None:
    assert status_of(served.send(request_bytes)) == 400


def test_http_2_is_refused(served: Served) -> None:
    assert status_of(served.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) == 505


@pytest.mark.parametrize("length", [HEAD_BYTES_MAX, 1_000_000])
def test_a_head_that_is_too_long_is_refused_and_the_answer_arrives(served: Served, length: int) -> None:
    with served.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nA: ")
        client.sendall(b"a" * length)
        assert status_of(read_all(client)) == 431


def test_a_head_that_is_as_long_as_it_may_be_is_answered(served: Served) -> None:
    start, end = b"GET / HTTP/1.1\r\nHost: x\r\nA: ", b"\r\n\r\n"
    padding = b"a" * (HEAD_BYTES_MAX - len(start) - len(end))
    assert status_of(served.send(start + padding + end)) == 200


@pytest.mark.parametrize(
    ("field", "status"),
    [
        (f"Content-Length: {BODY_BYTES_MAX + 1}", 413),
        (f"Content-Length: {'9' * 20}", 413),
        ("Transfer-Encoding: gzip", 501),
    ],
)
def test_a_body_that_is_too_much_is_refused(served: Served, field: str, status: int) -> None:
    assert status_of(served.send(head("POST /maintenance HTTP/1.1", "Host: x", field), b"0" * 100_000)) == status


def test_a_body_is_read_and_not_looked_at(served: Served) -> None:
    request = head("POST /maintenance HTTP/1.1", "Host: x", f"Content-Length: {BODY_BYTES_MAX}")
    body = b"x" * BODY_BYTES_MAX
    assert status_of(served.send(request, body[:1000], body[1000:])) == 200


def test_a_body_in_chunks_has_the_same_limit(served: Served) -> None:
    request = head("POST /maintenance HTTP/1.1", "Host: x", "Transfer-Encoding: chunked")
    chunk, end = b"1000\r\n" + b"x" * 0x1000 + b"\r\n", b"0\r\n\r\n"
    chunks = BODY_BYTES_MAX // 0x1000
    assert status_of(served.send(request, chunk * chunks, end)) == 200
    assert status_of(served.send(request, chunk * (chunks + 1), end)) == 413


def test_a_request_may_come_byte_by_byte_and_with_bare_line_feeds(served: Served) -> None:
    with served.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /healthz HTTP/1.1\nHost: x\n\n":
            client.sendall(bytes([byte]))
        assert status_of(read_all(client)) == 200


def test_pipelined_http_requests_are_not_answered(served: Served) -> None:
    assert served.send(GET + GET).count(b"HTTP/1.1 ") == 1


def test_a_client_may_close_its_side_and_wait(served: Served) -> None:
    with served.connect() as client:
        client.sendall(head("GET /metrics HTTP/1.1", "Host: x"))
        client.shutdown(socket.SHUT_WR)
        answer = read_all(client)
    assert status_of(answer) == 200
    assert answer.endswith(b"0\r\n\r\n")


def test_a_client_that_asks_for_nothing_gets_nothing(served: Served) -> None:
    with served.connect() as client:
        client.sendall(b"GET / HT")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b""


# Slow clients


def test_a_request_that_takes_too_long_to_come_is_given_up(tmp_path: Path) -> None:
    with Served(tmp_path, timeout_s=0.05) as served:
        assert status_of(served.send(b"GET / HTTP/1.1\r\nHost:")) == 408
        assert status_of(served.send()) == 408


def test_idle_connections_give_way_to_new_ones(served: Served) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(closing(served.connect())) for _ in range(40)]
        served.call(connections(served, 40))
        assert served.ask("/healthz").status == 200
        assert served.ask("/metrics").status == 200
        assert is_hung_up(idle[0])
        # The others may still send their requests.
        idle[-1].sendall(GET)
        assert status_of(read_all(idle[-1])) == 200


class Held(Operations):
    """Responds only to health checks."""

    async def answer(self, request: HttpRequest, context: RequestContext) -> HttpResponse:
        if request.path not in self.health_paths:
            await asyncio.Event().wait()
        return await super().answer(request, context)


def test_health_is_answered_while_other_requests_are_at_their_limit(tmp_path: Path) -> None:
    with Served(tmp_path, connections_max=2) as served, ExitStack() as stack:
        served.http.handler = Held(served.broker)
        for _ in range(2):
            stack.enter_context(closing(served.connect())).sendall(head("GET /metrics HTTP/1.1", "Host: x"))
        served.call(answering(served, 2))
        assert served.ask("/metrics").status == 503
        assert served.ask("/healthz").status == 200
        assert served.ask("/readyz").status == 200


async def answering(served: Served, count: int) -> None:
    """Wait until this many requests are being answered."""
    while sum(connection.is_answering for connection in served.http.connections) != count:
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9644", 200),
        ("[::1]:9644", 200),
        ("[2001:db8::1]", 200),
        ("192.0.2.7", 200),
        ("localhost", 200),
        ("broker:9644", 200),
        ("", 200),
        ("Broker.Example.com:9644", 200),
        ("broker.example.com.", 200),
        ("rebound.example", 421),
        ("rebound.example:9644", 421),
        ("127.0.0.1.rebound.example", 421),
        ("localhost.rebound.example", 421),
        ("[::1", 400),
    ],
)
def test_names_of_other_sites_are_refused(named: Served, host: str, status: int) -> None:
    assert named.ask("/metrics", Host=host).status == status


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("named"), hosts=["broker.EXAMPLE.com"]) as served:
        yield served


def is_hung_up(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


class Endless(Operations):
    """Its response never ends."""

    pieces = 0

    async def answer(self, request: HttpRequest, context: RequestContext) -> HttpResponse:
        async def body() -> AsyncGenerator[bytes, None]:
            while True:
                Endless.pieces += 1
                yield bytes(1 << 16)

        return HttpResponse(HTTPStatus.OK, body())


def test_a_client_that_never_reads_is_disconnected_and_costs_little_memory(tmp_path: Path) -> None:
    with Served(tmp_path, timeout_s=0.1) as served:
        served.http.handler = Endless(served.broker)
        with served.connect() as client:
            client.sendall(GET)
            served.call(begun_and_ended(served))
        # About as much as the kernel's buffers take.
        assert Endless.pieces << 16 < 64 << 20


async def begun_and_ended(served: Served) -> None:
    while not Endless.pieces or served.http.connections:
        await asyncio.sleep(0)


class Broken(Operations):
    """Raises an error at once, or in the middle of a response."""

    async def answer(self, request: HttpRequest, context: RequestContext) -> HttpResponse:
        async def body() -> AsyncGenerator[bytes, None]:
            yield b"the beginning"
            raise RuntimeError("a bug")

        if request.path == "/":
            raise RuntimeError("a bug")
        return HttpResponse(HTTPStatus.OK, body())


def test_an_unexpected_exception_is_reported_to_its_client_and_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.http.handler = Broken(served.broker)
    assert served.ask("/").status == 500
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        served.ask("/metrics")
    assert [record.levelname for record in caplog.records].count("ERROR") == 2
    served.http.handler = Operations(served.broker)
    assert served.ask("/").status == 200


def test_a_stop_disconnects_slow_clients(served: Served) -> None:
    with served.connect() as client:
        client.sendall(b"GET /")
        served.call(connections(served, 1))
        served.call(served.http.stop())
        assert is_hung_up(client)
    with pytest.raises(ConnectionRefusedError):
        served.connect()


def test_an_address_that_is_taken_is_named(served: Served) -> None:
    with pytest.raises(OSError, match="in use") as raised:
        served.call(type(served.http)(served.http.handler).start(*served.address))
    assert raised.value.filename == f"127.0.0.1:{served.address[1]}"
