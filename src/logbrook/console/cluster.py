"""Access to the cluster from asyncio, and error messages for users.

A client belongs to one thread, so each thread of a small pool has its own. A client that lost its broker is discarded,
and the next call on that thread connects again: this is how a restarted broker is found.
"""

import asyncio
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeAlias, TypeVar

from logbrook.client import BrokerError, Client, ConnectFailedError, TimedOutError
from logbrook.client.admin import Admin
from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import ProtocolError, UnsupportedApiError, UnsupportedVersionError

T = TypeVar("T")
AdminCall: TypeAlias = Callable[[Admin], T]

# Short enough for a person in front of a page.
_CONNECT_TIMEOUT_S = 3.0
_RESPONSE_TIMEOUT_S = 10.0
_THREADS = 4

_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition (any more)",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group (any more)",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic with this name already exists",
    ErrorCode.NON_EMPTY_GROUP: "it has active members; stop them first",
    ErrorCode.MESSAGE_TOO_LARGE: "the message is larger than the topic's max.message.bytes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside the log",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its coordinator is not available; try again",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader; try again",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the cluster does not authorize it",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the cluster does not authorize it",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the cluster does not authorize it",
}


class AccessClosedError(LogbrookError):
    """The user has signed out meanwhile, or the console stops."""

    def __init__(self) -> None:
        super().__init__("the connection to the cluster has been closed; sign in again")


class ClusterAsker(Protocol):
    """Runs calls to the cluster off the event loop."""

    @property
    def bootstrap_servers(self) -> str: ...

    async def ask(self, request: AdminCall[T]) -> T:
        """Raises LogbrookError."""


class ClusterAccess:
    """Runs client calls on a thread pool: `await access.ask(lambda admin: admin.topics.all())`."""

    def __init__(self, bootstrap_servers: str, security: ClientSecurity = PLAINTEXT_SECURITY) -> None:
        """`bootstrap_servers` is one or more HOST:PORT, separated by commas; it must be valid."""
        self._bootstrap_servers = bootstrap_servers
        self._security = security
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="cluster")
        self._of_thread = threading.local()
        self._clients: set[Client] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def bootstrap_servers(self) -> str:
        return self._bootstrap_servers

    async def ask(self, request: AdminCall[T]) -> T:
        """Run `request` on a thread of the pool and return its result. Raises LogbrookError."""
        if self._is_closed:
            raise AccessClosedError
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: self._run(request))

    def close(self) -> None:
        """Wait for calls in progress and close all connections."""
        self._is_closed = True
        self._pool.shutdown(cancel_futures=True)
        for client in self._clients:
            client.close()
        self._clients.clear()

    def _run(self, request: Callable[[Admin], T]) -> T:
        admin: Admin | None = getattr(self._of_thread, "admin", None)
        if admin is None:
            client = Client(
                self._bootstrap_servers,
                client_id="logbrook-console",
                timeout_s=_RESPONSE_TIMEOUT_S,
                connect_timeout_s=_CONNECT_TIMEOUT_S,
                security=self._security,
            )
            admin = self._of_thread.admin = Admin(client)
            with self._lock:
                self._clients.add(client)
        try:
            return request(admin)
        except BrokerError:
            # The broker responded, so the connection is good.
            raise
        except LogbrookError:
            self._of_thread.admin = None
            with self._lock:
                self._clients.discard(admin.client)
            admin.client.close()
            raise


def describe_error(error: LogbrookError) -> str:
    """Say what happened and, where possible, what to do about it."""
    message = str(error)
    match error:
        case BrokerError() if error.code in _ADVICE:
            message = f"{error.operation}: {_ADVICE[error.code]}"
        case BrokerError():
            # The broker's own message says more than the code.
            message = f"{error.operation}: {error.message or error.code.name}"
        case ConnectFailedError():
            message = _ERRNO.sub("", message) + "; is the broker running?"
        case TimedOutError():
            message += " to answer"
        case UnsupportedApiError() | UnsupportedVersionError():
            message = f"the cluster does not support this: {error}"
        case ProtocolError():
            message = f"the server does not speak Kafka's protocol correctly: {error}"
    return message
