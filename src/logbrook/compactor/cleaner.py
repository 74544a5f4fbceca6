"""The `Cleaner` in compiled code: the same result as `PureCleaner`, byte for byte, in less CPU time.

Segments are read in windows of whole batches. Compiled code handles the plain batches of a window; a batch that is
compressed, transactional, a control batch or malformed is handled by the rules of `BatchCleaner`, with compiled code
for its records. Memory: the map, a window or the largest batch, and a multiple of it for the result.

Raises OSError, or RecordsError for a segment that is damaged.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from logbrook.model.identifiers import Offset
from logbrook.ports import Advice, Bytes, File
from logbrook.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    Codec,
    read_header,
    read_prefix,
)
from logbrook.records.builder import rebuild_encoded
from logbrook.records.codecs import decompress
from logbrook.records.columns.cleaning import ROW_ASK, ROW_LAST, ROW_PLAIN, ROW_SKIP, DigestMap, Run, RunCleaner
from logbrook.records.errors import CorruptBatchError, RecordsError
from logbrook.storage.cleaner import BatchCleaner, CleaningJob
from logbrook.storage.segment import VerifiedBatch

_WINDOW_BYTES = 4 << 20
_HEADERS_WINDOW_BYTES = 64 << 10


class CompiledCleaner:
    """A pass over the segments of `job`, which `open_file` opens by their paths.

    `on_progress` is called after each window.
    """

    def __init__(
        self,
        job: CleaningJob,
        open_file: Callable[[str], File],
        key_map: DigestMap,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._job = job
        self._sizes = {span.path: span.size for span in job.spans}
        self._open_file = open_file
        self._on_progress = on_progress
        self._runs = RunCleaner(key_map, job.now_ms, job.horizon_ms)
        self._batches = _CompiledBatchCleaner(job, key_map, self._runs)
        self._producer_ids = np.array(sorted(self._batches.producer_ids), np.int64)
        self._last_offsets: Any = None
        self._window = memoryview(bytearray(_WINDOW_BYTES))

    def build_map(self) -> Offset:
        for path, _, end_offset in self._job.spans:
            self._note_headers(path)
            if end_offset > self._job.first_dirty_offset and not self._add(path):
                break
        return self._batches.end_offset

    def clean(self, paths: Sequence[str], write: Callable[[Bytes], None]) -> bool:
        if self._last_offsets is None:
            self._last_offsets = np.array(sorted(self._batches.last_batches.values()), np.int64)
        is_same = True
        for path in paths:
            for position, run in self._scan(path):
                kept, is_same_run = self._runs.clean(run, self._kinds_to_clean(run), self._cleaner_of(run, position))
                is_same = is_same and is_same_run
                # At once: each call is a message to the broker.
                write(kept[0] if len(kept) == 1 else b"".join(kept))
        return is_same

    def keep_markers(self) -> None:
        self._batches.transactions.keep_markers()

    @property
    def emptied(self) -> set[int]:
        return self._batches.transactions.emptied

    def _note_headers(self, path: str) -> None:
        """Note the last batches of producers. Ends at the first impossible header; reading it reports the damage."""
        if not self._producer_ids.size:
            return
        position, size = 0, self._sizes[path]
        with closing(self._open_file(path)) as file:
            while position + HEADER_BYTES <= size:
                window = self._window[: min(_HEADERS_WINDOW_BYTES, size - position)]
                window = window[: file.pread_into(window, position)]
                if len(window) < HEADER_BYTES:
                    return
                run = Run(window)
                if not run.size:
                    # A batch that is larger than the window, or not a batch.
                    header = read_header(window)
                    if header.size < HEADER_BYTES:
                        return
                    self._batches.note_header(header)
                    position += header.size
                    continue
                self._note_run(run)
                position += run.size

    def _note_run(self, run: Run) -> None:
        producer_ids, is_control = run.producer_ids(), run.attributes & CONTROL_BIT != 0
        for kind in (False, True):
            rows = np.flatnonzero(np.isin(producer_ids, self._producer_ids) & (is_control == kind))[::-1]
            # The first of each in the reversed order is the last one.
            ids, firsts = np.unique(producer_ids[rows], return_index=True)
            base_offsets = run.base_offsets[rows[firsts]]
            for producer_id, base_offset in zip(ids.tolist(), base_offsets.tolist(), strict=True):
                self._batches.last_batches[producer_id, kind] = base_offset

    def _add(self, path: str) -> bool:
        """Add the keys of a segment to the map. Return False if it is full."""
        for position, run in self._scan(path):
            attributes = run.attributes
            kinds = np.full(len(run.table), ROW_PLAIN)
            kinds[self._needs_python(run)] = ROW_ASK
            if self._job.aborted:
                kinds[attributes & TRANSACTIONAL_BIT != 0] = ROW_ASK
            kinds[(attributes & CONTROL_BIT != 0) | (run.last_offsets < self._job.first_dirty_offset)] = ROW_SKIP
            if not self._runs.add(run, kinds, self._adder_of(run, position)):
                return False
        return True

    def _adder_of(self, run: Run, position: int) -> Callable[[int], bool]:
        return lambda row: self._batches.add(_batch_of(run, row, position))

    def _kinds_to_clean(self, run: Run) -> Any:
        attributes = run.attributes
        kinds = np.full(len(run.table), ROW_PLAIN)
        if self._last_offsets.size:
            kinds[np.isin(run.base_offsets, self._last_offsets)] = ROW_LAST
        kinds[self._needs_python(run) | (attributes & (CONTROL_BIT | TRANSACTIONAL_BIT) != 0)] = ROW_ASK
        kinds[run.base_offsets >= self._batches.end_offset] = ROW_SKIP
        return kinds

    def _needs_python(self, run: Run) -> Any:
        is_large = run.sizes - HEADER_BYTES > self._job.decompressed_bytes_max
        return is_large | (run.attributes & CODEC_MASK != 0)

    def _cleaner_of(self, run: Run, position: int) -> Callable[[int], memoryview | bytearray | None]:
        def clean_batch(row: int) -> memoryview | bytearray | None:
            batch = _batch_of(run, row, position)
            kept = self._batches.clean(batch)
            return None if kept is batch.data else kept

        return clean_batch

    def _scan(self, path: str) -> Iterator[tuple[int, Run]]:
        """Read runs of whole batches, with their positions, and verify their checksums."""
        position, size = 0, self._sizes[path]
        with closing(self._open_file(path)) as file:
            file.advise(Advice.SEQUENTIAL)
            while position < size:
                run = self._read_run(file, position, size - position)
                run.check_crcs()
                yield position, run
                position += run.size
                self._on_progress()

    def _read_run(self, file: File, position: int, remaining_bytes: int) -> Run:
        window = self._window[: min(_WINDOW_BYTES, remaining_bytes)]
        window = window[: file.pread_into(window, position)]
        run = Run(window)
        if run.size:
            return run
        needed = read_prefix(window)[1] if len(window) >= HEADER_BYTES else 0
        if not len(window) < needed <= remaining_bytes:
            raise CorruptBatchError(f"the header at byte {position} is not that of a batch")
        # A batch that is larger than the window. It is read into memory that is released after it.
        window = memoryview(bytearray(needed))
        run = Run(window[: file.pread_into(window, position)])
        if not run.size:
            raise CorruptBatchError(f"the batch at byte {position} is not complete")
        return run


class _CompiledBatchCleaner(BatchCleaner):
    """The rules of a batch, with compiled code for the records of data batches."""

    def __init__(self, job: CleaningJob, key_map: DigestMap, runs: RunCleaner) -> None:
        super().__init__(job, key_map)
        self._runs = runs

    def add_keys(self, batch: VerifiedBatch) -> None:
        records = self._decompressed(batch)
        if records is None or not self._runs.add_records(batch.header, records):
            super().add_keys(batch)

    def clean_data(self, batch: VerifiedBatch) -> memoryview | bytearray:
        header = batch.header
        records = self._decompressed(batch)
        if records is None:
            return super().clean_data(batch)
        try:
            cleaned = self._runs.clean_records(header, records)
        except CorruptBatchError:
            return super().clean_data(batch)
        if cleaned is None:
            return batch.data
        if not cleaned.record_count:
            return self.remove_records(batch)
        horizon_ms = self.job.horizon_ms if cleaned.has_new_horizon else None
        return rebuild_encoded(header, cleaned.records, cleaned.record_count, cleaned.max_timestamp, horizon_ms)

    def _decompressed(self, batch: VerifiedBatch) -> memoryview | None:
        """Return None if the pure code is to decide about the batch."""
        codec = batch.header.attributes & CODEC_MASK
        if codec > Codec.ZSTD or batch.header.size == HEADER_BYTES:
            return None
        try:
            return decompress(Codec(codec), batch.data[HEADER_BYTES:], self.job.decompressed_bytes_max)
        except RecordsError:
            return None


def _batch_of(run: Run, row: int, run_position: int) -> VerifiedBatch:
    position, data = run.batch(row)
    return VerifiedBatch(run_position + position, read_header(data), data)
