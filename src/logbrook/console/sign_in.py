"""Signing in with a user's own credentials: they are verified by the cluster, which the console connects to with them.

The console has no users and no rights of its own: what a user sees and may do is decided by the cluster's ACLs. The
credentials are kept in memory, for new connections, until the last session with them ends.

Scripts send their credentials with every request. Verified ones are accepted without asking the cluster again for
`_VERIFIED_S`. Failures are answered late, as those of the broker, because for the broker they come from one address.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.client.admin_results import ClusterInfo
from logbrook.client.errors import SaslRefusedError
from logbrook.client.sasl_options import OauthOptions, SaslOptions
from logbrook.client.security import ClientSecurity
from logbrook.console.workspace import ConsoleSession, Workspace, WorkspaceOptions
from logbrook.core.failed_attempts import FailedAttempts
from logbrook.model import LogbrookError
from logbrook.model.security import SaslMechanism

SESSION_S = 8 * 3600.0
_VERIFIED_S = 300.0
_FAILED_DELAY_S = 0.2
_VERIFYING_MAX = 4
_WAITING_MAX = 100
_SESSIONS_MAX = 1_000
_TEXT_LENGTH_MAX = 16 * 1024


class SignInRefusedError(LogbrookError):
    """The cluster does not accept the credentials."""


class SignInBusyError(LogbrookError):
    """Too many credentials wait to be verified."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and password, or a token; `user` is then the name to show."""

    user: str
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    @property
    def key(self) -> bytes:
        """Identifies the credentials without revealing them."""
        return hashlib.sha256("\0".join((self.user, self.password, self.token)).encode("utf-8", "replace")).digest()


class SignIn:
    """Verifies credentials and keeps sessions. One per console, on the event loop."""

    def __init__(
        self,
        options: WorkspaceOptions,
        security: ClientSecurity,
        *,
        session_s: float = SESSION_S,
        now_s: Callable[[], float] = monotonic,
        failed_delay_s: float = _FAILED_DELAY_S,
    ) -> None:
        """`security` is that of the connections, with a SASL mechanism for passwords; its credentials are not used."""
        assert security.sasl is not None
        self._options = options
        self._security = security
        self._session_s = session_s
        self._now_s = now_s
        self._failed = FailedAttempts(failed_delay_s)
        self._verifying = asyncio.Semaphore(_VERIFYING_MAX)
        self._waiting = 0
        # By the digests of session ids, the oldest first: ids themselves are kept by browsers only.
        self._sessions: dict[bytes, ConsoleSession] = {}
        # By the digests of credentials.
        self._workspaces: dict[bytes, Workspace] = {}
        # When the credentials of a workspace were last verified.
        self._verified_s: dict[bytes, float] = {}

    async def sign_in(self, credentials: Credentials, address: str, lifetime_s: float | None = None) -> str:
        """Begin a session and return its id, which is a secret. Raises LogbrookError."""
        workspace = await self._verified(credentials, address)
        await self.sweep()
        if len(self._sessions) >= _SESSIONS_MAX:
            await self._end(next(iter(self._sessions)))
        session_id = secrets.token_urlsafe(32)
        expires_s = self._now_s() + min(self._session_s, lifetime_s or self._session_s)
        self._sessions[_digest(session_id)] = ConsoleSession(workspace, credentials.user, expires_s)
        workspace.sessions += 1
        return session_id

    def session(self, session_id: str) -> ConsoleSession | None:
        """Return the session, None if there is none or it has expired."""
        session = self._sessions.get(_digest(session_id))
        return session if session is not None and self._now_s() < session.expires_s else None

    async def sign_out(self, session_id: str) -> None:
        digest = _digest(session_id)
        if digest in self._sessions:
            await self._end(digest)

    async def request_session(self, credentials: Credentials, address: str) -> ConsoleSession:
        """Return the session of a request that has credentials. Raises LogbrookError."""
        workspace = self._workspaces.get(credentials.key)
        is_verified = self._now_s() - self._verified_s.get(credentials.key, -_VERIFIED_S) < _VERIFIED_S
        if workspace is None or not is_verified:
            workspace = await self._verified(credentials, address)
        return ConsoleSession(workspace, credentials.user)

    async def sweep(self) -> None:
        """End sessions that have expired, and close workspaces that are not used."""
        now_s = self._now_s()
        for digest in [digest for digest, session in self._sessions.items() if now_s >= session.expires_s]:
            await self._end(digest)
        for key, workspace in [*self._workspaces.items()]:
            if not workspace.sessions and now_s - self._verified_s[key] >= _VERIFIED_S:
                await self._close(key)

    async def close(self) -> None:
        for session in self._sessions.values():
            session.is_ended = True
        self._sessions.clear()
        for key in [*self._workspaces]:
            await self._close(key)

    async def _verified(self, credentials: Credentials, address: str) -> Workspace:
        """Return the workspace of credentials that the cluster accepts now. Raises LogbrookError."""
        if not (credentials.user or credentials.token) or max(map(len, _texts(credentials))) > _TEXT_LENGTH_MAX:
            raise SignInRefusedError("the user name is missing, or too long")
        if self._waiting >= _WAITING_MAX:
            raise SignInBusyError("too many people are signing in; try again")
        security = self._security_of(credentials)
        self._waiting += 1
        try:
            async with self._verifying:
                await asyncio.to_thread(_connect, self._options.bootstrap_servers, security)
        except SaslRefusedError:
            await pause(self._failed.add(address, self._now_s()))
            raise SignInRefusedError("the user name or the password is wrong") from None
        finally:
            self._waiting -= 1
        self._verified_s[credentials.key] = self._now_s()
        if credentials.key not in self._workspaces:
            self._workspaces[credentials.key] = Workspace(self._options, security)
        return self._workspaces[credentials.key]

    def _security_of(self, credentials: Credentials) -> ClientSecurity:
        assert self._security.sasl is not None
        if credentials.token:
            sasl = SaslOptions(SaslMechanism.OAUTHBEARER, oauth=OauthOptions(token=credentials.token))
        else:
            sasl = SaslOptions(self._security.sasl.mechanism, credentials.user, credentials.password)
        return replace(self._security, sasl=sasl)

    async def _end(self, digest: bytes) -> None:
        session = self._sessions.pop(digest)
        session.is_ended = True
        session.workspace.sessions -= 1
        if not session.workspace.sessions:
            for key in [key for key, workspace in self._workspaces.items() if workspace is session.workspace]:
                await self._close(key)

    async def _close(self, key: bytes) -> None:
        workspace = self._workspaces.pop(key)
        del self._verified_s[key]
        await workspace.close()


async def pause(seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


def _connect(bootstrap_servers: str, security: ClientSecurity) -> ClusterInfo:
    """Connect with the credentials, and ask for what every user may know. Blocks; raises LogbrookError."""
    with Client(
        bootstrap_servers, client_id="logbrook-console", timeout_s=10.0, connect_timeout_s=5.0, security=security
    ) as client:
        return Admin(client).describe_cluster()


def _texts(credentials: Credentials) -> tuple[str, str, str]:
    return credentials.user, credentials.password, credentials.token


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "replace")).digest()
