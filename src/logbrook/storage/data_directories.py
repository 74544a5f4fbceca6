"""Several data directories as one, each on its own disk, with its own write-ahead log and health.

A log is in one of them. A new one is created where the fewest are, of the directories that have not failed. When one
fails, the logs of the others are not affected, and the others record its failure: logs that are created again meanwhile
take precedence over those that the failed directory still has when it works again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from logbrook.config import LogConfig, StorageConfig
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import Clock, Files, Random
from logbrook.storage.durable_files import IO_FAILURES, read_sealed, write_sealed
from logbrook.storage.environment import Environment
from logbrook.storage.errors import PartitionNotFoundError, StorageError, StorageOfflineError
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.paths import FAILED_DIRECTORIES


class TwoLogsError(StorageError):
    """Two data directories have a log of the same partition."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"two data directories have a log of {partition}; move one of them away")


class DataDirectories:
    """Two or more data directories. The first one has the metadata of a single node."""

    def __init__(self, members: Sequence[LogDirectory], now_ms: int) -> None:
        """Raises TwoLogsError, and StorageError if the older one of two logs of a partition cannot be deleted."""
        self.members = tuple(members)
        self._recorded: set[bytes] = set()
        failed = {mark for member in members for mark in _read_failed(member)}
        for partition in [log.partition for log in self if len(self._having(log.partition)) > 1]:
            having = self._having(partition)
            older = [member for member in having if member.mark in failed]
            if len(having) - len(older) > 1:
                raise TwoLogsError(partition)
            for member in older[: len(having) - 1]:
                member.delete(partition, now_ms)
        if failed:
            for member in members:
                write_sealed(member.environment.files, FAILED_DIRECTORIES, [])

    @property
    def environment(self) -> Environment:
        """The environment of the first directory. All share its `reader` and `probe`."""
        return self.members[0].environment

    def __iter__(self) -> Iterator[Log]:
        return (log for member in self.members for log in member)

    def __len__(self) -> int:
        return sum(len(member) for member in self.members)

    def __contains__(self, partition: TopicPartition) -> bool:
        return any(partition in member for member in self.members)

    def get(self, partition: TopicPartition) -> Log:
        """Raises PartitionNotFoundError."""
        return self.member_of(partition).get(partition)

    def member_of(self, partition: TopicPartition) -> LogDirectory:
        """Return the directory that has the log of a partition. Raises PartitionNotFoundError."""
        for member in self.members:
            if partition in member:
                return member
        raise PartitionNotFoundError(partition)

    def placed(self, partitions: Iterable[TopicPartition]) -> Sequence[tuple[LogDirectory, Sequence[TopicPartition]]]:
        """Return the directories for new logs: those with the fewest."""
        usable = [member for member in self.members if member.environment.health.failure is None] or self.members[:1]
        placed: dict[int, list[TopicPartition]] = {}
        counts = [len(member) for member in usable]
        for partition in partitions:
            number = counts.index(min(counts))
            counts[number] += 1
            placed.setdefault(number, []).append(partition)
        return [(usable[number], chosen) for number, chosen in placed.items()]

    def by_member(
        self, partitions: Iterable[TopicPartition]
    ) -> Sequence[tuple[LogDirectory, Sequence[TopicPartition]]]:
        """Return the directories of existing logs. Raises PartitionNotFoundError."""
        grouped: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            grouped.setdefault(self.members.index(self.member_of(partition)), []).append(partition)
        return [(self.members[number], chosen) for number, chosen in grouped.items()]

    def create(
        self,
        partition: TopicPartition,
        config: LogConfig,
        *,
        topic_id: str = "",
        start_offset: Offset = Offset(0),
    ) -> Log:
        """Create an empty log durably. Raises as `LogDirectory.create_all` does."""
        ((member, _),) = self.placed([partition])
        return member.create(partition, config, topic_id=topic_id, start_offset=start_offset)

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Raises PartitionNotFoundError or StorageOfflineError."""
        self.member_of(partition).delete(partition, now_ms)

    def record_failures(self) -> None:
        """Record in the other directories which ones have failed. Raises OSError if none could."""
        failed = {member.mark for member in self.members if member.environment.health.failure is not None}
        if failed <= self._recorded:
            return
        errors: list[OSError | StorageOfflineError] = []
        usable = [member for member in self.members if member.mark not in failed]
        for member in usable:
            try:
                write_sealed(member.environment.files, FAILED_DIRECTORIES, sorted(mark.hex() for mark in failed))
            except IO_FAILURES as error:
                errors.append(error)
        if errors and len(errors) == len(usable):
            raise errors[0]
        self._recorded = failed

    def forget(self, partition: TopicPartition) -> None:
        """Close a log whose directory has failed, to create it again. Raises PartitionNotFoundError or OSError."""
        self.record_failures()
        self.member_of(partition).forget(partition)

    def save_high_watermarks(self) -> None:
        """Raises StorageError if one of the directories could not save its own."""
        failure: StorageError | None = None
        for member in self.members:
            try:
                member.save_high_watermarks()
            except StorageError as error:
                failure = error
        if failure is not None:
            raise failure

    def saved_high_watermarks(self) -> dict[TopicPartition, Offset]:
        """Raises OSError."""
        return {
            partition: offset for member in self.members for partition, offset in member.saved_high_watermarks().items()
        }

    def expire_producers(self, now_ms: int, logs: Iterable[Log] | None = None) -> int:
        return self.members[0].expire_producers(now_ms, list(self) if logs is None else logs)

    def remove_files(self, now_ms: int, files_max: int = 16) -> list[str]:
        """Unlink files that are due. Raises StorageOfflineError if all directories have failed."""
        removed: list[str] = []
        failure: StorageOfflineError | None = None
        for member in self.members:
            try:
                removed += member.remove_files(now_ms, files_max)
            except StorageOfflineError as error:
                failure = error
        if failure is not None and not removed and all(member.environment.health.failure for member in self.members):
            raise failure
        return removed

    def close(self) -> None:
        """Close all of them cleanly. Raises the first StorageError, when all are closed."""
        failure: StorageError | None = None
        for member in self.members:
            try:
                member.close()
            except StorageError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        for member in self.members:
            member.abandon()

    def _having(self, partition: TopicPartition) -> list[LogDirectory]:
        return [member for member in self.members if partition in member]


def _read_failed(directory: LogDirectory) -> list[bytes]:
    """Return the marks of the directories that had failed in the last life of this one."""
    return [bytes.fromhex(mark) for mark in read_sealed(directory.environment.files, FAILED_DIRECTORIES) or []]


# One data directory is used as it is.
AnyDirectory: TypeAlias = LogDirectory | DataDirectories


def open_directories(
    files: Sequence[Files], config: StorageConfig, clock: Clock, random: Random | None = None
) -> AnyDirectory:
    """Open and lock all data directories and recover their logs. Raises as `LogDirectory.open` does, or OSError."""
    members: list[LogDirectory] = []
    # The limits of open files are those of all directories.
    if len(files) > 1:
        config = replace(
            config,
            open_files_max=max(1, config.open_files_max // len(files)),
            open_segments_max=max(1, config.open_segments_max // len(files)),
        )
    try:
        for member_files in files:
            shared = members[0].environment if members else None
            members.append(
                LogDirectory.open(
                    member_files, config, clock=clock, now_ms=clock.now_ms(), random=random, shared=shared
                )
            )
        return members[0] if len(members) == 1 else DataDirectories(members, clock.now_ms())
    except BaseException:
        for member in members:
            member.abandon()
        raise
