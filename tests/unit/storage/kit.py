"""Helpers of the storage tests: builders of batches, and a data directory that can be killed and reopened."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

from logbrook.config import LogConfig, StorageConfig
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from logbrook.ports import Files
from logbrook.records.batch import Codec, iter_headers, read_header, stamp
from logbrook.records.builder import build_batch
from logbrook.records.control import build_marker
from logbrook.records.reader import iter_records
from logbrook.records.record import RawRecord, Record
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.pending_append import PendingAppend
from logbrook.storage.segment import LogSlice
from logbrook.testing import MemoryFiles, RecordingFiles, Variant, materialise
from logbrook.testing.clock import FakeClock
from logbrook.testing.seeded_random import SeededRandom

PARTITION = TopicPartition("orders", 0)
OTHER = TopicPartition("payments", 3)
NOW_MS = 1_700_000_000_000
# Larger than anything a test writes.
ALL_BYTES = 1 << 30

_SMALL_WAL_FILE_BYTES = 1 << 14


def batch(
    *values: bytes,
    timestamps: Sequence[int] = (),
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
    control: bool = False,
    key: bytes | None = None,
) -> bytearray:
    """Return a batch with a record per value; `producer` is (id, epoch, base sequence)."""
    values = values or (b"value",)
    timestamps = timestamps or [NOW_MS] * len(values)
    producer_id, producer_epoch, base_sequence = producer or (-1, -1, -1)
    return build_batch(
        [Record(key, value, (), timestamp) for value, timestamp in zip(values, timestamps, strict=True)],
        codec=codec,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(producer_epoch),
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
    )


def marker(producer_id: int, epoch: int = 0, *, commits: bool = True) -> bytearray:
    """Return the control batch with which a coordinator ends the producer's transaction."""
    return build_marker(ProducerId(producer_id), ProducerEpoch(epoch), commits, NOW_MS, coordinator_epoch=3)


def numbered(count: int, first: int = 0) -> list[bytearray]:
    """Return batches of one record each, all of one size, with the values b"00000", b"00001" and so on."""
    return [batch(b"%05d" % number) for number in range(first, first + count)]


def stamped(batches: Iterable[bytes | bytearray], base_offset: int = 0, gap: int = 0) -> bytearray:
    """Return the batches as stored in a log from `base_offset` on, with `gap` offsets left out after each."""
    data = bytearray()
    for batch_bytes in batches:
        start = len(data)
        data += batch_bytes
        stamp(data, start, Offset(base_offset), LeaderEpoch(0))
        base_offset = read_header(data, start).next_offset + gap
    return data


# The size of a batch that `numbered` makes, and of one that `batch()` makes.
BATCH_BYTES = len(batch())


def records_of(slices: Iterable[LogSlice]) -> list[RawRecord]:
    return [
        record
        for part in slices
        for position, _ in iter_headers(part.data)
        for record in iter_records(part.data, position, bytes_max=ALL_BYTES)
    ]


def bases_of(slices: Iterable[LogSlice]) -> list[int]:
    """Return the base offset of every batch."""
    return [header.base_offset for part in slices for _, header in iter_headers(part.data)]


def offsets_of(slices: Iterable[LogSlice]) -> list[int]:
    return [record.offset for record in records_of(slices)]


def values_of(slices: Iterable[LogSlice]) -> list[bytes | None]:
    return [record.value for record in records_of(slices)]


def flip(files: Files, path: str, position: int, mask: int = 0xFF) -> None:
    """Simulate bit rot: change one byte of a file, from its end if `position` is negative."""
    file = files.open(path)
    if position < 0:
        position += file.size()
    file.pwrite(bytes([file.pread(1, position)[0] ^ mask]), position)
    file.close()


def content(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def put(files: Files, path: str, data: bytes | bytearray) -> None:
    """Write `data` as the whole content of a file, which need not exist."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        file = files.create(path)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()


class Store:
    """A data directory with a log, and what a test does to them.

    `settings` are those of the log and of the directory, each under its own name.
    """

    def __init__(self, files: Files, settings: dict[str, Any], family: "list[Store]") -> None:
        self.files = files
        self.settings = settings
        of_log = {field.name for field in fields(LogConfig)}
        self.log_config = LogConfig(**{k: v for k, v in settings.items() if k in of_log})
        storage = {k: v for k, v in settings.items() if k not in of_log}
        self.directory = LogDirectory.open(
            files,
            StorageConfig(**({"wal_file_bytes": _SMALL_WAL_FILE_BYTES} | storage)),
            clock=FakeClock(NOW_MS),
            now_ms=NOW_MS,
            config_of=lambda _partition: self.log_config,
            random=SeededRandom(),
        )
        self.is_open = True
        self._family = family
        family.append(self)

    @property
    def log(self) -> Log:
        return self.directory.get(PARTITION)

    def create(self, partition: TopicPartition = PARTITION) -> Log:
        return self.directory.create(partition, self.log_config)

    def append(self, data: bytes | bytearray, **arguments: Any) -> PendingAppend:
        return self.log.append(data, **({"now_ms": NOW_MS} | arguments))

    def write(self, *batches: bytes | bytearray) -> PendingAppend:
        """Append the batches one by one, and commit. Returns the append of the last one."""
        appends = [self.append(data) for data in batches]
        self.directory.commit()
        return appends[-1].result()

    def end(self, producer_id: int, epoch: int = 0, *, commits: bool = True) -> PendingAppend:
        """End the producer's transaction, and commit the marker."""
        append = self.append(marker(producer_id, epoch, commits=commits), origin=AppendOrigin.COORDINATOR)
        self.directory.commit()
        return append.result()

    def read(self, offset: int = 0, bytes_max: int = ALL_BYTES, **arguments: Any) -> list[LogSlice]:
        return self.log.read(Offset(offset), bytes_max, **arguments).slices

    def values(self) -> list[bytes | None]:
        """Return the values of all visible records."""
        return values_of(self.read(self.log.log_start_offset))

    def killed(self, damage: Callable[[MemoryFiles], None] | None = None, **settings: Any) -> "Store":
        """The directory as the next process finds it after a SIGKILL: nothing closed, no byte lost.

        `damage` may do something to the disk before it is opened again.
        """
        assert isinstance(self.files, MemoryFiles)
        disk = MemoryFiles(self.files)
        if damage is not None:
            damage(disk)
        return Store(disk, self.settings | settings, self._family)

    def without_power(self, variant: Variant = Variant.LOST, **settings: Any) -> "Store":
        """The directory after a power loss: by default, everything is gone that no sync has covered."""
        assert isinstance(self.files, RecordingFiles)
        journal = self.files.journal
        disk = materialise(journal, len(journal.ops), variant)
        return Store(disk, self.settings | settings, self._family)

    def reopened(self, **settings: Any) -> "Store":
        """Close the directory and open it again."""
        self.close()
        return Store(self.files, self.settings | settings, self._family)

    def close(self) -> None:
        self.is_open = False
        self.directory.close()


NewStore = Callable[..., Store]
