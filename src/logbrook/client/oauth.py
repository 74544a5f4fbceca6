"""OAuth tokens for SASL/OAUTHBEARER: given as text, read from a file, or issued by an endpoint.

The endpoint gets a client-credentials grant (RFC 6749, section 4.4) with the client's id and secret in a Basic header.
A token is kept until four fifths of its lifetime have passed, and shared by the connections of the process. Redirects
are not followed: the secret goes to the configured endpoint only. Everything here blocks; keep it off an event loop.
"""

import base64
import json
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any
from urllib.parse import quote, urlencode

from logbrook.client.errors import TokenUnavailableError
from logbrook.client.sasl_options import OauthOptions

_TIMEOUT_S = 10.0
_RESPONSE_BYTES_MAX = 1 << 20
_FILE_BYTES_MAX = 1 << 20
# Of its lifetime, a token is used for this part. Without a stated lifetime it is used once.
_USED_PART = 0.8
_TEMPORARY_STATUSES = (408, 429, 500, 502, 503, 504)


class _TokenCache:
    """Tokens of endpoints with the times until which they are used; for all threads of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: dict[OauthOptions, tuple[str, float]] = {}

    def token(self, options: OauthOptions, fetch: Callable[[OauthOptions], tuple[str, float]]) -> str:
        with self._lock:
            token, until_s = self._tokens.get(options, ("", 0.0))
            if monotonic() >= until_s:
                token, lifetime_s = fetch(options)
                self._tokens[options] = token, monotonic() + lifetime_s * _USED_PART
            return token


_cache = _TokenCache()


def current_token(options: OauthOptions) -> str:
    """Return a token. Raises TokenUnavailableError."""
    if options.token:
        return _checked(options.token, "sasl.oauthbearer.token")
    if options.token_file:
        return _checked(_read_token(options.token_file), options.token_file)
    return _cache.token(options, _fetch)


def _read_token(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_FILE_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError as error:
        raise TokenUnavailableError(path, error.strerror or str(error)) from None


def _fetch(options: OauthOptions) -> tuple[str, float]:
    """Return a new token and its lifetime in seconds."""
    # Slow to import, and needed by few.
    import http.client  # noqa: PLC0415
    import ssl  # noqa: PLC0415
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    url = options.endpoint_url
    try:
        context = ssl.create_default_context(cafile=options.ca_file or None) if url.startswith("https") else None
        opener = urllib.request.build_opener(NoRedirects, urllib.request.HTTPSHandler(context=context))
        with opener.open(_grant_request(options), timeout=_TIMEOUT_S) as response:
            body = response.read(_RESPONSE_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            is_temporary = error.code in _TEMPORARY_STATUSES
            raise TokenUnavailableError(
                url, _refusal(error.code, error.read(4096)), is_retriable=is_temporary
            ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise TokenUnavailableError(url, str(reason), is_retriable=True) from None
    return _token_of(url, body)


def _grant_request(options: OauthOptions) -> Any:
    import urllib.request  # noqa: PLC0415

    fields = {"grant_type": "client_credentials"} | ({"scope": options.scope} if options.scope else {})
    # RFC 6749, section 2.3.1: id and secret are form-encoded before they are joined.
    pair = f"{quote(options.client_id, safe='')}:{quote(options.client_secret, safe='')}"
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return urllib.request.Request(options.endpoint_url, urlencode(fields).encode(), headers, method="POST")


def _refusal(status: int, body: bytes) -> str:
    """Describe a refused grant by its status and the error code of RFC 6749, section 5.2."""
    try:
        code = json.loads(body)["error"]
    except (ValueError, TypeError, KeyError):
        code = None
    return f"status {status}" + (f", {code}" if isinstance(code, str) and code.isidentifier() else "")


def _token_of(url: str, body: bytes) -> tuple[str, float]:
    try:
        answer = json.loads(body)
        token, lifetime_s = answer["access_token"], answer.get("expires_in", 0)
        return _checked(str(token), url), float(lifetime_s)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise TokenUnavailableError(url, "the answer has no access_token") from None


def _checked(token: str, source: str) -> str:
    """Refuse what cannot be sent as a bearer token (RFC 6750)."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenUnavailableError(source, "it has no token in its content")
    return token
