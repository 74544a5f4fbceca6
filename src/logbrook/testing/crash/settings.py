"""The settings of workloads: small enough that a few appends fill a segment, a cache and a write-ahead log file."""

from logbrook.config import CleanupPolicy, Durability, LogConfig, StorageConfig, TimestampSource
from logbrook.model import TopicPartition
from logbrook.ports import Clock, Files
from logbrook.storage.log_directory import LogDirectory
from logbrook.testing.seeded_random import SeededRandom

EVENTS = TopicPartition("events", 0)
AUDIT = TopicPartition("audit", 0)
TABLE = TopicPartition("table", 0)
PARTITIONS = (EVENTS, AUDIT, TABLE)

DELETE_RETENTION_MS = 30_000
PRODUCER_ID_EXPIRATION_MS = 20_000
_DELETE = frozenset({CleanupPolicy.DELETE})
_COMPACT = frozenset({CleanupPolicy.COMPACT})

_CONFIGS = {
    EVENTS.topic: LogConfig(
        segment_bytes=1024,
        index_interval_bytes=200,
        segment_ms=60_000,
        retention_ms=20_000,
        retention_bytes=2048,
        file_delete_delay_ms=1_000,
        cleanup_policy=_DELETE,
    ),
    AUDIT.topic: LogConfig(
        segment_bytes=2048,
        index_interval_bytes=0,
        segment_ms=20_000,
        retention_ms=40_000,
        file_delete_delay_ms=0,
        message_timestamp_type=TimestampSource.LOG_APPEND_TIME,
        cleanup_policy=_DELETE,
    ),
    TABLE.topic: LogConfig(
        segment_bytes=800,
        index_interval_bytes=150,
        segment_ms=60_000,
        file_delete_delay_ms=500,
        delete_retention_ms=DELETE_RETENTION_MS,
        cleanup_policy=_COMPACT,
    ),
}


def open_directory(files: Files, durability: Durability, clock: Clock) -> LogDirectory:
    """Open and recover a directory with these settings. Raises as `LogDirectory.open` does."""
    return LogDirectory.open(
        files,
        _STORAGE_CONFIGS[durability],
        clock=clock,
        now_ms=clock.now_ms(),
        config_of=config_of,
        random=SeededRandom(),
    )


def config_of(partition: TopicPartition) -> LogConfig:
    return _CONFIGS[partition.topic]


_STORAGE_CONFIGS = {
    durability: StorageConfig(
        durability=durability,
        wal_file_bytes=4096,
        wal_bytes_max=12288,
        segment_sync_min_bytes=400,
        open_segments_max=2,
        open_files_max=3,
        compaction_map_bytes_max=4096,
        producer_id_expiration_ms=PRODUCER_ID_EXPIRATION_MS,
    )
    for durability in Durability
}
