"""The contract of every metadata store."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import Any, TypeAlias

import pytest

from logbrook.config import Durability, LogConfig, StorageConfig
from logbrook.ports import SystemClock
from logbrook.ports.metadata_store import (
    ABSENT,
    NO_LEASE,
    Condition,
    Delete,
    EntryField,
    LeaseId,
    LeaseNotFoundError,
    MetadataStore,
    Operation,
    Put,
    Revision,
    RevisionCompactedError,
    StoreChange,
    StoreEntry,
    StoreTransaction,
    StoreUnavailableError,
    TransactionResult,
    is_absent,
    is_unmodified,
    was_created_at,
    was_not_created_at,
)
from logbrook.server.etcd.store import EtcdMetadataStore
from logbrook.server.local_metadata_store import LocalMetadataStore
from logbrook.server.log_appender import LogAppender
from logbrook.server.topics import METADATA
from logbrook.storage.log_directory import LogDirectory
from logbrook.testing import MemoryFiles
from logbrook.testing.etcd import EtcdProcess
from logbrook.testing.memory_metadata_store import MemoryStore
from tests.etcd_command import etcd_or_skip

OpenStore: TypeAlias = Callable[[], AbstractAsyncContextManager[MetadataStore]]
DEADLINE_S = 20.0


@asynccontextmanager
async def memory_store() -> AsyncIterator[MetadataStore]:
    state = MemoryStore()
    store = state.connect()
    yield store
    await store.close()
    state.close()


@asynccontextmanager
async def local_store(files: MemoryFiles | None = None) -> AsyncIterator[LocalMetadataStore]:
    clock = SystemClock()
    config = StorageConfig(durability=Durability.INTERVAL)
    directory = LogDirectory.open(files or MemoryFiles(), config, clock=clock, now_ms=clock.now_ms())
    try:
        log = directory.get(METADATA) if METADATA in directory else directory.create(METADATA, LogConfig())
        appender = LogAppender(asyncio.get_running_loop(), clock, lambda _partition, _length: None)
        store = LocalMetadataStore(log, appender, clock)
        store.open()
        yield store
        await store.close()
    finally:
        directory.close()


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdProcess]:
    with EtcdProcess(etcd_or_skip()) as etcd:
        yield etcd


def etcd_store(etcd: EtcdProcess) -> OpenStore:
    """Every store is a cluster of its own."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[MetadataStore]:
        store = EtcdMetadataStore([etcd.address], f"test-{next(_names)}")
        yield store
        await store.close()

    return opened


_names = count()


@pytest.fixture(params=["memory", "local", "etcd"])
def open_store(request: pytest.FixtureRequest) -> OpenStore:
    if request.param == "etcd":
        return etcd_store(request.getfixturevalue("etcd"))
    return memory_store if request.param == "memory" else local_store


def run(open_store: OpenStore, check: Callable[[MetadataStore], Coroutine[Any, Any, None]]) -> None:
    async def with_store() -> None:
        async with open_store() as store, asyncio.timeout(DEADLINE_S):
            await check(store)

    asyncio.run(with_store())


async def put(store: MetadataStore, key: str, value: bytes, lease_id: LeaseId = NO_LEASE) -> Revision:
    result = await store.commit(StoreTransaction((), [Put(key, value, lease_id)]))
    assert result.is_committed
    return result.revision


async def entry(store: MetadataStore, key: str) -> StoreEntry | None:
    return (await store.read_all()).entries.get(key)


async def next_changes(store: MetadataStore, after: Revision, count: int) -> list[StoreChange]:
    changes: list[StoreChange] = []
    async for change in store.watch(after):
        changes.append(change)
        if len(changes) == count:
            break
    return changes


# Entries and revisions


def test_an_entry_keeps_its_create_revision_and_counts_its_changes(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        created = await put(store, "test/a", b"1")
        assert await entry(store, "test/a") == StoreEntry(b"1", created, created, 1)
        modified = await put(store, "test/a", b"2")
        assert modified > created
        assert await entry(store, "test/a") == StoreEntry(b"2", created, modified, 2)

    run(open_store, check)


def test_a_deleted_key_is_created_anew_at_a_new_revision(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        first = await put(store, "test/a", b"1")
        result = await store.commit(StoreTransaction((), [Delete("test/a")]))
        assert result.is_committed
        assert await entry(store, "test/a") is None
        again = await put(store, "test/a", b"1")
        assert first < result.revision < again
        assert await entry(store, "test/a") == StoreEntry(b"1", again, again, 1)

    run(open_store, check)


def test_a_snapshot_has_the_revision_of_the_newest_transaction(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        revision = await put(store, "test/a", b"1")
        assert (await store.read_all()).revision == revision

    run(open_store, check)


def test_a_transaction_that_changes_nothing_has_no_revision(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        revision = await put(store, "test/a", b"1")
        nothing = StoreTransaction([is_unmodified("test/a", revision)], [Delete("test/none")])
        assert await store.commit(nothing) == TransactionResult(True, revision)
        assert await store.commit(StoreTransaction([], [])) == TransactionResult(True, revision)

    run(open_store, check)


# Transactions


def test_a_transaction_applies_all_of_its_operations_at_one_revision(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        await put(store, "test/old", b"x")
        operations: list[Operation] = [Put("test/a", b"1"), Put("test/b", b"2"), Delete("test/old")]
        result = await store.commit(StoreTransaction([is_absent("test/a")], operations))
        assert result.is_committed
        entries = (await store.read_all()).entries
        assert (entries["test/a"].mod_revision, entries["test/b"].mod_revision) == (result.revision, result.revision)
        assert "test/old" not in entries

    run(open_store, check)


def test_a_transaction_with_a_false_condition_changes_nothing(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        before = await put(store, "test/a", b"1")
        conditions = [is_unmodified("test/a", before), is_absent("test/a")]
        result = await store.commit(StoreTransaction(conditions, [Put("test/a", b"2"), Put("test/b", b"2")]))
        assert result == TransactionResult(False, before)
        entries = (await store.read_all()).entries
        assert entries["test/a"].value == b"1"
        assert "test/b" not in entries

    run(open_store, check)


def test_conditions_compare_revisions_versions_and_absence(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        created = await put(store, "test/a", b"1")
        modified = await put(store, "test/a", b"2")
        cases: list[tuple[Condition, bool]] = [
            (is_absent("test/a"), False),
            (is_absent("test/none"), True),
            (is_unmodified("test/a", modified), True),
            (is_unmodified("test/a", created), False),
            (is_unmodified("test/none", ABSENT), True),
            (was_created_at("test/a", created), True),
            (was_created_at("test/a", modified), False),
            (was_created_at("test/none", created), False),
            (was_not_created_at("test/a", created), False),
            (was_not_created_at("test/a", modified), True),
            (was_not_created_at("test/none", created), True),
            (Condition("test/a", EntryField.VERSION, 2), True),
            (Condition("test/a", EntryField.VERSION, 1), False),
            (Condition("test/a", EntryField.VERSION, 1, is_equal=False), True),
        ]
        for condition, holds in cases:
            result = await store.commit(StoreTransaction([condition], ()))
            assert result.is_committed is holds, condition

    run(open_store, check)


def test_of_transactions_on_the_same_revision_one_is_committed(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        revision = await put(store, "test/a", b"0")
        attempts = [
            store.commit(StoreTransaction([is_unmodified("test/a", revision)], [Put("test/a", b"%d" % number)]))
            for number in range(8)
        ]
        results = await asyncio.gather(*attempts)
        winners = [number for number, result in enumerate(results) if result.is_committed]
        assert len(winners) == 1
        winner = await entry(store, "test/a")
        assert winner is not None
        assert winner.value == b"%d" % winners[0]

    run(open_store, check)


# Watches


def test_a_watch_yields_every_change_after_its_revision_once_and_in_order(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        start = (await store.read_all()).revision
        first = await put(store, "test/a", b"1")
        watching = asyncio.create_task(next_changes(store, start, 3))
        await asyncio.sleep(0)
        second = (await store.commit(StoreTransaction((), [Put("test/a", b"2"), Put("test/b", b"1")]))).revision
        third = (await store.commit(StoreTransaction((), [Delete("test/a")]))).revision
        changes = await watching
        assert [change.revision for change in changes] == [first, second, third]
        values = [{key: new.value if new is not None else None for key, new in change.events} for change in changes]
        assert values == [{"test/a": b"1"}, {"test/a": b"2", "test/b": b"1"}, {"test/a": None}]
        created = changes[0].events[0].entry
        assert created == StoreEntry(b"1", first, first, 1)

    run(open_store, check)


def test_a_watch_from_the_middle_of_the_history_yields_the_rest(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        revisions = [await put(store, "test/a", b"%d" % number) for number in range(4)]
        changes = await next_changes(store, revisions[1], 2)
        assert [change.revision for change in changes] == revisions[2:]

    run(open_store, check)


# Leases


def test_keys_of_an_expired_lease_are_deleted_in_one_change(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        lease_id = await store.grant_lease(0.05)
        await put(store, "test/kept", b"1")
        await put(store, "test/a", b"1", lease_id)
        revision = await put(store, "test/b", b"1", lease_id)
        (change,) = await next_changes(store, revision, 1)
        assert sorted(change.events) == [("test/a", None), ("test/b", None)]
        assert await entry(store, "test/kept") is not None
        with pytest.raises(LeaseNotFoundError):
            await store.renew_lease(lease_id)
        with pytest.raises(LeaseNotFoundError):
            await put(store, "test/a", b"1", lease_id)

    run(open_store, check)


def test_a_renewed_lease_keeps_its_keys(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        lease_id = await store.grant_lease(0.2)
        await put(store, "test/a", b"1", lease_id)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + 0.5
        while loop.time() < until_s:
            await store.renew_lease(lease_id)
            await asyncio.sleep(0)
        assert await entry(store, "test/a") is not None

    run(open_store, check)


def test_a_revoked_lease_is_gone_at_once(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        lease_id = await store.grant_lease(60)
        await put(store, "test/a", b"1", lease_id)
        await store.revoke_lease(lease_id)
        assert await entry(store, "test/a") is None
        with pytest.raises(LeaseNotFoundError):
            await store.revoke_lease(lease_id)

    run(open_store, check)


def test_a_key_that_is_written_again_without_its_lease_outlives_it(open_store: OpenStore) -> None:
    async def check(store: MetadataStore) -> None:
        lease_id = await store.grant_lease(60)
        await put(store, "test/a", b"1", lease_id)
        await put(store, "test/a", b"2")
        await store.revoke_lease(lease_id)
        assert await entry(store, "test/a") is not None

    run(open_store, check)


# The store of a single node


def test_entries_revisions_and_versions_survive_a_restart() -> None:
    async def check() -> None:
        files = MemoryFiles()
        async with local_store(files) as store:
            created = await put(store, "test/a", b"1")
            modified = await put(store, "test/a", b"2")
            leased = await store.grant_lease(60)
            await put(store, "test/leased", b"1", leased)
            await put(store, "test/b", b"1")
            last = (await store.commit(StoreTransaction((), [Delete("test/b")]))).revision
        async with local_store(files) as store:
            # The process that held the lease is gone.
            assert await store.read_all() == (last, {"test/a": StoreEntry(b"2", created, modified, 2)})
            assert await put(store, "test/leased", b"2") > last

    asyncio.run(check())


def test_keys_of_topics_and_groups_have_their_names_of_old_in_the_log() -> None:
    async def check() -> None:
        files = MemoryFiles()
        async with local_store(files) as store:
            for key in ("topics/orders", "settings/groups/g", "cluster"):
                await put(store, key, b"{}")
        content = b"".join(
            files.open(f"{METADATA.directory}/{name}").pread(1 << 20, 0)
            for name in files.list(METADATA.directory)
            if name.endswith(".log")
        )
        for name in (b'"topic:orders"', b'"group:g"', b'"cluster"'):
            assert name in content
        async with local_store(files) as store:
            assert set((await store.read_all()).entries) == {"topics/orders", "settings/groups/g", "cluster"}

    asyncio.run(check())


def test_a_transaction_completes_when_its_caller_is_cancelled() -> None:
    async def check(store: MetadataStore) -> None:
        task = asyncio.create_task(put(store, "test/a", b"1"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while await entry(store, "test/a") is None:
            await asyncio.sleep(0)

    run(local_store, check)


def test_a_closed_store_ends_its_watches() -> None:
    async def check(store: MetadataStore) -> None:
        watching = asyncio.create_task(next_changes(store, (await store.read_all()).revision, 1))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreUnavailableError):
            await watching

    run(memory_store, check)
    run(local_store, check)


# Faults of the store in memory


def test_a_broker_that_is_cut_off_reaches_nothing() -> None:
    async def check() -> None:
        state = MemoryStore()
        cut_off, other = state.connect(), state.connect()
        watching = asyncio.create_task(next_changes(cut_off, state.state.revision, 1))
        await asyncio.sleep(0)
        cut_off.is_cut_off = True
        for request in (
            watching,
            cut_off.read_all(),
            cut_off.commit(StoreTransaction((), ())),
            cut_off.grant_lease(1),
            cut_off.renew_lease(LeaseId(1)),
            cut_off.revoke_lease(LeaseId(1)),
        ):
            with pytest.raises(StoreUnavailableError):
                await request
        revision = await put(other, "a", b"1")
        cut_off.is_cut_off = False
        assert (await cut_off.read_all()).revision == revision

    asyncio.run(check())


def test_every_message_takes_the_latency_of_the_store() -> None:
    async def check() -> None:
        store = MemoryStore(latency_s=lambda: 0.01).connect()
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        await put(store, "a", b"1")
        assert loop.time() - started_s >= 0.02

    asyncio.run(check())


def test_the_outcome_of_a_transaction_without_an_answer_is_unknown() -> None:
    async def check() -> None:
        store = MemoryStore().connect()
        store.loses_next_answer = True
        with pytest.raises(StoreUnavailableError):
            await put(store, "a", b"1")
        assert await entry(store, "a") is not None

    asyncio.run(check())


def test_a_watch_of_a_compacted_revision_fails() -> None:
    async def check() -> None:
        state = MemoryStore()
        store = state.connect()
        first = await put(store, "a", b"1")
        second = await put(store, "a", b"2")
        third = await put(store, "a", b"3")
        state.compact(second)
        with pytest.raises(RevisionCompactedError):
            await next_changes(store, first, 1)
        (change,) = await next_changes(store, second, 1)
        assert change.revision == third

    asyncio.run(check())


def test_a_local_store_has_no_changes_from_before_its_start() -> None:
    async def check() -> None:
        files = MemoryFiles()
        async with local_store(files) as store:
            revision = await put(store, "test/a", b"1")
        async with local_store(files) as store:
            with pytest.raises(RevisionCompactedError):
                await next_changes(store, Revision(revision - 1), 1)

    asyncio.run(check())
