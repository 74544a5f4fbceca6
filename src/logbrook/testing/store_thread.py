"""The metadata store of a test cluster: in memory, on a thread of its own, and shared by brokers on other threads."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from logbrook.core.cluster.image import ClusterImage, broker_key
from logbrook.core.metadata import ClusterMetadata
from logbrook.model.identifiers import BrokerId
from logbrook.ports.metadata_store import (
    LeaseId,
    Revision,
    StoreChange,
    StoreSnapshot,
    StoreTransaction,
    TransactionResult,
)
from logbrook.server.security.state import SecurityState
from logbrook.testing.memory_metadata_store import MemoryMetadataStore, MemoryStore

T = TypeVar("T")


class StoreThread:
    """A `MemoryStore` on an event loop of its own. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="logbrook-store", daemon=True)
        self._is_ready = threading.Event()
        self.store: MemoryStore

    def start(self) -> None:
        self._thread.start()
        self._is_ready.wait()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def call(self, work: Callable[[], T]) -> T:
        """Run a function on the store's event loop."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the store's event loop, from another one."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def set_down(self, is_down: bool) -> None:
        def set_state() -> None:
            self.store.is_down = is_down

        self.call(set_state)

    def expire_lease(self, broker_id: BrokerId) -> None:
        entry = self.call(lambda: self.store.state.entries[broker_key(broker_id)])
        self.call(lambda: self.store.revoke_lease(entry.lease_id))

    def read_image(self) -> tuple[ClusterImage, dict[str, bytes]]:
        """Return the registrations, and the ids of the topics."""
        return self.call(self._read_image)

    def _read_image(self) -> tuple[ClusterImage, dict[str, bytes]]:
        image, metadata, security = ClusterImage(), ClusterMetadata(), SecurityState()
        image.load(self.store.state.entries)
        for key, entry in self.store.state.entries.items():
            if not image.has_key(key) and not security.has_key(key):
                metadata.replay(key, entry.value)
        return image, {name: topic.id for name, topic in metadata.topics.items()}

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._create())
        self._is_ready.set()
        self._loop.run_forever()
        self.store.close()
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        if pending:
            self._loop.run_until_complete(asyncio.wait(pending))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _create(self) -> None:
        self.store = MemoryStore()


class StoreConnection:
    """The connection of one broker to the store of another thread: a `ports.MetadataStore`."""

    def __init__(self, thread: StoreThread) -> None:
        self._thread = thread
        self._connection: MemoryMetadataStore = thread.call(thread.store.connect)

    @property
    def history_id(self) -> str:
        return self._connection.history_id

    def set_cut_off(self, is_cut_off: bool) -> None:
        def cut() -> None:
            self._connection.is_cut_off = is_cut_off

        self._thread.call(cut)

    async def read_all(self) -> StoreSnapshot:
        return await self._thread.run(self._connection.read_all())

    async def watch(self, after: Revision) -> AsyncIterator[StoreChange]:
        changes = self._connection.watch(after)
        while True:
            yield await self._thread.run(_next(changes))

    async def commit(self, transaction: StoreTransaction) -> TransactionResult:
        return await self._thread.run(self._connection.commit(transaction))

    async def grant_lease(self, ttl_s: float) -> LeaseId:
        return await self._thread.run(self._connection.grant_lease(ttl_s))

    async def renew_lease(self, lease_id: LeaseId) -> None:
        await self._thread.run(self._connection.renew_lease(lease_id))

    async def revoke_lease(self, lease_id: LeaseId) -> None:
        await self._thread.run(self._connection.revoke_lease(lease_id))

    async def close(self) -> None:
        await self._thread.run(self._connection.close())


async def _next(changes: AsyncIterator[StoreChange]) -> StoreChange:
    return await anext(changes)
