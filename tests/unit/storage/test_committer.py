"""The one thread of the engine. Nothing here sleeps: tickets call back, and the waits only bound a failure."""

import threading

import pytest

from logbrook.model import TopicPartition
from logbrook.ports import File, Files
from logbrook.storage.committer import Committer
from logbrook.storage.ticket import Ticket
from logbrook.storage.wal import Wal
from logbrook.testing import FaultyFiles, ForwardingFile, ForwardingFiles, MemoryFiles
from tests.unit.storage.kit import NOW_MS, NewStore, Store, batch, numbered

PATIENCE_S = 5


def wal_of(store: Store) -> Wal:
    wal = store.directory.environment.durability
    assert isinstance(wal, Wal)
    return wal


@pytest.fixture
def store(new_store: NewStore) -> Store:
    return new_store()


def finished(*tickets: Ticket) -> bool:
    """Wait until all of them are done. False when patience ends."""
    left = threading.Semaphore(0)
    for ticket in tickets:
        ticket.add_done_callback(lambda _ticket: left.release())
    return all(left.acquire(timeout=PATIENCE_S) for _ in tickets)


def test_tickets_complete_by_themselves(store: Store) -> None:
    committer = Committer(wal_of(store))
    committer.start()
    tickets = [store.append(data) for data in numbered(5)]
    assert finished(*tickets)
    committer.stop()
    assert all(ticket.error is None for ticket in tickets)
    assert store.log.high_watermark == 5


def test_tickets_call_back_from_the_committers_thread(store: Store) -> None:
    names: list[str] = []
    ticket = store.append(batch())
    ticket.add_done_callback(lambda _ticket: names.append(threading.current_thread().name))
    committer = Committer(wal_of(store))
    committer.start()
    assert finished(ticket)
    committer.stop()
    assert names == ["logbrook-committer"]


def test_what_was_submitted_before_the_start_does_not_wait_for_the_next_append(store: Store) -> None:
    early = store.append(batch())
    committer = Committer(wal_of(store))
    committer.start()
    assert finished(early)
    committer.stop()


def test_stopping_commits_what_is_left(store: Store) -> None:
    committer = Committer(wal_of(store))
    committer.start()
    tickets = [store.append(data) for data in numbered(50)]
    committer.stop()
    assert all(ticket.done and ticket.error is None for ticket in tickets)


def test_after_the_stop_commits_are_the_owners_again(store: Store) -> None:
    committer = Committer(wal_of(store))
    committer.start()
    committer.stop()
    ticket = store.append(batch())
    assert not ticket.done
    store.directory.commit()
    assert ticket.done


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


def test_a_ticket_is_not_done_while_the_sync_is_under_way(new_store: NewStore) -> None:
    files = SlowFiles(MemoryFiles())
    store = new_store(files)
    store.write(batch())
    files.gate.clear()
    files.is_syncing.clear()
    committer = Committer(wal_of(store))
    committer.start()
    ticket = store.append(batch())
    assert files.is_syncing.wait(PATIENCE_S)
    assert not ticket.done
    assert store.log.high_watermark == 1
    files.gate.set()
    assert finished(ticket)
    committer.stop()
    assert store.log.high_watermark == 2


def test_a_failed_sync_reaches_every_ticket_that_waited_for_it(new_store: NewStore) -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.endswith(".wal"))
    store = new_store(files)
    store.write(batch())
    committer = Committer(wal_of(store))
    files.fail_at = files.calls + 1
    tickets = [store.append(data) for data in numbered(5)]
    committer.start()
    assert finished(*tickets)
    committer.stop()
    failure = store.directory.environment.health.failure
    assert failure is not None
    assert all(ticket.error is failure for ticket in tickets)
    assert store.log.high_watermark == 1


def test_many_partitions_written_while_the_thread_runs_lose_nothing(open_store: NewStore) -> None:
    store = open_store()
    committer = Committer(wal_of(store))
    committer.start()
    logs = [store.create(TopicPartition("orders", number)) for number in range(5)]
    tickets = [log.append(data, now_ms=NOW_MS) for data in numbered(100) for log in logs]
    assert finished(*tickets)
    committer.stop()
    assert all(ticket.error is None for ticket in tickets)
    again = store.killed()
    for log in again.directory:
        assert log.log_end_offset == log.high_watermark == 100
