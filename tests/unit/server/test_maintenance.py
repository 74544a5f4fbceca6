"""Maintenance: its schedule, that it does not block requests, and that it can be stopped."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logbrook.client.connection import Connection
from logbrook.config import BrokerConfig
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import OsFiles
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import FetchResponse, PartitionData
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.records.batch import check_batch, iter_headers
from logbrook.records.reader import iter_records
from logbrook.server import maintenance
from logbrook.server.compaction_worker import CompactionWorker, WorkerCleaner
from logbrook.server.maintenance import MaintenanceResult
from logbrook.storage.compaction import Compaction
from logbrook.storage.errors import CleanerFailedError
from logbrook.testing import FaultyFiles, MemoryFiles
from logbrook.testing.clock import FakeClock
from tests.unit.server.shell_kit import (
    DEADLINE_S,
    FETCH_VERSION,
    KIB,
    HeldFiles,
    Shell,
    batch_of,
    fetch_request,
    produce_request,
    until,
)

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "300", "min.cleanable.dirty.ratio": "0"}
A_DAY_MS = 24 * 60 * 60 * 1_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(10 * A_DAY_MS)


@pytest.fixture
def shell(clock: FakeClock) -> Iterator[Shell]:
    with Shell(clock=clock) as shell:
        yield shell


@pytest.fixture
def client(shell: Shell) -> Iterator[Connection]:
    with closing(shell.client()) as client:
        yield client


def append(client: Connection, topic: str, count: int = 1, key: bytes = b"k") -> None:
    for _ in range(count):
        batch = batch_of(100, key)
        (answer,) = client.request(produce_request(topic, batch), ProduceResponse, 12).responses
        assert answer.partition_responses[0].error_code == ErrorCode.NONE


def fetch(client: Connection, topic: str, offset: int = 0) -> PartitionData:
    (answer,) = client.request(fetch_request(topic, offset), FetchResponse, FETCH_VERSION).responses
    (data,) = answer.partitions
    return data


def fetched_offsets(client: Connection, topic: str) -> list[int]:
    """Return the base offsets of the batches of a topic."""
    records = fetch(client, topic).records
    assert isinstance(records, bytes | bytearray | memoryview)
    return [header.base_offset for _, header in iter_headers(records)]


def maintain(shell: Shell) -> MaintenanceResult:
    return shell.run(shell.broker.maintenance.run_once())


def checkpoint(shell: Shell) -> None:
    shell.run(shell.broker.maintenance.checkpoint())


@contextmanager
def slow_compaction(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Yield (event that is set when a compaction has begun, event to set to let it continue)."""
    begun, may_go_on = threading.Event(), threading.Event()
    build_map = Compaction.build_map

    def slow(compaction: Compaction) -> None:
        begun.set()
        assert may_go_on.wait(DEADLINE_S)
        build_map(compaction)

    with monkeypatch.context() as patch:
        patch.setattr(Compaction, "build_map", slow)
        yield begun, may_go_on
        may_go_on.set()


def begin(shell: Shell, work: Any) -> "Future[Any]":
    return asyncio.run_coroutine_threadsafe(work, shell.services.loop)


# Schedule


def test_on_demand_nothing_is_removed_before_a_request(shell: Shell, client: Connection, clock: FakeClock) -> None:
    shell.create("t", 1, {"retention.ms": "1000", "segment.bytes": "300", "file.delete.delay.ms": "0"})
    append(client, "t", 10)
    checkpoint(shell)
    clock.advance(A_DAY_MS)
    assert len(shell.broker.maintenance._tasks) == 1
    assert shell.log("t").log_start_offset == 0
    done = maintain(shell)
    assert (done.segments_removed, done.files_unlinked) == (10, 20)
    assert (shell.log("t").log_start_offset, shell.log("t").log_end_offset) == (10, 10)
    assert maintain(shell) == MaintenanceResult()


def test_maintenance_runs_in_the_background(clock: FakeClock) -> None:
    settings = {"maintenance": {"mode": "background", "interval_ms": 20}, "storage": {"checkpoint_interval_ms": 1}}
    with Shell(settings, clock=clock) as shell, closing(shell.client()) as client:
        shell.create("t", 1, {"retention.ms": "1000", "segment.bytes": "300"})
        append(client, "t", 5)
        clock.advance(A_DAY_MS)
        shell.until(lambda: shell.log("t").log_start_offset == 5)


def test_a_compaction_does_not_wait_for_the_next_checkpoint(shell: Shell, client: Connection) -> None:
    shell.create("compacted", 1, COMPACTED)
    append(client, "compacted", 5)
    assert shell.log("compacted").recovery_point.offset == 0
    assert maintain(shell).logs_compacted == 1
    assert shell.log("compacted").recovery_point.offset == 5


@pytest.fixture
def disk_shell(clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A broker on a disk, whose compactions run in a worker process, whatever their size."""
    monkeypatch.setattr(maintenance, "CompactionWorker", partial(CompactionWorker, bytes_min=0))
    with Shell(clock=clock, files=OsFiles(tmp_path)) as shell:
        yield shell


def test_a_compaction_in_a_worker_process_is_stopped_with_the_round(disk_shell: Shell) -> None:
    disk_shell.create("compacted", 1, COMPACTED)
    with closing(disk_shell.client()) as client:
        append(client, "compacted", 5)
        done = maintain(disk_shell)
        assert (done.logs_compacted, done.errors) == (1, [])
        assert fetched_offsets(client, "compacted") == [3, 4]
    assert disk_shell.log("compacted").environment.probe.compaction_worker_failures == 0
    assert disk_shell.broker.maintenance._compaction_worker.pid is None


def test_a_failed_compaction_worker_is_counted_and_the_broker_compacts_the_log(
    disk_shell: Shell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_cleaner: WorkerCleaner) -> Offset:
        raise CleanerFailedError("it exited with code -9")

    monkeypatch.setattr(WorkerCleaner, "build_map", fail)
    disk_shell.create("compacted", 1, COMPACTED)
    with closing(disk_shell.client()) as client, caplog.at_level(logging.WARNING):
        append(client, "compacted", 5)
        done = maintain(disk_shell)
        assert (done.logs_compacted, done.errors) == (1, [])
        assert fetched_offsets(client, "compacted") == [3, 4]
    assert disk_shell.log("compacted").environment.probe.compaction_worker_failures == 1
    assert [record.levelname for record in caplog.records if "compaction worker failed" in record.message] == [
        "WARNING"
    ]


def test_a_round_begins_with_a_checkpoint_only_if_a_compaction_is_due(shell: Shell, client: Connection) -> None:
    shell.create("removed", 1, {"segment.bytes": "300"})
    shell.create("compacted", 1, {**COMPACTED, "segment.bytes": "1000000"})
    append(client, "removed", 5)
    append(client, "compacted", 5)
    assert maintain(shell).logs_compacted == 0
    assert shell.log("removed").recovery_point.offset == shell.log("compacted").recovery_point.offset == 0


def test_one_checkpoint_serves_all_logs_of_a_round(shell: Shell, client: Connection) -> None:
    for topic in ("first", "second"):
        shell.create(topic, 1, COMPACTED)
        append(client, topic, 5)
    assert maintain(shell).logs_compacted == 2


def test_at_default_settings_a_compaction_begins_within_20_seconds() -> None:
    assert BrokerConfig().maintenance.interval_ms <= 15_000


def test_checkpoints_release_the_write_ahead_log_in_every_maintenance_mode() -> None:
    files = MemoryFiles()
    storage = {"wal_file_bytes": 8 * KIB, "wal_bytes_max": 16 * KIB, "checkpoint_interval_ms": 3_600_000}
    with Shell({"storage": storage}, files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        durability = shell.broker.directory.environment.durability
        while shell.call(lambda: durability.bytes_in_use) < 32 * KIB:
            append(client, "t", 20)
        shell.until(lambda: durability.bytes_in_use <= 16 * KIB)
        assert shell.log("t").recovery_point.offset > 0


def test_lazy_flushes_are_checkpoints_too() -> None:
    storage = {"durability": "interval", "flush_interval_ms": 20}
    with Shell({"storage": storage}) as shell, closing(shell.client()) as client:
        shell.create("t")
        append(client, "t", 3)
        shell.until(lambda: shell.log("t").recovery_point.offset == 3)


# Requests during maintenance


def test_records_are_taken_and_read_while_a_checkpoint_is_syncing() -> None:
    files = HeldFiles(MemoryFiles(), matching=lambda path: path.startswith("t-0/"))
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        append(client, "t", 3)
        files.hold()
        syncing = begin(shell, shell.broker.maintenance.checkpoint())
        until(lambda: files.waiting)
        append(client, "t", 3)
        assert fetch(client, "t").high_watermark == 6
        files.release()
        syncing.result(DEADLINE_S)
        assert shell.log("t").recovery_point.offset == 3


def test_two_checkpoints_at_once_take_their_turns() -> None:
    files = HeldFiles(MemoryFiles(), matching=lambda path: path.startswith("t-0/"))
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        append(client, "t")
        files.hold()
        both = [begin(shell, shell.broker.maintenance.checkpoint()) for _ in range(2)]
        until(lambda: files.waiting)
        append(client, "t")
        files.release()
        for checkpointing in both:
            checkpointing.result(DEADLINE_S)
        assert shell.log("t").recovery_point.offset == 2


def test_records_are_taken_and_read_while_a_log_is_compacted(
    shell: Shell, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.create("t", 1, COMPACTED)
    append(client, "t", 20, b"old")
    append(client, "t", 2, b"new")
    checkpoint(shell)
    with slow_compaction(monkeypatch) as (begun, may_go_on):
        compacting = begin(shell, shell.broker.maintenance.run_once())
        assert begun.wait(DEADLINE_S)
        before = fetch(client, "t")
        append(client, "t", 2, b"newer")
        may_go_on.set()
        assert compacting.result(DEADLINE_S).logs_compacted == 1
    data = bytes(before.records)  # type: ignore[arg-type]
    assert len(list(iter_records(data, 0, bytes_max=1 << 20))) >= 1
    after = fetch(client, "t")
    assert after.high_watermark == 24
    assert len(after.records or b"") < len(data)


def test_readers_below_the_log_start_offset_get_offset_out_of_range(
    shell: Shell, client: Connection, clock: FakeClock
) -> None:
    shell.create("t", 1, {"retention.ms": "1000", "segment.bytes": "300"})
    append(client, "t", 4)
    checkpoint(shell)
    clock.advance(A_DAY_MS)
    request = fetch_request("t", 0, wait_ms=600_000, min_bytes=100 * KIB)
    sent = client.send(request, FetchResponse, FETCH_VERSION)
    shell.until(lambda: len(shell.services.fetch_purgatory) == 1)
    maintain(shell)
    (data,) = client.receive(sent).responses[0].partitions
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_topic_may_be_deleted_in_the_middle_of_a_round(
    shell: Shell, client: Connection, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions deleted before the round reaches them are skipped; they are not reported as disk failures."""
    shell.create("a", 1, COMPACTED)
    shell.create("b", 1, {"segment.ms": "1000"})
    shell.create("c", 1, {"segment.ms": "1000"})
    for topic in "abc":
        append(client, topic, 10)
    checkpoint(shell)
    clock.advance(10_000)
    with slow_compaction(monkeypatch) as (begun, may_go_on):
        compacting = begin(shell, shell.broker.maintenance.run_once())
        assert begun.wait(DEADLINE_S)
        shell.run(shell.services.topics.delete("b"))
        shell.run(shell.services.topics.delete("c"))
        shell.create("c")
        append(client, "c")
        may_go_on.set()
        compacting.result(DEADLINE_S)
    assert shell.broker.directory.environment.health.failure is None
    assert shell.log("c").closed == []
    append(client, "c")
    assert fetch(client, "c").high_watermark == 2


def test_a_topic_may_be_deleted_while_it_is_compacted(
    shell: Shell, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.create("a", 1, COMPACTED)
    append(client, "a", 20)
    checkpoint(shell)
    with slow_compaction(monkeypatch) as (begun, may_go_on):
        compacting = begin(shell, shell.broker.maintenance.run_once())
        assert begun.wait(DEADLINE_S)
        shell.run(shell.services.topics.delete("a"))
        may_go_on.set()
        assert compacting.result(DEADLINE_S).logs_compacted == 0
    assert shell.broker.directory.environment.health.failure is None


def test_one_log_that_cannot_be_maintained_does_not_keep_the_others(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFiles()
    with Shell(files=files, clock=clock) as shell, closing(shell.client()) as client:
        for topic in "ab":
            shell.create(topic, 1, COMPACTED)
            append(client, topic, 10)
        checkpoint(shell)
        files.open(shell.log("a").closed[3].path).pwrite(b"\xff", 100)
        assert maintain(shell).logs_compacted == 1
        assert "partition maintenance failed partition=TopicPartition(topic='a', partition=0)" in caplog.text
        assert fetch(client, "a", 3).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert fetch(client, "b").high_watermark == 10
        assert shell.broker.directory.environment.health.failure is None


def test_the_metadata_is_compacted_too() -> None:
    with Shell() as shell:
        shell.create("t", 1)
        metadata = shell.broker.directory.get(TopicPartition("__cluster_metadata", 0))
        shell.call(lambda: setattr(metadata, "config", replace(metadata.config, segment_bytes=2_000)))
        for number in range(60):
            settings = {"retention.ms": str(number)}
            shell.run(shell.services.topics.change_topic("t", lambda _, settings=settings: settings))  # type: ignore[misc]
        checkpoint(shell)
        size = metadata.size
        assert maintain(shell).logs_compacted == 1
        assert metadata.size < size / 2
        files = shell.files
        assert isinstance(files, MemoryFiles)
        with Shell(files=MemoryFiles(files)) as again:
            topic = again.services.topics.metadata.topic("t")
            assert topic.settings == {"retention.ms": "59"}
            assert again.services.topics.metadata.epoch == shell.services.topics.metadata.epoch + 1
            assert again.services.topics.metadata.cluster_id == shell.services.topics.metadata.cluster_id


class Reader(threading.Thread):
    """Reads a topic from its start over and over, and checks what it reads."""

    def __init__(self, shell: Shell, topic: str) -> None:
        super().__init__()
        self._address = shell.address
        self._topic = topic
        self.is_enough = threading.Event()
        self.rounds = 0
        self.newest: dict[bytes, int] = {}
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with closing(Connection(*self._address)) as client:
                while not self.is_enough.is_set():
                    self._read_all(client)
                    self.rounds += 1
        except BaseException as error:
            self.failure = error

    def _read_all(self, client: Connection) -> None:
        self.newest = {}
        offset = start = 0
        while True:
            data = fetch(client, self._topic, offset)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                # Retention has removed the segment. A consumer would continue at the log start offset.
                start += 1
                offset = max(offset, start)
                continue
            assert data.error_code == ErrorCode.NONE
            records = memoryview(bytes(data.records or b""))  # type: ignore[arg-type]
            if not records:
                return
            for position, header in iter_headers(records):
                check_batch(records, position, len(records))
                assert header.last_offset >= offset, "it goes back"
                for record in iter_records(records, position, bytes_max=1 << 20):
                    assert record.key is not None
                    self.newest[record.key] = record.offset
                offset = header.next_offset


def test_readers_see_whole_batches_in_order_while_logs_are_compacted_and_removed(
    shell: Shell, client: Connection, clock: FakeClock
) -> None:
    shell.create("compacted", 1, {**COMPACTED, "segment.bytes": "1000", "file.delete.delay.ms": "0"})
    shell.create("removed", 1, {"retention.bytes": "3000", "segment.bytes": "1000", "file.delete.delay.ms": "0"})
    readers = [Reader(shell, "compacted"), Reader(shell, "removed")]
    for reader in readers:
        reader.start()
    compacted = removed = 0
    for number in range(30):
        for topic in ("compacted", "removed"):
            append(client, topic, 5, b"key-%d" % (number % 3))
        clock.advance(1_000)
        checkpoint(shell)
        done = maintain(shell)
        compacted += done.logs_compacted
        removed += done.segments_removed
    rounds = [reader.rounds for reader in readers]
    until(lambda: all(reader.rounds > before + 1 for reader, before in zip(readers, rounds, strict=True)))
    for reader in readers:
        reader.is_enough.set()
        reader.join()
        assert reader.failure is None
    assert compacted > 10
    assert removed > 10
    assert readers[0].newest == {b"key-0": 139, b"key-1": 144, b"key-2": 149}
    for topic in ("compacted", "removed"):
        shell.call(shell.log(topic).validate)


# Stopping


def test_a_stop_in_the_middle_of_a_compaction_finishes_the_step_and_no_more(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = MemoryFiles()
    with Shell(files=files, clock=clock) as shell, closing(shell.client()) as client:
        for topic in "ab":
            shell.create(topic, 1, COMPACTED)
            append(client, topic, 20)
        checkpoint(shell)
        with slow_compaction(monkeypatch) as (begun, may_go_on):
            compacting = begin(shell, shell.broker.maintenance.run_once())
            assert begun.wait(DEADLINE_S)
            stopping = shell.begin_stop()
            until(shell.broker.maintenance._stopping.is_set)
            may_go_on.set()
            stopping.result(DEADLINE_S)
            compacting.result(DEADLINE_S)
    with Shell(files=files, clock=clock) as again, closing(again.client()) as client:
        assert again.broker.directory.members[0].report.changed_anything is False
        for topic in "ab":
            assert fetch(client, topic).high_watermark == 20
            again.call(lambda topic=topic: again.log(topic).validate())  # type: ignore[misc]


def test_a_stop_waits_for_a_requested_checkpoint() -> None:
    files = HeldFiles(MemoryFiles(), matching=lambda path: path.startswith("t-0/"))
    with Shell(files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        append(client, "t")
        files.hold()
        syncing = begin(shell, shell.broker.maintenance.checkpoint())
        until(lambda: files.waiting)
        stopping = shell.begin_stop()
        until(shell.broker.maintenance._stopping.is_set)
        assert not stopping.done()
        files.release()
        syncing.result(DEADLINE_S)
        stopping.result(DEADLINE_S)


def a_failed_sync(path: str) -> bool:
    return path.startswith("t-0/")


def a_failed_checkpoint(path: str) -> bool:
    return path.startswith("checkpoint")


@pytest.mark.parametrize("matching", [a_failed_sync, a_failed_checkpoint])
def test_a_checkpoint_that_fails_takes_the_broker_offline_and_it_stops_all_the_same(
    matching: Callable[[str], bool],
) -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=matching)
    with Shell({"storage": {"checkpoint_interval_ms": 1}}, files=files) as shell, closing(shell.client()) as client:
        shell.create("t")
        files.fail_at = files.calls + 1
        append(client, "t")
        shell.until(lambda: shell.broker.directory.environment.health.failure is not None)
        (answer,) = client.request(produce_request("t", batch_of()), ProduceResponse, 12).responses
        assert answer.partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert fetch(client, "t").high_watermark == 1


def test_a_round_makes_the_logs_for_which_there_was_no_room() -> None:
    with Shell() as shell:
        topics = shell.services.topics
        shell.run(topics.create("t", 3, {}))
        missing = TopicPartition("t", 1)
        shell.call(lambda: shell.broker.directory.delete(missing, 0))
        shell.run(shell.broker.maintenance.run_once())
        assert missing in shell.broker.directory
