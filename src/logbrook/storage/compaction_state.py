"""State of one compaction pass: the newest offset of each key, and the transactions seen so far.

A pass reads the log from its first segment to its last, so at a marker it has seen every remaining batch of the
transaction that the marker ends.
"""

from bisect import bisect_right
from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol

from logbrook.model.identifiers import Offset
from logbrook.records.batch import BatchHeader
from logbrook.records.control import read_marker
from logbrook.records.errors import RecordsError
from logbrook.storage.segment import VerifiedBatch
from logbrook.storage.transaction_index import AbortedTxn


class CleanedTransactions:
    """The transactions of one pass (Kafka's CleanedTransactionMetadata): which batches are aborted, which markers stay.

    `aborted` are all aborted transactions with records in the compacted range. `removals_are_durable` is False while a
    crash could restore an aborted transaction that was removed from the transaction index.
    """

    def __init__(self, aborted: Iterable[AbortedTxn], removals_are_durable: bool = True) -> None:
        # By producer id, in order: a producer has one transaction at a time.
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        self._abort_markers: set[int] = set()
        for txn in aborted:
            self._aborted.setdefault(txn.producer_id, []).append((txn.first_offset, txn.last_offset))
            self._abort_markers.add(txn.last_offset)
        self._removals_are_durable = removals_are_durable
        # Marker offsets of aborted transactions of which the pass has kept no batch.
        self.emptied: set[int] = set()
        # Producer ids whose current transaction has a kept batch.
        self._producers_with_batches: set[int] = set()
        self._keeps_markers = False

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return True if a transactional batch belongs to an aborted transaction."""
        ranges = self._aborted.get(header.producer_id)
        if ranges is None:
            return False
        number = bisect_right(ranges, header.base_offset, key=lambda offsets: Offset(offsets[0])) - 1
        return number >= 0 and header.base_offset < ranges[number][1]

    def add_kept_batch(self, header: BatchHeader) -> None:
        """Record that a transactional batch is kept, possibly without records, so its marker must be kept too."""
        self._producers_with_batches.add(header.producer_id)

    def end_transaction(self, marker: BatchHeader) -> bool:
        """End the producer's transaction. Returns True if the pass kept a batch of it or must keep all markers."""
        has_batches = marker.producer_id in self._producers_with_batches or self._keeps_markers
        self._producers_with_batches.discard(marker.producer_id)
        if not has_batches and marker.base_offset in self._abort_markers:
            self.emptied.add(marker.base_offset)
        return has_batches

    def is_removable(self, marker: BatchHeader) -> bool:
        """Return True if no reader can receive the marker's transaction as aborted, even after a crash."""
        return self._removals_are_durable and marker.base_offset not in self._abort_markers

    def keep_markers(self) -> None:
        """Keep all markers from here on: a rewritten segment was not applied, so its batches are still in the log."""
        self._keeps_markers = True
        self.emptied.clear()


def is_marker(batch: VerifiedBatch) -> bool:
    """Return True if a control batch is a readable transaction marker."""
    try:
        return read_marker(batch.data) is not None
    except RecordsError:
        return False


# Memory of a 16-byte digest, an int and their dict entry in CPython, rounded up.
_ENTRY_BYTES = 200


class KeyMap(Protocol):
    """The newest offset of each key."""

    def __len__(self) -> int: ...

    @property
    def room(self) -> int:
        """Number of keys that can still be added."""

    def put(self, key: bytes, offset: Offset) -> None: ...

    def is_newest(self, key: bytes, offset: Offset) -> bool:
        """Return True unless the map has a newer offset for this key."""


class OffsetMap:
    """The newest offset of each key, in bounded memory. Keys are stored as 128-bit digests, of equal size."""

    def __init__(self, bytes_max: int) -> None:
        self._entries_max = max(1, bytes_max // _ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def room(self) -> int:
        return self._entries_max - len(self._offsets)

    def put(self, key: bytes, offset: Offset) -> None:
        self._offsets[_digest(key)] = offset

    def is_newest(self, key: bytes, offset: Offset) -> bool:
        newest = self._offsets.get(_digest(key))
        return newest is None or offset >= newest


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()
