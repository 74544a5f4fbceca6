"""The metadata store of a cluster in etcd.

The keys of a cluster are below `logbrook/NAME/`, so that several clusters and other applications can share an etcd. Its
revision also counts their changes: a watch that has seen everything asks for the progress of the store, so that a
reader who waits for a revision does not wait for a change of its own keys.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from logbrook.ports.metadata_store import (
    NO_LEASE,
    Condition,
    EntryField,
    LeaseId,
    LeaseNotFoundError,
    Operation,
    Put,
    Revision,
    RevisionCompactedError,
    StoreChange,
    StoreEntry,
    StoreEvent,
    StoreSnapshot,
    StoreTransaction,
    StoreUnavailableError,
    TransactionResult,
)
from logbrook.server.etcd.endpoints import EtcdCredentials, EtcdEndpoints, EtcdStream
from logbrook.server.etcd.grpc_client import GrpcError
from logbrook.server.etcd.messages import (
    Compare,
    DeleteRangeRequest,
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    PutRequest,
    RangeRequest,
    RangeResponse,
    RequestOp,
    TxnRequest,
    TxnResponse,
    WatchCreateRequest,
    WatchProgressRequest,
    WatchRequest,
    WatchResponse,
)

T = TypeVar("T")

TIMEOUT_S = 3.0
_PAGE = 2_000
_TARGETS = {EntryField.VERSION: "VERSION", EntryField.CREATE_REVISION: "CREATE", EntryField.MOD_REVISION: "MOD"}
_VALUES = {
    EntryField.VERSION: "version",
    EntryField.CREATE_REVISION: "create_revision",
    EntryField.MOD_REVISION: "mod_revision",
}
_DELETE = 1
_LEASE_NOT_FOUND = "requested lease not found"
_COMPACTED = "required revision has been compacted"


class EtcdMetadataStore:
    """A `MetadataStore`: the connection of one broker. `addresses` are HOST:PORT of the members of an etcd cluster."""

    def __init__(
        self,
        addresses: Sequence[str],
        cluster: str,
        credentials: EtcdCredentials | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._endpoints = EtcdEndpoints(addresses, credentials or EtcdCredentials(), timeout_s)
        self._prefix = f"logbrook/{cluster}/".encode()
        # The end of the range of all keys with the prefix.
        self._end = self._prefix[:-1] + bytes([self._prefix[-1] + 1])
        self._timeout_s = timeout_s
        self._watches: list[_Watch] = []
        self._history_id = ""

    @property
    def history_id(self) -> str:
        """The id of the etcd cluster. `etcdutl snapshot restore` creates another one, with a new token only."""
        return self._history_id

    async def read_all(self) -> StoreSnapshot:
        """Pages are read as of the revision of the first one. If that is compacted meanwhile, all are read again."""
        while True:
            try:
                return await self._read_all()
            except RevisionCompactedError:
                continue

    async def _read_all(self) -> StoreSnapshot:
        entries: dict[str, StoreEntry] = {}
        revision = 0
        start = self._prefix
        while True:
            request = RangeRequest(key=start, range_end=self._end, limit=_PAGE, revision=revision)
            response = await self._answered(self._endpoints.call("KV/Range", request, RangeResponse), revision)
            revision = revision or response.header.revision
            self._history_id = f"{response.header.cluster_id:x}"
            for item in response.kvs:
                entries[self._key_of(item)] = _entry(item)
            if not response.more:
                return StoreSnapshot(Revision(revision), entries)
            start = response.kvs[-1].key + b"\0"

    async def watch(self, after: Revision) -> AsyncIterator[StoreChange]:
        async with await self._answered(self._endpoints.stream("Watch/Watch", WatchResponse)) as stream:
            watch = _Watch(stream, after)
            self._watches.append(watch)
            try:
                create = WatchCreateRequest(key=self._prefix, range_end=self._end, start_revision=after + 1)
                await self._answered(stream.send(WatchRequest(create_request=create)))
                watch.progress_task = asyncio.create_task(watch.ask_for_progress())
                # The first response says that the watch is created.
                timeout_s: float | None = self._timeout_s
                while True:
                    response = await self._answered(stream.receive(timeout_s))
                    timeout_s = None
                    if response.compact_revision:
                        raise RevisionCompactedError(watch.revision)
                    if response.canceled:
                        raise StoreUnavailableError(f"etcd has ended a watch: {response.cancel_reason}")
                    for change in self._changes(response, watch.revision):
                        watch.revision = change.revision
                        yield change
            finally:
                self._watches.remove(watch)
                watch.close()

    def _changes(self, response: Any, after: Revision) -> list[StoreChange]:
        """Return the changes of a response by revision, or its progress without a change."""
        by_revision: dict[int, list[StoreEvent]] = {}
        for event in response.events:
            entry = None if event.type == _DELETE else _entry(event.kv)
            by_revision.setdefault(event.kv.mod_revision, []).append(StoreEvent(self._key_of(event.kv), entry))
        if not by_revision and not response.created and response.header.revision > after:
            by_revision[response.header.revision] = []
        return [StoreChange(Revision(revision), events) for revision, events in sorted(by_revision.items())]

    async def commit(self, transaction: StoreTransaction) -> TransactionResult:
        # Without an operation, or with serializable reads only, a member that lags would answer with an old revision.
        linearizable_read = RequestOp(request_range=RangeRequest(key=self._prefix, keys_only=True))
        request = TxnRequest(
            compare=[self._compare(condition) for condition in transaction.conditions],
            success=[self._operation(operation) for operation in transaction.operations] or [linearizable_read],
        )
        leases = [op.lease_id for op in transaction.operations if isinstance(op, Put) and op.lease_id != NO_LEASE]
        response = await self._answered(
            self._endpoints.call("KV/Txn", request, TxnResponse), lease_id=leases[0] if leases else NO_LEASE
        )
        result = TransactionResult(response.succeeded, Revision(response.header.revision))
        for watch in self._watches:
            watch.is_behind.set()
        return result

    async def grant_lease(self, ttl_s: float) -> LeaseId:
        request = LeaseGrantRequest(TTL=math.ceil(ttl_s))
        response = await self._answered(self._endpoints.call("Lease/LeaseGrant", request, LeaseGrantResponse))
        return LeaseId(response.ID)

    async def renew_lease(self, lease_id: LeaseId) -> None:
        request = LeaseKeepAliveRequest(ID=lease_id)
        response = await self._answered(
            self._endpoints.call("Lease/LeaseKeepAlive", request, LeaseKeepAliveResponse), lease_id=lease_id
        )
        if response.TTL <= 0:
            raise LeaseNotFoundError(lease_id)

    async def revoke_lease(self, lease_id: LeaseId) -> None:
        request = LeaseRevokeRequest(ID=lease_id)
        await self._answered(self._endpoints.call("Lease/LeaseRevoke", request, LeaseRevokeResponse), lease_id=lease_id)

    async def close(self) -> None:
        await self._endpoints.close()

    async def _answered(self, call: Awaitable[T], revision: int = 0, lease_id: LeaseId = NO_LEASE) -> T:
        """Wait for an answer, and translate errors."""
        try:
            return await call
        except GrpcError as error:
            details = str(error)
            if _LEASE_NOT_FOUND in details:
                raise LeaseNotFoundError(lease_id) from None
            if _COMPACTED in details:
                raise RevisionCompactedError(Revision(revision)) from None
            raise StoreUnavailableError(f"etcd: {details}") from None

    def _key_of(self, item: Any) -> str:
        key: bytes = item.key
        return key[len(self._prefix) :].decode()

    def _compare(self, condition: Condition) -> Any:
        return Compare(
            result="EQUAL" if condition.is_equal else "NOT_EQUAL",
            target=_TARGETS[condition.field],
            key=self._prefix + condition.key.encode(),
            **{_VALUES[condition.field]: condition.number},
        )

    def _operation(self, operation: Operation) -> Any:
        key = self._prefix + operation.key.encode()
        if isinstance(operation, Put):
            return RequestOp(request_put=PutRequest(key=key, value=operation.value, lease=operation.lease_id))
        return RequestOp(request_delete_range=DeleteRangeRequest(key=key))


class _Watch:
    """A watch, and the last revision that it has seen. `is_behind` is set when there may be a newer one."""

    def __init__(self, stream: EtcdStream, revision: Revision) -> None:
        self.revision = revision
        self.is_behind = asyncio.Event()
        self.progress_task: asyncio.Task[None] | None = None
        self._stream = stream

    async def ask_for_progress(self) -> None:
        """Ask for the revision up to which the watch has seen everything. Ends with the stream, whose reader fails."""
        with suppress(GrpcError, StoreUnavailableError):
            while True:
                await self.is_behind.wait()
                self.is_behind.clear()
                await self._stream.send(WatchRequest(progress_request=WatchProgressRequest()))

    def close(self) -> None:
        if self.progress_task is not None:
            self.progress_task.cancel()


def _entry(item: Any) -> StoreEntry:
    return StoreEntry(
        item.value,
        Revision(item.create_revision),
        Revision(item.mod_revision),
        item.version,
        LeaseId(item.lease),
    )
