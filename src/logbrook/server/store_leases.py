"""Leases and watches of a metadata store inside the process, on the event loop's clock."""

import asyncio
from collections.abc import AsyncIterator, Callable

from logbrook.core.store_state import StoreState
from logbrook.ports.metadata_store import LeaseId, LeaseNotFoundError, Revision, StoreChange


class LeaseTimers:
    """The leases of a store. `on_expired(lease_id)` is called once for a lease that was not renewed."""

    def __init__(self, on_expired: Callable[[LeaseId], object]) -> None:
        self._on_expired = on_expired
        self._leases: dict[LeaseId, tuple[float, asyncio.TimerHandle]] = {}
        self._next_id = 1

    def grant(self, ttl_s: float) -> LeaseId:
        lease_id = LeaseId(self._next_id)
        self._next_id += 1
        self._leases[lease_id] = (ttl_s, self._expire_after(lease_id, ttl_s))
        return lease_id

    def check(self, lease_id: LeaseId) -> None:
        """Raises LeaseNotFoundError."""
        if lease_id not in self._leases:
            raise LeaseNotFoundError(lease_id)

    def renew(self, lease_id: LeaseId) -> None:
        """Raises LeaseNotFoundError."""
        self.check(lease_id)
        ttl_s, timer = self._leases[lease_id]
        timer.cancel()
        self._leases[lease_id] = (ttl_s, self._expire_after(lease_id, ttl_s))

    def remove(self, lease_id: LeaseId) -> None:
        """Raises LeaseNotFoundError."""
        self.check(lease_id)
        _, timer = self._leases.pop(lease_id)
        timer.cancel()

    def close(self) -> None:
        for _, timer in self._leases.values():
            timer.cancel()
        self._leases.clear()

    def _expire_after(self, lease_id: LeaseId, ttl_s: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(ttl_s, self._expire, lease_id)

    def _expire(self, lease_id: LeaseId) -> None:
        del self._leases[lease_id]
        self._on_expired(lease_id)


class StoreWatches:
    """The watches of a store. Call `notify` after each change of its state."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        # Replaced at each change, so that a watch misses none.
        self._changed = asyncio.Event()

    def notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changes(self, after: Revision, check: Callable[[], None]) -> AsyncIterator[StoreChange]:
        """Yield the changes after this revision. `check` may raise before each, after a `notify` at the latest.

        Raises RevisionCompactedError.
        """
        while True:
            changed = self._changed
            check()
            for change in self._state.changes_after(after):
                yield change
                after = change.revision
                check()
            await changed.wait()
