"""What a compaction must know of transactions: which batches were aborted, and which markers still decide something.

A pass goes through the log from its first segment to its last, so when it comes to a marker it has seen every batch
of the transaction that the marker ends.
"""

from bisect import bisect_right
from collections.abc import Iterable

from logbrook.records.batch import BatchHeader
from logbrook.records.control import read_marker
from logbrook.records.errors import RecordsError
from logbrook.storage.aborted import Aborted
from logbrook.storage.scan import ScannedBatch


class CompactedTransactions:
    """Those of one pass. `aborted` are all that have records in what is compacted.

    `removals_are_durable` unless an abort that the log has forgotten may be known again after a crash.
    """

    def __init__(self, aborted: Iterable[Aborted], removals_are_durable: bool = True) -> None:
        # By producer id, in order: a producer has one transaction at a time.
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        self._abort_markers: set[int] = set()
        for one in aborted:
            self._aborted.setdefault(one.producer_id, []).append((one.first_offset, one.last_offset))
            self._abort_markers.add(one.last_offset)
        self._removals_are_durable = removals_are_durable
        # The markers of those that were aborted and of which the pass has kept nothing.
        self.gone: set[int] = set()
        # Producers of whose transaction, at this point of the pass, a batch was kept.
        self._kept: set[int] = set()
        self._keeps_markers = False

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a transactional batch belongs to a transaction that was aborted."""
        ranges = self._aborted.get(header.producer_id)
        if ranges is None:
            return False
        number = bisect_right(ranges, header.base_offset, key=lambda one: one[0]) - 1
        return number >= 0 and header.base_offset < ranges[number][1]

    def note_kept(self, header: BatchHeader) -> None:
        """A transactional batch stays, with records or without: so must the marker after it."""
        self._kept.add(header.producer_id)

    def end(self, marker: BatchHeader) -> bool:
        """Come to the end of a transaction. Returns whether there is something left of it, as far as the pass knows."""
        is_kept = marker.producer_id in self._kept or self._keeps_markers
        self._kept.discard(marker.producer_id)
        if not is_kept and marker.base_offset in self._abort_markers:
            self.gone.add(marker.base_offset)
        return is_kept

    def may_go(self, marker: BatchHeader) -> bool:
        """Whether no reader can be told any more of the abort that this marker ends, not even after a crash."""
        return self._removals_are_durable and marker.base_offset not in self._abort_markers

    def keep_markers(self) -> None:
        """From here on all of them stay: what the pass did not keep is in the log all the same."""
        self._keeps_markers = True
        self.gone.clear()


def is_marker(batch: ScannedBatch) -> bool:
    """Whether a control batch ends a transaction. One that cannot be read does not."""
    try:
        return read_marker(batch.data) is not None
    except RecordsError:
        return False
