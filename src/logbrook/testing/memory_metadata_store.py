"""A metadata store in memory, shared by the brokers of one process: for test clusters and simulations.

    store = MemoryStore()
    connection = store.connect()              # one per broker, a `ports.MetadataStore`
    connection.is_cut_off = True              # this broker no longer reaches the store
    store.is_down = True                      # no broker does
    store.compact()                           # watches from older revisions fail

Leases expire by the event loop's clock, which may be a virtual one. `latency_s` delays every request and every event.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from logbrook.core.store_state import StoreState
from logbrook.ports.metadata_store import (
    NO_LEASE,
    LeaseId,
    Put,
    Revision,
    StoreChange,
    StoreSnapshot,
    StoreTransaction,
    StoreUnavailableError,
    TransactionResult,
)
from logbrook.server.store_leases import LeaseTimers, StoreWatches


class MemoryStore:
    """The store itself. Used on one event loop; all its methods take effect at once."""

    def __init__(self, latency_s: Callable[[], float] = lambda: 0.0) -> None:
        self.latency_s = latency_s
        self.state = StoreState(Revision(1))
        self.watches = StoreWatches(self.state)
        self.leases = LeaseTimers(self._on_lease_expired)
        self._is_down = False
        # Set another one to simulate a restored backup.
        self.history_id = "first"

    @property
    def is_down(self) -> bool:
        return self._is_down

    @is_down.setter
    def is_down(self, is_down: bool) -> None:
        self._is_down = is_down
        self.watches.notify()

    def connect(self) -> "MemoryMetadataStore":
        return MemoryMetadataStore(self)

    def apply(self, transaction: StoreTransaction) -> TransactionResult:
        """Raises LeaseNotFoundError."""
        for operation in transaction.operations:
            if isinstance(operation, Put) and operation.lease_id != NO_LEASE:
                self.leases.check(operation.lease_id)
        operations = self.state.decide(transaction)
        if operations:
            self.state.apply(Revision(self.state.revision + 1), operations)
            self.watches.notify()
        return TransactionResult(operations is not None, self.state.revision)

    def revoke_lease(self, lease_id: LeaseId) -> None:
        """Raises LeaseNotFoundError."""
        self.leases.remove(lease_id)
        self._on_lease_expired(lease_id)

    def compact(self, revision: Revision | None = None) -> None:
        """Drop the history up to this revision, by default all of it."""
        self.state.compact(self.state.revision if revision is None else revision)

    def close(self) -> None:
        """Stop the timers of all leases."""
        self.leases.close()

    def _on_lease_expired(self, lease_id: LeaseId) -> None:
        self.apply(self.state.deletion_of(lease_id))


class MemoryMetadataStore:
    """The connection of one broker to a `MemoryStore`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._is_cut_off = False
        self._is_closed = False
        # The next transaction is committed, and its answer is lost.
        self.loses_next_answer = False

    @property
    def history_id(self) -> str:
        return self._store.history_id

    @property
    def is_cut_off(self) -> bool:
        return self._is_cut_off

    @is_cut_off.setter
    def is_cut_off(self, is_cut_off: bool) -> None:
        self._is_cut_off = is_cut_off
        self._store.watches.notify()

    async def read_all(self) -> StoreSnapshot:
        await self._travel()
        snapshot = self._store.state.snapshot()
        await self._travel()
        return snapshot

    async def watch(self, after: Revision) -> AsyncIterator[StoreChange]:
        async for change in self._store.watches.changes(after, self._check_reachable):
            await self._travel()
            yield change

    async def commit(self, transaction: StoreTransaction) -> TransactionResult:
        await self._travel()
        result = self._store.apply(transaction)
        if self.loses_next_answer:
            self.loses_next_answer = False
            raise StoreUnavailableError("the answer was lost")
        await self._travel()
        return result

    async def grant_lease(self, ttl_s: float) -> LeaseId:
        await self._travel()
        return self._store.leases.grant(ttl_s)

    async def renew_lease(self, lease_id: LeaseId) -> None:
        await self._travel()
        self._store.leases.renew(lease_id)
        await self._travel()

    async def revoke_lease(self, lease_id: LeaseId) -> None:
        await self._travel()
        self._store.revoke_lease(lease_id)

    async def close(self) -> None:
        self._is_closed = True
        self._store.watches.notify()

    async def _travel(self) -> None:
        """Let a message take its time. Raises StoreUnavailableError if it does not arrive."""
        latency_s = self._store.latency_s()
        if latency_s > 0:
            arrived = asyncio.Event()
            asyncio.get_running_loop().call_later(latency_s, arrived.set)
            await arrived.wait()
        self._check_reachable()

    def _check_reachable(self) -> None:
        if self._is_closed:
            raise StoreUnavailableError("the connection is closed")
        if self._is_cut_off or self._store.is_down:
            raise StoreUnavailableError("it cannot be reached")
