"""HTTP/1.1 without sockets: a request's head read, an answer's head written. As much of RFC 9112 as one request needs.

Every connection carries one request, so nothing that follows it can be mistaken for another. What a stranger may send
is bounded: the head by `HEAD_BYTES_MAX`, a body, which is read and not looked at, by `BODY_BYTES_MAX`.
"""

import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

HEAD_BYTES_MAX = 8 * 1024
BODY_BYTES_MAX = 64 * 1024

PLAIN_TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
JSON_LINES = "application/x-ndjson"
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"

# A line may end with a bare line feed (RFC 9112, 2.2).
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*)")


class RefusedError(Exception):
    """A request that is answered with this status before anyone looks at what it wants."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Request(NamedTuple):
    """`headers` has their names in lower case; `body_length` is what follows the head."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body_length: int
    # An HTTP/1.0 client knows no chunks: the end of the connection is the end of the answer.
    knows_chunks: bool


@dataclass(frozen=True, slots=True)
class Response:
    """A body in pieces is written as they come."""

    status: HTTPStatus
    body: bytes | AsyncGenerator[bytes, None]
    content_type: str = PLAIN_TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


def text_response(status: HTTPStatus, text: str) -> Response:
    return Response(status, f"{text}\n".encode("utf-8", "replace"))


def find_head(received: bytes | bytearray) -> int | None:
    """Where the head ends, None as long as it does not. Raises RefusedError for one that is too long."""
    end = _HEAD_END.search(received, 0, HEAD_BYTES_MAX)
    if end is not None:
        return end.end()
    if len(received) >= HEAD_BYTES_MAX:
        raise RefusedError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request's head may have {HEAD_BYTES_MAX} bytes"
        )
    return None


def parse_head(head: bytes | bytearray) -> Request:
    """Raises RefusedError."""
    lines = [line.removesuffix("\r") for line in head.decode("latin-1").rstrip("\r\n").split("\n")]
    start = _REQUEST_LINE.fullmatch(lines[0])
    if start is None:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "this is no HTTP request")
    method, target, major, minor = start.groups()
    if major != "1":
        raise RefusedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 is spoken here")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        one = _FIELD.fullmatch(line)
        if one is None:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "a header is malformed")
        name = one[1].lower()
        if name in headers and name in ("host", "content-length"):
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"there is more than one {name}")
        headers[name] = one[2].rstrip(" \t")
    is_first_version = minor == "0"
    if "host" not in headers and not is_first_version:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "there is no host header")
    if not target.startswith("/"):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the target is no path")
    path, _, query = target.partition("?")
    return Request(method, path, query, headers, _body_length(headers), not is_first_version)


def _body_length(headers: Mapping[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise RefusedError(HTTPStatus.NOT_IMPLEMENTED, "a body needs a content-length")
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdecimal()):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "content-length is no number")
    if len(text) > len(str(BODY_BYTES_MAX)) or int(text) > BODY_BYTES_MAX:
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may have {BODY_BYTES_MAX} bytes")
    return int(text)


def encode_head(response: Response, *, chunked: bool) -> bytes:
    """The head of an answer after which the connection is closed."""
    headers = {
        "Content-Type": response.content_type,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
        **response.headers,
    }
    if isinstance(response.body, bytes):
        headers["Content-Length"] = str(len(response.body))
    elif chunked:
        headers["Transfer-Encoding"] = "chunked"
    status = response.status
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def encode_chunk(data: bytes) -> bytes:
    """An empty one is the end."""
    return b"%x\r\n%b\r\n" % (len(data), data)
