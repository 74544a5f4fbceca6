"""Fetched record batches, and which of them belong to aborted transactions (KIP-98).

A fetch that reads committed records only comes with the aborted transactions in its range: the producer id and the
first offset of each. Such a transaction extends from that offset to the producer's next abort marker.
"""

from collections.abc import Iterable
from typing import NamedTuple

from logbrook.model.identifiers import Offset
from logbrook.records.batch import BatchHeader, iter_headers
from logbrook.records.control import read_marker


class Fetched(NamedTuple):
    """Whole record batches as stored by the broker. The first may begin before the requested offset.

    `aborted` holds (producer id, first offset) of the aborted transactions; it is empty unless `committed_only`.
    """

    records: memoryview
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: tuple[tuple[int, int], ...] = ()

    @property
    def memory(self) -> bytearray:
        """The buffer that holds the response. Pass it to another fetch only when `records` is no longer used."""
        return self.records.obj if isinstance(self.records.obj, bytearray) else bytearray()

    @property
    def batches(self) -> list[memoryview]:
        """The batches one by one, without an incomplete last one."""
        return [self.records[position : position + header.size] for position, header in iter_headers(self.records)]


class AbortedBatches:
    """A filter over the batches of one fetch, which must be passed to it in offset order."""

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """`transactions` holds the (producer id, first offset) of each aborted one."""
        self._upcoming = sorted(transactions, key=lambda transaction: transaction[1], reverse=True)
        self._aborting_producers: set[int] = set()

    def includes(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return True if the batch is part of an aborted transaction, or its marker, and advance past it.

        Raises RecordsError for a control batch that cannot be read.
        """
        while self._upcoming and self._upcoming[-1][1] <= header.last_offset:
            self._aborting_producers.add(self._upcoming.pop()[0])
        if not header.is_transactional or header.producer_id not in self._aborting_producers:
            return False
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                self._aborting_producers.discard(header.producer_id)
        return True
