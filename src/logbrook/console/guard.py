"""Access control in front of the pages, their WebSockets and the API.

- With a token: scripts send `Authorization: Bearer TOKEN`; a browser sends it once with a form and gets a cookie.
- Without a token the console listens on loopback only, and the Host header must name loopback. This stops DNS
  rebinding, by which another site could reach the console through a local user's browser.
- Cross-site requests: for changes and WebSockets, an Origin header must match the Host header.
- A request body has at most 8 MiB.
- Every response has a Content-Security-Policy: pages load scripts, styles and data from the console only, and no other
  site may show them in a frame (clickjacking). Vue compiles its templates in the browser, and nicegui starts pages with
  inline scripts, so `unsafe-eval` and `unsafe-inline` are needed.
"""

import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from logbrook.config.network import is_loopback

BODY_BYTES_MAX = 8 << 20
_COOKIE = "logbrook_console"
_LOGIN_BYTES_MAX = 4096
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
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
_LOGIN = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Logbrook</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>body{{font:16px system-ui,sans-serif;display:grid;place-items:center;min-height:90vh}}
form{{display:grid;gap:.8rem;width:18rem}}input,button{{font:inherit;padding:.6rem}}p{{color:#c62828;margin:0}}</style>
</head><body><form method="post" action="/login"><h1>Logbrook</h1><label for="token">The console's token</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>{problem}
<button>Sign in</button></form></body></html>"""


class Guard:
    """ASGI middleware that refuses requests without access and adds security headers to every response."""

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self._app = app
        self._token = token
        # The cookie is an HMAC with a random key: it expires with a restart and does not reveal the token.
        key = secrets.token_bytes(32)
        self._cookie = hmac.new(key, (token or "").encode(), hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            send = _with_security_headers(send)
        headers = Headers(scope=scope)
        response = self._refusal(scope, headers)
        if response is None and scope["type"] == "http":
            if self._token is not None and scope["path"] == "/login":
                response = await self._login(Request(scope, receive))
            else:
                receive = _limited(receive)
        if response is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _REFUSED_SOCKET})
        else:
            await response(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if self._token is None and not is_loopback(urlsplit(f"//{headers.get('host', '')}").hostname or ""):
            return error_response(403, "WRONG_HOST", "without a token the console answers to localhost only")
        is_change = scope["type"] == "websocket" or scope["method"] not in _SAFE
        origin = headers.get("origin")
        if is_change and origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return error_response(403, "WRONG_ORIGIN", "requests from other sites are refused")
        if int(headers.get("content-length") or 0) > BODY_BYTES_MAX:
            return error_response(413, "TOO_LARGE", f"a request may have at most {BODY_BYTES_MAX} bytes")
        if self._token is None or scope["path"] == "/login" or self._is_authenticated(headers):
            return None
        if scope["path"].startswith("/api") or scope["type"] == "websocket":
            response = error_response(401, "TOKEN_NEEDED", "send the console's token: Authorization: Bearer TOKEN")
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        return RedirectResponse("/login", status_code=303)

    def _is_authenticated(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(token.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(_COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self._cookie.encode())

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), (self._token or "").encode())

    async def _login(self, request: Request) -> Response:
        if request.method != "POST":
            return HTMLResponse(_LOGIN.format(problem=""))
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LOGIN_BYTES_MAX:
                return error_response(413, "TOO_LARGE", "the token is too long")
        token = parse_qs(body.decode(errors="replace")).get("token", [""])[0]
        if not self._is_token(token):
            return HTMLResponse(_LOGIN.format(problem="<p role=alert>That is not the token.</p>"), status_code=401)
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(_COOKIE, self._cookie, httponly=True, samesite="strict")
        return response


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
