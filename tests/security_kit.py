"""Users, ACLs and tokens for tests of the ports that do not speak Kafka's protocol."""

import json
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from logbrook.core.acls import CLUSTER_NAME, AclBinding, AclOperation, PatternType, PermissionType, ResourceType
from logbrook.core.users import encode_credentials
from logbrook.model.security import SaslMechanism
from logbrook.protocol.scram import credential_of, salted_password
from logbrook.server.services import Services

SCRAM = (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512)
PASSWORDS = {"admin": "open-sesame", "alice": "wonderland", "bob": "builder"}
_SALT = b"0123456789abcdef"
_ITERATIONS = 4096


def write_users(folder: Path) -> str:
    """Write a users file with `PASSWORDS`, and return its path."""
    content = {}
    for user, password in PASSWORDS.items():
        credentials = {
            mechanism: credential_of(
                mechanism, salted_password(mechanism, password, _SALT, _ITERATIONS), _SALT, _ITERATIONS
            )
            for mechanism in SCRAM
        }
        content[user] = json.loads(encode_credentials(credentials))
    path = folder / "users.json"
    path.write_text(json.dumps({"users": content}))
    return str(path)


def security_settings(folder: Path, **more: Any) -> dict[str, Any]:
    """Settings of a broker that enforces ACLs, with admin as its super user."""
    return {
        "users_file": write_users(folder),
        "failed_authentication_delay_ms": 0,
        "authorization": True,
        "super_users": "User:admin",
        **more,
    }


async def allow(
    services: Services,
    user: str,
    operation: AclOperation,
    resource_type: ResourceType = ResourceType.CLUSTER,
    name: str = CLUSTER_NAME,
) -> None:
    acl = AclBinding(resource_type, PatternType.LITERAL, name, f"User:{user}", "*", operation, PermissionType.ALLOW)
    await services.topics.change_security(lambda: services.security.acls.create([acl]))


def basic(user: str, password: str | None = None) -> str:
    """Return the header of basic authentication, with the right password unless another one is given."""
    text = f"{user}:{PASSWORDS.get(user, '') if password is None else password}"
    return "Basic " + b64encode(text.encode()).decode()


class TokenIssuer:
    """Signs tokens. `jwks` is the file with its public key."""

    def __init__(self, folder: Path, url: str = "https://issuer.example") -> None:
        self.url = url
        self._key = ECKey.generate_key("P-256", {"kid": "key-1", "alg": "ES256", "use": "sig"})
        self.keys = KeySet([self._key]).as_dict(private=False)
        self.jwks = folder / "jwks.json"
        self.jwks.write_text(json.dumps(self.keys))

    def token(self, subject: str, *, lifetime_s: float = 600.0, **claims: Any) -> str:
        now_s = int(time.time())
        claims = {"iss": self.url, "sub": subject, "iat": now_s, "exp": now_s + lifetime_s, **claims}
        return jwt.encode({"alg": "ES256", "kid": "key-1"}, claims, self._key)
