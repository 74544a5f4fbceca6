"""Metrics of the storage engine: disk health, segments, the write-ahead log and the log cleaner."""

from logbrook.server.metrics.declaration import Metric, counter, gauge, latencies

STORAGE: tuple[Metric, ...] = (
    gauge(
        "logbrook_storage_offline",
        "Number of data directories in which a write or a sync has failed: they take no writes until a restart.",
        lambda scrape: sum(environment.health.failure is not None for environment in scrape.environments),
    ),
    gauge(
        "logbrook_storage_writes_refused",
        "1 while all writes are rejected: the storage is offline, or the disk was full at the start.",
        lambda scrape: int(
            scrape.broker.services.appender.refusal is not None
            or all(environment.health.refusal is not None for environment in scrape.environments)
        ),
    ),
    counter(
        "logbrook_storage_corruptions_total",
        "Partitions in which corruption of durable data was found.",
        lambda scrape: scrape.storage.corruptions_found,
    ),
    counter(
        "logbrook_storage_scrubbed_bytes_total",
        "Bytes of logs that the scrub has read and checked.",
        lambda scrape: scrape.broker.maintenance.scrubber.bytes_read,
    ),
    gauge(
        "logbrook_storage_scrub_progress",
        "Share of the logs that the current round of the scrub has checked, 0 to 1.",
        lambda scrape: scrape.broker.maintenance.scrubber.progress,
    ),
    counter(
        "logbrook_storage_scrubs_total",
        "Rounds of the scrub that were finished: all logs were read and checked.",
        lambda scrape: scrape.broker.maintenance.scrubber.rounds_finished,
    ),
    counter(
        "logbrook_storage_batches_appended_total",
        "Record batches appended to logs, including internal ones.",
        lambda scrape: scrape.storage.batches_appended,
    ),
    counter(
        "logbrook_storage_appended_bytes_total",
        "Bytes appended to logs, including internal ones.",
        lambda scrape: scrape.storage.bytes_appended,
    ),
    counter(
        "logbrook_storage_segments_rolled_total",
        "Segment rolls.",
        lambda scrape: scrape.storage.segments_rolled,
    ),
    counter(
        "logbrook_storage_segments_removed_total",
        "Segments removed by retention.",
        lambda scrape: scrape.storage.segments_removed,
    ),
    counter(
        "logbrook_storage_files_unlinked_total",
        "Files deleted from the disk.",
        lambda scrape: scrape.storage.files_unlinked,
    ),
    counter(
        "logbrook_storage_indexes_rebuilt_total",
        "Missing or corrupt indexes that were rebuilt from their segments.",
        lambda scrape: scrape.storage.indexes_rebuilt,
    ),
    gauge(
        "logbrook_storage_segments_open",
        "Closed segments that are open for reading.",
        lambda scrape: sum(len(environment.cache) for environment in scrape.environments),
    ),
    gauge(
        "logbrook_storage_files_open",
        "Files kept open for appending.",
        lambda scrape: sum(len(environment.open_files) for environment in scrape.environments),
    ),
    gauge(
        "logbrook_storage_files_to_remove",
        "Files and directories that wait for file.delete.delay.ms to be deleted.",
        lambda scrape: sum(len(environment.remover) for environment in scrape.environments),
    ),
    counter(
        "logbrook_storage_checkpoints_total",
        "Completed checkpoints.",
        lambda scrape: scrape.storage.checkpoints,
    ),
)

WAL: tuple[Metric, ...] = (
    counter(
        "logbrook_wal_commits_total",
        "Group commits of the write-ahead log. 0 with durability = interval.",
        lambda scrape: scrape.storage.wal_commits,
    ),
    counter(
        "logbrook_wal_entries_total",
        "Appends committed. Divided by the commits: appends per group commit.",
        lambda scrape: scrape.storage.wal_entries,
    ),
    counter(
        "logbrook_wal_written_bytes_total",
        "Bytes written to the write-ahead log.",
        lambda scrape: scrape.storage.wal_bytes,
    ),
    counter(
        "logbrook_wal_segment_syncs_total",
        "Segments that a group commit has synced instead of writing their data to the write-ahead log too.",
        lambda scrape: scrape.storage.wal_segment_syncs,
    ),
    gauge(
        "logbrook_wal_in_use_bytes",
        "Space of the write-ahead log that the next checkpoint releases.",
        lambda scrape: sum(environment.durability.bytes_in_use for environment in scrape.environments),
    ),
    latencies(
        "logbrook_wal_commit_duration_seconds",
        "Duration of a group commit, from the first write to the last sync.",
        (),
        lambda scrape: [((), scrape.storage.wal_commit_latency)],
    ),
    latencies(
        "logbrook_wal_sync_duration_seconds",
        "Duration of an fsync of the write-ahead log.",
        (),
        lambda scrape: [((), scrape.storage.wal_sync_latency)],
    ),
)

CLEANER: tuple[Metric, ...] = (
    counter(
        "logbrook_cleaner_compactions_total",
        "Compactions of a log.",
        lambda scrape: scrape.storage.compactions,
    ),
    counter(
        "logbrook_cleaner_read_bytes_total",
        "Bytes read by the log cleaner.",
        lambda scrape: scrape.storage.compacted_bytes_read,
    ),
    counter(
        "logbrook_cleaner_written_bytes_total",
        "Bytes written by the log cleaner.",
        lambda scrape: scrape.storage.compacted_bytes_written,
    ),
    counter(
        "logbrook_cleaner_worker_failures_total",
        "Compactions that the worker process could not do, and that the broker did itself.",
        lambda scrape: scrape.storage.compaction_worker_failures,
    ),
)
