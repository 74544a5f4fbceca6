"""Who may ask: in front of every page, of the API and of the sockets of the pages.

- With a token, scripts send it as `Authorization: Bearer TOKEN`, and a browser types it once and gets a cookie.
- Without one the console listens on this machine only. A page from elsewhere must not reach it through the browser of
  somebody who sits here, so the name that was asked for has to be a name of this machine.
- A page of another site may not change anything with the browser's help, nor open a socket: what a browser says to be
  its origin has to be the console itself.
"""

import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from logbrook.config.console import is_loopback

BODY_BYTES_MAX = 8 << 20
_COOKIE = "logbrook_console"
_LOGIN_BYTES_MAX = 4096
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSED_SOCKET = 4403
_LOGIN = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Logbrook</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>body{{font:16px system-ui,sans-serif;display:grid;place-items:center;min-height:90vh}}
form{{display:grid;gap:.8rem;width:18rem}}input,button{{font:inherit;padding:.6rem}}p{{color:#c62828;margin:0}}</style>
</head><body><form method="post" action="/login"><h1>Logbrook</h1><label for="token">The console's token</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>{problem}
<button>Sign in</button></form></body></html>"""


class Guard:
    """An ASGI middleware."""

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self._app = app
        self._token = token
        # A cookie is worth nothing after a restart, and the token cannot be found from it.
        key = secrets.token_bytes(32)
        self._cookie = hmac.new(key, (token or "").encode(), hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        if refused is None and scope["type"] == "http":
            if self._token is not None and scope["path"] == "/login":
                refused = await self._login(Request(scope, receive))
            else:
                receive = _limited(receive)
        if refused is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _REFUSED_SOCKET})
        else:
            await refused(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if self._token is None and not is_loopback(urlsplit(f"//{headers.get('host', '')}").hostname or ""):
            return _error(403, "WRONG_HOST", "this console is for this machine only: ask for localhost")
        is_change = scope["type"] == "websocket" or scope["method"] not in _SAFE
        origin = headers.get("origin")
        if is_change and origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return _error(403, "WRONG_ORIGIN", "another site may not do this")
        if int(headers.get("content-length") or 0) > BODY_BYTES_MAX:
            return _error(413, "TOO_LARGE", f"a request has {BODY_BYTES_MAX} bytes at most")
        if self._token is None or scope["path"] == "/login" or self._is_known(headers):
            return None
        if scope["path"].startswith("/api") or scope["type"] == "websocket":
            answer = _error(401, "TOKEN_NEEDED", "send the console's token: Authorization: Bearer TOKEN")
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        return RedirectResponse("/login", status_code=303)

    def _is_known(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is_token(given.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(_COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self._cookie.encode())

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self._token or "").encode())

    async def _login(self, request: Request) -> Response:
        if request.method != "POST":
            return HTMLResponse(_LOGIN.format(problem=""))
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _LOGIN_BYTES_MAX:
                return _error(413, "TOO_LARGE", "that is no token")
        given = parse_qs(body.decode(errors="replace")).get("token", [""])[0]
        if not self._is_token(given):
            return HTMLResponse(_LOGIN.format(problem="<p role=alert>That is not the token.</p>"), status_code=401)
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(_COOKIE, self._cookie, httponly=True, samesite="strict")
        return answer


class BodyTooLargeError(HTTPException):
    """A request that did not say how long it is goes on for too long. FastAPI lets errors of this kind pass."""

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


def _error(status: int, code: str, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)
