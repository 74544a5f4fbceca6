"""The aborted transactions of a log, for READ_COMMITTED fetches (Kafka's transaction index).

In memory there are four columns in the order of the abort markers. On disk there is one append-only file per partition,
`aborted` (ADR 10), with an entry for each:

    bytes   field, little-endian
    0-7     producer id
    8-15    first offset of the transaction
    16-23   last offset: that of its marker
    24-31   last stable offset after the marker
    32-35   CRC32C of the above, seeded with the entry's number
    36-39   zero

The file is a cache: an abort marker ends the transaction that its producer's first transactional batch since the
previous marker began, so the index can be rebuilt from the log. It is written and synced before the snapshot that
counts its entries. For a snapshot taken at an offset, exactly its count of entries must have a marker before that
offset; otherwise the whole file is discarded and rebuilt.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection
from contextlib import closing, suppress
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from logbrook.model.identifiers import Offset, ProducerId
from logbrook.ports import Files
from logbrook.storage.durable_files import read_file, replace_file
from logbrook.storage.paths import ABORTED

_FIELDS = Struct("<qqqq")
_CRC = Struct("<I4x")
ENTRY_BYTES = _FIELDS.size + _CRC.size


class AbortedTxn(NamedTuple):
    """An aborted transaction (Kafka's AbortedTxn)."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class TransactionIndex:
    """The aborted transactions of one log, without those wholly below its log start offset. Owned by the log."""

    def __init__(self) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._last_stable_offsets = array("q")
        # Entries at the beginning of the file that were dropped from memory.
        self._dropped = 0
        # Entries in the file, including dropped ones; None if the file has to be rewritten.
        self._written: int | None = 0

    def __len__(self) -> int:
        return len(self._last_offsets)

    @property
    def count(self) -> int:
        """Entries in the file after the next `write`; recorded in the snapshot."""
        return self._dropped + len(self)

    @classmethod
    def load(
        cls, files: Files, directory: str, count: int, snapshot_offset: Offset, log_start_offset: Offset
    ) -> "TransactionIndex | None":
        """Load the `count` entries of a snapshot taken at `snapshot_offset`; None if the file does not match it.

        Later entries in the file will be overwritten. Raises OSError.
        """
        data = read_file(files, f"{directory}/{ABORTED}") or b""
        index = cls()
        for number in range(min(count + 1, len(data) // ENTRY_BYTES)):
            entry = _decode(data, number)
            is_counted = number < count
            if entry is None or is_counted != (entry.last_offset < snapshot_offset):
                if entry is None and not is_counted:
                    break
                return None
            if is_counted:
                if index._last_offsets and entry.last_offset <= index._last_offsets[-1]:
                    return None
                index.add(entry)
        if len(index) < count:
            return None
        index._written = count
        index.drop_before(log_start_offset)
        if index._dropped > len(index):
            index.invalidate_file()
        return index

    def add(self, aborted: AbortedTxn) -> None:
        """Add a transaction whose marker follows all others."""
        assert not self._last_offsets or aborted.last_offset > self._last_offsets[-1], "markers must be added in order"
        self._producer_ids.append(aborted.producer_id)
        self._first_offsets.append(aborted.first_offset)
        self._last_offsets.append(aborted.last_offset)
        self._last_stable_offsets.append(aborted.last_stable_offset)

    def overlapping(self, start_offset: Offset, end_offset: Offset) -> list[AbortedTxn]:
        """Return the transactions that may have records in [start_offset, end_offset), ordered by marker."""
        overlapping: list[AbortedTxn] = []
        for number in range(bisect_left(self._last_offsets, start_offset), len(self)):
            if self._first_offsets[number] < end_offset:
                overlapping.append(self._entry(number))
            if self._last_stable_offsets[number] >= end_offset:
                # A transaction that ends after this marker began at its last stable offset or later.
                break
        return overlapping

    def between(self, start_offset: Offset, end_offset: Offset) -> list[tuple[ProducerId, Offset]]:
        """Return (producer id, first offset) of the transactions in [start_offset, end_offset), as a fetch reports
        them."""
        return [(txn.producer_id, txn.first_offset) for txn in self.overlapping(start_offset, end_offset)]

    def drop_before(self, log_start_offset: Offset) -> None:
        """Drop transactions that lie wholly below the log start offset."""
        dropped = bisect_left(self._last_offsets, log_start_offset)
        if not dropped:
            return
        for column in (self._producer_ids, self._first_offsets, self._last_offsets, self._last_stable_offsets):
            del column[:dropped]
        if self._written:
            self._dropped += dropped
            if self._dropped > self._written:
                # Some of them were never written to the file.
                self.invalidate_file()

    def remove(self, last_offsets: Collection[int]) -> None:
        """Remove the transactions with these markers, whose batches have all been compacted away."""
        kept = [self._entry(number) for number in range(len(self)) if self._last_offsets[number] not in last_offsets]
        for column in (self._producer_ids, self._first_offsets, self._last_offsets, self._last_stable_offsets):
            del column[:]
        for txn in kept:
            self.add(txn)
        self.invalidate_file()

    def invalidate_file(self) -> None:
        """Make the next `write` rewrite the file, whose entries no longer match."""
        self._dropped = 0
        self._written = None

    def write(self, files: Files, directory: str) -> None:
        """Bring the file up to date without syncing appended entries. Raises OSError or StorageOfflineError."""
        path = f"{directory}/{ABORTED}"
        if self._written is None:
            self._rewrite(files, path)
        elif self.count > self._written:
            position = self._written * ENTRY_BYTES
            try:
                file = files.open(path)
            except FileNotFoundError:
                if self._written:
                    self._rewrite(files, path)
                    return
                file = files.create(path)
            with closing(file):
                if file.size() > position:
                    # Entries left by a crash may describe batches that were not durable.
                    file.truncate(position)
                file.pwrite(self._encode(self._written), position)
            self._written = self.count

    def _rewrite(self, files: Files, path: str) -> None:
        self._dropped = 0
        if len(self):
            replace_file(files, path, self._encode(0))
        else:
            with suppress(FileNotFoundError):
                files.unlink(path)
        self._written = len(self)

    def _encode(self, first: int) -> bytes:
        """Encode the file's entries from number `first` on."""
        data = bytearray()
        for number in range(first, self.count):
            fields = _FIELDS.pack(*self._entry(number - self._dropped))
            data += fields + _CRC.pack(crc32c(fields, number))
        return bytes(data)

    def _entry(self, number: int) -> AbortedTxn:
        return AbortedTxn(
            ProducerId(self._producer_ids[number]),
            Offset(self._first_offsets[number]),
            Offset(self._last_offsets[number]),
            Offset(self._last_stable_offsets[number]),
        )


def _decode(data: bytes, number: int) -> AbortedTxn | None:
    """Return entry `number`, or None if its checksum fails."""
    start = number * ENTRY_BYTES
    fields = data[start : start + _FIELDS.size]
    (crc,) = _CRC.unpack_from(data, start + _FIELDS.size)
    return AbortedTxn(*_FIELDS.unpack(fields)) if crc32c(fields, number) == crc else None
