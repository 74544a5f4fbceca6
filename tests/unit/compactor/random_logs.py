"""Random segments of a compacted log, with everything that a log may contain, and the job to clean them."""

from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random
from typing import NamedTuple

from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from logbrook.ports import File
from logbrook.records.batch import BatchHeader, Codec, TimestampType, read_header, renew_crc, stamp
from logbrook.records.builder import build_batch, rebuild_batch
from logbrook.records.control import build_marker
from logbrook.records.reader import iter_records
from logbrook.records.record import Record
from logbrook.storage.cleaner import CleaningJob, SegmentSpan
from logbrook.storage.segment import VerifiedBatch, scan_batches, scan_headers
from logbrook.storage.transaction_index import AbortedTxn
from logbrook.testing import MemoryFiles

NOW_MS = 1_700_000_000_000
BYTES_MAX = 1 << 20
PRODUCERS = range(100, 106)


class RandomLog(NamedTuple):
    files: MemoryFiles
    job: CleaningJob

    def paths(self) -> list[str]:
        return [span.path for span in self.job.spans]


class FileSource:
    """The `SegmentSource` of segments that are not part of a log."""

    def __init__(self, log: RandomLog) -> None:
        self._files = log.files
        self._sizes = {span.path: span.size for span in log.job.spans}

    def scan_headers(self, path: str) -> Iterator[BatchHeader]:
        with closing(self._files.open(path)) as file:
            yield from scan_headers(file, 0, self._sizes[path])

    def scan_batches(self, path: str) -> Iterator[VerifiedBatch]:
        with closing(self._files.open(path)) as file:
            yield from scan_batches(file, 0, self._sizes[path])


def random_log(seed: int, batches_max: int = 40) -> RandomLog:
    """Return a log of up to four segments. The same seed gives the same log."""
    rng = Random(seed)
    builder = _Builder(rng)
    files, spans = MemoryFiles(), []
    for number in range(rng.randint(1, 4)):
        data = builder.segment(rng.randint(1, batches_max))
        path = f"{number:020}.log"
        file: File
        with closing(files.create(path)) as file:
            # Bytes after the segment's size are those of a failed append.
            file.pwrite(data + rng.randbytes(rng.choice((0, 0, 100))), 0)
        spans.append(SegmentSpan(path, len(data), Offset(builder.offset)))
    first_dirty = rng.choice((0, rng.randint(0, builder.offset - 1)))
    known = [producer for producer in PRODUCERS if rng.random() < 0.6]
    job = CleaningJob(
        spans,
        Offset(first_dirty),
        NOW_MS,
        rng.choice((0, 1000, 86_400_000, 2**63 - 1)),
        rng.choice((1024, 1 << 20)),
        rng.choice((2_000, BYTES_MAX, BYTES_MAX)),
        known,
        builder.aborted,
        rng.random() < 0.5,
    )
    return RandomLog(files, job)


class _Builder:
    """Builds consecutive segments."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.offset = rng.choice((0, 0, 2**40))
        sizes = rng.choices((0, 1, 7, 8, 9, 15, 16, 40, 300), k=rng.choice((2, 12, 60)))
        self._keys = [rng.randbytes(size) for size in sizes]
        self._kinds: dict[Callable[[], bytearray], int] = {
            self._plain: rng.choice((1, 10)),
            self._emptied: 1,
            self._malformed: rng.choice((0, 1)),
            self._transactional: rng.choice((0, 4)),
            self._marker: rng.choice((0, 2)),
            self._control: rng.choice((0, 1)),
        }
        self._codecs = rng.choice(([Codec.NONE], list(Codec)))
        self._open: dict[int, int] = {}
        self.aborted: list[AbortedTxn] = []

    def segment(self, count: int) -> bytearray:
        data = bytearray()
        for _ in range(count):
            kind = self._rng.choices(list(self._kinds), list(self._kinds.values()))[0]
            batch = kind()
            stamp(batch, 0, Offset(self.offset), LeaderEpoch(self._rng.randint(0, 3)))
            data += batch
            self.offset = read_header(batch).next_offset + self._rng.choice((0, 0, 0, 5))
        return data

    def _plain(self, **arguments: object) -> bytearray:
        rng = self._rng
        records = [self._record() for _ in range(rng.choice((1, 1, 3, 20, 100)))]
        producer = rng.choice((-1, *PRODUCERS))
        batch = build_batch(
            records,
            base_offset=Offset(self.offset),
            codec=rng.choice(self._codecs),
            timestamp_type=rng.choice(list(TimestampType)),
            delete_horizon_ms=rng.choice((None, None, NOW_MS - 1, NOW_MS, NOW_MS + 1)),
            **{  # type: ignore[arg-type]
                "producer_id": ProducerId(producer),
                "producer_epoch": ProducerEpoch(0),
                "base_sequence": rng.randint(0, 1000),
                **arguments,
            },
        )
        if rng.random() < 0.3:
            # As a former compaction leaves it.
            kept = [record for record in iter_records(batch, bytes_max=BYTES_MAX) if rng.random() < 0.7]
            batch = rebuild_batch(read_header(batch), kept)
        return batch

    def _record(self) -> Record:
        rng = self._rng
        key = rng.choice((*self._keys, *self._keys, None))
        value = None if rng.random() < 0.1 else rng.randbytes(rng.choice((0, 10, 100, 200)))
        headers = [("name", None), ("other", b"value")][: rng.choice((0, 0, 0, 1, 2))]
        timestamp = rng.choice((NOW_MS, NOW_MS + rng.randint(-(10**6), 10**6), -1, 0, 2**63 - 1, -(2**63)))
        return Record(key, value, headers, timestamp)

    def _emptied(self) -> bytearray:
        return rebuild_batch(read_header(self._plain()), [])

    def _malformed(self) -> bytearray:
        rng = self._rng
        batch = self._plain()
        for _ in range(rng.randint(1, 3)):
            batch[rng.randint(57, len(batch) - 1)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randint(0, 255)))
        if rng.random() < 0.2:
            # An unknown compression type.
            batch[22] |= 0x07
        renew_crc(memoryview(batch), 0, len(batch))
        return batch

    def _transactional(self) -> bytearray:
        producer = self._rng.choice(PRODUCERS)
        self._open.setdefault(producer, self.offset)
        return self._plain(producer_id=ProducerId(producer), transactional=True)

    def _marker(self) -> bytearray:
        producer = self._rng.choice(PRODUCERS)
        commits = self._rng.random() < 0.5
        first_offset = self._open.pop(producer, None)
        if first_offset is not None and not commits:
            offsets = (Offset(first_offset), Offset(self.offset), Offset(first_offset))
            self.aborted.append(AbortedTxn(ProducerId(producer), *offsets))
        batch = build_marker(ProducerId(producer), ProducerEpoch(0), commits, NOW_MS, coordinator_epoch=3)
        if self._rng.random() < 0.5:
            horizon_ms = NOW_MS + self._rng.choice((-1, 0, 1))
            records = list(iter_records(batch, bytes_max=BYTES_MAX))
            batch = rebuild_batch(read_header(batch), records, delete_horizon_ms=horizon_ms)
        return batch

    def _control(self) -> bytearray:
        """Build a control batch that is no transaction marker."""
        return build_batch([Record(b"\0\0\0\7", b"\0" * 6, (), NOW_MS)], control=True)
