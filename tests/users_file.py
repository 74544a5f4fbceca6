"""Users files for brokers of tests: salted credentials of users who exist before the broker starts."""

import json
from collections.abc import Mapping
from pathlib import Path

from logbrook.core.users import encode_credentials
from logbrook.model.security import SaslMechanism
from logbrook.protocol.scram import ITERATIONS_MIN, credential_of, salted_password

_SALT = bytes(range(16))
_MECHANISMS = (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512)


def write_users_file(path: Path, passwords: Mapping[str, str]) -> Path:
    """Write the credentials of these users, and return the path."""
    users = {
        user: json.loads(
            encode_credentials(
                {
                    mechanism: credential_of(
                        mechanism, salted_password(mechanism, password, _SALT, ITERATIONS_MIN), _SALT, ITERATIONS_MIN
                    )
                    for mechanism in _MECHANISMS
                }
            )
        )
        for user, password in passwords.items()
    }
    path.write_text(json.dumps({"users": users}))
    return path
