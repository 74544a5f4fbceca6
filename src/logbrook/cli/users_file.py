"""The file of a broker's bootstrap users: salted credentials of those that exist before any cluster does.

    {"users": {"admin": {"SCRAM-SHA-512": {"salt": ..., "stored_key": ..., "server_key": ..., "iterations": 8192}}}}

Byte strings are in base64. The file is replaced atomically, with mode 0600. It has no passwords, but whoever has it can
guess them offline.
"""

import json
import os
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from logbrook.client.admin_users import DEFAULT_ITERATIONS, SCRAM_MECHANISMS, UserInfo
from logbrook.core.users import decode_credentials, encode_credentials
from logbrook.model import LogbrookError
from logbrook.model.security import SaslMechanism, ScramCredential
from logbrook.protocol.scram import credential_of, salted_password

_SALT_BYTES = 32
_OWNER_ONLY = 0o600


class UsersFileError(LogbrookError):
    """The file cannot be read or written, or is not one of users."""


@dataclass(slots=True)
class UsersFile:
    """The users of a file, in memory until `save`."""

    path: str
    _users: dict[str, dict[SaslMechanism, ScramCredential]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str) -> "UsersFile":
        """Read the file; without one there are no users. Raises UsersFileError."""
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
        except FileNotFoundError:
            return cls(path)
        except OSError as error:
            raise UsersFileError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise UsersFileError(f"{path} is not JSON: {error}") from None
        try:
            return cls(path, {name: dict(decode_credentials(content)) for name, content in document["users"].items()})
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsersFileError(
                f"{path} is not a file of users as `logbrook user create --users-file` writes it"
            ) from None

    def names(self) -> Collection[str]:
        return self._users.keys()

    def all(self) -> list[UserInfo]:
        """Return the users, by name."""
        return [
            UserInfo(name, {mechanism: credential.iterations for mechanism, credential in credentials.items()})
            for name, credentials in sorted(self._users.items())
        ]

    def set_password(
        self,
        user: str,
        password: str,
        mechanisms: Iterable[SaslMechanism] = SCRAM_MECHANISMS,
        iterations: int = DEFAULT_ITERATIONS,
    ) -> None:
        """Create or replace the user's credentials for these mechanisms."""
        credentials = self._users.setdefault(user, {})
        for mechanism in mechanisms:
            salt = secrets.token_bytes(_SALT_BYTES)
            salted = salted_password(mechanism, password, salt, iterations)
            credentials[mechanism] = credential_of(mechanism, salted, salt, iterations)

    def delete(self, users: Iterable[str], mechanisms: Collection[SaslMechanism] = SCRAM_MECHANISMS) -> None:
        """Delete the credentials of users for these mechanisms; a user without any is removed."""
        for user in users:
            for mechanism in mechanisms:
                self._users[user].pop(mechanism, None)
            if not self._users[user]:
                del self._users[user]

    def save(self) -> None:
        """Raises UsersFileError."""
        users = {name: json.loads(encode_credentials(credentials)) for name, credentials in self._users.items()}
        text = json.dumps({"users": users}, indent=2, sort_keys=True) + "\n"
        temporary = f"{self.path}.new"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _OWNER_ONLY)
            with open(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, _OWNER_ONLY)
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, self.path)
        except OSError as error:
            raise UsersFileError(f"{self.path} cannot be written: {error.strerror}") from None
