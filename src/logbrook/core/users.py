"""SCRAM credentials of users as a state machine: only `replay` changes the state.

A user has at most one credential per mechanism. A credential is salted: the password is not in it. The entries of the
metadata store have the keys `scram/USER`, with the user's name percent-encoded.
"""

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from logbrook.model import LogbrookError
from logbrook.model.security import SaslMechanism, ScramCredential

USER_PREFIX = "scram/"
# Kafka's limits of iterations: fewer are too weak, more would stop a client for too long.
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
# The numbers of the mechanisms in Kafka's requests (KIP-554).
SCRAM_NUMBERS = {SaslMechanism.SCRAM_SHA_256: 1, SaslMechanism.SCRAM_SHA_512: 2}

Credentials: TypeAlias = Mapping[SaslMechanism, ScramCredential]
UserRecord: TypeAlias = tuple[str, bytes | None]


class CredentialShape(NamedTuple):
    """The part of a credential that a server sends to a client before the client has proved anything."""

    mechanism: SaslMechanism
    salt_bytes: int
    iterations: int


def shapes_of(credentials: Credentials) -> Iterable[CredentialShape]:
    for mechanism, credential in credentials.items():
        yield CredentialShape(mechanism, len(credential.salt), credential.iterations)


class UnknownCredentialError(LogbrookError):
    """The user has no credential of this mechanism."""

    def __init__(self, user: str, mechanism: SaslMechanism) -> None:
        super().__init__(f"user {user!r} has no {mechanism} credential")


class Users:
    """The users of a cluster."""

    def __init__(self) -> None:
        self._credentials: dict[str, Credentials] = {}
        # How many credentials have each shape.
        self.shapes: Counter[CredentialShape] = Counter()

    def __len__(self) -> int:
        return len(self._credentials)

    @property
    def names(self) -> Iterable[str]:
        return self._credentials.keys()

    def credentials(self, user: str) -> Credentials:
        """Return the credentials of a user; none if there is no such user."""
        return self._credentials.get(user, {})

    def change(self, user: str, upserts: Credentials, deletions: Iterable[SaslMechanism] = ()) -> list[UserRecord]:
        """Add, replace and delete credentials. Raises UnknownCredentialError for a deletion of none."""
        credentials = dict(self.credentials(user))
        for mechanism in deletions:
            if credentials.pop(mechanism, None) is None:
                raise UnknownCredentialError(user, mechanism)
        credentials.update(upserts)
        value = encode_credentials(credentials) if credentials else None
        return [(f"{USER_PREFIX}{quote(user, safe='')}", value)]

    def replay(self, key: str, value: bytes | None) -> None:
        """Apply a record. Raises ValueError for a record that `Users` has not written."""
        user = unquote(key.removeprefix(USER_PREFIX))
        credentials = {} if value is None else decode_credentials(json.loads(value))
        for shape in shapes_of(self._credentials.pop(user, {})):
            self.shapes[shape] -= 1
            if not self.shapes[shape]:
                del self.shapes[shape]
        if credentials:
            self._credentials[user] = credentials
            self.shapes.update(shapes_of(credentials))

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls."""
        for user, credentials in self._credentials.items():
            assert user, "a user has a name"
            assert credentials, "a user without credentials does not exist"
        shapes = Counter(shape for credentials in self._credentials.values() for shape in shapes_of(credentials))
        assert self.shapes == shapes, "every credential is counted once"


def encode_credentials(credentials: Credentials) -> bytes:
    content = {
        mechanism.value: {
            "salt": b64encode(credential.salt).decode(),
            "stored_key": b64encode(credential.stored_key).decode(),
            "server_key": b64encode(credential.server_key).decode(),
            "iterations": credential.iterations,
        }
        for mechanism, credential in credentials.items()
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def decode_credentials(content: Any) -> Credentials:
    """Raises ValueError."""
    try:
        return {
            SaslMechanism(mechanism): ScramCredential(
                salt=b64decode(fields["salt"], validate=True),
                stored_key=b64decode(fields["stored_key"], validate=True),
                server_key=b64decode(fields["server_key"], validate=True),
                iterations=int(fields["iterations"]),
            )
            for mechanism, fields in content.items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a set of SCRAM credentials: {error!r}") from None
