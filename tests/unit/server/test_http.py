"""The HTTP listener over real sockets: what is answered, what is refused, and that nobody can hold it up."""

import asyncio
import http.client
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from http import HTTPStatus
from pathlib import Path

import pytest

from logbrook.server.http_messages import BODY_BYTES_MAX, HEAD_BYTES_MAX, PLAIN_TEXT, Request, Response
from logbrook.server.operations import Operations
from logbrook.storage.errors import StorageOfflineError
from tests.unit.server.http_kit import Served, connections, head, read_all, status_of


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as served:
        yield served


GET = head("GET /healthz HTTP/1.1", "Host: x")


# What there is


def test_prometheus_gets_its_page(served: Served) -> None:
    answer = served.ask("/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE logbrook_build_info gauge\n" in answer.text
    assert served.ask("/metrics?name=value").text.startswith("# HELP logbrook_build_info")


def test_a_client_that_knows_no_chunks_gets_the_same_page(served: Served) -> None:
    answer = served.send(head("GET /metrics HTTP/1.0"))
    start, _, body = answer.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in start
    assert body.startswith(b"# HELP logbrook_build_info")
    assert body.endswith(b"\n")


def test_the_index_names_all_there_is(served: Served) -> None:
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
    assert b"logbrook_build_info{" in subprocess.run(command, check=True, capture_output=True).stdout


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
    # What is there can still be read.
    assert served.ask("/readyz").status == 200


def test_a_broker_whose_groups_are_not_loaded_is_not_ready(served: Served) -> None:
    groups = served.broker.services.groups
    loaded = groups.coordinator
    groups.coordinator = type(loaded)(served.config.groups, served.broker._random)
    assert served.ask("/readyz")[::2] == (503, "the consumer groups are not loaded\n")
    groups.coordinator = loaded
    assert served.ask("/readyz").status == 200


def test_a_broker_that_stops_is_not_ready(served: Served) -> None:
    served.broker.is_ready = False
    assert served.ask("/readyz").status == 503
    assert served.ask("/healthz").status == 200
    assert served.ask("/maintenance", "POST").status == 503


# What there is not


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "//metrics", "/..", "/healthz/../metrics", "/%6detrics"])
def test_a_path_that_is_not_there_is_not_found(served: Served, path: str) -> None:
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
def test_a_method_that_is_not_allowed_is_told_which_are(served: Served, method: str, path: str, allowed: str) -> None:
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
        b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
        b"GET http://x/metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: \xb2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        bytes(range(256)) + b"\r\n\r\n",
    ],
)
def test_what_is_no_request_is_a_bad_one(served: Served, request_bytes: bytes) -> None:
    assert status_of(served.send(request_bytes)) == 400


def test_another_version_is_not_spoken(served: Served) -> None:
    assert status_of(served.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) == 505


@pytest.mark.parametrize("length", [HEAD_BYTES_MAX, HEAD_BYTES_MAX + 1, 1_000_000])
def test_a_head_that_is_too_long_is_refused_and_the_answer_arrives(served: Served, length: int) -> None:
    with served.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nA: ")
        client.sendall(b"a" * length)
        assert status_of(read_all(client)) == 431


def test_a_head_that_is_as_long_as_it_may_be_is_answered(served: Served) -> None:
    start, end = b"GET / HTTP/1.1\r\nHost: x\r\nA: ", b"\r\n\r\n"
    padding = b"a" * (HEAD_BYTES_MAX - len(start) - len(end))
    assert status_of(served.send(start + padding + end)) == 200
    assert status_of(served.send(start + padding + b"a" + end)) == 431


@pytest.mark.parametrize(
    ("field", "status"),
    [
        ("Transfer-Encoding: chunked", 501),
        (f"Content-Length: {BODY_BYTES_MAX + 1}", 413),
        (f"Content-Length: {'9' * 5000}", 413),
    ],
)
def test_a_body_that_is_too_much_is_refused(served: Served, field: str, status: int) -> None:
    assert status_of(served.send(head("POST /maintenance HTTP/1.1", "Host: x", field), b"0" * 100_000)) == status


def test_a_body_is_read_and_not_looked_at(served: Served) -> None:
    request = head("POST /maintenance HTTP/1.1", "Host: x", f"Content-Length: {BODY_BYTES_MAX}")
    body = b"x" * BODY_BYTES_MAX
    assert status_of(served.send(request, body[:1000], body[1000:])) == 200


def test_a_request_may_come_byte_by_byte_and_with_bare_line_feeds(served: Served) -> None:
    with served.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /healthz HTTP/1.1\nHost: x\n\n":
            client.sendall(bytes([byte]))
        assert status_of(read_all(client)) == 200


def test_what_follows_a_request_is_not_another(served: Served) -> None:
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


# Nobody can hold it up


def test_a_request_that_takes_too_long_to_come_is_given_up(tmp_path: Path) -> None:
    with Served(tmp_path, patience_s=0.05) as served:
        assert status_of(served.send(b"GET / HTTP/1.1\r\nHost:")) == 408
        assert status_of(served.send()) == 408


def test_there_are_only_so_many_connections(tmp_path: Path) -> None:
    with Served(tmp_path, connections_max=2) as served:
        with closing(served.connect()) as first, closing(served.connect()) as second:
            first.sendall(b"G")
            second.sendall(b"G")
            served.call(connections(served, 2))
            with served.connect() as third:
                assert is_hung_up(third)
            first.sendall(GET[1:])
            assert status_of(read_all(first)) == 200
        served.call(connections(served, 0))
        assert served.ask("/healthz").status == 200


def is_hung_up(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


class Endless(Operations):
    """Its answer has no end."""

    pieces = 0

    async def answer(self, request: Request) -> Response:
        async def body() -> AsyncGenerator[bytes, None]:
            while True:
                Endless.pieces += 1
                yield bytes(1 << 16)

        return Response(HTTPStatus.OK, body())


def test_a_client_that_takes_nothing_is_hung_up_on_and_costs_little(tmp_path: Path) -> None:
    with Served(tmp_path, patience_s=0.1) as served:
        served.http.operations = Endless(served.broker)
        with served.connect() as client:
            client.sendall(GET)
            served.call(begun_and_ended(served))
        # What the kernel's buffers took, and a little.
        assert Endless.pieces << 16 < 64 << 20


async def begun_and_ended(served: Served) -> None:
    while not Endless.pieces or served.http.connections:
        await asyncio.sleep(0)


class Broken(Operations):
    """Meets a bug at once, or in the middle of an answer."""

    async def answer(self, request: Request) -> Response:
        async def body() -> AsyncGenerator[bytes, None]:
            yield b"the beginning"
            raise RuntimeError("a bug")

        if request.path == "/":
            raise RuntimeError("a bug")
        return Response(HTTPStatus.OK, body())


def test_a_bug_is_told_to_who_met_it_and_to_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.http.operations = Broken(served.broker)
    assert served.ask("/").status == 500
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        served.ask("/metrics")
    assert [record.levelname for record in caplog.records].count("ERROR") == 2
    served.http.operations = Operations(served.broker)
    assert served.ask("/").status == 200


def test_a_stop_hangs_up_on_those_who_are_slow(served: Served) -> None:
    with served.connect() as client:
        client.sendall(b"GET /")
        served.call(connections(served, 1))
        served.call(served.http.stop())
        assert is_hung_up(client)
    with pytest.raises(ConnectionRefusedError):
        served.connect()


def test_an_address_that_is_taken_is_named(served: Served) -> None:
    with pytest.raises(OSError, match="in use") as raised:
        served.call(type(served.http)(served.broker).start(*served.address))
    assert raised.value.filename == f"127.0.0.1:{served.address[1]}"
