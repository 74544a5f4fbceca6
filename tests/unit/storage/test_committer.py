"""The commit thread. Nothing here sleeps: appends call back, and the waits only bound a failure."""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from logbrook.model import TopicPartition
from logbrook.ports import File, Files
from logbrook.storage.committer import Committer
from logbrook.storage.pending_append import PendingAppend
from logbrook.storage.wal import Wal
from logbrook.testing import FaultyFiles, ForwardingFile, ForwardingFiles, MemoryFiles
from tests.unit.storage.kit import NOW_MS, NewStore, Store, batch, numbered

PATIENCE_S = 60


def wal_of(store: Store) -> Wal:
    wal = store.directory.environment.durability
    assert isinstance(wal, Wal)
    return wal


@pytest.fixture
def store(new_store: NewStore) -> Store:
    return new_store()


def finished(*appends: PendingAppend) -> bool:
    """Wait until all appends are done. Returns False after a timeout."""
    left = threading.Semaphore(0)
    for append in appends:
        append.add_done_callback(lambda _append: left.release())
    return all(left.acquire(timeout=PATIENCE_S) for _ in appends)


def test_appends_complete_by_themselves(store: Store) -> None:
    committer = Committer(wal_of(store))
    committer.start()
    appends = [store.append(data) for data in numbered(5)]
    assert finished(*appends)
    committer.stop()
    assert all(append.error is None for append in appends)
    assert store.log.high_watermark == 5


def test_appends_call_back_from_the_committers_thread(store: Store) -> None:
    names: list[str] = []
    append = store.append(batch())
    append.add_done_callback(lambda _append: names.append(threading.current_thread().name))
    committer = Committer(wal_of(store))
    committer.start()
    assert finished(append)
    committer.stop()
    assert names == ["logbrook-committer"]


def test_appends_submitted_before_the_start_are_committed_at_the_start(store: Store) -> None:
    early = store.append(batch())
    committer = Committer(wal_of(store))
    committer.start()
    assert finished(early)
    committer.stop()


def test_stopping_commits_pending_appends(store: Store) -> None:
    committer = Committer(wal_of(store))
    committer.start()
    appends = [store.append(data) for data in numbered(50)]
    committer.stop()
    assert all(append.done and append.error is None for append in appends)


def test_after_the_stop_commits_are_the_owners_again(store: Store) -> None:
    committer = Committer(wal_of(store))
    committer.start()
    committer.stop()
    append = store.append(batch())
    assert not append.done
    store.directory.commit()
    assert append.done


class SlowFiles(ForwardingFiles):
    """A disk whose syncs of the write-ahead log wait until the gate is open."""

    def __init__(self, inner: Files) -> None:
        super().__init__(inner)
        self.gate = threading.Event()
        self.gate.set()
        self.is_syncing = threading.Event()

    def _wrap(self, file: File) -> File:
        return SlowFile(self, file)


class SlowFile(ForwardingFile):
    def __init__(self, files: SlowFiles, inner: File) -> None:
        super().__init__(inner)
        self._files = files

    def fsync(self) -> None:
        if self.path.endswith(".wal"):
            self._files.is_syncing.set()
            assert self._files.gate.wait(PATIENCE_S)
        super().fsync()


def test_appends_that_come_during_a_sync_share_the_next_one(new_store: NewStore) -> None:
    files = SlowFiles(MemoryFiles())
    store = new_store(files)
    wal = wal_of(store)
    store.write(batch())
    commits = store.directory.environment.probe.wal_commits
    files.gate.clear()
    files.is_syncing.clear()
    committer = Committer(wal)
    committer.start()
    first = store.append(batch())
    assert files.is_syncing.wait(PATIENCE_S)
    others = [store.append(data) for data in numbered(10)]
    files.gate.set()
    assert finished(first, *others)
    committer.stop()
    assert store.directory.environment.probe.wal_commits == commits + 2


def test_an_append_is_not_done_while_the_sync_is_under_way(new_store: NewStore) -> None:
    files = SlowFiles(MemoryFiles())
    store = new_store(files)
    store.write(batch())
    files.gate.clear()
    files.is_syncing.clear()
    committer = Committer(wal_of(store))
    committer.start()
    append = store.append(batch())
    assert files.is_syncing.wait(PATIENCE_S)
    assert not append.done
    assert store.log.high_watermark == 1
    files.gate.set()
    assert finished(append)
    committer.stop()
    assert store.log.high_watermark == 2


def test_a_failed_sync_reaches_every_append_that_waited_for_it(new_store: NewStore) -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.endswith(".wal"))
    store = new_store(files)
    store.write(batch())
    committer = Committer(wal_of(store))
    files.fail_at = files.calls + 1
    appends = [store.append(data) for data in numbered(5)]
    committer.start()
    assert finished(*appends)
    committer.stop()
    failure = store.directory.environment.health.failure
    assert failure is not None
    assert all(append.error is failure for append in appends)
    assert store.log.high_watermark == 1


def test_many_partitions_written_while_the_thread_runs_lose_nothing(open_store: NewStore) -> None:
    store = open_store()
    committer = Committer(wal_of(store))
    committer.start()
    logs = [store.create(TopicPartition("orders", number)) for number in range(5)]
    appends = [log.append(data, now_ms=NOW_MS) for data in numbered(100) for log in logs]
    assert finished(*appends)
    committer.stop()
    assert all(append.error is None for append in appends)
    again = store.killed()
    for log in again.directory:
        assert log.log_end_offset == log.high_watermark == 100


class Turns:
    """An event loop whose turns are run by hand, and a committer on it. `groups` has the size of each commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._completed: SimpleQueue[int] = SimpleQueue()
        wal = wal_of(store)
        wal.on_completed = lambda appends: self._completed.put(len(appends))
        self.committer = Committer(wal, self)
        self.committer.start()

    def call_soon(self, callback: Callable[[], None], /) -> None:
        self._calls.put(callback)

    call_soon_threadsafe = call_soon

    def turn(self, appends: int = 0, data: bytearray | None = None) -> None:
        """Run the calls that are due, as a turn of the loop begins, then make appends, as its input arrives."""
        for _ in range(self._calls.qsize()):
            self._calls.get()()
        for _ in range(appends):
            self._store.append(batch() if data is None else data)

    def wait_for_call(self) -> None:
        """Run the call that the committer's thread makes after a commit."""
        self._calls.get(timeout=PATIENCE_S)()

    def group(self) -> int:
        """Return the size of the next commit."""
        return self._completed.get(timeout=PATIENCE_S)

    @property
    def has_committed(self) -> bool:
        return not self._completed.empty()


@pytest.fixture
def turns(store: Store) -> Iterator[Turns]:
    turns = Turns(store)
    yield turns
    turns.committer.stop()


def test_the_first_append_is_committed_in_the_next_turn(turns: Turns) -> None:
    turns.turn(1)
    turns.turn()
    assert turns.group() == 1


def test_a_commit_waits_for_as_many_appends_as_the_last_one_had_while_each_turn_brings_some(turns: Turns) -> None:
    turns.turn(8)
    turns.turn()
    assert turns.group() == 8
    for appends in (1, 3, 3, 1):
        turns.turn(appends)
    assert not turns.has_committed
    turns.turn()
    assert turns.group() == 8


def test_a_commit_waits_no_longer_after_a_turn_without_appends(turns: Turns) -> None:
    turns.turn(8)
    turns.turn()
    assert turns.group() == 8
    turns.turn(1)
    turns.turn(1)
    turns.turn()
    turns.turn()
    assert turns.group() == 2


def test_a_commit_waits_for_a_bounded_number_of_turns(turns: Turns) -> None:
    turns.turn(100)
    turns.turn()
    assert turns.group() == 100
    for _ in range(9):
        turns.turn(1)
    assert turns.group() >= 8


def test_a_commit_of_much_data_does_not_wait(turns: Turns) -> None:
    turns.turn(8)
    turns.turn()
    assert turns.group() == 8
    turns.turn(1, batch(bytes(100_000)))
    turns.turn()
    assert turns.group() == 1


def turns_during_a_commit(new_store: NewStore, appends: int, during: int, data: bytearray | None = None) -> Turns:
    """Return the turns after a commit of `appends`, during which there were `during` others."""
    files = SlowFiles(MemoryFiles())
    store = new_store(files)
    store.write(batch())
    turns = Turns(store)
    files.gate.clear()
    files.is_syncing.clear()
    turns.turn(appends)
    turns.turn()
    assert files.is_syncing.wait(PATIENCE_S)
    turns.turn(during, data)
    turns.turn()
    files.gate.set()
    assert turns.group() == appends
    return turns


@pytest.mark.parametrize(("during", "data"), [(8, None), (1, batch(bytes(100_000)))])
def test_as_many_appends_during_a_commit_or_much_data_are_committed_without_another_turn(
    new_store: NewStore, during: int, data: bytearray | None
) -> None:
    turns = turns_during_a_commit(new_store, 8, during, data)
    assert turns.group() == during
    turns.committer.stop()


def test_fewer_appends_during_a_commit_are_committed_after_it_even_if_no_others_come(new_store: NewStore) -> None:
    turns = turns_during_a_commit(new_store, 8, 3)
    turns.wait_for_call()
    turns.turn()
    turns.turn()
    assert turns.group() == 3
    turns.committer.stop()
