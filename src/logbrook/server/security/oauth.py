"""Verification of JSON web tokens (RFC 7519): signature, issuer, audience and lifetime.

The keys come from a file or a URL. They are read in a thread, kept for `_KEYS_S_MAX`, and read again earlier when a
token names a key that is not among them, at most every `_RELOAD_S_MIN`. If they cannot be read again, those of the last
time stay in use. Only asymmetric signatures are accepted: a key set is public, so an HMAC or `none` proves nothing.
"""

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

from logbrook.config.security import SecurityConfig
from logbrook.model.event_log import event_logger
from logbrook.model.security import USER, Principal
from logbrook.model.version import install_command
from logbrook.ports import Clock
from logbrook.server.security.errors import AuthenticationFailedError, InvalidSecurityError
from logbrook.server.security.sasl import Authenticated

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_KEYS_S_MAX = 3_600.0
_RELOAD_S_MIN = 10.0
_FETCH_S_MAX = 10.0
_KEYS_BYTES_MAX = 1 << 20
_TOKEN_LENGTH_MAX = 16 * 1024
_URL_SCHEMES = ("http://", "https://")

_logger = event_logger(__name__)


class TokenVerifier:
    """Used on the event loop; keys are read and signatures verified in a thread."""

    def __init__(self, config: SecurityConfig, clock: Clock) -> None:
        """Raises ImportError without the package joserfc."""
        # Optional; a broker without tokens does not need it.
        from joserfc import errors, jwk, jwt  # noqa: PLC0415

        self._jwt, self._jwk, self._errors = jwt, jwk, errors
        self._config = config
        self._clock = clock
        self._audiences = [audience.strip() for audience in config.oauth_audience.split(",") if audience.strip()]
        self._keys: Any = None
        self._loaded_s = 0.0
        self._tried_s = float("-inf")
        self._loading = asyncio.Lock()

    async def verify(self, token: str) -> Authenticated:
        """Raises AuthenticationFailedError."""
        if len(token) > _TOKEN_LENGTH_MAX:
            raise AuthenticationFailedError(f"a token of {len(token)} characters; at most {_TOKEN_LENGTH_MAX} are read")
        await self._load_keys(_KEYS_S_MAX)
        try:
            claims = await asyncio.to_thread(self._decode, token)
        except self._errors.InvalidKeyIdError:
            await self._load_keys(_RELOAD_S_MIN)
            claims = await asyncio.to_thread(self._decode_or_fail, token)
        except self._errors.JoseError as error:
            raise AuthenticationFailedError(f"invalid token: {error}") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise AuthenticationFailedError(f"malformed token: {error}") from None
        return self._authenticated(claims)

    def _decode(self, token: str) -> dict[str, Any]:
        """Return the claims of a token whose signature is valid."""
        decoded = self._jwt.decode(token, self._keys, algorithms=ALGORITHMS)
        claims: dict[str, Any] = decoded.claims
        return claims

    def _decode_or_fail(self, token: str) -> dict[str, Any]:
        try:
            return self._decode(token)
        except (self._errors.JoseError, ValueError, TypeError, AttributeError) as error:
            raise AuthenticationFailedError(f"invalid token: {error}") from None

    def _authenticated(self, claims: dict[str, Any]) -> Authenticated:
        """Check the claims. Raises AuthenticationFailedError."""
        config, now_ms = self._config, self._clock.now_ms()
        skew_ms = config.oauth_clock_skew_ms
        expires_ms = _time_ms(claims, "exp")
        if expires_ms is None:
            raise AuthenticationFailedError("the token has no expiry (exp)")
        if now_ms >= expires_ms + skew_ms:
            raise AuthenticationFailedError("the token has expired")
        for claim in ("nbf", "iat"):
            begins_ms = _time_ms(claims, claim)
            if begins_ms is not None and begins_ms > now_ms + skew_ms:
                raise AuthenticationFailedError(f"the token is not valid yet ({claim})")
        if config.oauth_issuer and claims.get("iss") != config.oauth_issuer:
            raise AuthenticationFailedError(
                f"the token is issued by {claims.get('iss')!r}, not {config.oauth_issuer!r}"
            )
        given = claims.get("aud", [])
        given = [given] if isinstance(given, str) else given
        if self._audiences and not (isinstance(given, list) and any(name in self._audiences for name in given)):
            raise AuthenticationFailedError(f"the token is for the audience {given!r}")
        name = claims.get(config.oauth_principal_claim)
        if not isinstance(name, str) or not name:
            raise AuthenticationFailedError(f"the token has no claim {config.oauth_principal_claim!r}")
        return Authenticated(Principal(USER, name), expires_ms + skew_ms)

    async def _load_keys(self, age_s_max: float) -> None:
        """Read the keys if they are older than this. Raises AuthenticationFailedError if there are none."""
        async with self._loading:
            now_s = self._clock.monotonic_s()
            is_fresh = self._keys is not None and now_s - self._loaded_s < age_s_max
            if is_fresh or (self._keys is not None and now_s - self._tried_s < _RELOAD_S_MIN):
                return
            self._tried_s = now_s
            try:
                self._keys = await asyncio.to_thread(self._read_keys)
                self._loaded_s = now_s
            except (OSError, ValueError, self._errors.JoseError) as error:
                _logger.error("keys of tokens not read", source=self._config.oauth_jwks, error=error)
                if self._keys is None:
                    raise AuthenticationFailedError("the keys of tokens cannot be read") from None

    def _read_keys(self) -> Any:
        """Raises OSError, ValueError or JoseError."""
        source = self._config.oauth_jwks
        if source.startswith(_URL_SCHEMES):
            with urllib.request.urlopen(source, timeout=_FETCH_S_MAX) as response:
                content = response.read(_KEYS_BYTES_MAX)
        else:
            content = Path(source).read_bytes()
        return self._jwk.KeySet.import_key_set(json.loads(content))


def new_token_verifier(config: SecurityConfig, clock: Clock) -> TokenVerifier:
    """Raises InvalidSecurityError without the optional package."""
    try:
        return TokenVerifier(config, clock)
    except ImportError as error:
        raise InvalidSecurityError(
            f"security.oauth_jwks needs the package {error.name}: {install_command('security')}"
        ) from None


def _time_ms(claims: dict[str, Any], claim: str) -> int | None:
    """Raises AuthenticationFailedError."""
    seconds = claims.get(claim)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not abs(seconds) < 1e12:
        raise AuthenticationFailedError(f"the token's {claim} is not a time")
    return int(seconds * 1000)
