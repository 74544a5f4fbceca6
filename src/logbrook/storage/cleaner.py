"""Cleaners: they decide which bytes of the closed segments a compaction keeps.

`Cleaner` is the interface that `compaction` uses. `PureCleaner` implements it in the broker's process, one record at a
time; `logbrook.compactor` implements it with compiled code in a process of its own, with the same result.
`BatchCleaner` has the rules for one batch, which both share. The rules are explained in `compaction`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from logbrook.model.identifiers import Offset
from logbrook.ports import Bytes
from logbrook.records.batch import BatchHeader
from logbrook.records.builder import rebuild_batch
from logbrook.records.errors import RecordsError
from logbrook.records.reader import iter_records
from logbrook.records.record import RawRecord
from logbrook.storage.compaction_state import CleanedTransactions, KeyMap, OffsetMap, is_marker
from logbrook.storage.segment import VerifiedBatch
from logbrook.storage.transaction_index import AbortedTxn

_BUFFER_BYTES = 1 << 20
_TIME_MAX_MS = 2**63 - 1


class SegmentSpan(NamedTuple):
    """A closed segment's file, its valid bytes, and the base offset of the next segment."""

    path: str
    size: int
    end_offset: Offset


class CleaningJob(NamedTuple):
    """The input of one pass: everything that a cleaner knows about the log besides its bytes."""

    spans: Sequence[SegmentSpan]
    first_dirty_offset: Offset
    now_ms: int
    delete_retention_ms: int
    map_bytes_max: int
    decompressed_bytes_max: int
    # Producers whose last batch and last marker are kept.
    producer_ids: Iterable[int]
    aborted: Sequence[AbortedTxn]
    removals_are_durable: bool

    @property
    def size(self) -> int:
        """Bytes of the segments together."""
        return sum(span.size for span in self.spans)

    @property
    def horizon_ms(self) -> int:
        """Delete horizon of tombstones and markers that this pass compacts for the first time."""
        return min(self.now_ms + self.delete_retention_ms, _TIME_MAX_MS)


class Cleaner(Protocol):
    """One pass. `build_map` is called once, then `clean` for groups of segments in the order of their offsets.

    Every call may raise CleanerFailedError if the cleaner is another process; the pass is then abandoned. The segments
    that were replaced before it stay replaced.
    """

    def build_map(self) -> Offset:
        """Read the dirty segments and return the offset at which the pass ends."""

    def clean(self, paths: Sequence[str], write: Callable[[Bytes], None]) -> bool:
        """Pass the bytes to keep of these segments to `write`. Return True if nothing was removed or changed."""

    def keep_markers(self) -> None:
        """Keep all markers from here on: the result of the last `clean` was not used."""

    @property
    def emptied(self) -> set[int]:
        """Marker offsets of aborted transactions of which nothing is left in the segments cleaned so far."""


class SegmentSource(Protocol):
    """Reads segments by their paths, with the errors of the log that they belong to."""

    def scan_headers(self, path: str) -> Iterator[BatchHeader]: ...

    def scan_batches(self, path: str) -> Iterator[VerifiedBatch]: ...


class BatchCleaner:
    """The rules of a pass for one batch at a time, and the state that they need."""

    def __init__(self, job: CleaningJob, key_map: KeyMap) -> None:
        self.job = job
        self.map = key_map
        self.end_offset = job.spans[-1].end_offset
        self.producer_ids = frozenset(job.producer_ids)
        # Base offsets by producer id and whether it is a control batch.
        self.last_batches: dict[tuple[int, bool], int] = {}
        self.transactions = CleanedTransactions(job.aborted, job.removals_are_durable)

    def note_header(self, header: BatchHeader) -> None:
        """Note a batch that may be the last one of its producer."""
        if header.producer_id in self.producer_ids:
            self.last_batches[header.producer_id, header.is_control] = header.base_offset

    def add(self, batch: VerifiedBatch) -> bool:
        """Add the keys of a batch to the map. Return False, and end the pass at this batch, if the map is full."""
        header = batch.header
        if header.last_offset < self.job.first_dirty_offset or header.is_control:
            return True
        if header.is_transactional and self.transactions.is_aborted(header):
            return True
        if header.count > self.map.room and len(self.map):
            self.end_offset = header.base_offset
            return False
        self.add_keys(batch)
        return True

    def add_keys(self, batch: VerifiedBatch) -> None:
        for record in self.records(batch) or ():
            if record.key is not None:
                self.map.put(record.key, record.offset)

    def clean(self, batch: VerifiedBatch) -> memoryview | bytearray:
        """Return the bytes to keep of a batch: `batch.data` itself if unchanged, empty if it is removed."""
        header = batch.header
        if header.base_offset >= self.end_offset:
            return batch.data
        if header.is_control:
            return self._clean_control(batch)
        if not header.is_transactional:
            return self.clean_data(batch)
        is_aborted = self.transactions.is_aborted(header)
        kept = self.remove_records(batch) if is_aborted else self.clean_data(batch)
        if kept:
            self.transactions.add_kept_batch(header)
        return kept

    def clean_data(self, batch: VerifiedBatch) -> memoryview | bytearray:
        """Clean a data batch of no aborted transaction."""
        header = batch.header
        records = self.records(batch)
        if records is None:
            return batch.data
        kept = [record for record in records if self._is_kept(header, record)]
        horizon_ms = None
        if header.delete_horizon_ms is None and any(record.is_tombstone and record.key is not None for record in kept):
            horizon_ms = self.job.horizon_ms
        if len(kept) == len(records) and horizon_ms is None and kept:
            return batch.data
        return rebuild_batch(header, kept, delete_horizon_ms=horizon_ms) if kept else self.remove_records(batch)

    def remove_records(self, batch: VerifiedBatch) -> memoryview | bytearray:
        """Remove all records of a batch, and the batch too unless it is its producer's last one."""
        header = batch.header
        if not self._is_last(header):
            return bytearray()
        return rebuild_batch(header, []) if header.count else batch.data

    def _clean_control(self, batch: VerifiedBatch) -> memoryview | bytearray:
        header = batch.header
        records = self.records(batch)
        if not records or not is_marker(batch):
            return batch.data
        if self.transactions.end_transaction(header) or self._is_last(header):
            return batch.data
        if header.delete_horizon_ms is None:
            return rebuild_batch(header, records, delete_horizon_ms=self.job.horizon_ms)
        is_expired = header.delete_horizon_ms <= self.job.now_ms
        return bytearray() if is_expired and self.transactions.is_removable(header) else batch.data

    def _is_last(self, header: BatchHeader) -> bool:
        """Return True if it is the last batch, or last marker, of an unexpired producer in the compacted range."""
        return self.last_batches.get((header.producer_id, header.is_control)) == header.base_offset

    def _is_kept(self, header: BatchHeader, record: RawRecord) -> bool:
        if record.key is None:
            return True
        if not self.map.is_newest(record.key, record.offset):
            return False
        horizon_ms = header.delete_horizon_ms
        return not (record.is_tombstone and horizon_ms is not None and horizon_ms <= self.job.now_ms)

    def records(self, batch: VerifiedBatch) -> list[RawRecord] | None:
        """Decode the records; None if they cannot be decoded, although the batch's checksum holds."""
        try:
            return list(iter_records(batch.data, bytes_max=self.job.decompressed_bytes_max, with_headers=False))
        except RecordsError:
            return None


class PureCleaner:
    """The `Cleaner` of this process: in pure Python. Its reads raise the errors of its source."""

    def __init__(self, job: CleaningJob, source: SegmentSource) -> None:
        self._job = job
        self._source = source
        self._batches = BatchCleaner(job, OffsetMap(job.map_bytes_max))

    def build_map(self) -> Offset:
        for path, _, end_offset in self._job.spans:
            for header in self._source.scan_headers(path):
                self._batches.note_header(header)
            is_dirty = end_offset > self._job.first_dirty_offset
            if is_dirty and not all(self._batches.add(batch) for batch in self._source.scan_batches(path)):
                break
        return self._batches.end_offset

    def clean(self, paths: Sequence[str], write: Callable[[Bytes], None]) -> bool:
        is_same = True
        pending = bytearray()
        for path in paths:
            for batch in self._source.scan_batches(path):
                kept = self._batches.clean(batch)
                is_same = is_same and kept is batch.data
                pending += kept
                if len(pending) >= _BUFFER_BYTES:
                    write(pending)
                    pending = bytearray()
        write(pending)
        return is_same

    def keep_markers(self) -> None:
        self._batches.transactions.keep_markers()

    @property
    def emptied(self) -> set[int]:
        return self._batches.transactions.emptied
