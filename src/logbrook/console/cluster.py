"""Asking the cluster without making the event loop wait for it.

A client belongs to one thread, so each thread of a small pool has one of its own. One that has lost its broker is
thrown away, and the next question begins with a new connection: that is how a broker that comes back is found again.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from logbrook.client import BrokerError, Client
from logbrook.client.admin import Admin
from logbrook.model import LogbrookError

T = TypeVar("T")

# A person waits this long for a broker that is not there, and for one that does not answer.
_CONNECT_S = 3.0
_ANSWER_S = 10.0
_THREADS = 4


class ClusterAccess:
    """`await access.ask(lambda admin: admin.topics.all())`."""

    def __init__(self, bootstrap_servers: str) -> None:
        """`bootstrap_servers` have to be one or more HOST:PORT, separated by commas."""
        self.bootstrap_servers = bootstrap_servers
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="cluster")
        self._of_thread = threading.local()
        self._clients: set[Client] = set()
        self._lock = threading.Lock()

    async def ask(self, question: Callable[[Admin], T]) -> T:
        """Raises what the question raises: LogbrookError."""
        return await self.run(lambda: self._answer(question))

    async def run(self, work: Callable[[], T]) -> T:
        """Anything else that would make the loop wait."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for the questions that are under way, and hang up."""
        self._pool.shutdown(cancel_futures=True)
        for client in self._clients:
            client.close()
        self._clients.clear()

    def _answer(self, question: Callable[[Admin], T]) -> T:
        admin: Admin | None = getattr(self._of_thread, "admin", None)
        if admin is None:
            client = Client(
                self.bootstrap_servers,
                client_id="logbrook-console",
                timeout_s=_ANSWER_S,
                connect_timeout_s=_CONNECT_S,
            )
            admin = self._of_thread.admin = Admin(client)
            with self._lock:
                self._clients.add(client)
        try:
            return question(admin)
        except BrokerError:
            raise
        except LogbrookError:
            self._of_thread.admin = None
            with self._lock:
                self._clients.discard(admin.client)
            admin.client.close()
            raise
