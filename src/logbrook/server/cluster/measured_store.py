"""A metadata store whose requests are timed and counted."""

from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from logbrook.ports import Clock
from logbrook.ports.metadata_store import (
    LeaseId,
    MetadataStore,
    Revision,
    StoreChange,
    StoreSnapshot,
    StoreTransaction,
    StoreUnavailableError,
    TransactionResult,
)
from logbrook.server.cluster.probe import ClusterProbe

T = TypeVar("T")


class MeasuredStore:
    """A `MetadataStore`: the one that is given, with the time of each answered request in `probe`."""

    def __init__(self, store: MetadataStore, clock: Clock, probe: ClusterProbe) -> None:
        self._store = store
        self._clock = clock
        self._probe = probe

    @property
    def history_id(self) -> str:
        return self._store.history_id

    async def read_all(self) -> StoreSnapshot:
        return await self._measured("read", self._store.read_all())

    def watch(self, after: Revision) -> AsyncIterator[StoreChange]:
        return self._store.watch(after)

    async def commit(self, transaction: StoreTransaction) -> TransactionResult:
        return await self._measured("commit", self._store.commit(transaction))

    async def grant_lease(self, ttl_s: float) -> LeaseId:
        return await self._measured("grant", self._store.grant_lease(ttl_s))

    async def renew_lease(self, lease_id: LeaseId) -> None:
        await self._measured("renew", self._store.renew_lease(lease_id))

    async def revoke_lease(self, lease_id: LeaseId) -> None:
        await self._measured("revoke", self._store.revoke_lease(lease_id))

    async def close(self) -> None:
        await self._store.close()

    async def _measured(self, operation: str, request: Awaitable[T]) -> T:
        """An answer with another error than StoreUnavailableError counts as answered."""
        sent_s = self._clock.monotonic_s()
        try:
            answer = await request
        except StoreUnavailableError:
            self._probe.store_errors[operation] += 1
            raise
        self._probe.store_latencies[operation].add(self._clock.monotonic_s() - sent_s)
        return answer
