"""Users in a file: those who exist before any is created over the protocol, such as the first administrator.

    {"users": {"admin": {"SCRAM-SHA-512": {"salt": ..., "stored_key": ..., "server_key": ..., "iterations": 8192}}}}

The file has salted credentials only. Users of the metadata store come first: a user of the file whose credential is
changed over the protocol has the new one from then on.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from logbrook.core.users import Credentials, decode_credentials
from logbrook.server.security.errors import InvalidSecurityError


def read_users_file(path: str) -> Mapping[str, Credentials]:
    """Raises InvalidSecurityError."""
    try:
        content = json.loads(Path(path).read_bytes())
        return {user: decode_credentials(credentials) for user, credentials in content["users"].items()}
    except OSError as error:
        raise InvalidSecurityError(f"security.users_file: {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidSecurityError(f"security.users_file: {path} is not a file of users: {error}") from None
