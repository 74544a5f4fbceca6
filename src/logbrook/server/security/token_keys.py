"""The public keys that tokens are verified with (RFC 7517), from a file or a URL.

They are read in a thread, by one task at a time, for all who wait for them:

- first when a token is to be verified;
- again when they are older than `_AGE_S_MAX`, or `_FILE_AGE_S_MAX` for a file; while that takes long, the old ones are
  used, so that an identity provider that does not answer keeps nobody out;
- again when a token names a key that is not among them, at most every `_RELOAD_S_MIN`.

If they cannot be read again, those of the last time stay in use. Keys that cannot verify a signature are left out.
"""

import asyncio
import json
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

from logbrook.model.event_log import event_logger
from logbrook.ports import Clock
from logbrook.server.security.errors import AuthenticationFailedError

_AGE_S_MAX = 3_600.0
_FILE_AGE_S_MAX = 10.0
_RELOAD_S_MIN = 10.0
# Without any keys nobody can log in, so they are tried more often.
_RETRY_S_MIN = 1.0
# Verifications wait this long for keys that replace old ones.
_PATIENCE_S = 1.0
_FETCH_S_MAX = 10.0
_BYTES_MAX = 1 << 20
_URL_SCHEMES = ("http://", "https://")

_logger = event_logger(__name__)


class TokenKeys:
    """The keys of one source. On the event loop; `stop` it once."""

    def __init__(self, source: str, clock: Clock) -> None:
        """Raises ImportError without the package joserfc."""
        # Optional; a broker without tokens does not need it.
        from joserfc import errors, jwk  # noqa: PLC0415

        self._jwk, self._errors = jwk, errors
        self._source = source
        self._clock = clock
        self._is_url = source.startswith(_URL_SCHEMES)
        # A `jwk.KeySet`.
        self._keys: Any = None
        self._loaded_s = 0.0
        self._tried_s = float("-inf")
        self._loading: asyncio.Task[None] | None = None

    def stop(self) -> None:
        if self._loading is not None:
            self._loading.cancel()

    async def current(self) -> Any:
        """Return the keys. Raises AuthenticationFailedError if there are none."""
        if self._keys is None:
            await self._load(_FETCH_S_MAX)
        elif self._clock.monotonic_s() - self._loaded_s >= (_AGE_S_MAX if self._is_url else _FILE_AGE_S_MAX):
            await self._load(_PATIENCE_S)
        return self._known()

    async def newer(self) -> Any:
        """Return the keys, read again unless that was done just now. Raises AuthenticationFailedError."""
        await self._load(_FETCH_S_MAX)
        return self._known()

    def _known(self) -> Any:
        if self._keys is None:
            raise AuthenticationFailedError("the keys of tokens cannot be read")
        return self._keys

    async def _load(self, patience_s: float) -> None:
        """Read the keys, or wait for the task that does; for at most this long."""
        now_s = self._clock.monotonic_s()
        if self._loading is None:
            if now_s - self._tried_s < (_RETRY_S_MIN if self._keys is None else _RELOAD_S_MIN):
                return
            self._tried_s = now_s
            self._loading = asyncio.get_running_loop().create_task(self._read())
        await asyncio.wait({self._loading}, timeout=patience_s)

    async def _read(self) -> None:
        try:
            self._keys = await asyncio.to_thread(self._read_keys)
            self._loaded_s = self._clock.monotonic_s()
        except (OSError, HTTPException, ValueError, TypeError, LookupError, AttributeError) as error:
            _logger.error("keys of tokens not read", source=self._source, error=error)
        finally:
            self._loading = None

    def _read_keys(self) -> Any:
        """Raises OSError, HTTPException, or what JSON of another form leads to."""
        if self._is_url:
            with urllib.request.urlopen(self._source, timeout=_FETCH_S_MAX) as response:
                content = response.read(_BYTES_MAX)
        else:
            content = Path(self._source).read_bytes()
        keys, reasons = [], []
        for entry in json.loads(content)["keys"]:
            try:
                key = self._jwk.import_key(entry)
            except (self._errors.JoseError, ValueError, TypeError, LookupError, AttributeError) as error:
                reasons.append(str(error))
                continue
            # A set that is public must have no secrets, and nothing signed with one is accepted.
            if key.key_type != "oct" and entry.get("use", "sig") == "sig":
                keys.append(key)
        if not keys:
            raise ValueError(f"there is no key that verifies signatures; {'; '.join(reasons)}".removesuffix("; "))
        return self._jwk.KeySet(keys)
