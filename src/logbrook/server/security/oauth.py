"""Verification of JSON web tokens (RFC 7519): signature, issuer, audience and lifetime.

Only asymmetric signatures are accepted: a key set is public, so an HMAC or `none` proves nothing.
"""

import asyncio
import warnings
from typing import Any

from logbrook.config.security import SecurityConfig
from logbrook.model.security import USER, Principal
from logbrook.model.version import install_command
from logbrook.ports import Clock
from logbrook.server.security.errors import AuthenticationFailedError, InvalidSecurityError
from logbrook.server.security.sasl import Authenticated
from logbrook.server.security.token_keys import TokenKeys

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
_TOKEN_LENGTH_MAX = 16 * 1024


class TokenVerifier:
    """Used on the event loop; keys are read and signatures verified in a thread. `stop` it once."""

    def __init__(self, config: SecurityConfig, clock: Clock) -> None:
        """Raises ImportError without the package joserfc."""
        # Optional; a broker without tokens does not need it.
        from joserfc import errors, jwt  # noqa: PLC0415

        # "EdDSA" has a newer name, which issuers have yet to use.
        warnings.filterwarnings("ignore", message="EdDSA is deprecated")
        self._jwt, self._errors = jwt, errors
        self._config = config
        self._clock = clock
        self._audiences = [audience.strip() for audience in config.oauth_audience.split(",") if audience.strip()]
        self._keys = TokenKeys(config.oauth_jwks, clock)

    def stop(self) -> None:
        self._keys.stop()

    async def verify(self, token: str) -> Authenticated:
        """Raises AuthenticationFailedError."""
        if len(token) > _TOKEN_LENGTH_MAX:
            raise AuthenticationFailedError(f"a token of {len(token)} characters; at most {_TOKEN_LENGTH_MAX} are read")
        keys = await self._keys.current()
        try:
            try:
                claims = await asyncio.to_thread(self._decode, token, keys)
            except self._errors.InvalidKeyIdError:
                claims = await asyncio.to_thread(self._decode, token, await self._keys.newer())
        except self._errors.JoseError as error:
            raise AuthenticationFailedError(f"invalid token: {error}") from None
        # What a token can make the library raise; one with deeply nested JSON ends in a RecursionError.
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise AuthenticationFailedError(f"malformed token: {error}") from None
        return self._authenticated(claims)

    def _decode(self, token: str, keys: Any) -> dict[str, Any]:
        """Return the claims of a token whose signature is valid."""
        decoded = self._jwt.decode(token, keys, algorithms=ALGORITHMS)
        claims: dict[str, Any] = decoded.claims
        return claims

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
