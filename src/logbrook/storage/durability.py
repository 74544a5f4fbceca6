"""Durability policies: when an append is acknowledged.

`durability = "fsync"` is `wal.Wal`, a group commit to the write-ahead log. `durability = "interval"` is here. They have
the same methods: each append calls `reserve`, writes its segment, then calls `submit`.
"""

from logbrook.model.identifiers import Offset
from logbrook.storage.pending_append import PendingAppend


class IntervalDurability:
    """`durability = "interval"`: an append is complete when its segment is written; a timer syncs the segments.

    There is no write-ahead log, but entry numbers still order checkpoints and truncations.
    """

    bytes_in_use = 0
    # An append is complete when `submit` or `submit_duplicate` returns. With a WAL a commit completes it, on another
    # thread.
    is_immediate = True

    def __init__(self, next_number: int) -> None:
        self.next_number = next_number

    def reserve(self, directory: bytes, length: int) -> None:
        """No space is reserved: only the segment is written."""

    def submit(
        self, append: PendingAppend, directory: bytes, segment_base_offset: Offset, position: int, data: memoryview
    ) -> None:
        """Complete the append, whose bytes are in the segment."""
        del directory, segment_base_offset, position, data
        self.next_number += 1
        append.complete()

    def submit_duplicate(self, append: PendingAppend) -> None:
        append.complete()

    def skip_number(self) -> int:
        self.next_number += 1
        return self.next_number

    def commit(self) -> int:
        return 0

    def release(self, number: int) -> None:
        """There are no WAL files to release."""

    def close(self) -> None:
        """There are no files to close."""
