"""Topics: interrupted changes are completed by the next start, and ids are never reused."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from logbrook.config import LogConfig, StorageConfig, accepted_settings
from logbrook.config.kafka_settings import InvalidSettingError
from logbrook.core.metadata import (
    InvalidPartitionsError,
    TopicCollisionError,
    TopicExistsError,
    TopicNotFoundError,
)
from logbrook.model import InvalidTopicNameError, TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import Files, SystemClock
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.broker import BrokerServer
from logbrook.server.topics import METADATA, Topics
from logbrook.storage.errors import (
    CorruptLogError,
    DiskFullError,
    PartitionNotFoundError,
    StorageError,
    StorageOfflineError,
)
from logbrook.storage.log_directory import LogDirectory
from logbrook.testing import FaultyFiles, MemoryFiles, RecordingFiles
from logbrook.testing.crash_states import CrashState, crash_states
from tests.unit.server.shell_kit import HeldFiles, Shell, batch_of, broker_config, until

SMALL = {"storage": {"wal_file_bytes": 4096}}


def running(files: Files, check: Callable[[BrokerServer], Coroutine[Any, Any, None]]) -> None:
    """Start a broker, check it, and stop it."""

    async def run() -> None:
        broker = BrokerServer(broker_config(SMALL), files=files)
        await broker.start()
        try:
            await check(broker)
        finally:
            await broker.stop()

    uvloop.run(run())


def is_whole(broker: BrokerServer) -> None:
    """Assert the invariants of every started broker: its metadata is valid and matches the logs on disk."""
    topics, directory = broker.services.topics, broker.directory
    topics.metadata.validate()
    expected = {METADATA}
    for topic in topics.metadata.topics.values():
        assert not topic.is_deleting
        expected |= set(topic.partitions)
    assert {log.partition for log in directory} == expected
    for log in directory:
        log.validate()


# Crashes


class History:
    """The journal of a broker's file operations, with marks for its epoch and for the begin and end of each step."""

    def __init__(self) -> None:
        self.files = RecordingFiles()

    async def step(self, operation: str, work: Coroutine[Any, Any, Any]) -> Any:
        self.files.mark(("begun", operation))
        done = await work
        self.files.mark(("done", operation, done))
        return done

    async def run(self) -> None:
        broker = BrokerServer(broker_config(SMALL), files=self.files)
        await broker.start()
        topics = broker.services.topics
        self.files.mark(("epoch", topics.metadata.epoch))
        self.files.mark(("cluster", topics.metadata.cluster_id))
        await self.step("create", topics.create("t", 2, {"retention.ms": "7"}))
        await self.step("keep", topics.create("kept", 1, {}))
        await self.step(
            "append", broker.services.appender.append_durably(topics.log(TopicPartition("kept", 0)), batch_of())
        )
        await self.step("grow", topics.add_partitions("t", 4))
        await self.step("configure", topics.change_topic("t", lambda _: {"retention.ms": "8"}))
        await self.step("configure broker", topics.change_broker(lambda _: {"log.retention.bytes": "9999"}))
        await self.step("id", topics.new_producer_id())
        await self.step("delete", topics.delete("t"))
        await self.step("create again", topics.create("t", 1, {}))
        await broker.stop()


def check_survival(state: CrashState) -> Callable[[BrokerServer], Coroutine[Any, Any, None]]:
    begun = {mark[1] for mark in state.marks if mark[0] == "begun"}  # type: ignore[index]
    done = {mark[1]: mark[2] for mark in state.marks if mark[0] == "done"}  # type: ignore[index]
    epochs = [mark[1] for mark in state.marks if mark[0] == "epoch"]  # type: ignore[index]
    clusters = {mark[1] for mark in state.marks if mark[0] == "cluster"}  # type: ignore[index]

    async def check(broker: BrokerServer) -> None:
        is_whole(broker)
        topics = broker.services.topics
        metadata = topics.metadata
        assert metadata.epoch > max(epochs, default=-1)
        assert not clusters or metadata.cluster_id in clusters
        topic = metadata.topics.get("t")
        if "delete" not in begun:
            if "create" in done:
                assert topic is not None
                assert topic.id == done["create"].id
                assert topic.partition_count in ({4} if "grow" in done else {2, 4} if "grow" in begun else {2})
                allowed = {"8"} if "configure" in done else {"7", "8"} if "configure" in begun else {"7"}
                assert topic.settings["retention.ms"] in allowed
                assert topics.log(TopicPartition("t", 0)).config.retention_ms == int(topic.settings["retention.ms"])
            elif "create" not in begun:
                assert topic is None
        elif "delete" in done:
            assert topic is None or topic.id != done["create"].id
            if "create again" in done:
                assert topic is not None
                assert (topic.id, topic.partition_count) == (done["create again"].id, 1)
        if "append" in done:
            assert topics.log(TopicPartition("kept", 0)).high_watermark == 1
        if "configure broker" in done:
            assert topics.defaults.retention_bytes == 9999
        if "id" in done:
            assert await topics.new_producer_id() > done["id"]

    return check


@pytest.mark.slow
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_crash_between_two_steps_is_made_good_by_the_next_start(step: int) -> None:
    """The crash happens after every `step`-th operation on the disk."""
    history = History()
    uvloop.run(history.run())
    count = 0
    journal = history.files.journal
    for state in crash_states(journal, prefixes=range(0, len(journal.ops) + 1, step)):
        try:
            running(state.files, check_survival(state))
            # The same again, from the state after the first start.
            if state.prefix % 7 == 0:
                running(state.files, check_survival(state))
        except BaseException as error:
            raise AssertionError(f"after {state}") from error
        count += 1
    assert count > 200 // step


@pytest.mark.parametrize("calls", ["fsync", "fsync_dir", "rename", "create", "pwrite", "make_dir"])
def test_a_disk_failure_in_the_middle_is_reported_and_the_next_start_finishes(calls: str) -> None:
    for fail_after in range(1, 6):
        memory = MemoryFiles()
        files = FaultyFiles(memory, only={calls})

        async def break_it(files: FaultyFiles = files, fail_after: int = fail_after) -> None:
            broker = BrokerServer(broker_config(SMALL), files=files)
            await broker.start()
            topics = broker.services.topics
            await topics.create("old", 2, {})
            files.fail_at = files.calls + fail_after
            for work in (topics.create("t", 2, {}), topics.add_partitions("old", 3), topics.delete("old")):
                try:
                    await work
                except StorageError:
                    continue
            files.fail_at = None
            try:
                await broker.stop()
            except StorageError:
                return

        async def check(broker: BrokerServer) -> None:
            is_whole(broker)

        uvloop.run(break_it())
        running(MemoryFiles(memory), check)


def test_a_client_that_disconnects_at_any_step_leaves_no_partial_change() -> None:
    """Cancelled at each await in turn."""
    for turns in range(12):
        memory = MemoryFiles()

        async def ask_and_leave(memory: MemoryFiles = memory, turns: int = turns) -> None:
            broker = BrokerServer(broker_config(SMALL), files=memory)
            await broker.start()
            topics = broker.services.topics
            await topics.create("old", 20, {})
            for work in (topics.create("new", 20, {}), topics.delete("old")):
                task = asyncio.ensure_future(work)
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await broker.stop()

        async def check(broker: BrokerServer) -> None:
            is_whole(broker)

        uvloop.run(ask_and_leave())
        running(memory, check)


def test_epochs_rise_with_every_start() -> None:
    files = MemoryFiles()
    epochs = []

    async def note(broker: BrokerServer) -> None:
        epochs.append(broker.services.topics.metadata.epoch)
        assert broker.services.appender.leader_epoch == epochs[-1]

    for _ in range(5):
        running(files, note)
    assert epochs == [0, 1, 2, 3, 4]


# A full disk


def test_a_broker_on_a_full_disk_starts_serves_reads_and_accepts_writes_after_space_is_freed() -> None:
    files = MemoryFiles()
    orders = TopicPartition("orders", 0)

    async def write(broker: BrokerServer) -> None:
        await broker.services.topics.create("orders", 1, {})
        await broker.services.appender.append_durably(broker.directory.get(orders), batch_of())

    async def read_only(broker: BrokerServer) -> None:
        services, log = broker.services, broker.directory.get(orders)
        assert services.topics.metadata.epoch == 0
        assert log.read(Offset(0), 1000).next_offset == 1
        files.capacity_bytes = None
        # Not even if there is space: records must be written in a new epoch.
        with pytest.raises(DiskFullError):
            services.appender.append(log, batch_of(), lambda _append: None)
        await broker.maintenance.run_once()
        assert services.topics.metadata.epoch == services.appender.leader_epoch == 1
        await services.appender.append_durably(log, batch_of())
        assert log.high_watermark == 2

    running(files, write)
    files.capacity_bytes = files.used_bytes()
    running(files, read_only)


def test_a_broker_that_has_nothing_to_serve_does_not_start_on_a_full_disk() -> None:
    with pytest.raises(StorageError):
        running(MemoryFiles(capacity_bytes=4096), never)


# Partitions without metadata


def leave_stray_log(files: Files, name: str, number: int = 0) -> None:
    directory = LogDirectory.open(files, StorageConfig(wal_file_bytes=4096), clock=SystemClock(), now_ms=0)
    log = directory.create(TopicPartition(name, number), LogConfig())
    log.append(batch_of(), now_ms=0)
    directory.close()


def test_logs_without_metadata_are_kept_and_not_served(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    leave_stray_log(files, "stray")
    with caplog.at_level(logging.WARNING), Shell(files=files) as shell:
        topics = shell.services.topics
        assert "stray-0" in caplog.text
        with pytest.raises(TopicNotFoundError):
            topics.log(TopicPartition("stray", 0))
        assert topics.logs() == []
        shell.run(shell.broker.maintenance.run_once())
    assert "stray-0" in files.list("")
    assert any(name.endswith(".log") for name in files.list("stray-0"))


def test_a_new_topic_does_not_reuse_the_records_of_an_orphaned_log() -> None:
    files = MemoryFiles()
    leave_stray_log(files, "stray")
    with Shell(files=files) as shell:
        topics = shell.services.topics
        with pytest.raises(TopicExistsError):
            shell.create("stray")
        assert "stray" not in topics.metadata.topics


def test_a_new_partition_does_not_reuse_an_orphaned_log() -> None:
    files = MemoryFiles()
    with Shell(files=files) as shell:
        shell.create("t", 1)
    leave_stray_log(files, "t", 1)
    with Shell(files=files) as shell:
        with pytest.raises(TopicExistsError):
            shell.run(shell.services.topics.add_partitions("t", 2))
        assert shell.services.topics.metadata.topic("t").partition_count == 1


def test_stored_settings_without_effect_outlive_narrower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    name, value = "leader.replication.throttled.replicas", ",".join(f"{number}:1" for number in range(2_000))
    files = MemoryFiles()
    with Shell(files=files) as shell:
        with monkeypatch.context() as earlier:
            earlier.setattr(accepted_settings, "_REPLICAS_MAX", 1_000_000)
            shell.run(shell.services.topics.create("t", 1, {name: value}))
        with pytest.raises(InvalidSettingError):
            shell.run(shell.services.topics.create("u", 1, {name: value}))
    with Shell(files=files) as shell:
        assert shell.services.topics.metadata.topic("t").settings == {name: value}


def test_metadata_that_cannot_be_read_stops_the_start() -> None:
    files = MemoryFiles()
    with Shell(files=files) as shell:
        shell.create("t")
    (path,) = (f"{METADATA.directory}/{name}" for name in files.list(METADATA.directory) if name.endswith(".log"))
    file = files.open(path)
    content = file.pread(file.size(), 0)
    # Another number of partitions, in valid JSON.
    file.pwrite(b"7", content.index(b'"partitions":1') + 13)
    for _ in range(2):
        with pytest.raises(CorruptLogError):
            running(MemoryFiles(files), never)


def test_metadata_of_a_later_version_stops_the_start() -> None:
    files = MemoryFiles()
    with Shell(files=files) as shell:
        later = build_batch([Record(key=b'"later"', value=b"{}")])
        shell.run(shell.services.appender.append_durably(shell.broker.directory.get(METADATA), later))
    with pytest.raises(StorageError, match="unknown key 'later'"):
        running(files, never)


async def never(_broker: BrokerServer) -> None:
    raise AssertionError("it started")


# Requests


@pytest.fixture
def shell() -> Iterator[Shell]:
    with Shell() as shell:
        yield shell


@pytest.fixture
def topics(shell: Shell) -> Topics:
    return shell.services.topics


def test_of_concurrent_creations_of_one_name_one_succeeds(shell: Shell, topics: Topics) -> None:
    async def create() -> list[Any]:
        return await asyncio.gather(*(topics.create("t", 3, {}) for _ in range(20)), return_exceptions=True)

    results = shell.run(create())
    refused = [result for result in results if isinstance(result, BaseException)]
    assert [type(error) for error in refused] == [TopicExistsError] * 19
    assert len(shell.broker.directory) == 4


def test_a_delete_by_id_does_not_delete_a_recreated_topic(shell: Shell, topics: Topics) -> None:
    async def delete_twice() -> Any:
        first = await topics.create("again", 1, {})
        meanwhile = [topics.delete("again", first.id), topics.create("again", 1, {}), topics.delete("again", first.id)]
        return await asyncio.gather(*meanwhile, return_exceptions=True)

    deleted, created, refused = shell.run(delete_twice())
    assert deleted is None
    assert isinstance(refused, TopicNotFoundError)
    assert topics.metadata.topic("again").id == created.id


def test_changes_at_once_are_made_one_after_the_other(shell: Shell, topics: Topics) -> None:
    shell.create("t")

    async def change() -> None:
        def add(name: str) -> Callable[[Any], Any]:
            return lambda settings: {**settings, name: "5"}

        names = ["retention.ms", "retention.bytes", "segment.ms", "delete.retention.ms"]
        await asyncio.gather(
            *(topics.change_topic("t", add(name)) for name in names),
            topics.add_partitions("t", 3),
            topics.add_partitions("t", 5),
            *(topics.change_broker(add(name)) for name in ("log.roll.ms", "log.retention.ms")),
        )

    shell.run(change())
    topic = topics.metadata.topic("t")
    assert (len(topic.settings), topic.partition_count, len(topics.metadata.broker_settings)) == (4, 5, 2)
    assert topics.log(TopicPartition("t", 4)).config.segment_ms == 5


@pytest.mark.parametrize(
    ("name", "count", "settings", "error"),
    [
        ("", 1, {}, InvalidTopicNameError),
        ("a/b", 1, {}, InvalidTopicNameError),
        ("there", 1, {}, TopicExistsError),
        ("the_re", 1, {}, TopicCollisionError),
        ("new", 0, {}, InvalidPartitionsError),
        ("new", -5, {}, InvalidPartitionsError),
        ("new", 10**9, {}, InvalidPartitionsError),
        ("new", 1, {"nonsense": "1"}, InvalidSettingError),
        ("new", 1, {"retention.ms": "x"}, InvalidSettingError),
    ],
)
def test_a_topic_that_cannot_be_created_leaves_no_change(
    shell: Shell, topics: Topics, name: str, count: int, settings: dict[str, str], error: type[Exception]
) -> None:
    shell.create("there")
    shell.create("the.re")
    end = shell.broker.directory.get(METADATA).log_end_offset
    with pytest.raises(error):
        shell.create(name, count, settings)
    assert shell.broker.directory.get(METADATA).log_end_offset == end
    assert len(shell.broker.directory) == 3


def test_there_may_be_so_many_partitions_in_all() -> None:
    with Shell({"topics": {"partitions_max": 10}}) as shell:
        topics = shell.services.topics
        shell.create("a", 6)
        with pytest.raises(InvalidPartitionsError):
            shell.create("b", 5)
        with pytest.raises(InvalidPartitionsError):
            shell.run(topics.add_partitions("a", 11))
        shell.run(topics.add_partitions("a", 10))
        shell.run(topics.delete("a"))
        shell.create("b", 10)


def test_a_partition_that_does_not_exist_is_not_found(shell: Shell, topics: Topics) -> None:
    shell.create("t", 2)
    for number in (-1, 2, 2**31):
        with pytest.raises(PartitionNotFoundError):
            topics.log(TopicPartition("t", number))
    with pytest.raises(TopicNotFoundError):
        topics.log(METADATA)


def test_settings_take_effect_at_once_and_last(shell: Shell, topics: Topics) -> None:
    shell.create("own", 2, {"retention.ms": "11"})
    shell.create("plain")
    shell.run(topics.change_broker(lambda _: {"log.retention.ms": "22", "log.segment.bytes": "333"}))

    def settings_in(shell: Shell) -> list[tuple[int, int]]:
        logs = [shell.log("own", 0), shell.log("own", 1), shell.log("plain")]
        return [(log.config.retention_ms, log.config.segment_bytes) for log in logs]

    assert settings_in(shell) == [(11, 333), (11, 333), (22, 333)]
    shell.run(topics.change_topic("own", lambda _: {"segment.bytes": "444"}))
    assert settings_in(shell) == [(22, 444), (22, 444), (22, 333)]
    files = shell.files
    assert isinstance(files, MemoryFiles)
    with Shell(files=MemoryFiles(files)) as again:
        assert settings_in(again) == [(22, 444), (22, 444), (22, 333)]
        again.run(again.services.topics.add_partitions("own", 3))
        assert again.log("own", 2).config.segment_bytes == 444
        again.run(again.services.topics.change_broker(lambda _: {}))
        assert again.log("plain").config.retention_ms == LogConfig().retention_ms


def test_only_checking_changes_nothing(shell: Shell, topics: Topics) -> None:
    shell.create("t")
    end = shell.broker.directory.get(METADATA).log_end_offset
    assert topics.check_new("new", None, {}) == 1
    shell.run(topics.add_partitions("t", 5, only_check=True))
    shell.run(topics.change_topic("t", lambda _: {"retention.ms": "5"}, only_check=True))
    shell.run(topics.change_broker(lambda _: {"log.retention.ms": "5"}, only_check=True))
    with pytest.raises(InvalidSettingError):
        shell.run(topics.change_topic("t", lambda _: {"retention.ms": "x"}, only_check=True))
    assert shell.broker.directory.get(METADATA).log_end_offset == end
    assert shell.log("t").config == LogConfig()


def test_no_change_is_visible_before_it_is_durable() -> None:
    files = HeldFiles(MemoryFiles())
    with Shell(files=files) as shell:
        topics = shell.services.topics
        files.hold()
        creating = asyncio.run_coroutine_threadsafe(topics.create("t", 1, {}), shell.services.loop)
        until(lambda: files.waiting)
        assert shell.call(lambda: len(topics.metadata)) == 0
        files.release()
        assert creating.result(5).name == "t"


def test_when_the_disk_has_failed_nothing_changes_any_more() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with Shell(files=files) as shell:
        topics = shell.services.topics
        shell.create("t")
        files.fail_at = files.calls + 1
        for work in (topics.create("u", 1, {}), topics.delete("t"), topics.add_partitions("t", 2)):
            with pytest.raises(StorageOfflineError):
                shell.run(work)
        with pytest.raises(StorageOfflineError):
            shell.run(topics.new_producer_id())
        assert list(topics.metadata.topics) == ["t"]
        assert topics.metadata.topic("t").partition_count == 1
