"""What may be set for each topic, under the names and with the defaults of Kafka's topic settings."""

from enum import StrEnum

from logbrook.config.setting import Settings, setting

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS
UNLIMITED = -1


class CleanupPolicy(StrEnum):
    """What happens to old records. Both may hold at once: the newest per key, and none past the retention."""

    DELETE = "delete"
    COMPACT = "compact"


class TimestampSource(StrEnum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CompressionType(StrEnum):
    """Whose compression a batch is stored with. Batches are stored as they come, so the producer's is the only one."""

    PRODUCER = "producer"


class LogConfig(Settings):
    """The settings of one partition's log."""

    segment_bytes: int = setting(
        1 << 30,
        "A segment that would grow past this is closed and a new one begun.",
        unit="bytes",
        kafka="segment.bytes",
        dynamic=True,
        at_least=1,
        at_most=2**31 - 1,
    )
    segment_ms: int = setting(
        7 * _DAY_MS,
        "A segment whose first record is older than this is closed, so that retention and compaction reach it.",
        unit="ms",
        kafka="segment.ms",
        dynamic=True,
        at_least=1,
    )
    index_interval_bytes: int = setting(
        4096,
        "Bytes of log between two entries of a segment's index.",
        unit="bytes",
        kafka="index.interval.bytes",
        dynamic=True,
        at_least=0,
    )
    max_message_bytes: int = setting(
        (1 << 20) + 12,
        "The largest record batch that is accepted, as it is sent (compressed or not).",
        unit="bytes",
        kafka="max.message.bytes",
        dynamic=True,
        at_least=0,
    )
    message_timestamp_type: TimestampSource = setting(
        TimestampSource.CREATE_TIME,
        "Whether a record keeps its producer's timestamp or gets the broker's.",
        kafka="message.timestamp.type",
        dynamic=True,
    )
    compression_type: CompressionType = setting(
        CompressionType.PRODUCER,
        "Batches are stored as they were compressed by their producer; there is no other value.",
        kafka="compression.type",
        dynamic=True,
    )
    min_insync_replicas: int = setting(
        1,
        "A produce with acks=all is refused unless this many replicas are in sync.",
        kafka="min.insync.replicas",
        dynamic=True,
        at_least=1,
    )
    cleanup_policy: frozenset[CleanupPolicy] = setting(
        frozenset({CleanupPolicy.DELETE}),
        "delete: segments past the retention go. compact: the newest value per key stays. Both may be given.",
        kafka="cleanup.policy",
        dynamic=True,
    )
    retention_ms: int = setting(
        7 * _DAY_MS,
        "Segments whose newest record is older than this are deleted; -1 keeps them.",
        unit="ms",
        kafka="retention.ms",
        dynamic=True,
        at_least=UNLIMITED,
    )
    retention_bytes: int = setting(
        UNLIMITED,
        "The oldest segments are deleted while the partition is larger than this; -1 keeps them.",
        unit="bytes",
        kafka="retention.bytes",
        dynamic=True,
        at_least=UNLIMITED,
    )
    file_delete_delay_ms: int = setting(
        _MINUTE_MS,
        "How long the files of a removed segment stay on disk.",
        unit="ms",
        kafka="file.delete.delay.ms",
        dynamic=True,
        at_least=0,
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5,
        "Compaction starts when this share of the closed segments' bytes was not compacted yet.",
        kafka="min.cleanable.dirty.ratio",
        dynamic=True,
        at_least=0,
        at_most=1,
    )
    min_compaction_lag_ms: int = setting(
        0,
        "A record younger than this is not compacted away.",
        unit="ms",
        kafka="min.compaction.lag.ms",
        dynamic=True,
        at_least=0,
    )
    delete_retention_ms: int = setting(
        _DAY_MS,
        "How long a compacted topic keeps a tombstone, so that every reader can see the deletion.",
        unit="ms",
        kafka="delete.retention.ms",
        dynamic=True,
        at_least=0,
    )
