"""Access to the HTTP listener for operators: who sends a request, and whether a web page may have sent it.

A client is who its credentials say (basic authentication or a bearer token), else the subject of its certificate, else
User:ANONYMOUS. If authentication is required, an anonymous client gets 401. ACLs apply to all of them alike.

Requests that change something:

- A browser tells by Origin and Sec-Fetch-Site which site's page sends a request. Other sites than the listener's own
  are refused, whatever the credentials: a browser adds those by itself. Other clients send neither header.
- Anonymous clients must connect from this machine. A request that was forwarded by a proxy does not: a proxy on this
  machine would make every client of its own a local one.
"""

import binascii
from base64 import b64decode
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from logbrook.config.network import is_loopback
from logbrook.core.acls import AclOperation
from logbrook.model.security import ANONYMOUS, Principal, SecurityProtocol
from logbrook.server.advertised import HTTP_LISTENER, needs_authentication
from logbrook.server.api import RequestContext
from logbrook.server.http import HttpError, HttpRequest
from logbrook.server.security.authorizer import AuthorizationFailedError
from logbrook.server.security.certificates import certificate_principal, parse_mapping_rules
from logbrook.server.security.errors import PUBLIC_REASON, AuthenticationFailedError
from logbrook.server.services import Services
from logbrook.server.session import ConnectionSession

_SAFE_METHODS = frozenset({"GET", "HEAD"})
# Of a request by a page of the same origin, and by the user, as by typing the address.
_OWN_SITES = frozenset({"same-origin", "none"})
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


class _Credentials(NamedTuple):
    scheme: str
    value: str


class HttpAccess:
    """One per HTTP listener, on the event loop."""

    def __init__(self, services: Services) -> None:
        """Raises InvalidSecurityError."""
        config = services.config
        self._services = services
        self._is_required = needs_authentication(config, config.metrics.authentication)
        self._mapping_rules = parse_mapping_rules(config.security.principal_mapping_rules)
        schemes = ['Basic realm="logbrook", charset="UTF-8"']
        if config.security.oauth_jwks:
            schemes.append('Bearer realm="logbrook"')
        self._challenge = {"WWW-Authenticate": ", ".join(schemes)}

    def anonymous(self, request: HttpRequest) -> RequestContext:
        """Return the context of a request that every client may send."""
        return self._context(request, ANONYMOUS)

    async def identify(self, request: HttpRequest) -> RequestContext:
        """Raises HttpError: 401 for a client that has to authenticate, 403 for a page of another site."""
        is_change = request.method not in _SAFE_METHODS
        if is_change:
            check_same_origin(request)
        principal = await self._principal(request)
        if principal == ANONYMOUS:
            if self._is_required:
                raise self._unauthorized("authentication is required")
            if is_change and not _is_local(request):
                raise self._unauthorized("changes from other machines need authentication")
        return self._context(request, principal)

    def check(self, context: RequestContext, operation: AclOperation) -> None:
        """Raises HttpError (403) if ACLs do not allow the client the operation on the cluster."""
        try:
            self._services.authorizer.check_cluster(context, operation)
        except AuthorizationFailedError as error:
            raise HttpError(HTTPStatus.FORBIDDEN, str(error)) from None

    async def _principal(self, request: HttpRequest) -> Principal:
        credentials = _read_credentials(request.headers.get("authorization", ""))
        authentication, host = self._services.authentication, request.peer.host
        try:
            if credentials is None:
                return certificate_principal(request.peer.certificate, self._mapping_rules)
            if credentials.scheme == "basic":
                user, password = _read_basic(credentials.value)
                return await authentication.verify_password(user, password, host)
            if credentials.scheme == "bearer":
                return (await authentication.verify_token(credentials.value, host)).principal
        except AuthenticationFailedError:
            raise self._unauthorized(PUBLIC_REASON) from None
        except ValueError as error:
            raise HttpError(HTTPStatus.FORBIDDEN, str(error)) from None
        raise self._unauthorized(f"the authentication scheme must be one of {self._challenge['WWW-Authenticate']}")

    def _context(self, request: HttpRequest, principal: Principal) -> RequestContext:
        protocol = SecurityProtocol.SSL if request.peer.has_tls else SecurityProtocol.PLAINTEXT
        session = ConnectionSession(request.peer.host, HTTP_LISTENER, protocol, principal)
        return RequestContext(0, request.headers.get("user-agent", "")[:200], session)

    def _unauthorized(self, reason: str) -> HttpError:
        return HttpError(HTTPStatus.UNAUTHORIZED, reason, self._challenge)


def check_same_origin(request: HttpRequest) -> None:
    """Raises HttpError (403) for a request that a page of another site sends. The Host must be checked before."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    scheme = "https" if request.peer.has_tls else "http"
    is_other = origin is not None and not _is_same_origin(origin, scheme, request.headers.get("host", ""))
    if is_other or (site is not None and site.lower() not in _OWN_SITES):
        raise HttpError(HTTPStatus.FORBIDDEN, "requests from pages of other sites are refused")


def _is_same_origin(origin: str, scheme: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme == scheme and bool(host) and parts.netloc.lower() == host.lower()


def _is_local(request: HttpRequest) -> bool:
    return is_loopback(request.peer.host) and not any(name in request.headers for name in _FORWARDED)


def _read_credentials(header: str) -> _Credentials | None:
    scheme, _, value = header.strip().partition(" ")
    return _Credentials(scheme.lower(), value.strip()) if scheme else None


def _read_basic(value: str) -> tuple[str, str]:
    """Raises AuthenticationFailedError."""
    try:
        user, colon, password = b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
    if not colon:
        raise AuthenticationFailedError("the credentials are not USER:PASSWORD in base64")
    return user, password
