"""Follows the metadata store: loads a snapshot, applies every change after it, and tells which keys changed.

The image may be behind the store, by the time a change takes to arrive or for as long as the store is unreachable. A
writer waits for its own change with `wait_for`, so that it reads what it has written.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence

from logbrook.core.cluster.image import ClusterImage
from logbrook.core.metadata import ClusterMetadata
from logbrook.model.event_log import event_logger
from logbrook.ports.metadata_store import (
    ABSENT,
    Condition,
    MetadataStore,
    Revision,
    RevisionCompactedError,
    StoreEntry,
    StoreEvent,
    StoreTransaction,
    StoreUnavailableError,
    is_unmodified,
)
from logbrook.server.cluster.background import pause
from logbrook.server.security.state import SecurityState

_RETRY_S = 0.1
_RETRY_S_MAX = 0.5

_logger = event_logger(__name__)


class MetadataFollower:
    """One per broker, on the event loop. `on_change(keys)` is called after the changes of a revision are applied."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: ClusterMetadata,
        security: SecurityState,
        image: ClusterImage,
        on_change: Callable[[Collection[str]], None],
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._security = security
        self._image = image
        self._on_change = on_change
        self._mod_revisions: dict[str, Revision] = {}
        self._changed = asyncio.Event()
        self.revision = Revision(0)

    def unmodified(self, keys: Collection[str]) -> list[Condition]:
        """Return the conditions that the keys still have the values that were applied here."""
        return [is_unmodified(key, self._mod_revisions.get(key, ABSENT)) for key in keys]

    def revision_of(self, key: str) -> Revision:
        """Return the revision of the last change of a key that was applied here, 0 if it does not exist."""
        return self._mod_revisions.get(key, ABSENT)

    def count_keys(self, prefix: str) -> int:
        """Return the number of keys of the store with this prefix, with those that could not be applied here."""
        return sum(key.startswith(prefix) for key in self._mod_revisions)

    async def load(self) -> None:
        """Load a snapshot, and apply what differs. Raises StoreUnavailableError."""
        snapshot = await self._store.read_all()
        if snapshot.revision < self.revision:
            return
        events = [StoreEvent(key, None) for key in self._mod_revisions if key not in snapshot.entries]
        events += [
            StoreEvent(key, entry)
            for key, entry in snapshot.entries.items()
            if self._mod_revisions.get(key) != entry.mod_revision
        ]
        self._apply(snapshot.revision, events)

    async def run(self) -> None:
        """Follow the store forever. While it is unreachable, try again with growing pauses."""
        pause_s = _RETRY_S
        while True:
            try:
                async for change in self._store.watch(self.revision):
                    self._apply(change.revision, change.events)
                    pause_s = _RETRY_S
            except RevisionCompactedError:
                await self._reload()
            except StoreUnavailableError:
                await pause(pause_s)
                pause_s = min(2 * pause_s, _RETRY_S_MAX)

    async def catch_up(self) -> None:
        """Wait until all changes are applied that were made before the call. Raises StoreUnavailableError."""
        # A transaction without operations returns the newest revision.
        latest = await self._store.commit(StoreTransaction([], []))
        await self.wait_for(latest.revision)

    async def wait_for(self, revision: Revision, timeout_s: float = 10.0) -> None:
        """Wait until the changes up to this revision are applied. Raises StoreUnavailableError."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.revision < revision:
                    await self._changed.wait()
        except TimeoutError:
            raise StoreUnavailableError(f"revision {revision} has not arrived in {timeout_s:g} s") from None

    async def _reload(self) -> None:
        try:
            await self.load()
        except StoreUnavailableError:
            await pause(_RETRY_S)

    def _apply(self, revision: Revision, events: Sequence[StoreEvent]) -> None:
        for key, entry in events:
            self._replay(key, entry)
        self.revision = revision
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if events:
            self._on_change([event.key for event in events])

    def _replay(self, key: str, entry: StoreEntry | None) -> None:
        if entry is None:
            self._mod_revisions.pop(key, None)
        else:
            self._mod_revisions[key] = entry.mod_revision
        if self._image.has_key(key):
            self._image.replay(key, entry)
            return
        try:
            value = None if entry is None else entry.value
            if self._security.has_key(key):
                self._security.replay(key, value)
            else:
                self._metadata.replay(key, value)
        except ValueError as error:
            # Written by a newer version; features that this broker does not have are not used by it.
            _logger.error("metadata entry ignored", key=key, error=error)
