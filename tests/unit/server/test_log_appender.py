"""Appends of the broker: callbacks, their order and their thread."""

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.storage.errors import StorageOfflineError
from logbrook.storage.pending_append import PendingAppend
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


def test_nothing_is_notified_before_the_append_is_durable_and_then_fetches_first(
    shell: Shell, files: HeldFiles
) -> None:
    appender = shell.services.appender
    notifications: list[object] = []
    on_committed = appender._on_committed

    def committed(partition: TopicPartition, length: int) -> None:
        notifications.append((partition.topic, length, shell.log("t").high_watermark))
        on_committed(partition, length)

    def done(append: PendingAppend) -> None:
        notifications.append(("done", append.base_offset, threading.current_thread().name))

    batch = batch_of()
    shell.call(lambda: setattr(appender, "_on_committed", committed))
    files.hold()
    shell.call(lambda: appender.append(shell.log("t"), batch, done))
    until(lambda: files.waiting)
    assert shell.log("t").log_end_offset == 1
    assert (notifications, shell.log("t").high_watermark) == ([], 0)
    files.release()
    until(lambda: len(notifications) == 2)
    assert notifications == [("t", len(batch), 1), ("done", 0, "shell")]


def test_a_commit_is_drained_by_one_call_on_the_event_loop(shell: Shell, files: HeldFiles) -> None:
    appender = shell.services.appender
    drains = 0
    drain = appender._drain

    def counted(appends: Sequence[PendingAppend]) -> None:
        nonlocal drains
        drains += 1
        drain(appends)

    shell.call(lambda: setattr(appender, "_drain", counted))
    files.hold()
    done: list[int] = []
    for _ in range(200):
        shell.call(lambda: appender.append(shell.log("t"), batch_of(), lambda append: done.append(append.base_offset)))
    files.release()
    until(lambda: len(done) == 200)
    assert done == list(range(200))
    # The first commit has the first appends, the second all others; a call may find that an earlier one has handled it.
    assert drains <= 5


def test_a_failed_append_is_reported_to_its_callback_and_not_to_fetches() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with Shell(files=files) as shell:
        shell.create("t")
        readers: list[int] = []
        appends: list[PendingAppend] = []
        appender = shell.services.appender
        shell.call(lambda: setattr(appender, "_on_committed", lambda _partition, length: readers.append(length)))
        files.fail_at = files.calls + 1
        shell.call(lambda: appender.append(shell.log("t"), batch_of(), appends.append))
        until(lambda: appends)
        assert isinstance(appends[0].error, StorageOfflineError)
        assert (readers, shell.log("t").high_watermark) == ([], 0)
        with pytest.raises(StorageOfflineError):
            shell.run(appender.append_durably(shell.log("t"), batch_of()))


def test_an_exception_in_one_callback_does_not_stop_the_others(shell: Shell, files: HeldFiles) -> None:
    done: list[int] = []

    def fail(_append: PendingAppend) -> None:
        raise ZeroDivisionError

    files.hold()
    appender, log = shell.services.appender, shell.log("t")
    shell.call(lambda: appender.append(log, batch_of(), lambda append: done.append(append.base_offset)))
    until(lambda: files.waiting)
    for notifications in (fail, fail, lambda append: done.append(append.base_offset)):
        shell.call(lambda notifications=notifications: appender.append(log, batch_of(), notifications))  # type: ignore[misc]
    files.release()
    until(lambda: done == [0, 3])
    assert [type(context["exception"]) for context in shell.failures] == [ZeroDivisionError] * 2
    shell.failures.clear()


def test_a_cancelled_append_of_internal_records_is_still_committed(shell: Shell, files: HeldFiles) -> None:
    files.hold()

    async def begin_and_leave() -> None:
        task = asyncio.ensure_future(shell.services.appender.append_durably(shell.log("t"), batch_of()))
        await asyncio.sleep(0)
        task.cancel()

    shell.run(begin_and_leave())
    files.release()
    shell.until(lambda: shell.log("t").high_watermark == 1)


def test_the_same_batch_again_is_done_when_the_first_is(shell: Shell, files: HeldFiles) -> None:
    """A retry that arrives before the sync of the original must not be acknowledged by it earlier."""

    def batch() -> bytearray:
        return build_batch(
            [Record(value=b"v")], producer_id=ProducerId(1), producer_epoch=ProducerEpoch(0), base_sequence=0
        )

    files.hold()
    done: list[tuple[int, bool]] = []
    committed: list[int] = []
    appender = shell.services.appender
    shell.call(lambda: setattr(appender, "_on_committed", lambda _partition, length: committed.append(length)))
    for _ in range(2):
        shell.call(
            lambda: appender.append(
                shell.log("t"), batch(), lambda appended: done.append((appended.base_offset, appended.duplicate))
            )
        )
    until(lambda: files.waiting)
    assert done == []
    files.release()
    until(lambda: len(done) == 2)
    assert done == [(0, False), (0, True)]
    assert len(committed) == 1
