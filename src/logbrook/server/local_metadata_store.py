"""The metadata store of a single node: the compacted log `__cluster_metadata`.

A transaction is one batch, so it is durable as a whole. Its revision is the log end offset after it, which never falls
and is never used again. A record has the key and the value of an entry; its headers have the create revision and the
version, unless the record created the entry, and the mark of a lease. Entries of leases belong to the process that was
granted the lease, so the next start ignores them.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

from logbrook.core.store_state import StoreState
from logbrook.ports import Clock
from logbrook.ports.metadata_store import (
    NO_LEASE,
    Delete,
    LeaseId,
    Operation,
    Put,
    Revision,
    StoreChange,
    StoreEntry,
    StoreSnapshot,
    StoreTransaction,
    StoreUnavailableError,
    TransactionResult,
)
from logbrook.records.batch import iter_headers
from logbrook.records.builder import build_batch
from logbrook.records.reader import iter_records
from logbrook.records.record import Header, RawRecord, Record
from logbrook.server.log_appender import LogAppender
from logbrook.server.store_leases import LeaseTimers, StoreWatches
from logbrook.storage.errors import StorageError
from logbrook.storage.log import Log
from logbrook.storage.pending_append import PendingAppend
from logbrook.storage.verification import verify

_CREATED = "created"
_VERSION = "version"
_LEASED = "leased"
# Keys of the store and the names that they have had in the log from the beginning.
_LOG_PREFIXES = (("topics/", "topic:"), ("settings/groups/", "group:"))
_HISTORY_MAX = 1_000


class LocalMetadataStore:
    """A `ports.MetadataStore`, on the event loop. Its methods also raise StorageError.

    `open` loads it from the log, once, before anything else.
    """

    def __init__(self, log: Log, appender: LogAppender, clock: Clock) -> None:
        self._log = log
        self._appender = appender
        self._clock = clock
        self._state = StoreState(Revision(0), _HISTORY_MAX)
        self._watches = StoreWatches(self._state)
        self._leases = LeaseTimers(self._on_lease_expired)
        self._is_closed = False
        # Held from the decision to the end of the append.
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[TransactionResult]] = set()

    def open(self) -> None:
        """Raises StorageError."""
        load_entries(self._log, self._state)

    async def read_all(self) -> StoreSnapshot:
        self._check_open()
        return self._state.snapshot()

    def watch(self, after: Revision) -> AsyncIterator[StoreChange]:
        return self._watches.changes(after, self._check_open)

    @property
    def history_id(self) -> str:
        """A log is never replaced by an older one of itself."""
        return ""

    async def commit(self, transaction: StoreTransaction) -> TransactionResult:
        """A transaction that has begun is finished, also if the caller is cancelled. Raises StorageError."""
        self._check_open()
        return await asyncio.shield(self._begin(transaction))

    async def grant_lease(self, ttl_s: float) -> LeaseId:
        self._check_open()
        return self._leases.grant(ttl_s)

    async def renew_lease(self, lease_id: LeaseId) -> None:
        self._check_open()
        self._leases.renew(lease_id)

    async def revoke_lease(self, lease_id: LeaseId) -> None:
        self._check_open()
        self._leases.remove(lease_id)
        await asyncio.shield(self._begin(self._state.deletion_of(lease_id)))

    async def close(self) -> None:
        """Finish the transactions in progress, and end all watches."""
        self._leases.close()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._is_closed = True
        self._watches.notify()

    def _begin(self, transaction: StoreTransaction) -> "asyncio.Task[TransactionResult]":
        task = asyncio.get_running_loop().create_task(self._commit(transaction))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _commit(self, transaction: StoreTransaction) -> TransactionResult:
        async with self._writing:
            for operation in transaction.operations:
                if isinstance(operation, Put) and operation.lease_id != NO_LEASE:
                    self._leases.check(operation.lease_id)
            operations = self._state.decide(transaction)
            if operations:
                append = await self._append(operations)
                self._state.apply(Revision(append.next_offset), operations)
                self._watches.notify()
            return TransactionResult(operations is not None, self._state.revision)

    async def _append(self, operations: Sequence[Operation]) -> PendingAppend:
        now_ms = self._clock.now_ms()
        records = [self._record(operation, now_ms) for operation in operations]
        return await self._appender.append_durably(self._log, build_batch(records))

    def _record(self, operation: Operation, now_ms: int) -> Record:
        key = _log_key(operation.key)
        if isinstance(operation, Delete):
            return Record(timestamp=now_ms, key=key)
        headers: list[Header] = []
        before = self._state.entries.get(operation.key)
        if before is not None:
            headers.append((_CREATED, str(before.create_revision).encode()))
            headers.append((_VERSION, str(before.version + 1).encode()))
        if operation.lease_id != NO_LEASE:
            headers.append((_LEASED, b""))
        return Record(timestamp=now_ms, key=key, value=operation.value, headers=headers)

    def _on_lease_expired(self, lease_id: LeaseId) -> None:
        self._begin(self._state.deletion_of(lease_id))

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailableError("the broker is stopping")


def load_entries(log: Log, state: StoreState) -> None:
    """Load the entries of the metadata log into an empty state. Raises StorageError."""
    if log.corruption is not None:
        raise log.corruption
    # Verified first: a record with a flipped bit may still be valid JSON.
    verify(log)
    for part in log.read_range(log.log_start_offset, log.high_watermark):
        for position, header in iter_headers(part.data):
            for record in iter_records(part.data, position, bytes_max=part.length):
                try:
                    key, entry = _entry_of(record, Revision(header.next_offset))
                except ValueError as error:
                    raise StorageError(f"invalid record in {log.partition}: {error}") from error
                state.replay(key, entry)
    state.finish_loading(Revision(log.high_watermark))


def _entry_of(record: RawRecord, revision: Revision) -> tuple[str, StoreEntry | None]:
    """Raises ValueError."""
    key = _store_key(record.key or b"")
    headers = dict(record.headers)
    if record.value is None or _LEASED in headers:
        return key, None
    created = Revision(int(headers.get(_CREATED) or revision))
    return key, StoreEntry(record.value, created, revision, int(headers.get(_VERSION) or 1))


def _log_key(key: str) -> bytes:
    for prefix, name in _LOG_PREFIXES:
        if key.startswith(prefix):
            key = name + key.removeprefix(prefix)
    return json.dumps(key).encode()


def _store_key(key: bytes) -> str:
    """Raises ValueError."""
    text = json.loads(key)
    if not isinstance(text, str):
        raise ValueError(f"the key {key!r} is not a JSON string")
    for prefix, name in _LOG_PREFIXES:
        if text.startswith(name):
            return prefix + text.removeprefix(name)
    return text
