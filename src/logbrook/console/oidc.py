"""Sign-in with OpenID Connect: the authorization code flow with PKCE (RFC 7636).

    GET /oidc/start     begins a flow, and sends the browser to the provider
    GET /oidc/callback  the provider sends it back with a code, which the console exchanges for tokens

The access token is then the user's credential for the cluster (SASL/OAUTHBEARER), so the cluster decides who that is
and what they may do. It must be a JSON web token that the brokers accept. The session ends with it.

A flow is kept by the console and used once. Its secret is in a cookie of the browser that began it, so that nobody can
sign another person's browser in. That cookie is SameSite=Lax: the request from the provider's page must have it. The
ID token is checked as OpenID Connect Core 3.1.3.7 says: signature, issuer, audience, time and nonce.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
import urllib.error
import urllib.request
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from time import monotonic, time
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from logbrook.config.network import is_loopback
from logbrook.console.cluster import describe_error
from logbrook.console.gates import LoginGate, read_cookie
from logbrook.console.login_page import SINGLE_SIGN_ON_PATH, forwarding_page, safe_target
from logbrook.console.sign_in import Credentials
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger

CALLBACK_PATH = "/oidc/callback"
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_FLOW_S_MAX = 600
_FLOWS_MAX = 1_000
_METADATA_S_MAX = 3_600.0
_TIMEOUT_S = 10.0
_ANSWER_BYTES_MAX = 1 << 20
_CLOCK_SKEW_S = 30

_logger = event_logger(__name__)


class OidcFailedError(LogbrookError):
    """The provider or its answer cannot be used. The text is for the console's log."""


@dataclass(frozen=True, slots=True)
class OidcOptions:
    """The registration of the console with a provider. `url` is the console's address, for the redirect.

    Without a secret the console is a public client, which PKCE alone protects.
    """

    issuer: str
    client_id: str
    url: str
    client_secret: str = field(default="", repr=False)
    scope: str = "openid profile"


@dataclass(frozen=True, slots=True)
class _Flow:
    state: str
    nonce: str
    verifier: str
    target: str
    began_s: float


class OidcSignIn:
    """Answers the requests of the flow. One per console, on the event loop; the provider is asked in a thread."""

    def __init__(self, options: OidcOptions, gate: LoginGate, *, now_s: Callable[[], float] = monotonic) -> None:
        """Raises OidcFailedError for an issuer that is not https, and ImportError without the package joserfc."""
        from joserfc import errors, jwk, jwt  # noqa: PLC0415 - of an optional package

        self._jwt, self._jwk, self._errors = jwt, jwk, errors
        _check_url(options.issuer)
        self._options = options
        self._gate = gate
        self._now_s = now_s
        # By the value of the browser's cookie, the oldest first.
        self._flows: dict[str, _Flow] = {}
        self._metadata: tuple[float, Mapping[str, Any]] | None = None

    async def answer(self, request: Request) -> Response:
        target = "/"
        try:
            if request.method == "GET" and request.url.path == SINGLE_SIGN_ON_PATH:
                return await self._start(request)
            if request.method == "GET" and request.url.path == CALLBACK_PATH:
                flow = self._take_flow(request)
                target = flow.target
                return await self._finish(request, flow)
        except OidcFailedError as error:
            _logger.warning("single sign-on failed", issuer=self._options.issuer, error=error)
            return self._gate.page(target, "Single sign-on failed. Try again.", status=401)
        except LogbrookError as error:
            _logger.warning("single sign-on refused by the cluster", error=error)
            return self._gate.page(target, f"The cluster refuses it: {describe_error(error)}", status=401)
        return Response(status_code=404)

    async def _start(self, request: Request) -> Response:
        metadata = await self._provider()
        flow = _Flow(
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(48),
            safe_target(request.query_params.get("next", "/")),
            self._now_s(),
        )
        challenge = urlsafe_b64encode(hashlib.sha256(flow.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._options.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": self._options.scope,
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = str(metadata["authorization_endpoint"])
        response = RedirectResponse(f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", 303)
        flow_id = secrets.token_urlsafe(32)
        while len(self._flows) >= _FLOWS_MAX:
            del self._flows[next(iter(self._flows))]
        self._flows[flow_id] = flow
        response.set_cookie(
            _cookie_name(request),
            flow_id,
            max_age=_FLOW_S_MAX,
            path="/oidc",
            httponly=True,
            samesite="lax",
            secure=self._options.url.startswith("https:"),
        )
        return response

    def _take_flow(self, request: Request) -> _Flow:
        """Return the flow of this browser, which cannot be used again. Raises OidcFailedError."""
        flow = self._flows.pop(read_cookie(request.headers, _cookie_name(request)), None)
        if flow is None or self._now_s() - flow.began_s > _FLOW_S_MAX:
            raise OidcFailedError("the browser has begun no flow, or too long ago")
        if not hmac.compare_digest(request.query_params.get("state", "").encode(), flow.state.encode()):
            raise OidcFailedError("the state is not that of the flow")
        return flow

    async def _finish(self, request: Request, flow: _Flow) -> Response:
        parameters = request.query_params
        if "error" in parameters:
            raise OidcFailedError(f"the provider answered {parameters['error'][:100]!r}")
        # RFC 9207: another provider must not be able to pass its answer off as this one's.
        if parameters.get("iss", self._options.issuer) != self._options.issuer:
            raise OidcFailedError(f"the answer is of the issuer {parameters['iss'][:200]!r}")
        metadata = await self._provider()
        tokens = await asyncio.to_thread(self._exchange, metadata, parameters.get("code", ""), flow.verifier)
        claims = await asyncio.to_thread(self._verified_claims, metadata, tokens, flow.nonce)
        user = next((str(claims[name]) for name in ("preferred_username", "email", "sub") if claims.get(name)), "")
        credentials = Credentials(user, token=str(tokens["access_token"]))
        response: Response = forwarding_page(flow.target)
        await self._gate.begin_session(request, credentials, response, _lifetime_s(tokens))
        response.delete_cookie(_cookie_name(request), path="/oidc", httponly=True, samesite="lax")
        return response

    @property
    def _redirect_uri(self) -> str:
        return self._options.url.rstrip("/") + CALLBACK_PATH

    async def _provider(self) -> Mapping[str, Any]:
        """Return the provider's metadata (OpenID Connect Discovery). Raises OidcFailedError."""
        if self._metadata is None or self._now_s() - self._metadata[0] > _METADATA_S_MAX:
            url = f"{self._options.issuer.rstrip('/')}/.well-known/openid-configuration"
            metadata = await asyncio.to_thread(_fetch_json, url)
            if metadata.get("issuer") != self._options.issuer:
                raise OidcFailedError(f"{url} is of the issuer {metadata.get('issuer')!r}")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                _check_url(str(metadata.get(name, "")))
            self._metadata = self._now_s(), metadata
        return self._metadata[1]

    def _exchange(self, metadata: Mapping[str, Any], code: str, verifier: str) -> Mapping[str, Any]:
        """Return the tokens for the code. Blocks; raises OidcFailedError."""
        options = self._options
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        headers = {}
        if options.client_secret:
            pair = f"{quote(options.client_id, safe='')}:{quote(options.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form["client_id"] = options.client_id
        tokens = _fetch_json(str(metadata["token_endpoint"]), urlencode(form).encode(), headers)
        if not isinstance(tokens.get("access_token"), str) or not isinstance(tokens.get("id_token"), str):
            raise OidcFailedError("the answer of the provider has no access_token or no id_token")
        return tokens

    def _verified_claims(self, metadata: Mapping[str, Any], tokens: Mapping[str, Any], nonce: str) -> Mapping[str, Any]:
        """Return the claims of the ID token. Blocks; raises OidcFailedError."""
        try:
            keys = self._jwk.KeySet.import_key_set(_fetch_json(str(metadata["jwks_uri"])))  # type: ignore[arg-type]
            claims: dict[str, Any] = self._jwt.decode(tokens["id_token"], keys, algorithms=_ALGORITHMS).claims
        except (self._errors.JoseError, ValueError, TypeError, AttributeError) as error:
            raise OidcFailedError(f"the ID token is invalid: {error}") from None
        audience = claims.get("aud")
        audiences = [audience] if isinstance(audience, str) else audience or []
        expires_s = claims.get("exp")
        checks = {
            "iss": claims.get("iss") == self._options.issuer,
            "aud": self._options.client_id in audiences,
            "azp": claims.get("azp", self._options.client_id) == self._options.client_id,
            "exp": isinstance(expires_s, int | float) and time() < expires_s + _CLOCK_SKEW_S,
            "nonce": hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()),
        }
        wrong = [name for name, is_right in checks.items() if not is_right]
        if wrong:
            raise OidcFailedError(f"claims of the ID token are wrong: {', '.join(wrong)}")
        return claims


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The code and the secret go to the provider's own endpoints only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetch_json(url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """Blocks. Raises OidcFailedError, whose text has nothing of what was sent."""
    request = urllib.request.Request(url, form, {"Accept": "application/json", **(headers or {})})
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_S) as response:
            content = json.loads(response.read(_ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            raise OidcFailedError(f"{url} answered {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise OidcFailedError(f"{url} cannot be used: {error}") from None
    if not isinstance(content, dict):
        raise OidcFailedError(f"{url} did not answer with an object")
    return content


def _check_url(url: str) -> None:
    """Raises OidcFailedError unless it is https, or of this machine, for tests."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise OidcFailedError(f"{url!r} is not an https URL")


def _lifetime_s(tokens: Mapping[str, Any]) -> float | None:
    try:
        return max(1.0, float(tokens["expires_in"]))
    except (KeyError, TypeError, ValueError):
        return None


def _cookie_name(request: Request) -> str:
    server = request.scope.get("server")
    return f"logbrook_oidc_{server[1] if server else 0}"
