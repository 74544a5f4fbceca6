"""The way into a log: who is told, when, in what order, and on which thread."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from logbrook.model import TopicPartition
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.storage.errors import StorageOfflineError
from logbrook.storage.ticket import Ticket
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.server.shell_kit import HeldFiles, Shell, batch_of, until


@pytest.fixture
def files() -> HeldFiles:
    return HeldFiles(MemoryFiles())


@pytest.fixture
def shell(files: HeldFiles) -> Iterator[Shell]:
    with Shell(files=files) as shell:
        shell.create("t")
        yield shell
        files.release()


def test_nothing_is_told_before_it_is_durable_and_then_readers_first(shell: Shell, files: HeldFiles) -> None:
    appends = shell.services.appends
    told: list[object] = []
    on_committed = appends._on_committed

    def committed(partition: TopicPartition, length: int) -> None:
        told.append((partition.topic, length, shell.log("t").high_watermark))
        on_committed(partition, length)

    def done(ticket: Ticket) -> None:
        told.append(("done", ticket.base_offset, threading.current_thread().name))

    batch = batch_of()
    shell.call(lambda: setattr(appends, "_on_committed", committed))
    files.hold()
    shell.call(lambda: appends.append(shell.log("t"), batch, done))
    until(lambda: files.waiting)
    assert shell.log("t").log_end_offset == 1
    assert (told, shell.log("t").high_watermark) == ([], 0)
    files.release()
    until(lambda: len(told) == 2)
    assert told == [("t", len(batch), 1), ("done", 0, "shell")]


def test_many_are_told_by_one_call_on_the_event_loop(shell: Shell, files: HeldFiles) -> None:
    appends = shell.services.appends
    drains = 0
    drain = appends._drain

    def counted() -> None:
        nonlocal drains
        drains += 1
        drain()

    shell.call(lambda: setattr(appends, "_drain", counted))
    files.hold()
    done: list[int] = []
    for _ in range(200):
        shell.call(lambda: appends.append(shell.log("t"), batch_of(), lambda ticket: done.append(ticket.base_offset)))
    files.release()
    until(lambda: len(done) == 200)
    assert done == list(range(200))
    # The first commit had what was there, the second all the rest; a call may find what the one before it has taken.
    assert drains <= 5


def test_what_fails_is_told_to_the_appender_and_not_to_readers() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with Shell(files=files) as shell:
        shell.create("t")
        readers: list[int] = []
        tickets: list[Ticket] = []
        appends = shell.services.appends
        shell.call(lambda: setattr(appends, "_on_committed", lambda _partition, length: readers.append(length)))
        files.fail_at = files.calls + 1
        shell.call(lambda: appends.append(shell.log("t"), batch_of(), tickets.append))
        until(lambda: tickets)
        assert isinstance(tickets[0].error, StorageOfflineError)
        assert (readers, shell.log("t").high_watermark) == ([], 0)
        with pytest.raises(StorageOfflineError):
            shell.run(appends.append_records(shell.log("t"), [(b"k", b"v")]))


def test_a_bug_in_one_who_is_told_keeps_nobody_else_from_it(shell: Shell, files: HeldFiles) -> None:
    done: list[int] = []

    def fail(_ticket: Ticket) -> None:
        raise ZeroDivisionError

    files.hold()
    appends, log = shell.services.appends, shell.log("t")
    shell.call(lambda: appends.append(log, batch_of(), lambda ticket: done.append(ticket.base_offset)))
    until(lambda: files.waiting)
    for told in (fail, fail, lambda ticket: done.append(ticket.base_offset)):
        shell.call(lambda told=told: appends.append(log, batch_of(), told))  # type: ignore[misc]
    files.release()
    until(lambda: done == [0, 3])
    assert [type(context["exception"]) for context in shell.failures] == [ZeroDivisionError] * 2
    shell.failures.clear()


def test_one_who_waits_for_records_of_the_brokers_own_may_go_away(shell: Shell, files: HeldFiles) -> None:
    files.hold()

    async def begin_and_leave() -> None:
        task = asyncio.ensure_future(shell.services.appends.append_records(shell.log("t"), [(b"k", b"v")]))
        await asyncio.sleep(0)
        task.cancel()

    shell.run(begin_and_leave())
    files.release()
    shell.until(lambda: shell.log("t").high_watermark == 1)


def test_the_same_batch_again_is_done_when_the_first_is(shell: Shell, files: HeldFiles) -> None:
    """A retry that overtakes the sync of what it repeats must not be acknowledged by it."""

    def batch() -> bytearray:
        return build_batch([Record(value=b"v")], producer_id=1, producer_epoch=0, base_sequence=0)

    files.hold()
    done: list[tuple[int, bool]] = []
    committed: list[int] = []
    appends = shell.services.appends
    shell.call(lambda: setattr(appends, "_on_committed", lambda _partition, length: committed.append(length)))
    for _ in range(2):
        shell.call(
            lambda: appends.append(shell.log("t"), batch(), lambda one: done.append((one.base_offset, one.duplicate)))
        )
    until(lambda: files.waiting)
    assert done == []
    files.release()
    until(lambda: len(done) == 2)
    assert done == [(0, False), (0, True)]
    assert len(committed) == 1
