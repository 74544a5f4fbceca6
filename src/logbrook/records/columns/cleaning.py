"""Log compaction in compiled code: the map of keys, and the cleaning of runs of batches.

`DigestMap` is the map. `RunCleaner` adds a run of consecutive batches to it, and copies a run without superseded
records. It leaves the batches that are not plain to its caller: compressed ones, those of transactions, control batches
and those that cannot be decoded. `clean_records` is for a compressed batch; its caller decompresses and compresses.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from logbrook.model.identifiers import Offset
from logbrook.records.batch import CRC_COVERS_FROM, RECORD_BYTES_MIN, BatchHeader, check_batch, read_prefix, renew_crc
from logbrook.records.columns import cleaning_kernels as kernels
from logbrook.records.columns.cleaning_kernels import ROW_ASK, ROW_LAST, ROW_PLAIN, ROW_SKIP
from logbrook.records.columns.crc_kernels import find_bad_crc, write_crcs
from logbrook.records.columns.sections import (
    ATTRIBUTES,
    BASE_OFFSET,
    COUNT,
    CRC,
    END,
    LAST_OFFSET_DELTA,
    POSITION,
    SECTION_FIELDS,
    Bytes,
    Table,
    count_batches,
    read_sections,
)
from logbrook.records.errors import CorruptBatchError

__all__ = ["ROW_ASK", "ROW_LAST", "ROW_PLAIN", "ROW_SKIP", "CleanedRecords", "DigestMap", "Run", "RunCleaner"]

Longs = npt.NDArray[np.int64]

# A slot has 24 bytes, at most three quarters are used, and a map of half the size exists while it grows.
_ENTRY_BYTES = 48
_ENTRIES_MIN = 12
_ENTRIES_FIRST = 1 << 14
# Checksums of larger batches are computed by the CPU's instruction, which costs a call from Python.
_SMALL_BATCH_BYTES = 1024
_CRC_POLYNOMIAL = 0x82F63B78
# A record grows by at most this when its timestamp delta is rewritten: nine bytes of the delta, four of the length.
_RECORD_GROWTH_BYTES = 13


class CleanedRecords(NamedTuple):
    """The records of a batch that are kept, encoded; their largest timestamp; if they have the new delete horizon."""

    record_count: int
    records: memoryview
    max_timestamp: int
    has_new_horizon: bool


class DigestMap:
    """The newest offset of each of at most `entries_max` keys, by the key's digest under `digest_key`, 16 bytes.

    It grows with its keys, so that small logs take little memory.
    """

    def __init__(self, entries_max: int, digest_key: bytes) -> None:
        self.digest_key = np.frombuffer(digest_key, "<i8", 2)
        self.entries_max = entries_max
        self.state = np.zeros(2, np.int64)
        self.lows = self.highs = np.zeros(0, np.uint64)
        self.offsets = np.zeros(0, np.int64)
        self._grow(min(_ENTRIES_FIRST, entries_max))

    @classmethod
    def within(cls, bytes_max: int, digest_key: bytes) -> Self:
        """Return a map that takes at most `bytes_max` bytes, also while it grows, but has a dozen keys at least."""
        return cls(max(_ENTRIES_MIN, bytes_max // _ENTRY_BYTES), digest_key)

    def __len__(self) -> int:
        return int(self.state[kernels.ENTRIES])

    @property
    def room(self) -> int:
        return self.entries_max - len(self)

    def reserve(self, keys: int) -> None:
        """Make room for so many more keys, even beyond `entries_max`."""
        needed = len(self) + keys
        if needed > self.state[kernels.ENTRIES_MAX]:
            self._grow(max(needed, min(2 * needed, self.entries_max)))

    def _grow(self, entries: int) -> None:
        # At most three quarters of the slots are used. Pages that are never written use no memory.
        slots = entries * 4 // 3 + 1
        lows, highs, offsets = np.zeros(slots, np.uint64), np.zeros(slots, np.uint64), np.zeros(slots, np.int64)
        kernels.copy_slots(self.lows, self.highs, self.offsets, lows, highs, offsets)
        self.lows, self.highs, self.offsets = lows, highs, offsets
        self.state[kernels.ENTRIES_MAX] = entries

    def put(self, key: bytes, offset: Offset) -> None:
        self.reserve(1)
        slot, low, high = self._find(key)
        if self.offsets[slot] == 0:
            self.lows[slot], self.highs[slot] = low, high
            self.state[kernels.ENTRIES] += 1
        self.offsets[slot] = offset + 1

    def is_newest(self, key: bytes, offset: Offset) -> bool:
        newest = int(self.offsets[self._find(key)[0]])
        return newest == 0 or offset >= newest - 1

    def _find(self, key: bytes) -> tuple[int, np.uint64, np.uint64]:
        words = np.empty(2, np.uint64)
        slot = kernels.find_key(
            np.frombuffer(key, np.uint8), self.digest_key, self.lows, self.highs, self.offsets, words
        )
        return slot, words[0], words[1]


class Run:
    """Consecutive batches: their bytes, and a table with a row for each."""

    def __init__(self, view: memoryview) -> None:
        """Read as many whole batches as `view` has; `size` is the size of them. Raises CorruptBatchError."""
        data = np.frombuffer(view, np.uint8)
        count, self.size = count_batches(data)
        self.view = view[: self.size]
        self.data = data[: self.size]
        self.table: Table = np.empty((count, SECTION_FIELDS), np.int64)
        read_sections(self.data, self.table)

    def check_crcs(self) -> None:
        """Raises CorruptBatchError."""
        bad = find_bad_crc(self.data, self.table, _crc_tables(), _SMALL_BATCH_BYTES)
        if bad >= 0:
            raise CorruptBatchError(f"the CRC32C of the batch at offset {self.table[bad, BASE_OFFSET]} is wrong")
        large = self.table[self.table[:, END] - self.table[:, POSITION] > _SMALL_BATCH_BYTES]
        for position, end, crc in large[:, (POSITION, END, CRC)].tolist():
            if crc32c(self.view[position + CRC_COVERS_FROM : end]) != crc:
                check_batch(self.view, position, end)

    @property
    def attributes(self) -> Longs:
        return self.table[:, ATTRIBUTES]

    @property
    def base_offsets(self) -> Longs:
        return self.table[:, BASE_OFFSET]

    @property
    def last_offsets(self) -> Longs:
        return self.table[:, BASE_OFFSET] + self.table[:, LAST_OFFSET_DELTA]

    @property
    def sizes(self) -> Longs:
        return self.table[:, END] - self.table[:, POSITION]

    def producer_ids(self) -> Longs:
        producer_ids = np.empty(len(self.table), np.int64)
        kernels.read_producer_ids(self.data, self.table, producer_ids)
        return producer_ids

    def batch(self, row: int) -> tuple[int, memoryview]:
        """Return position and bytes of a batch."""
        position, end = int(self.table[row, POSITION]), int(self.table[row, END])
        return position, self.view[position:end]


class RunCleaner:
    """Adds runs to a map and cleans them. Owns the memory that this needs, in proportion to the largest run."""

    def __init__(self, key_map: DigestMap, now_ms: int, horizon_ms: int) -> None:
        self._map = key_map
        self._constants = np.array([*key_map.digest_key.tolist(), now_ms, horizon_ms], np.int64)
        self._records = np.empty(0, np.int64)
        self._lows = self._highs = np.empty(0, np.uint64)
        self._offsets = np.empty(0, np.int64)
        self._out = self._cleaned = np.empty(0, np.uint8)

    def add(self, run: Run, kinds: Longs, add_batch: Callable[[int], bool]) -> bool:
        """Add the keys of a run to the map.

        `add_batch` adds the batch in a row that is not plain, and returns False to stop. Returns False if it did.
        """
        self._reserve(run.size, run.table)
        key_map, row = self._map, 0
        while True:
            row = kernels.add_sections(
                run.data, run.table, kinds, row, self._constants, key_map.lows, key_map.highs, key_map.offsets,
                key_map.state, self._lows, self._highs, self._offsets,
            )  # fmt: skip
            if row == len(run.table):
                return True
            keys = int(run.table[row, COUNT])
            if kinds[row] == ROW_PLAIN and key_map.state[kernels.ENTRIES_MAX] - len(key_map) < keys <= key_map.room:
                key_map.reserve(keys)
                continue
            if not add_batch(row):
                return False
            row += 1

    def add_records(self, header: BatchHeader, records: memoryview) -> bool:
        """Add the keys of a batch, given its decompressed records. Returns False if they cannot be decoded."""
        key_map = self._map
        table = self._section(header, records.nbytes).reshape(1, -1)
        self._reserve(records.nbytes, table)
        if header.count > records.nbytes // RECORD_BYTES_MIN:
            return False
        key_map.reserve(header.count)
        done = kernels.add_sections(
            np.frombuffer(records, np.uint8), table, np.zeros(1, np.int64), 0, self._constants, key_map.lows,
            key_map.highs, key_map.offsets, key_map.state, self._lows, self._highs, self._offsets,
        )  # fmt: skip
        # A batch that exceeds the bound is added to an empty map, or it could never be; nothing is added after it.
        key_map.state[kernels.ENTRIES_MAX] = min(key_map.state[kernels.ENTRIES_MAX], key_map.entries_max)
        return bool(done)

    def clean(
        self, run: Run, kinds: Longs, clean_batch: Callable[[int], memoryview | bytearray | None]
    ) -> tuple[list[memoryview | bytearray], bool]:
        """Return the bytes to keep of a run, and True if nothing was removed or changed.

        `clean_batch` returns the bytes to keep of the batch in a row that is not plain; None if it is unchanged. The
        bytes are valid until the next call.
        """
        self._reserve(run.size, run.table)
        self._out = _grown(self._out, _cleaned_bytes_max(run.size))
        key_map, row, start, position = self._map, 0, 0, 0
        out = self._out.data
        rebuilt, totals = np.empty(len(run.table), np.int64), np.zeros(2, np.int64)
        kept: list[memoryview | bytearray] = []
        while True:
            row, position = kernels.clean_sections(
                run.data, run.table, kinds, row, self._constants, key_map.lows, key_map.highs, key_map.offsets,
                self._records, self._out, position, rebuilt, totals,
            )  # fmt: skip
            if position > start:
                kept.append(out[start:position])
                start = position
            if row == len(run.table):
                break
            cleaned = clean_batch(row)
            totals[kernels.IS_CHANGED] |= cleaned is not None
            kept.append(run.batch(row)[1] if cleaned is None else cleaned)
            row += 1
        self._write_crcs(out, rebuilt[: totals[kernels.REBUILT]])
        return kept, not totals[kernels.IS_CHANGED]

    def clean_records(self, header: BatchHeader, records: memoryview) -> CleanedRecords | None:
        """Clean the decompressed records of a batch; None if all are kept as they are. Raises CorruptBatchError."""
        section = self._section(header, records.nbytes)
        self._reserve(records.nbytes, section.reshape(1, -1))
        self._cleaned = _grown(self._cleaned, _cleaned_bytes_max(records.nbytes))
        key_map, results = self._map, np.zeros(3, np.int64)
        kept = kernels.clean_records(
            np.frombuffer(records, np.uint8), section, self._constants, key_map.lows, key_map.highs, key_map.offsets,
            self._records, self._cleaned, results,
        )  # fmt: skip
        if kept == kernels.MALFORMED:
            raise CorruptBatchError("its records cannot be decoded")
        end, max_timestamp, has_new_horizon = results.tolist()
        if kept == kernels.SAME:
            return None
        return CleanedRecords(kept, self._cleaned.data[:end], max_timestamp, bool(has_new_horizon))

    def _section(self, header: BatchHeader, size: int) -> Longs:
        """Return the table's row of a batch whose section is the first `size` bytes of a buffer."""
        fields = [0, size, header.base_offset, header.last_offset_delta, header.base_timestamp, header.max_timestamp]
        return np.array([*fields, header.count, header.attributes, header.crc, 0], np.int64)

    def _reserve(self, size: int, table: Table) -> None:
        """Make room for the records of the largest batch in a table of `size` bytes."""
        records_max = min(int(table[:, COUNT].max(initial=0)), size // RECORD_BYTES_MIN)
        self._records = _grown(self._records, 2 * records_max)
        self._offsets = _grown(self._offsets, records_max)
        if self._lows.size < records_max:
            self._lows, self._highs = np.empty(records_max, np.uint64), np.empty(records_max, np.uint64)

    def _write_crcs(self, out: memoryview, rebuilt: Longs) -> None:
        large = write_crcs(self._out, rebuilt, _crc_tables(), _SMALL_BATCH_BYTES)
        for position in rebuilt[:large].tolist():
            renew_crc(out, position, read_prefix(out, position)[1])


Array = TypeVar("Array", Longs, Bytes)


def _grown(array: Array, size: int) -> Array:
    """Return an array of at least `size` elements, whose content is lost if it is a new one."""
    return array if array.size >= size else np.empty(size, array.dtype)


def _cleaned_bytes_max(size: int) -> int:
    return size + size // RECORD_BYTES_MIN * _RECORD_GROWTH_BYTES


@cache
def _crc_tables() -> npt.NDArray[np.uint32]:
    """Return the tables of CRC32C for eight bytes per step."""
    tables = np.zeros((8, 256), np.uint32)
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC_POLYNOMIAL if crc & 1 else 0)
        tables[0, value] = crc
    for number in range(1, 8):
        previous = tables[number - 1]
        tables[number] = previous >> 8 ^ tables[0, previous & 0xFF]
    return tables
