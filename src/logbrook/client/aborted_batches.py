"""What a reader of committed records leaves out (KIP-98).

A broker tells of each transaction that was aborted its producer and its first offset; it goes on up to its marker.
"""

from collections.abc import Iterable

from logbrook.records.batch import BatchHeader
from logbrook.records.control import read_marker


class AbortedBatches:
    """Tells, batch by batch and in order, which belong to transactions that were aborted, their markers included."""

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """`transactions` are producer ids and first offsets."""
        self._coming = sorted(transactions, key=lambda one: one[1], reverse=True)
        self._producers: set[int] = set()

    def includes(self, header: BatchHeader, batch: memoryview) -> bool:
        """Raises RecordsError for a marker that cannot be read."""
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._producers.add(self._coming.pop()[0])
        if not header.is_transactional or header.producer_id not in self._producers:
            return False
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                self._producers.discard(header.producer_id)
        return True
