"""What the engine counts. Plain numbers, read by whoever exports them."""

from dataclasses import dataclass


@dataclass(slots=True)
class StorageProbe:
    """Totals since the data directory was opened."""

    batches_appended: int = 0
    bytes_appended: int = 0
    segments_rolled: int = 0
    segments_removed: int = 0
    files_unlinked: int = 0
    indexes_rebuilt: int = 0
    corruptions_found: int = 0
    wal_commits: int = 0
    wal_entries: int = 0
    wal_bytes: int = 0
    wal_sync_seconds: float = 0.0
    checkpoints: int = 0
    compactions: int = 0
    compacted_bytes_read: int = 0
    compacted_bytes_written: int = 0
