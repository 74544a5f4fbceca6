"""The state of a metadata store that runs inside a broker's process: entries, revisions and the history for watches.

A change has two steps: `decide` evaluates the conditions of a transaction, and `apply` carries out its operations at a
revision that the caller chooses, once they are durable. Decisions must not overlap: apply one before the next.
"""

from bisect import bisect_right
from collections.abc import Sequence

from logbrook.ports.metadata_store import (
    Delete,
    LeaseId,
    Operation,
    Put,
    Revision,
    RevisionCompactedError,
    StoreChange,
    StoreEntry,
    StoreEvent,
    StoreSnapshot,
    StoreTransaction,
)


class StoreState:
    """`history_max` bounds the number of changes that are kept for watches."""

    def __init__(self, revision: Revision, history_max: int | None = None) -> None:
        self.revision = revision
        self.entries: dict[str, StoreEntry] = {}
        self._history_max = history_max
        self._history: list[StoreChange] = []
        # The history has all changes after this revision.
        self._compacted = revision

    def decide(self, transaction: StoreTransaction) -> Sequence[Operation] | None:
        """Return the operations that change something, or None if a condition does not hold."""
        keys = [operation.key for operation in transaction.operations]
        assert len(set(keys)) == len(keys), "a transaction changes each key at most once"
        if not all(condition.holds(self.entries.get(condition.key)) for condition in transaction.conditions):
            return None
        return [
            operation
            for operation in transaction.operations
            if isinstance(operation, Put) or operation.key in self.entries
        ]

    def apply(self, revision: Revision, operations: Sequence[Operation]) -> None:
        """Carry out operations from `decide`, at a new revision."""
        assert revision > self.revision, f"revision {revision} is not after {self.revision}"
        change = StoreChange(revision, [self._apply(operation, revision) for operation in operations])
        self.revision = revision
        self._history.append(change)
        if self._history_max is not None and len(self._history) > self._history_max:
            self.compact(self._history[-self._history_max - 1].revision)

    def replay(self, key: str, entry: StoreEntry | None) -> None:
        """Set an entry while the state is loaded, without a change for watches."""
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry

    def finish_loading(self, revision: Revision) -> None:
        self.revision = self._compacted = revision

    def snapshot(self) -> StoreSnapshot:
        return StoreSnapshot(self.revision, dict(self.entries))

    def changes_after(self, revision: Revision) -> Sequence[StoreChange]:
        """Raises RevisionCompactedError."""
        if revision < self._compacted:
            raise RevisionCompactedError(revision)
        return self._history[bisect_right(self._history, revision, key=lambda change: change.revision) :]

    def compact(self, revision: Revision) -> None:
        """Drop the history up to this revision."""
        self._compacted = max(self._compacted, revision)
        del self._history[: bisect_right(self._history, self._compacted, key=lambda change: change.revision)]

    def deletion_of(self, lease_id: LeaseId) -> StoreTransaction:
        """Return the transaction that deletes the keys of a lease."""
        leased = [key for key, entry in self.entries.items() if entry.lease_id == lease_id]
        return StoreTransaction((), [Delete(key) for key in leased])

    def next_entry(self, put: Put, revision: Revision) -> StoreEntry:
        """Return the entry that a put creates at this revision."""
        before = self.entries.get(put.key)
        if before is None:
            return StoreEntry(put.value, revision, revision, 1, put.lease_id)
        return StoreEntry(put.value, before.create_revision, revision, before.version + 1, put.lease_id)

    def _apply(self, operation: Operation, revision: Revision) -> StoreEvent:
        if isinstance(operation, Delete):
            del self.entries[operation.key]
            return StoreEvent(operation.key, None)
        entry = self.entries[operation.key] = self.next_entry(operation, revision)
        return StoreEvent(operation.key, entry)

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls."""
        revisions = [self._compacted, *(change.revision for change in self._history)]
        assert revisions == sorted(set(revisions))
        assert revisions[-1] <= self.revision
        for key, entry in self.entries.items():
            assert entry.create_revision <= entry.mod_revision <= self.revision, key
            assert entry.version >= 1, key
