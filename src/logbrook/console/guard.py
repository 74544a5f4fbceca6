"""Access control in front of the pages, their WebSockets and the API.

- The Host header must be an IP address, a name without dots or one that the console is known by; without a login it
  must name loopback. This stops DNS rebinding, by which another site could reach the console through a user's browser.
- Cross-site requests: for changes and WebSockets, an Origin header must match the Host header, and Sec-Fetch-Site must
  not name another site.
- A request body has at most 8 MiB.
- Every response has a Content-Security-Policy: pages load scripts, styles and data from the console only, and no other
  site may show them in a frame (clickjacking). Vue compiles its templates in the browser, and nicegui starts pages with
  inline scripts, so `unsafe-eval` and `unsafe-inline` are needed.

`gates` has the kinds of logins.
"""

from collections.abc import Collection
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from logbrook.config.network import is_loopback
from logbrook.console.workspace import ConsoleSession, serving

BODY_BYTES_MAX = 8 << 20
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Of a request by a page of the console, and by the user, as by typing the address.
_OWN_SITES = frozenset({"same-origin", "none"})
_REFUSED_SOCKET = 4403
_POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data:",
    "font-src": "'self' data:",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
SECURITY_HEADERS = {
    "Content-Security-Policy": "; ".join(f"{directive} {sources}" for directive, sources in _POLICY.items()),
    # For browsers without frame-ancestors.
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class Gate(Protocol):
    """Decides by whose session a request is served.

    `is_for_loopback_only`: the Host header must name this machine, because there is no login.
    """

    is_for_loopback_only: bool

    async def enter(self, scope: Scope, receive: Receive) -> ConsoleSession | Response:
        """Return the session, or the answer to the request."""


class Guard:
    """ASGI middleware that refuses requests without access and adds security headers to every response."""

    def __init__(self, app: ASGIApp, *, gate: Gate, hosts: Collection[str] = ()) -> None:
        """`hosts` are the names that the console is known by, with their ports if they are not the default ones."""
        self._app = app
        self._gate = gate
        self._origins = frozenset(host.lower() for host in hosts)
        self._host_names = frozenset(_host_name(host) for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            send = _with_security_headers(send)
            receive = _limited(receive)
        entered = self._refusal(scope) or await self._gate.enter(scope, receive)
        if isinstance(entered, ConsoleSession):
            with serving(entered):
                await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _REFUSED_SOCKET})
        else:
            await entered(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        refusal = self._host_refusal(headers.get("host", ""))
        if refusal is not None:
            return refusal
        is_change = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        if is_change and not self._is_own_page(headers):
            return error_response(403, "WRONG_ORIGIN", "requests from other sites are refused")
        if int(headers.get("content-length") or 0) > BODY_BYTES_MAX:
            return error_response(413, "TOO_LARGE", f"a request may have at most {BODY_BYTES_MAX} bytes")
        return None

    def _host_refusal(self, host: str) -> Response | None:
        name = _host_name(host)
        if self._gate.is_for_loopback_only:
            is_known, message = is_loopback(name), "without a login the console answers to localhost only"
        else:
            is_known = "." not in name or _is_address(name) or name in self._host_names
            message = f"the console is not known as {name!r}: use its IP address, or set --url to its address"
        return None if is_known else error_response(403, "WRONG_HOST", message)

    def _is_own_page(self, headers: Headers) -> bool:
        """Return False if a page of another site sends the request. Scripts send neither of the headers."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if site is not None and site.lower() not in _OWN_SITES:
            return False
        if origin is None:
            return True
        try:
            netloc = urlsplit(origin).netloc.lower()
        except ValueError:
            return False
        return bool(netloc) and (netloc == headers.get("host", "").lower() or netloc in self._origins)


class BodyTooLargeError(HTTPException):
    """A chunked request body exceeds the limit. An HTTPException, because FastAPI converts other errors to 400."""

    def __init__(self) -> None:
        super().__init__(413)


def _limited(receive: Receive) -> Receive:
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > BODY_BYTES_MAX:
            raise BodyTooLargeError
        return message

    return counted


def _with_security_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message.setdefault("headers", [])
            MutableHeaders(scope=message).update(SECURITY_HEADERS)
        await send(message)

    return send_with_headers


def error_response(status: int, code: str, message: str) -> JSONResponse:
    """Return the answer of the API to a request that failed."""
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)


def _host_name(host: str) -> str:
    """Return the name or address in a Host header, without its port; empty if it is invalid."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
