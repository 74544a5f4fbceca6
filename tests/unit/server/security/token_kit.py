"""An issuer of tokens, with keys of its own."""

import json
import time
from pathlib import Path
from typing import Any

from joserfc import jwk, jwt


class TokenIssuer:
    """Signs tokens with an elliptic key; `path` is the file with its public keys."""

    def __init__(self, path: Path, kid: str = "key-1") -> None:
        self.path = path
        self.keys: dict[str, jwk.ECKey] = {}
        self.add_key(kid)

    def add_key(self, kid: str) -> None:
        """Add a key, with which tokens are signed from now on, and publish it."""
        self.kid = kid
        self.keys[kid] = jwk.ECKey.generate_key("P-256", {"kid": kid})
        self.publish()

    def remove_key(self, kid: str) -> None:
        del self.keys[kid]
        self.publish()

    def publish(self) -> None:
        self.path.write_bytes(self.published)

    @property
    def published(self) -> bytes:
        return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys.values()]}).encode()

    def token(self, subject: str = "alice", *, lifetime_s: float = 300, kid: str | None = None, **claims: Any) -> str:
        """Issue a token. A claim that is None is left out."""
        kid = kid or self.kid
        claims = {"sub": subject, "exp": int(time.time() + lifetime_s), **claims}
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode({"alg": "ES256", "kid": kid}, claims, self.keys[kid], algorithms=["ES256"])
