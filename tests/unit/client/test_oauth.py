"""OAuth tokens from a file and from an endpoint on this machine."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from logbrook.client.errors import TokenUnavailableError
from logbrook.client.oauth import current_token
from logbrook.client.sasl_options import OauthOptions

SECRET = "s3cr3t/+value"


class Endpoint(HTTPServer):
    """Answers each grant with the next of `answers`: a status, a body and further headers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Grant)
        self.answers: list[tuple[int, bytes, dict[str, str]]] = []
        self.requests: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/token"

    def options(self, scope: str = "") -> OauthOptions:
        return OauthOptions(endpoint_url=self.url, client_id="me", client_secret=SECRET, scope=scope)

    def issues(self, token: str, lifetime_s: float) -> None:
        self.answers.append((200, json.dumps({"access_token": token, "expires_in": lifetime_s}).encode(), {}))


class _Grant(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.requests.append((self.headers["Authorization"], body))
        status, answer, headers = self.server.answers.pop(0)
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(answer))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_file_is_read_again_for_every_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    assert current_token(OauthOptions(token_file=str(path))) == "first"
    path.write_text("second")
    assert current_token(OauthOptions(token_file=str(path))) == "second"


@pytest.mark.parametrize("content", ["", "two words", "new\nline", "caf\u00e9", "a\x01b"])
def test_an_invalid_token_is_refused_without_showing_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(TokenUnavailableError, match="no token in its content") as caught:
        current_token(OauthOptions(token_file=str(path)))
    assert not content or content not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenUnavailableError, match="absent: No such file"):
        current_token(OauthOptions(token_file=str(tmp_path / "absent")))


def test_a_token_of_an_endpoint_is_shared_until_it_is_due(endpoint: Endpoint) -> None:
    endpoint.issues("first", 3600)
    assert [current_token(endpoint.options("logs")) for _ in range(3)] == ["first"] * 3
    endpoint.issues("short", 0)
    endpoint.issues("next", 0)
    assert [current_token(endpoint.options()) for _ in range(2)] == ["short", "next"]
    authorization, body = endpoint.requests[0]
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"me:s3cr3t%2F%2Bvalue"
    assert body == "grant_type=client_credentials&scope=logs"


@pytest.mark.parametrize(
    ("answer", "reason", "is_retriable"),
    [
        ((401, b'{"error":"invalid_client"}', {}), "status 401, invalid_client", False),
        ((503, b"later", {}), "status 503", True),
        ((302, b"", {"Location": "http://127.0.0.1:9/other"}), "status 302", False),
        ((200, b"[]", {}), "no access_token", False),
        ((200, b"{}", {}), "no access_token", False),
        ((200, b"not json", {}), "no access_token", False),
        ((200, b'{"access_token":"a b"}', {}), "no token", False),
    ],
)
def test_a_refused_grant_says_why(
    endpoint: Endpoint, answer: tuple[int, bytes, dict[str, str]], reason: str, is_retriable: bool
) -> None:
    endpoint.answers.append(answer)
    with pytest.raises(TokenUnavailableError, match=reason) as caught:
        current_token(endpoint.options())
    assert caught.value.is_retriable is is_retriable
    assert SECRET not in str(caught.value)


def test_an_endpoint_that_cannot_be_reached_is_tried_again() -> None:
    options = OauthOptions(endpoint_url="http://127.0.0.1:1/token", client_id="me", client_secret=SECRET)
    with pytest.raises(TokenUnavailableError, match="Connection refused") as caught:
        current_token(options)
    assert caught.value.is_retriable
