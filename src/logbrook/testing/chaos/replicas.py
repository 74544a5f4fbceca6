"""Compares the replicas of partitions on the disks of stopped brokers, byte by byte."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from logbrook.config import StorageConfig
from logbrook.model import TopicPartition
from logbrook.ports import OsFiles, SystemClock
from logbrook.records.batch import iter_headers
from logbrook.storage.errors import StorageError
from logbrook.storage.log_directory import LogDirectory

_BYTES_MAX = 1 << 40


def differences(directories: Mapping[int, Path], partitions: Sequence[TopicPartition]) -> list[str]:
    """Return a sentence for each partition whose replicas are not the same bytes, or that cannot be read."""
    contents: dict[TopicPartition, dict[int, bytes]] = {partition: {} for partition in partitions}
    problems: list[str] = []
    for number, path in directories.items():
        try:
            with _opened(path) as directory:
                for partition in partitions:
                    contents[partition][number] = _content(directory, partition)
        except (StorageError, OSError) as error:
            problems.append(f"the data directory of broker {number} cannot be read: {error}")
    for partition, replicas in contents.items():
        if replicas:
            problems += _compare(partition, replicas)
    return problems


@contextmanager
def _opened(path: Path) -> Iterator[LogDirectory]:
    clock = SystemClock()
    directory = LogDirectory.open(OsFiles(str(path)), StorageConfig(), clock=clock, now_ms=clock.now_ms())
    try:
        yield directory
    finally:
        directory.close()


def _content(directory: LogDirectory, partition: TopicPartition) -> bytes:
    """Return all batches of a partition. Raises StorageError."""
    log = directory.get(partition)
    slices = log.read(log.log_start_offset, _BYTES_MAX, up_to=log.log_end_offset).slices
    return b"".join(bytes(part.data) for part in slices)


def _compare(partition: TopicPartition, replicas: dict[int, bytes]) -> Iterator[str]:
    (first, expected), *others = sorted(replicas.items())
    for number, content in others:
        if content != expected:
            yield (
                f"{partition}: the replicas of the brokers {first} and {number} differ at {_place(expected, content)}; "
                f"they end at the offsets {_end(expected)} and {_end(content)}"
            )


def _place(expected: bytes, content: bytes) -> str:
    """Return the offset of the first batch that is not the same."""
    theirs = {header.base_offset: content[at : at + header.size] for at, header in iter_headers(memoryview(content))}
    for at, header in iter_headers(memoryview(expected)):
        if theirs.get(header.base_offset) != expected[at : at + header.size]:
            return f"offset {header.base_offset}"
    return f"offset {_end(expected)}"


def _end(content: bytes) -> int:
    return max((header.next_offset for _, header in iter_headers(memoryview(content))), default=0)
