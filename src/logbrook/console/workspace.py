"""Workspaces of the console's users: access to the cluster with a user's own credentials, and samples of it.

Sessions with the same credentials share a workspace; without a login there is one for everybody. The session of the
request that is being served is in a context variable. Tasks that it starts inherit it, such as the timers of a page.
"""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.console.cluster import AdminCall, ClusterAccess
from logbrook.console.sampling import INTERVAL_S, ConsoleSampler, PipelineReports
from logbrook.model import LogbrookError
from logbrook.monitoring.sampling import MetricsSource
from logbrook.pipelines.report import REPORTS_TOPIC

T = TypeVar("T")


class SessionEndedError(LogbrookError):
    """The session of a page has expired, or its user has signed out."""

    def __init__(self) -> None:
        super().__init__("your session has ended; sign in again")


@dataclass(frozen=True, slots=True)
class WorkspaceOptions:
    """Options that all workspaces have in common. `metrics` is the URL of a broker's metrics, None without."""

    bootstrap_servers: str
    metrics: str | None = None
    # No credentials are sent to a guessed address.
    is_metrics_guessed: bool = False
    interval_s: float = INTERVAL_S
    reports: str = REPORTS_TOPIC


class Workspace:
    """On the event loop. The cluster is sampled from the first use of `sampler` on. `close` it once."""

    def __init__(self, options: WorkspaceOptions, security: ClientSecurity = PLAINTEXT_SECURITY) -> None:
        self.access = ClusterAccess(options.bootstrap_servers, security)
        self.pipelines = PipelineReports(self.access, options.reports)
        source = None
        if options.metrics is not None:
            is_known = not options.is_metrics_guessed
            source = MetricsSource(options.metrics, security=security if is_known else PLAINTEXT_SECURITY)
        self._sampler = ConsoleSampler(self.access, source, options.interval_s, self.pipelines)
        self._is_sampling = False
        # Of the sessions that are not ended.
        self.sessions = 0

    @property
    def sampler(self) -> ConsoleSampler:
        self.start_sampling()
        return self._sampler

    def start_sampling(self) -> None:
        if not self._is_sampling:
            self._is_sampling = True
            self._sampler.start()

    async def close(self) -> None:
        """Stop sampling, wait for calls in progress, and close the connections."""
        self._is_sampling = True
        await self._sampler.stop()
        await asyncio.to_thread(self.access.close)


@dataclass(slots=True)
class ConsoleSession:
    """The session of one browser, or the request of a script. `user` is empty without a login."""

    workspace: Workspace
    user: str = ""
    expires_s: float = inf
    is_ended: bool = False
    # Sent with requests to the HTTP API that a page makes with its cookie.
    csrf_token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)


_current: ContextVar[ConsoleSession] = ContextVar("console_session")


def current_session() -> ConsoleSession:
    return _current.get()


@contextmanager
def serving(session: ConsoleSession) -> Iterator[None]:
    """Make `session` the current one inside the block, and in the tasks that are started there."""
    token = _current.set(session)
    try:
        yield
    finally:
        _current.reset(token)


class CurrentAccess:
    """Access to the cluster with the credentials of the current session."""

    @property
    def bootstrap_servers(self) -> str:
        return current_session().workspace.access.bootstrap_servers

    async def ask(self, request: AdminCall[T]) -> T:
        """Raises LogbrookError."""
        session = current_session()
        if session.is_ended:
            raise SessionEndedError
        return await session.workspace.access.ask(request)
