"""The metrics of the engine: whether the disk works, segments, the write-ahead log and the log cleaner."""

from logbrook.server.metrics.declaration import Metric, counter, gauge, latencies

STORAGE: tuple[Metric, ...] = (
    gauge(
        "logbrook_storage_offline",
        "1 once a write or a sync has failed: nothing is acknowledged until a restart.",
        lambda scrape: int(scrape.environment.health.failure is not None),
    ),
    gauge(
        "logbrook_storage_writes_refused",
        "1 while nothing can be written: the storage is offline, or the broker started on a full disk.",
        lambda scrape: int((scrape.environment.health.refusal or scrape.broker.services.appends.refusal) is not None),
    ),
    counter(
        "logbrook_storage_corruptions_total",
        "Partitions in which bad bytes were found below the durable point.",
        lambda scrape: scrape.storage.corruptions_found,
    ),
    counter(
        "logbrook_storage_batches_appended_total",
        "Record batches appended to logs, the broker's own included.",
        lambda scrape: scrape.storage.batches_appended,
    ),
    counter(
        "logbrook_storage_appended_bytes_total",
        "Bytes appended to logs, the broker's own included.",
        lambda scrape: scrape.storage.bytes_appended,
    ),
    counter(
        "logbrook_storage_segments_rolled_total",
        "Segments that were closed and followed by a new one.",
        lambda scrape: scrape.storage.segments_rolled,
    ),
    counter(
        "logbrook_storage_segments_removed_total",
        "Segments that retention took out of their logs.",
        lambda scrape: scrape.storage.segments_removed,
    ),
    counter(
        "logbrook_storage_files_unlinked_total",
        "Files that were removed from the disk.",
        lambda scrape: scrape.storage.files_unlinked,
    ),
    counter(
        "logbrook_storage_indexes_rebuilt_total",
        "Indexes that were missing or bad and were made again from their segments.",
        lambda scrape: scrape.storage.indexes_rebuilt,
    ),
    gauge(
        "logbrook_storage_segments_mapped",
        "Segments that are mapped into memory for readers.",
        lambda scrape: len(scrape.environment.cache),
    ),
    gauge(
        "logbrook_storage_files_open",
        "Files that are kept open for appending.",
        lambda scrape: len(scrape.environment.open_files),
    ),
    gauge(
        "logbrook_storage_files_to_remove",
        "Files and directories that are out of use and whose time to go has not come.",
        lambda scrape: len(scrape.environment.remover),
    ),
    counter(
        "logbrook_storage_checkpoints_total",
        "Checkpoints that were finished.",
        lambda scrape: scrape.storage.checkpoints,
    ),
)

WAL: tuple[Metric, ...] = (
    counter(
        "logbrook_wal_commits_total",
        "Group commits of the write-ahead log. None with durability = interval.",
        lambda scrape: scrape.storage.wal_commits,
    ),
    counter(
        "logbrook_wal_entries_total",
        "Appends that were committed; per commit, how well they are grouped.",
        lambda scrape: scrape.storage.wal_entries,
    ),
    counter(
        "logbrook_wal_written_bytes_total",
        "Bytes written to the write-ahead log.",
        lambda scrape: scrape.storage.wal_bytes,
    ),
    gauge(
        "logbrook_wal_in_use_bytes",
        "Bytes of the write-ahead log that the next checkpoint frees.",
        lambda scrape: scrape.environment.durability.bytes_in_use,
    ),
    latencies(
        "logbrook_wal_commit_duration_seconds",
        "A group commit, from its first byte to its last sync.",
        (),
        lambda scrape: [((), scrape.storage.wal_commit_latency)],
    ),
    latencies(
        "logbrook_wal_sync_duration_seconds",
        "An fsync of the write-ahead log.",
        (),
        lambda scrape: [((), scrape.storage.wal_sync_latency)],
    ),
)

CLEANER: tuple[Metric, ...] = (
    counter(
        "logbrook_cleaner_compactions_total",
        "Passes of the log cleaner over a log.",
        lambda scrape: scrape.storage.compactions,
    ),
    counter(
        "logbrook_cleaner_read_bytes_total",
        "Bytes of the segments that the log cleaner rewrote.",
        lambda scrape: scrape.storage.compacted_bytes_read,
    ),
    counter(
        "logbrook_cleaner_written_bytes_total",
        "Bytes that the log cleaner wrote in their place.",
        lambda scrape: scrape.storage.compacted_bytes_written,
    ),
)
