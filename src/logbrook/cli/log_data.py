"""Access to a data directory that no broker has open, for the `logbrook log` commands."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from logbrook.cli.failures import fail, report_failures
from logbrook.cli.settings_options import load_or_exit
from logbrook.config import BrokerConfig
from logbrook.config.kafka_settings import BROKER_SETTINGS, TOPIC_SETTINGS, apply_overrides
from logbrook.model import TopicPartition, UnknownPartitionNameError, select_partitions
from logbrook.ports import OsFiles, SystemClock
from logbrook.server.cluster.adoption import read_metadata
from logbrook.storage.data_directories import AnyDirectory, open_directories
from logbrook.storage.errors import DirectoryLockedError
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.paths import CHECKPOINT, LOCK

DataDirectory = Annotated[
    str | None, typer.Option("--data", "-d", metavar="DIR", help="Data directory; default: that of `serve`.")
]
ConfigFile = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings file of the broker.")]
PartitionNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PARTITION...]", help="Partitions such as orders-0, or topics for all of theirs; default: all."
    ),
]


@dataclass(frozen=True)
class OfflineData:
    """An open data directory, locked for the duration of a command."""

    directory: AnyDirectory
    config: BrokerConfig
    clock: SystemClock

    def member_of(self, log: Log) -> LogDirectory:
        """Return the data directory of a log."""
        ((member, _),) = self.directory.by_member([log.partition])
        return member

    def chosen(self, names: Sequence[str] | None) -> list[Log]:
        """Return the named logs, all without names; end the command if a name does not exist."""
        partitions = chosen_partitions([log.partition for log in self.directory], names)
        return [self.directory.get(partition) for partition in partitions]

    def configured(self, names: Sequence[str] | None) -> list[Log]:
        """Return the `chosen` logs that belong to a topic, with the settings of their topics applied.

        Logs without a topic, and the metadata log, have no retention or compaction settings.
        """
        metadata = read_metadata(self.directory)
        defaults = apply_overrides(self.config.log, metadata.dynamic_settings, BROKER_SETTINGS, is_stored=True)
        logs = []
        for log in self.chosen(names):
            topic = metadata.topics.get(log.partition.topic)
            if topic is None or topic.is_hidden or log.partition.partition >= topic.partition_count:
                continue
            log.config = apply_overrides(defaults, topic.settings, TOPIC_SETTINGS, is_stored=True)
            logs.append(log)
        return logs


@contextmanager
def opened(data: str | None, config_path: str | None = None) -> Iterator[OfflineData]:
    """Open and recover the data directory as a broker does, and close it cleanly. Errors end the command."""
    with report_failures(), opened_with(broker_config(data, config_path)) as offline:
        yield offline


@contextmanager
def opened_with(config: BrokerConfig) -> Iterator[OfflineData]:
    """Do as `opened`, with settings that are loaded already. Raises LogbrookError."""
    clock = SystemClock()
    with _report_open_errors(config.data):
        files = [OsFiles(_existing(path)) for path in config.data_directories]
        directory = open_directories(files, config.storage, clock)
    try:
        yield OfflineData(directory, config, clock)
    finally:
        directory.close()


@contextmanager
def locked(data: str | None) -> Iterator[OsFiles]:
    """Lock the data directory and yield its files as they are, without recovery."""
    with report_failures():
        path, *more = map(_existing, broker_config(data, None).data_directories)
        if more:
            fail("there are several data directories; name one of them with --data")
        with _report_open_errors(path):
            files = OsFiles(path)
            try:
                lock = files.lock(LOCK)
            except BlockingIOError as error:
                raise DirectoryLockedError from error
        try:
            yield files
        finally:
            lock.release()


def broker_config(data: str | None, config_path: str | None) -> BrokerConfig:
    """Return the settings that `serve` would run with; end the command if they are invalid."""
    given = {"--data": data, "--config": config_path}
    return load_or_exit({flag: value for flag, value in given.items() if value is not None}).config


def chosen_partitions(existing: Sequence[TopicPartition], names: Sequence[str] | None) -> list[TopicPartition]:
    """Return the partitions named by themselves or by their topic, all without names; end the command if none match."""
    try:
        return select_partitions(existing, names or ())
    except UnknownPartitionNameError as error:
        some = ", ".join(sorted({partition.topic for partition in existing})[:10])
        fail(f"{error}; there are the topics {some or '(none)'}")


def missing_offsets(log: Log) -> list[tuple[int, int]]:
    """Return the ranges (first, last) between log start and log end offset that no batch covers."""
    missing: list[tuple[int, int]] = []
    expected = log.log_start_offset
    for segment in log.segments:
        for batch in segment.batches():
            if batch.header.base_offset > expected:
                missing.append((expected, batch.header.base_offset - 1))
            expected = max(expected, batch.header.next_offset)
    if log.log_end_offset > expected:
        missing.append((expected, log.log_end_offset - 1))
    return missing


def _existing(path: str) -> str:
    """End the command unless `path` is a data directory: opening any other directory would create one in it."""
    if not os.path.isdir(path):
        fail(f"there is no directory {path}; name the broker's data directory with --data")
    if not os.path.exists(os.path.join(path, CHECKPOINT)) and not partitions_in(path):
        fail(f"{path} is not a data directory; name the broker's data directory with --data")
    return path


def partitions_in(path: str) -> list[TopicPartition]:
    """Return the partitions that have a directory in the data directory."""
    return [
        partition for name in sorted(os.listdir(path)) if (partition := TopicPartition.from_directory(name)) is not None
    ]


@contextmanager
def _report_open_errors(path: str) -> Iterator[None]:
    try:
        yield
    except DirectoryLockedError:
        fail(
            f"{path} is in use by a broker; stop it first, or let it do the work: verify, compact and retain take "
            "--broker http://127.0.0.1:9644"
        )
    except OSError as error:
        fail(f"{error.filename or path} cannot be opened: {error.strerror or error}")
