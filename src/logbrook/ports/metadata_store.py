"""The metadata store of a cluster: a strongly consistent key-value store with revisions, as etcd is one.

Every transaction that changes a key increases the store's revision by one. An entry keeps the revision that created it
and the revision that last modified it; both are never used again, so they serve as fencing tokens: the create revision
of a broker's registration is its broker epoch, the mod revision of a partition is its partition epoch.

Keys are text, values are bytes. All changes are transactions: every condition holds and all operations take effect at
one revision, or nothing changes. A reader loads everything at one revision (`read_all`) and follows the changes from
there on (`watch`). A lease removes the keys that were written with it when it is not renewed for its time to live.

Adapters: the log of a single node (`server.local_metadata_store`), etcd, and one in memory for tests and simulations
(`testing.memory_metadata_store`). `tests/unit/ports/test_metadata_store.py` is the contract that all of them pass.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple, NewType, Protocol, TypeAlias

from logbrook.model import LogbrookError

Revision = NewType("Revision", int)
LeaseId = NewType("LeaseId", int)

NO_LEASE = LeaseId(0)
# Create and mod revision of a key that does not exist.
ABSENT = Revision(0)


class StoreEntry(NamedTuple):
    """The value of a key. `version` counts its changes since it was created, from 1 on."""

    value: bytes
    create_revision: Revision
    mod_revision: Revision
    version: int = 1
    lease_id: LeaseId = NO_LEASE


class StoreSnapshot(NamedTuple):
    """All entries, as of `revision`."""

    revision: Revision
    entries: Mapping[str, StoreEntry]


class EntryField(Enum):
    CREATE_REVISION = auto()
    MOD_REVISION = auto()
    VERSION = auto()


class Condition(NamedTuple):
    """Compares a field of an entry with a number; a key that does not exist has 0 in every field."""

    key: str
    field: EntryField
    number: int
    is_equal: bool = True

    def holds(self, entry: StoreEntry | None) -> bool:
        match self.field:
            case EntryField.CREATE_REVISION:
                actual = entry.create_revision if entry is not None else 0
            case EntryField.MOD_REVISION:
                actual = entry.mod_revision if entry is not None else 0
            case EntryField.VERSION:
                actual = entry.version if entry is not None else 0
        return (actual == self.number) is self.is_equal


def is_absent(key: str) -> Condition:
    return Condition(key, EntryField.VERSION, 0)


def is_unmodified(key: str, mod_revision: int) -> Condition:
    """The key still has the value that was written at `mod_revision`; ABSENT: it still does not exist."""
    return Condition(key, EntryField.MOD_REVISION, mod_revision)


def was_created_at(key: str, create_revision: int) -> Condition:
    """The key exists since `create_revision`, with whatever value."""
    return Condition(key, EntryField.CREATE_REVISION, create_revision)


def was_not_created_at(key: str, create_revision: int) -> Condition:
    """The key does not exist, or was deleted and created again since `create_revision`."""
    return Condition(key, EntryField.CREATE_REVISION, create_revision, is_equal=False)


class Put(NamedTuple):
    key: str
    value: bytes
    lease_id: LeaseId = NO_LEASE


class Delete(NamedTuple):
    """Deleting a key that does not exist has no effect."""

    key: str


Operation: TypeAlias = Put | Delete


class StoreTransaction(NamedTuple):
    """`operations` change each key at most once."""

    conditions: Sequence[Condition]
    operations: Sequence[Operation]


class TransactionResult(NamedTuple):
    """`is_committed`: all conditions held. `revision` is that of the store after the transaction."""

    is_committed: bool
    revision: Revision


class StoreEvent(NamedTuple):
    """A changed key; `entry` is None if it was deleted."""

    key: str
    entry: StoreEntry | None


class StoreChange(NamedTuple):
    """All events of one revision, in no particular order."""

    revision: Revision
    events: Sequence[StoreEvent]


class MetadataStoreError(LogbrookError):
    """A request to the metadata store failed."""


class StoreUnavailableError(MetadataStoreError):
    """The store did not answer in time. A transaction may or may not have been committed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the metadata store is unavailable: {reason}")


class RevisionCompactedError(MetadataStoreError):
    """The store no longer has the changes after this revision. Load everything again with `read_all`."""

    def __init__(self, revision: Revision) -> None:
        super().__init__(f"the metadata store no longer has the changes after revision {revision}")


class LeaseNotFoundError(MetadataStoreError):
    """The lease has expired or was revoked; the keys that were written with it are deleted."""

    def __init__(self, lease_id: LeaseId) -> None:
        super().__init__(f"lease {lease_id} of the metadata store does not exist; it may have expired")


class MetadataStore(Protocol):
    """A connection of one broker to the store. Used on one event loop.

    Every method raises StoreUnavailableError after a time of its own; none waits forever.
    """

    @property
    def history_id(self) -> str:
        """Identifies the history of the store, once a request was answered. A restored backup has another one."""

    async def read_all(self) -> StoreSnapshot:
        """Return all entries as of one revision that is not older than any transaction answered before."""

    def watch(self, after: Revision) -> AsyncIterator[StoreChange]:
        """Yield the changes after this revision, each once, in order, without gaps. Ends with an error only.

        Raises RevisionCompactedError, or StoreUnavailableError if the connection is lost; the caller watches again from
        the last revision it has seen.
        """

    async def commit(self, transaction: StoreTransaction) -> TransactionResult:
        """Apply the operations if all conditions hold. Raises LeaseNotFoundError if an operation names such a lease.

        Also without operations, the revision is not older than any transaction answered before.
        """

    async def grant_lease(self, ttl_s: float) -> LeaseId:
        """Create a lease that expires after `ttl_s`, or somewhat later, unless it is renewed."""

    async def renew_lease(self, lease_id: LeaseId) -> None:
        """Restart the time to live. Raises LeaseNotFoundError."""

    async def revoke_lease(self, lease_id: LeaseId) -> None:
        """Delete the lease and the keys that were written with it. Raises LeaseNotFoundError."""

    async def close(self) -> None:
        """End all watches. Leases are kept until they expire."""
