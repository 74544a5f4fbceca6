"""Making the index of a log as it grows, and making it anew from a log that has none."""

from logbrook.records.batch import NO_TIMESTAMP
from logbrook.storage.index import Index


class IndexBuilder:
    """Adds an entry for a batch once enough bytes have gone by, and keeps the running largest timestamp."""

    __slots__ = ("_interval_bytes", "index", "last_entry_position", "max_timestamp")

    def __init__(self, index: Index, interval_bytes: int) -> None:
        self.index = index
        self._interval_bytes = interval_bytes
        self.last_entry_position = 0
        self.max_timestamp = NO_TIMESTAMP

    def add(self, base_offset: int, position: int, max_timestamp: int) -> None:
        """Take note of the batch at `position`. Batches come in the order of the log."""
        if position - self.last_entry_position > self._interval_bytes:
            self.index.add(base_offset, position, self.max_timestamp)
            self.last_entry_position = position
        self.max_timestamp = max(self.max_timestamp, max_timestamp)

    def resume(self) -> int:
        """Go on after the index's last entry, which is checked. Returns the position to add batches from."""
        last = self.index.last()
        self.last_entry_position = last.position
        self.max_timestamp = last.max_timestamp_before
        return last.position
