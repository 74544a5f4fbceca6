"""The three kinds of access control of a console: none, one token for everybody, or a login with users of the cluster.

A gate decides by whose session a request is served, or answers it itself: with the login page, or with an error.
`guard.Guard` has checked Host, Origin and the size of the request before.

Cookies are HttpOnly, SameSite=Strict, and Secure with HTTPS. Their names contain the port: cookies of one host are sent
to all its ports, and several consoles on a host must not sign each other's users out. Scripts send an Authorization
header instead. A request to the HTTP API that changes something needs the session's token in X-CSRF-Token if it has
only the cookie; GET /api/session returns it.
"""

import binascii
import hashlib
import hmac
import secrets
from base64 import b64decode
from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope

from logbrook.console.cluster import describe_error
from logbrook.console.guard import SAFE_METHODS, error_response
from logbrook.console.login_page import (
    LOGIN_PATH,
    LOGOUT_PATH,
    LoginView,
    password_page,
    safe_target,
    token_page,
)
from logbrook.console.sign_in import Credentials, SignIn, SignInRefusedError
from logbrook.console.workspace import ConsoleSession, Workspace
from logbrook.model import LogbrookError

_SESSION_PATH = "/api/session"
_LOGIN_BYTES_MAX = 64 * 1024
_SEE_OTHER = 303


class OpenGate:
    """No login: for consoles on loopback addresses."""

    is_for_loopback_only = True

    def __init__(self, workspace: Workspace) -> None:
        self._session = ConsoleSession(workspace)

    async def enter(self, _scope: Scope, _receive: Receive) -> ConsoleSession | Response:
        return self._session


class TokenGate:
    """One token, which allows everything that the console's own credentials allow."""

    is_for_loopback_only = False

    def __init__(self, workspace: Workspace, token: str, *, is_secure: bool = False) -> None:
        self._session = ConsoleSession(workspace)
        self._token = token
        self._is_secure = is_secure
        # The cookie is an HMAC with a random key: it expires with a restart and does not reveal the token.
        self._cookie = hmac.new(secrets.token_bytes(32), token.encode(), hashlib.sha256).hexdigest()

    async def enter(self, scope: Scope, receive: Receive) -> ConsoleSession | Response:
        if scope["type"] == "http" and scope["path"] == LOGIN_PATH:
            return await self._login(Request(scope, receive))
        headers = Headers(scope=scope)
        scheme, value = read_authorization(headers)
        cookie = read_cookie(headers, cookie_name(scope))
        has_cookie = hmac.compare_digest(cookie.encode(), self._cookie.encode())
        if has_cookie or (scheme == "bearer" and self._is_token(value)):
            return self._session
        if not asks_for_page(scope):
            return unauthorized("TOKEN_NEEDED", "send the console's token: Authorization: Bearer TOKEN", "Bearer")
        return login_redirect(scope)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())

    async def _login(self, request: Request) -> Response:
        view = LoginView(self._session.workspace.access.bootstrap_servers, request.query_params.get("next", "/"))
        if request.method != "POST":
            return token_page(view)
        form = await read_form(request)
        if form is None:
            return error_response(413, "TOO_LARGE", "the token is too long")
        if not self._is_token(form.get("token", "")):
            return token_page(LoginView(view.cluster, form.get("next", "/"), "That is not the token.", status=401))
        response = RedirectResponse(safe_target(form.get("next", "/")), status_code=_SEE_OTHER)
        set_cookie(response, request.scope, self._cookie, is_secure=self._is_secure)
        return response


class LoginGate:
    """Users of the cluster sign in with their own credentials, and the cluster's ACLs decide what they may do."""

    is_for_loopback_only = False

    def __init__(self, sign_in: SignIn, cluster: str, *, is_secure: bool = False) -> None:
        self._sign_in = sign_in
        self._cluster = cluster
        self._is_secure = is_secure
        # Answers the requests under /oidc, if there is single sign-on.
        self.single_sign_on: Callable[[Request], Awaitable[Response]] | None = None

    async def enter(self, scope: Scope, receive: Receive) -> ConsoleSession | Response:
        if asks_for_page(scope):
            answer = await self._answer_page(Request(scope, receive))
            if answer is not None:
                return answer
        headers = Headers(scope=scope)
        scheme, _ = read_authorization(headers)
        if scheme:
            return await self._session_of_header(scope, headers)
        session = self._sign_in.session(read_cookie(headers, cookie_name(scope)))
        if session is not None:
            return self._with_csrf_check(scope, headers, session)
        if asks_for_page(scope):
            return login_redirect(scope)
        return unauthorized("LOGIN_NEEDED", "send a user name and password, or a bearer token", _CHALLENGE)

    async def _answer_page(self, request: Request) -> Response | None:
        """Answer a request that needs no session, None if it is another one."""
        path = request.scope["path"]
        if path == LOGIN_PATH:
            return await self._login(request)
        if path == LOGOUT_PATH:
            return await self._logout(request)
        if path.startswith("/oidc/") and self.single_sign_on is not None:
            return await self.single_sign_on(request)
        return None

    async def begin_session(
        self, request: Request, credentials: Credentials, response: Response, lifetime_s: float | None = None
    ) -> None:
        """Sign in, and set the cookie of the session. Raises LogbrookError."""
        session_id = await self._sign_in.sign_in(credentials, address_of(request.scope), lifetime_s)
        await self._sign_in.sign_out(read_cookie(request.headers, cookie_name(request.scope)))
        set_cookie(response, request.scope, session_id, is_secure=self._is_secure)

    def page(self, target: str, problem: str = "", user: str = "", status: int = 200) -> Response:
        return password_page(
            LoginView(self._cluster, safe_target(target), problem, user, self.single_sign_on is not None, status)
        )

    async def _session_of_header(self, scope: Scope, headers: Headers) -> ConsoleSession | Response:
        credentials = read_credentials(headers)
        if credentials is None:
            return unauthorized("LOGIN_NEEDED", "send a user name and password, or a bearer token", _CHALLENGE)
        try:
            return await self._sign_in.request_session(credentials, address_of(scope))
        except SignInRefusedError as error:
            return unauthorized("LOGIN_REFUSED", str(error), _CHALLENGE)
        except LogbrookError as error:
            return error_response(503, "CLUSTER_NOT_REACHABLE", describe_error(error))

    def _with_csrf_check(self, scope: Scope, headers: Headers, session: ConsoleSession) -> ConsoleSession | Response:
        if scope["type"] != "http" or not is_api(scope["path"]):
            return session
        if scope["path"] == _SESSION_PATH:
            content = {"user": session.user, "csrf_token": session.csrf_token}
            return JSONResponse(content, headers={"Cache-Control": "no-store"})
        sent = headers.get("x-csrf-token", "")
        is_change = scope["method"] not in SAFE_METHODS
        if is_change and not hmac.compare_digest(sent.encode(), session.csrf_token.encode()):
            return error_response(403, "WRONG_CSRF_TOKEN", f"send the csrf_token of {_SESSION_PATH} as X-CSRF-Token")
        return session

    async def _login(self, request: Request) -> Response:
        if request.method != "POST":
            return self.page(request.query_params.get("next", "/"))
        form = await read_form(request)
        if form is None:
            return error_response(413, "TOO_LARGE", "the password is too long")
        target, user = safe_target(form.get("next", "/")), form.get("user", "")
        response = RedirectResponse(target, status_code=_SEE_OTHER)
        try:
            await self.begin_session(request, Credentials(user, form.get("password", "")), response)
        except SignInRefusedError:
            return self.page(target, "The user name or the password is wrong.", user, 401)
        except LogbrookError as error:
            return self.page(target, f"The cluster cannot be asked: {describe_error(error)}", user, 503)
        return response

    async def _logout(self, request: Request) -> Response:
        scope = request.scope
        if request.method != "POST":
            return error_response(405, "METHOD_NOT_ALLOWED", "use POST")
        await self._sign_in.sign_out(read_cookie(request.headers, cookie_name(scope)))
        response = RedirectResponse(LOGIN_PATH, status_code=_SEE_OTHER)
        response.delete_cookie(
            cookie_name(scope), httponly=True, samesite="strict", secure=self._is_secure or scope["scheme"] == "https"
        )
        return response


_CHALLENGE = 'Basic realm="logbrook", charset="UTF-8", Bearer realm="logbrook"'


def read_credentials(headers: Headers) -> Credentials | None:
    """Return the credentials of an Authorization header, None if it has none that can be read."""
    scheme, value = read_authorization(headers)
    if scheme == "bearer" and value:
        return Credentials("", token=value)
    if scheme != "basic":
        return None
    try:
        user, colon, password = b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Credentials(user, password) if colon else None


def read_authorization(headers: Headers) -> tuple[str, str]:
    """Return the scheme in lower case, and what follows it."""
    scheme, _, value = headers.get("authorization", "").strip().partition(" ")
    return scheme.lower(), value.strip()


def read_cookie(headers: Headers, name: str) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value


def cookie_name(scope: Scope) -> str:
    server = scope.get("server")
    return f"logbrook_session_{server[1] if server else 0}"


def set_cookie(response: Response, scope: Scope, value: str, *, is_secure: bool) -> None:
    response.set_cookie(
        cookie_name(scope), value, httponly=True, samesite="strict", secure=is_secure or scope["scheme"] == "https"
    )


async def read_form(request: Request) -> dict[str, str] | None:
    """Return the last value of each field, None for a form that is too long."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LOGIN_BYTES_MAX:
            return None
    fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True)
    return {name: values[-1] for name, values in fields.items()}


def is_api(path: str) -> bool:
    return path == "/api" or path.startswith("/api/")


def asks_for_page(scope: Scope) -> bool:
    return scope["type"] == "http" and not is_api(scope["path"])


def login_redirect(scope: Scope) -> Response:
    """Redirect to the login, which leads back to a page that was asked for."""
    query = scope.get("query_string", b"").decode("latin-1")
    target = safe_target(scope["path"] + (f"?{query}" if query else ""))
    is_page = scope["method"] in SAFE_METHODS and not scope["path"].startswith("/_nicegui") and target != "/"
    return RedirectResponse(f"{LOGIN_PATH}?next={quote(target, safe='')}" if is_page else LOGIN_PATH, _SEE_OTHER)


def unauthorized(code: str, message: str, challenge: str) -> Response:
    response = error_response(401, code, message)
    response.headers["WWW-Authenticate"] = challenge
    return response


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""
