"""A log against a list: whatever is done to a log, in whatever order, it holds what a plain list of records holds.

Segments, indexes and caches are tiny, so that every append rolls, every lookup searches and every read evicts. A kill
leaves the page cache: the next process finds all bytes that were written, synced or not.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from logbrook.config import CleanupPolicy, Durability, LogConfig, StorageConfig
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.records.batch import SEQUENCE_MAX, BatchHeader, Codec, advance_sequence, iter_headers
from logbrook.records.builder import build_batch
from logbrook.records.reader import iter_records
from logbrook.records.record import Record
from logbrook.storage.compaction import compact
from logbrook.storage.errors import (
    DiskFullError,
    InvalidProducerEpochError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
)
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.pending_append import PendingAppend
from logbrook.storage.retention import apply_retention
from logbrook.storage.segment import LogSlice
from logbrook.storage.truncation import truncate
from logbrook.storage.verification import verify
from logbrook.testing import MemoryFiles
from logbrook.testing.clock import FakeClock

PARTITION = TopicPartition("orders", 0)
NEIGHBOUR = TopicPartition("payments", 0)
NOW_MS = 1_000
ALL_BYTES = 1 << 30
FOREVER_MS = 1 << 40
BATCHES_KEPT = 5

TIMES = st.integers(-1, 60)
# (timestamp, key, bytes of padding, whether it is a tombstone if it has a key) of each record of a batch.
Contents = list[tuple[int, bytes | None, int, bool]]
CONTENTS: st.SearchStrategy[Contents] = st.lists(
    st.tuples(TIMES, st.sampled_from([None, b"a", b"b", b"c"]), st.integers(0, 60), st.booleans()),
    min_size=1,
    max_size=4,
)


@dataclass(frozen=True)
class Kept:
    """A record of the model."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass
class Writer:
    """A producer of the model: its epoch, and (base sequence, records, base offset) of its last batches."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        if not self.batches:
            return 0
        base_sequence, records, _ = self.batches[-1]
        return advance_sequence(base_sequence, records)

    def take(self, base_sequence: int, records: int, base_offset: int) -> None:
        self.batches.append((base_sequence, records, base_offset))
        del self.batches[:-BATCHES_KEPT]


def headers_in(slices: list[LogSlice]) -> list[tuple[BatchHeader, bytes]]:
    return [
        (header, bytes(part.data[position : position + header.size]))
        for part in slices
        for position, header in iter_headers(part.data)
    ]


def records_in(slices: list[LogSlice]) -> Iterator[Kept]:
    for part in slices:
        for position, _ in iter_headers(part.data):
            for record in iter_records(part.data, position, bytes_max=ALL_BYTES):
                yield Kept(record.offset, record.timestamp, record.key, record.value)


class LogMachine(RuleBasedStateMachine):
    """The log under test, and the list."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.serial = count()
        self.neighbour_end = 0
        self.forget()

    def forget(self) -> None:
        self.records: list[Kept] = []
        self.spans: list[tuple[int, int]] = []
        self.writers: dict[int, Writer] = {}
        self.start = self.end = self.committed = 0

    # Opening and closing.

    @initialize(
        durability=st.sampled_from(Durability),
        segment_bytes=st.sampled_from([1, 250, 600]),
        index_interval_bytes=st.sampled_from([0, 150, 4096]),
        policies=st.sets(st.sampled_from(CleanupPolicy), min_size=1),
        bound=st.integers(1, 2),
    )
    def begin(
        self,
        durability: Durability,
        segment_bytes: int,
        index_interval_bytes: int,
        policies: set[CleanupPolicy],
        bound: int,
    ) -> None:
        self.storage_config = StorageConfig(
            durability=durability, wal_file_bytes=4096, open_files_max=bound, open_segments_max=bound
        )
        self.log_config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            cleanup_policy=frozenset(policies),
            retention_ms=30,
            retention_bytes=2_000,
            delete_retention_ms=FOREVER_MS,
            file_delete_delay_ms=0,
        )
        self.open()
        self.directory.create(PARTITION, self.log_config)
        self.directory.create(NEIGHBOUR, self.log_config)

    def open(self) -> None:
        self.directory = LogDirectory.open(
            self.files,
            self.storage_config,
            clock=FakeClock(NOW_MS),
            now_ms=NOW_MS,
            config_of=lambda _partition: self.log_config,
        )
        report = self.directory.report
        assert report.quarantined == []
        assert report.wal_damage == []

    @property
    def log(self) -> Log:
        return self.directory.get(PARTITION)

    @rule()
    def kill(self) -> None:
        self.die()

    @rule(room=st.integers(0, 400))
    def kill_and_open_on_a_full_disk(self, room: int) -> None:
        self.die(room)

    def die(self, room: int | None = None) -> None:
        before = self.log.producers.to_json()
        epochs = self.log.epochs.starts
        self.files = MemoryFiles(self.files)
        if room is not None:
            with self.full_disk(room), suppress(OSError, DiskFullError):
                # It may open read-only, or refuse to open; either way nothing is lost.
                self.open()
                self.committed = self.end
                self.offsets_are_those_of_the_list()
                self.directory.abandon()
        self.open()
        self.committed = self.end
        assert self.log.producers.to_json() == before
        assert self.log.epochs.starts == epochs
        assert self.directory.get(NEIGHBOUR).log_end_offset == self.neighbour_end

    @contextmanager
    def full_disk(self, room: int) -> Iterator[None]:
        """Limit the free space of the disk to this many bytes."""
        self.files.capacity_bytes = self.files.used_bytes() + room
        try:
            yield
        finally:
            self.files.capacity_bytes = None

    @rule(durability=st.sampled_from(Durability))
    def close_and_open(self, durability: Durability) -> None:
        before = self.log.producers.to_json()
        self.directory.close()
        self.storage_config = replace(self.storage_config, durability=durability)
        self.open()
        self.committed = self.end
        assert self.directory.report.bytes_scanned == 0
        assert self.log.producers.to_json() == before

    @precondition(lambda self: len(self.spans) > 12)
    @rule()
    def delete_and_create(self) -> None:
        self.directory.delete(PARTITION, NOW_MS)
        self.directory.create(PARTITION, self.log_config)
        self.forget()

    # Writing.

    def build(self, contents: Contents, **header: int) -> tuple[bytearray, list[Kept]]:
        kept = []
        for number, (timestamp, key, size, is_tombstone) in enumerate(contents):
            value = b"%d" % next(self.serial) + bytes(size)
            kept.append(Kept(self.end + number, timestamp, key, None if is_tombstone and key else value))
        records = [Record(record.key, record.value, (), record.timestamp) for record in kept]
        codec = Codec(header.pop("codec"))
        return build_batch(records, codec=codec, **header), kept  # type: ignore[arg-type]

    def append(self, data: bytearray, leader_epoch: int = 0) -> PendingAppend:
        append = self.log.append(data, now_ms=NOW_MS, leader_epoch=LeaderEpoch(leader_epoch))
        if self.directory.environment.config.durability == "interval":
            assert append.done
        return append

    def note(self, append: PendingAppend, kept: list[Kept]) -> None:
        assert not append.duplicate
        assert (append.base_offset, append.next_offset) == (self.end, self.end + len(kept))
        self.records += kept
        self.spans.append((self.end, self.end + len(kept)))
        self.end += len(kept)
        if append.done:
            self.committed = self.end

    @rule(contents=CONTENTS, codec=st.sampled_from(Codec), leader_epoch=st.integers(0, 3))
    def append_plain(self, contents: Contents, codec: Codec, leader_epoch: int) -> None:
        data, kept = self.build(contents, codec=codec)
        self.note(self.append(data, leader_epoch), kept)

    @rule(several=st.lists(CONTENTS, min_size=3, max_size=8), is_settled=st.booleans())
    def append_several(self, several: list[Contents], is_settled: bool) -> None:
        for contents in several:
            self.append_plain(contents, Codec.NONE, 0)
        if is_settled:
            self.commit()
            self.roll()
            self.checkpoint()

    @rule(contents=CONTENTS, producer_id=st.integers(0, 1), first=st.sampled_from([0, 7, SEQUENCE_MAX - 1]))
    def append_in_order(self, contents: Contents, producer_id: int, first: int) -> None:
        writer = self.writers.get(producer_id)
        sequence = first if writer is None else writer.next_sequence
        epoch = 0 if writer is None else writer.epoch
        self.produce(contents, producer_id, epoch, sequence)

    @rule(contents=CONTENTS, producer_id=st.integers(0, 1))
    def append_in_a_new_epoch(self, contents: Contents, producer_id: int) -> None:
        writer = self.writers.get(producer_id)
        self.produce(contents, producer_id, 0 if writer is None else writer.epoch + 1, 0)

    def produce(self, contents: Contents, producer_id: int, epoch: int, sequence: int) -> None:
        base_offset = self.end
        data, kept = self.build(
            contents, codec=Codec.NONE, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        self.note(self.append(data), kept)
        writer = self.writers.get(producer_id)
        if writer is None or writer.epoch < epoch:
            writer = self.writers[producer_id] = Writer(epoch)
        writer.take(sequence, len(contents), base_offset)

    @precondition(lambda self: any(writer.batches for writer in self.writers.values()))
    @rule(data=st.data())
    def append_a_duplicate(self, data: st.DataObject) -> None:
        producer_id = data.draw(
            st.sampled_from([writer_id for writer_id, writer in self.writers.items() if writer.batches])
        )
        writer = self.writers[producer_id]
        sequence, records, base_offset = data.draw(st.sampled_from(writer.batches))
        again, _ = self.build(
            [(0, None, 0, False)] * records,
            codec=Codec.NONE,
            producer_id=producer_id,
            producer_epoch=writer.epoch,
            base_sequence=sequence,
        )
        append = self.append(again)
        assert append.duplicate
        assert (append.base_offset, append.next_offset) == (base_offset, base_offset + records)

    @precondition(lambda self: any(writer.batches for writer in self.writers.values()))
    @rule(data=st.data(), ahead=st.integers(1, 5))
    def append_after_a_gap(self, data: st.DataObject, ahead: int) -> None:
        producer_id = data.draw(
            st.sampled_from([writer_id for writer_id, writer in self.writers.items() if writer.batches])
        )
        writer = self.writers[producer_id]
        sequence = advance_sequence(writer.next_sequence, ahead)
        self.refused(OutOfOrderSequenceError, producer_id, writer.epoch, sequence)
        if writer.epoch > 0:
            self.refused(InvalidProducerEpochError, producer_id, writer.epoch - 1, writer.next_sequence)

    def refused(self, error: type[Exception], producer_id: int, epoch: int, sequence: int) -> None:
        data, _ = self.build(
            [(0, None, 0, False)],
            codec=Codec.NONE,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        try:
            self.append(data)
        except error:
            return
        raise AssertionError(f"{error.__name__} was not raised")

    @rule(contents=CONTENTS, room=st.integers(0, 400))
    def append_on_a_full_disk(self, contents: Contents, room: int) -> None:
        data, kept = self.build(contents, codec=Codec.NONE)
        with self.full_disk(room), suppress(DiskFullError):
            self.note(self.append(data), kept)

    @rule()
    def append_to_the_neighbour(self) -> None:
        data, _ = self.build([(0, None, 10, False)], codec=Codec.NONE)
        self.directory.get(NEIGHBOUR).append(data, now_ms=NOW_MS)
        self.neighbour_end += 1

    @rule()
    def commit(self) -> None:
        self.directory.commit()
        self.committed = self.end
        assert self.log.high_watermark == self.end

    # Reading.

    def visible(self, start: int, end: int) -> list[Kept]:
        return [record for record in self.records if start <= record.offset < end]

    @rule(data=st.data(), bytes_max=st.integers(0, 800), at_least_one=st.booleans())
    def read(self, data: st.DataObject, bytes_max: int, at_least_one: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        whole = self.log.read(Offset(offset), ALL_BYTES).slices
        records = list(records_in(whole))
        assert [record for record in records if record.offset >= offset] == self.visible(offset, self.committed)
        batches = headers_in(whole)
        assert all(header.last_offset >= offset for header, _ in batches)
        fitting: list[bytes] = []
        for _, batch_bytes in batches:
            if sum(map(len, fitting)) + len(batch_bytes) > bytes_max and (fitting or not at_least_one):
                break
            fitting.append(batch_bytes)
        part = self.log.read(Offset(offset), bytes_max, at_least_one=at_least_one).slices
        assert [batch_bytes for _, batch_bytes in headers_in(part)] == fitting

    @rule(data=st.data())
    def read_outside(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from([self.start - 1, self.end + 1, -1, 2**60]))
        try:
            self.log.read(Offset(offset), ALL_BYTES)
        except OffsetOutOfRangeError as error:
            facts = (error.offset, error.log_start_offset, error.log_end_offset)
            assert facts == (offset, self.start, self.end)
            return
        raise AssertionError("an offset outside the log was read")

    @rule(data=st.data(), bytes_max=st.integers(0, 500))
    def read_range(self, data: st.DataObject, bytes_max: int) -> None:
        start = data.draw(st.integers(self.start, self.end))
        end = data.draw(st.integers(start, self.end + 2))
        records = records_in(list(self.log.read_range(Offset(start), Offset(end), bytes_max)))
        assert [record for record in records if start <= record.offset < end] == self.visible(
            start, min(end, self.committed)
        )

    @rule(timestamp=TIMES)
    def find_time(self, timestamp: int) -> None:
        result = self.log.find_time(timestamp)
        expected = next(
            (record for record in self.visible(self.start, self.committed) if record.timestamp >= timestamp), None
        )
        assert (result and result[:2]) == (expected and (expected.offset, expected.timestamp))

    # Maintenance.

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def checkpoint(self) -> None:
        self.directory.checkpoint()
        assert self.log.recovery_point.offset == self.end

    @rule(contents=CONTENTS)
    def checkpoint_while_appending(self, contents: Contents) -> None:
        run = self.directory.begin_checkpoint()
        self.append_plain(contents, Codec.NONE, 0)
        run.run()
        self.directory.finish_checkpoint(run)

    @rule(now_ms=st.integers(0, 150))
    def retain(self, now_ms: int) -> None:
        retained = apply_retention(self.log, now_ms)
        assert self.start <= retained.log_start_offset <= self.committed
        if CleanupPolicy.DELETE not in self.log_config.cleanup_policy:
            assert retained.log_start_offset == self.start
        self.advance_start(retained.log_start_offset)

    def advance_start(self, offset: int) -> None:
        self.start = max(self.start, offset)
        self.records = self.visible(self.start, self.end)

    @rule(data=st.data())
    def delete_before(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.committed))
        self.log.delete_before(Offset(offset))
        self.advance_start(offset)

    @rule()
    def compact(self) -> None:
        compacted = compact(self.log, NOW_MS, force=True)
        if compacted is None:
            return
        newest = {record.key: record.offset for record in self.records if record.offset < compacted.cleaned_offset}
        self.records = [
            record
            for record in self.records
            if record.key is None or record.offset >= compacted.cleaned_offset or newest[record.key] == record.offset
        ]

    @rule(data=st.data(), room=st.integers(0, 400))
    def maintain_on_a_full_disk(self, data: st.DataObject, room: int) -> None:
        steps: list[Callable[[], None]] = [
            self.roll,
            self.checkpoint,
            lambda: self.retain(150),
            lambda: self.delete_before(data),
            lambda: self.truncate(data),
        ]
        step = data.draw(st.sampled_from(steps))
        with self.full_disk(room), suppress(DiskFullError):
            step()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(self.start, self.end - 12), self.end))
        end = truncate(self.log, Offset(offset))
        if offset >= self.end:
            assert end == self.end
            return
        base_offset = next(base for base, next_offset in self.spans if base <= offset < next_offset)
        assert max(base_offset, self.start) <= end <= offset
        self.records = [record for record in self.records if record.offset < base_offset]
        self.spans = [span for span in self.spans if span[0] < base_offset]
        if end > base_offset:
            self.spans.append((base_offset, end))
        self.end = end
        self.committed = self.log.high_watermark
        self.rewrite_writers()

    def rewrite_writers(self) -> None:
        """Producer state of a truncated log: compaction and retention may have removed older batches."""
        self.writers = {}
        for segment in self.log.segments:
            for batch in segment.batches():
                header = batch.header
                if header.producer_id >= 0:
                    writer = self.writers.get(header.producer_id)
                    if writer is None or writer.epoch < header.producer_epoch:
                        writer = self.writers[header.producer_id] = Writer(header.producer_epoch)
                    writer.take(header.base_sequence, header.last_offset_delta + 1, header.base_offset)

    @rule()
    def tidy(self) -> None:
        self.directory.remove_files(NOW_MS)
        verify(self.log)

    # Invariants.

    @invariant()
    def offsets_are_those_of_the_list(self) -> None:
        if not hasattr(self, "directory"):
            return
        log = self.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (self.start, self.committed, self.end)
        log.validate()

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.kill()
            records = records_in(self.log.read(Offset(self.start), ALL_BYTES).slices)
            assert [record for record in records if record.offset >= self.start] == self.records


SETTINGS = settings(stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.mark.long
def test_many_operations_on_log() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(SETTINGS, max_examples=1_000))


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(SETTINGS, max_examples=100)
