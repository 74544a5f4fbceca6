"""The logs of topics are created and deleted in steps: the files in threads, a few logs per turn of the event loop."""

import asyncio
import errno
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from logbrook.config import LogConfig, StorageConfig
from logbrook.core.metadata import TopicExistsError, TopicNotFoundError
from logbrook.model import TopicPartition
from logbrook.ports import Files
from logbrook.server.topic_changes import ChangePendingError
from logbrook.server.topic_logs import LOGS_PER_STEP, TopicLogs
from logbrook.server.topics import METADATA
from logbrook.storage.errors import DiskFullError
from logbrook.storage.log_directory import LogDirectory
from logbrook.testing import FaultyFiles, ForwardingFiles, MemoryFiles
from logbrook.testing.clock import FakeClock
from logbrook.testing.forwarding import MUTATING_CALLS
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.shell_kit import HeldFiles

LARGE = 3 * LOGS_PER_STEP + 5
SETTINGS = {"file.delete.delay.ms": "0"}


class CallsByThread(ForwardingFiles):
    """Counts the calls that change partitions of the topic `t` or deleted ones, by thread."""

    def __init__(self, inner: Files) -> None:
        super().__init__(inner)
        self.calls: Counter[tuple[bool, str]] = Counter()

    def before(self, call: str, path: str) -> None:
        if call in MUTATING_CALLS and (path.startswith("t-") or ".deleted" in path):
            self.calls[threading.current_thread() is threading.main_thread(), call] += 1


def held(topic: str = "t") -> HeldFiles:
    """Files in which the syncs of new partitions of a topic can be held."""
    return HeldFiles(MemoryFiles(), lambda path: path.startswith(f"{topic}-"))


def directories(shell: HandlerShell) -> list[str]:
    return [name for name in shell.files.list("") if name.startswith("t-")]


def test_no_file_of_a_topic_is_created_deleted_or_unlinked_on_the_event_loop() -> None:
    files = CallsByThread(MemoryFiles())
    with HandlerShell(files=files) as shell:
        shell.create("t", LARGE, SETTINGS)
        shell.run(shell.services.topics.delete("t"))
        shell.run(shell.broker.maintenance.run_once())
        assert shell.files.list("") == ["__cluster_metadata-0", "checkpoint", "lock", "wal"]
    assert files.calls[False, "make_dir"] == files.calls[False, "remove_dir"] == LARGE
    assert [call for is_on_loop, call in files.calls if is_on_loop] == []


def test_a_turn_of_the_event_loop_begins_and_finishes_a_few_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    logs_by_turn: Counter[tuple[str, int]] = Counter()
    turn = 0

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def begin_create(
        directory: LogDirectory, partitions: Sequence[TopicPartition], config: LogConfig, **options: Any
    ) -> Any:
        logs_by_turn["create", turn] += len(partitions)
        return create(directory, partitions, config, **options)

    def begin_delete(directory: LogDirectory, partitions: Sequence[TopicPartition], now_ms: int) -> Any:
        logs_by_turn["delete", turn] += len(partitions)
        return delete(directory, partitions, now_ms)

    create, delete = LogDirectory.begin_create, LogDirectory.begin_delete
    with HandlerShell() as shell:
        monkeypatch.setattr(LogDirectory, "begin_create", begin_create)
        monkeypatch.setattr(LogDirectory, "begin_delete", begin_delete)

        async def change() -> None:
            counting = asyncio.ensure_future(count_turns())
            await shell.services.topics.create("t", LARGE, {})
            await shell.services.topics.delete("t")
            counting.cancel()

        shell.run(change())
    assert logs_by_turn.total() == 2 * LARGE
    assert max(logs_by_turn.values()) <= LOGS_PER_STEP


def test_the_owner_is_notified_after_each_few_hundred_new_logs() -> None:
    calls: list[int] = []
    files = MemoryFiles()
    directory = LogDirectory.open(files, StorageConfig(), clock=FakeClock(0), now_ms=0)
    logs = TopicLogs(directory, FakeClock(0), lambda: calls.append(len(directory)))

    async def create() -> None:
        await logs.create((TopicPartition("t", number) for number in range(300)), LogConfig())
        await logs.create((TopicPartition("u", number) for number in range(300)), LogConfig())

    asyncio.run(create())
    logs.stop()
    directory.abandon()
    # In steps of 32 logs and less.
    assert calls == [256, 524]


def test_a_topic_is_visible_with_all_its_partitions_or_not_at_all() -> None:
    files = held()
    with HandlerShell(files=files) as shell:
        topics = shell.services.topics
        files.hold()
        creating = shell.call(lambda: asyncio.ensure_future(topics.create("t", LARGE, {})))
        for _ in range(LOGS_PER_STEP + 1):
            shell.until(lambda: files.waiting)
            files.let_one_through()
        # The first step is complete, the second is not.
        shell.until(lambda: len(topics.directory) == 1 + LOGS_PER_STEP)
        with pytest.raises(TopicNotFoundError):
            topics.log(TopicPartition("t", 0))
        assert topics.logs() == []
        files.release()
        assert shell.run(asyncio.wait_for(creating, 20)).partition_count == LARGE
        assert len(topics.logs()) == LARGE


def test_other_changes_do_not_wait_for_a_large_topic() -> None:
    files = held()
    with HandlerShell(files=files) as shell:
        topics = shell.services.topics
        shell.create("old", 2)
        files.hold()
        creating = shell.call(lambda: asyncio.ensure_future(topics.create("t", LARGE, {})))
        shell.until(lambda: files.waiting)
        shell.create("small", 2)
        shell.run(topics.add_partitions("old", 3))
        shell.run(topics.change_topic("old", lambda _: {"retention.ms": "5"}))
        shell.run(topics.change_broker(lambda _: {"log.retention.bytes": "7777"}))
        shell.run(topics.new_producer_id())
        shell.run(topics.delete("small"))
        shell.run(topics.make_missing_logs())
        assert not creating.done()
        files.release()
        shell.run(asyncio.wait_for(creating, 20))
        # Also those that were created before the setting of the broker was changed.
        assert {log.config.retention_bytes for log in topics.logs()} == {7777}


def test_changes_of_one_topic_wait_for_each_other() -> None:
    files = held()
    with HandlerShell(files=files) as shell:
        topics = shell.services.topics
        files.hold()

        async def change() -> list[Any]:
            changes = (
                topics.create("t", LARGE, {}),
                topics.create("t", 1, {}),
                topics.delete("t"),
                topics.create("t", 2, {}),
                topics.add_partitions("t", 4),
            )
            tasks = [asyncio.ensure_future(change) for change in changes]
            for _ in range(10):
                await asyncio.sleep(0)
            assert not any(task.done() for task in tasks)
            files.release()
            return await asyncio.gather(*tasks, return_exceptions=True)

        created, refused, deleted, again, grown = shell.run(change())
        assert (created.partition_count, deleted, again.partition_count, grown) == (LARGE, None, 2, None)
        assert isinstance(refused, TopicExistsError)
        assert topics.metadata.topic("t").partition_count == len(topics.logs()) == 4
        assert len(directories(shell)) == 4


@pytest.mark.parametrize("call", ["make_dir", "create", "pwrite", "rename"])
def test_a_creation_that_fails_on_a_full_disk_is_undone(call: str) -> None:
    last = f"t-{LOGS_PER_STEP + 3}"
    files = FaultyFiles(MemoryFiles(), 1, errno.ENOSPC, only={call}, matching=lambda path: path.split("/")[0] == last)
    with HandlerShell(files=files) as shell:
        topics = shell.services.topics
        with pytest.raises(DiskFullError):
            shell.create("t", LARGE)
        assert files.refused
        assert (list(topics.metadata.topics), len(topics.directory), directories(shell)) == ([], 1, [])
        shell.create("t", LARGE)
        assert len(topics.logs()) == LARGE


def test_a_creation_that_cannot_be_undone_is_undone_by_the_next_maintenance_round() -> None:
    def is_full(path: str) -> bool:
        return path.startswith(f"t-{LOGS_PER_STEP + 3}/") or (bool(files.refused) and path.startswith(METADATA.topic))

    files = FaultyFiles(MemoryFiles(), 1, errno.ENOSPC, only={"pwrite"}, matching=is_full, sticky=True)
    with HandlerShell(files=files) as shell:
        topics = shell.services.topics
        with pytest.raises(DiskFullError):
            shell.create("t", LARGE)
        assert [call.path.split("/")[0] for call in files.refused] == [f"t-{LOGS_PER_STEP + 3}", METADATA.directory]
        with pytest.raises(TopicNotFoundError):
            topics.metadata.topic("t")
        with pytest.raises(TopicExistsError):
            shell.create("t")
        files.fail_at = None
        shell.run(shell.broker.maintenance.run_once())
        assert (list(topics.metadata.topics), len(topics.directory), directories(shell)) == ([], 1, [])


def test_a_stop_does_not_wait_for_a_large_topic_and_the_next_start_undoes_it() -> None:
    memory = MemoryFiles()
    files = HeldFiles(memory, lambda path: path.startswith("t-"))
    with HandlerShell(files=files) as shell:
        files.hold()
        creating = shell.call(lambda: asyncio.ensure_future(shell.services.topics.create("t", LARGE, {})))
        shell.until(lambda: files.waiting)
        shell.call(shell.services.topics.begin_stop)
        files.release()
        shell.stop()
        assert isinstance(creating.exception(), ChangePendingError)
    assert any(name.startswith("t-") for name in memory.list(""))
    with HandlerShell(files=memory) as shell:
        assert (list(shell.services.topics.metadata.topics), directories(shell)) == ([], [])


def test_small_changes_are_finished_while_the_broker_stops() -> None:
    with HandlerShell() as shell:
        topics = shell.services.topics
        shell.create("old", LOGS_PER_STEP)
        shell.call(topics.begin_stop)
        shell.create("t", LOGS_PER_STEP)
        shell.run(topics.delete("old"))
        assert len(topics.logs()) == len(directories(shell)) == LOGS_PER_STEP


def test_a_stop_in_the_middle_of_a_deletion_leaves_the_rest_to_the_next_start() -> None:
    memory = MemoryFiles()
    with HandlerShell(files=memory) as shell:
        shell.create("t", LARGE)
        shell.call(shell.services.topics.begin_stop)
        with pytest.raises(ChangePendingError):
            shell.run(shell.services.topics.delete("t"))
        assert len(directories(shell)) == LARGE - LOGS_PER_STEP
    with HandlerShell(files=memory) as shell:
        assert (list(shell.services.topics.metadata.topics), directories(shell)) == ([], [])
