"""Hashes passwords in one thread, for the addresses of the clients in turn.

A hash takes 5 ms by design, so whoever sends many passwords could make all others wait. Each address has a queue of its
own, and the queues take turns: a client waits for at most one hash of every other address that has passwords waiting.
The passwords that wait are bounded in number; beyond it the newest one of the longest queue is refused.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from logbrook.model.security import SaslMechanism, ScramCredential
from logbrook.protocol.scram import credential_of, salted_password
from logbrook.server.security.errors import AuthenticationFailedError

_WAITING_MAX = 1_000

_Waiting: TypeAlias = tuple["asyncio.Future[ScramCredential]", Callable[[], ScramCredential]]


class PasswordHashing:
    """One per broker, on the event loop. `stop` it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, waiting_max: int = _WAITING_MAX) -> None:
        self._loop = loop
        self._waiting_max = waiting_max
        # By address, in the order of their turns. No queue is empty.
        self._queues: dict[str, deque[_Waiting]] = {}
        self._waiting = 0
        self._is_busy = False
        self._thread: ThreadPoolExecutor | None = None

    def stop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    async def derive(
        self, host: str, mechanism: SaslMechanism, password: str, stored: ScramCredential
    ) -> ScramCredential:
        """Return the credential of `password` with the salt and iterations of `stored`, for a client at `host`.

        Raises AuthenticationFailedError if too many passwords wait.
        """

        def hash_password() -> ScramCredential:
            salted = salted_password(mechanism, password, stored.salt, stored.iterations)
            return credential_of(mechanism, salted, stored.salt, stored.iterations)

        derived: asyncio.Future[ScramCredential] = self._loop.create_future()
        self._queues.setdefault(host, deque()).append((derived, hash_password))
        self._waiting += 1
        if self._waiting > self._waiting_max:
            self._refuse_one()
        if not self._is_busy:
            self._start_next()
        return await derived

    def _refuse_one(self) -> None:
        host = max(self._queues, key=lambda host: len(self._queues[host]))
        refused, _ = self._queues[host].pop()
        if not self._queues[host]:
            del self._queues[host]
        self._waiting -= 1
        if not refused.done():
            refused.set_exception(AuthenticationFailedError("too many passwords wait to be verified"))

    def _start_next(self) -> None:
        self._is_busy = bool(self._queues)
        if not self._queues:
            return
        host = next(iter(self._queues))
        queue = self._queues.pop(host)
        waiting, hash_password = queue.popleft()
        self._waiting -= 1
        if queue:
            self._queues[host] = queue
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "logbrook-password")
        hashing = self._loop.run_in_executor(self._thread, hash_password)
        hashing.add_done_callback(lambda done: self._finish(done, waiting))

    def _finish(self, hashing: "asyncio.Future[ScramCredential]", waiting: "asyncio.Future[ScramCredential]") -> None:
        if hashing.cancelled():
            # The broker stops.
            waiting.cancel()
            return
        if not waiting.done():
            error = hashing.exception()
            if error is None:
                waiting.set_result(hashing.result())
            else:
                waiting.set_exception(error)
        self._start_next()
