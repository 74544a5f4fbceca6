"""A data directory that no broker has open, for the commands that work on one."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from logbrook.cli.failures import WRONG_USAGE, fail, told_in_a_sentence
from logbrook.config import BrokerConfig
from logbrook.config.errors import SettingsRefusedError
from logbrook.config.kafka_settings import broker_settings, override, topic_settings
from logbrook.config.loading import load_settings
from logbrook.core.metadata import ClusterMetadata
from logbrook.model import NothingNamedSoError, TopicPartition, named_partitions
from logbrook.ports import OsFiles, SystemClock
from logbrook.records.batch import iter_headers
from logbrook.records.reader import iter_records
from logbrook.server.topics import METADATA
from logbrook.storage.errors import DirectoryLockedError, StorageError
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.paths import CHECKPOINT, LOCK
from logbrook.storage.verification import verify

Data = Annotated[
    str | None, typer.Option("--data", "-d", metavar="DIR", help="The data directory; else the one of `serve`.")
]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="The settings file of the broker.")]
Partitions = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PARTITION...]", help="Such as orders-0, or a topic for all of its own; else everything."),
]


@dataclass(frozen=True)
class OfflineData:
    """A directory that is ours for the while of a command."""

    directory: LogDirectory
    config: BrokerConfig
    clock: SystemClock

    def chosen(self, names: Sequence[str] | None) -> list[Log]:
        """The logs that are named, or all. Ends the command for a name that is not there."""
        return [self.directory.get(one) for one in chosen_partitions([log.partition for log in self.directory], names)]

    def configured(self, names: Sequence[str] | None) -> list[Log]:
        """As `chosen`, without logs that belong to no topic; each has its topic's settings from here on.

        A log that no topic owns is nobody's to clean, and the metadata's own is not for topics' settings.
        """
        metadata = self._metadata()
        defaults = override(self.config.log, metadata.broker_settings, broker_settings())
        logs = []
        for log in self.chosen(names):
            topic = metadata.topics.get(log.partition.topic)
            if topic is None or topic.is_deleting or log.partition.partition >= topic.partition_count:
                continue
            log.config = override(defaults, topic.settings, topic_settings())
            logs.append(log)
        return logs

    def _metadata(self) -> ClusterMetadata:
        """Raises StorageError."""
        log = self.directory.get(METADATA)
        # A flipped bit may well be good JSON, and what it says decides what is removed.
        verify(log)
        metadata = ClusterMetadata()
        for part in log.read_range(log.log_start_offset, log.high_watermark):
            for position, _ in iter_headers(part.data):
                for record in iter_records(part.data, position, bytes_max=part.length):
                    try:
                        metadata.replay(record.key or b"", record.value)
                    except ValueError as error:
                        raise StorageError(f"the metadata cannot be read: {error}") from error
        return metadata


@contextmanager
def opened(data: str | None, config_path: str | None = None) -> Iterator[OfflineData]:
    """The directory, recovered as a broker would, and left as a broker leaves it. What goes wrong is told in a
    sentence and ends the command."""
    with told_in_a_sentence():
        config = broker_config(data, config_path)
        clock = SystemClock()
        with _told_of_files(config.data):
            files = OsFiles(existing(config.data))
            directory = LogDirectory.open(files, config.storage, clock=clock, now_ms=clock.now_ms())
        try:
            yield OfflineData(directory, config, clock)
        finally:
            directory.close()


@contextmanager
def locked(data: str | None) -> Iterator[OsFiles]:
    """The files of a directory, as they are: nothing is recovered, and nothing is written while they are read."""
    with told_in_a_sentence():
        path = existing(broker_config(data, None).data)
        with _told_of_files(path):
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
    """What `serve` would run with. Ends the command if something is wrong with it."""
    given = {"--data": data, "--config": config_path}
    try:
        return load_settings({flag: value for flag, value in given.items() if value is not None}, os.environ).config
    except SettingsRefusedError as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(WRONG_USAGE) from None


def existing(path: str) -> str:
    """Ends the command unless it is a data directory: opening another would make it one."""
    if not os.path.isdir(path):
        fail(f"there is no directory {path}; --data names the one that the broker was started with")
    if not os.path.exists(os.path.join(path, CHECKPOINT)) and not _partitions_in(path):
        fail(f"{path} is no data directory; --data names the one that the broker was started with")
    return path


def chosen_partitions(there: Sequence[TopicPartition], names: Sequence[str] | None) -> list[TopicPartition]:
    """Those of the partitions that are named, one by one or by their topic; all if none is. Ends the command for a
    name that is none of them."""
    try:
        return named_partitions(there, names or ())
    except NothingNamedSoError as error:
        some = ", ".join(sorted({one.topic for one in there})[:10])
        fail(f"{error}; there are the topics {some or '(none)'}")


def _partitions_in(path: str) -> list[TopicPartition]:
    return [one for name in os.listdir(path) if (one := TopicPartition.from_directory(name)) is not None]


@contextmanager
def _told_of_files(path: str) -> Iterator[None]:
    try:
        yield
    except DirectoryLockedError:
        fail(
            f"{path} is in use by a broker; stop it first, or ask it: verify, compact and retain take "
            "--broker http://127.0.0.1:9644"
        )
    except OSError as error:
        fail(f"{error.filename or path} cannot be opened: {error.strerror or error}")
