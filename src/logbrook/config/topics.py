"""Settings of topics: `TopicsConfig` for creating them, `LogConfig` for what each topic may override.

The fields of `LogConfig` have the names and defaults of Kafka's topic settings. The broker's values are the defaults
of all topics; a topic overrides them at creation or at run time.
"""

from enum import StrEnum
from functools import cached_property

from logbrook.config.errors import WrongValueError
from logbrook.config.setting import Settings, setting, topic_setting

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS
UNLIMITED = -1
INT64_MAX = 2**63 - 1
# Level of the codec library, in compression.gzip.level.
DEFAULT_LEVEL = -1


class TopicsConfig(Settings):
    """The settings of topic creation."""

    auto_create: bool = setting(
        False,
        "Create a topic when a client requests metadata of one that does not exist, unless the client forbids it. Off "
        "by default, because a misspelled name would create a topic silently.",
        kafka="auto.create.topics.enable",
        flag="auto-create-topics",
    )
    partitions: int = setting(
        1,
        "Number of partitions of a topic created without an explicit count. Partitions can be added later, but keys "
        "then map to other partitions.",
        kafka="num.partitions",
        flag="partitions",
        at_least=1,
        at_most=10_000,
    )
    partitions_max: int = setting(
        100_000,
        "Maximum number of partitions of all topics together; creating more is refused. It bounds memory, open files "
        "and start-up time.",
        at_least=1,
    )


class CleanupPolicy(StrEnum):
    """Removal of old records: by retention, by key, or both."""

    DELETE = "delete"
    COMPACT = "compact"


class TimestampSource(StrEnum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CompressionType(StrEnum):
    """Codec of stored batches; `producer` keeps the producer's."""

    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Validation(StrEnum):
    """Checks of produced batches: header and checksum, or all records too."""

    HEADER = "header"
    FULL = "full"


class LogConfig(Settings):
    """The settings of one partition's log."""

    segment_bytes: int = topic_setting(
        1 << 30,
        "The active segment is rolled before it would exceed this size. Retention and compaction work on whole closed "
        "segments: smaller ones free space sooner and cost more files.",
        at_least=1,
        at_most=2**31 - 1,
    )
    segment_ms: int = topic_setting(
        7 * _DAY_MS,
        "The active segment is rolled when its first record is older than this, so that retention and compaction also "
        "reach partitions with little traffic.",
        at_least=1,
    )
    index_interval_bytes: int = topic_setting(
        4096,
        "Bytes of log between two index entries. Smaller values make lookups by offset and time scan less and the "
        "index larger.",
        at_least=0,
    )
    max_message_bytes: int = topic_setting(
        (1 << 20) + 12,
        "Maximum size of a record batch as it is sent (after compression); a larger one is refused with "
        "MESSAGE_TOO_LARGE.",
        at_least=0,
    )
    message_timestamp_type: TimestampSource = topic_setting(
        TimestampSource.CREATE_TIME,
        "CreateTime keeps the producer's timestamps; LogAppendTime replaces them with the time of the append.",
    )
    message_timestamp_before_max_ms: int = topic_setting(
        INT64_MAX,
        "With message.timestamp.type CreateTime: a record whose timestamp is further in the past than this is refused "
        "with INVALID_TIMESTAMP.",
        at_least=0,
    )
    message_timestamp_after_max_ms: int = topic_setting(
        INT64_MAX,
        "With message.timestamp.type CreateTime: a record whose timestamp is further in the future than this is "
        "refused with INVALID_TIMESTAMP. Kafka's default is one hour.",
        at_least=0,
    )
    compression_type: CompressionType = topic_setting(
        CompressionType.PRODUCER,
        "producer: batches are stored as their producer compressed them. Otherwise the broker compresses batches that "
        "arrive with another codec, which costs CPU time and delays them.",
    )
    compression_gzip_level: int = topic_setting(
        DEFAULT_LEVEL,
        "With compression.type gzip: the level, from 1 to 9, or -1 for the default.",
        at_least=DEFAULT_LEVEL,
        at_most=9,
    )
    compression_lz4_level: int = topic_setting(
        9,
        "With compression.type lz4: the level. As in Kafka, the default is the fast algorithm.",
        at_least=1,
        at_most=17,
    )
    compression_zstd_level: int = topic_setting(
        3, "With compression.type zstd: the level.", at_least=-131_072, at_most=22
    )
    validate: Validation = topic_setting(
        Validation.HEADER,
        "header: of a produced batch, header and checksum are checked, and that the record count is possible. full: "
        "every record is decoded, off the event loop, and a batch that consumers could not read is refused. Not a "
        "setting of Kafka, which always decodes.",
    )
    min_insync_replicas: int = topic_setting(
        1,
        "A produce with acks=all is refused with NOT_ENOUGH_REPLICAS while fewer replicas are in sync. A single node "
        "has one replica: a higher value blocks acks=all.",
        at_least=1,
    )
    cleanup_policy: frozenset[CleanupPolicy] = topic_setting(
        frozenset({CleanupPolicy.DELETE}),
        "delete: segments past retention.ms or retention.bytes are deleted. compact: the newest record of each key is "
        "kept, and records must have a key. Both may be given; with none, nothing is ever removed.",
    )
    retention_ms: int = topic_setting(
        7 * _DAY_MS,
        "With cleanup.policy delete: a segment is deleted when its newest record is older than this. -1 keeps records "
        "forever.",
        at_least=UNLIMITED,
    )
    retention_bytes: int = topic_setting(
        UNLIMITED,
        "With cleanup.policy delete: the oldest segments are deleted while the partition is larger than this. The "
        "limit is per partition; -1 means no limit.",
        at_least=UNLIMITED,
    )
    file_delete_delay_ms: int = topic_setting(
        _MINUTE_MS,
        "Delay between removing a segment from the log and deleting its files, so that reads in progress can finish.",
        at_least=0,
    )
    min_cleanable_dirty_ratio: float = topic_setting(
        0.5,
        "With cleanup.policy compact: the log is compacted when at least this share of its closed bytes has not been "
        "compacted yet. 0 compacts at every opportunity, 1 almost never.",
        at_least=0,
        at_most=1,
    )
    min_compaction_lag_ms: int = topic_setting(
        0,
        "With cleanup.policy compact: records younger than this are not compacted, so that consumers within this lag "
        "see every record.",
        at_least=0,
    )
    max_compaction_lag_ms: int = topic_setting(
        INT64_MAX,
        "With cleanup.policy compact: the log is compacted, whatever its dirty ratio, when a record has not been "
        "compacted for this long. The active segment is rolled at this age too.",
        at_least=1,
    )
    delete_retention_ms: int = topic_setting(
        _DAY_MS,
        "With cleanup.policy compact: time that a tombstone is kept after compaction. A consumer that needs longer to "
        "read the topic may miss deletions.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compression_gzip_level == 0:
            raise WrongValueError("compression_gzip_level", 0, "-1 or a whole number from 1 to 9")

    @cached_property
    def needs_inspection(self) -> bool:
        """True if clients' batches must be decoded before they are appended; others are stored as they are."""
        return (
            CleanupPolicy.COMPACT in self.cleanup_policy
            or self.validate is Validation.FULL
            or self.compression_type is not CompressionType.PRODUCER
            or self.limits_timestamps
        )

    @cached_property
    def uses_log_append_time(self) -> bool:
        """True if the timestamps of records are those of their append."""
        return self.message_timestamp_type is TimestampSource.LOG_APPEND_TIME

    @cached_property
    def limits_timestamps(self) -> bool:
        """True if records may be refused because of their timestamps."""
        limit_ms = min(self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms)
        return self.message_timestamp_type is TimestampSource.CREATE_TIME and limit_ms < INT64_MAX

    @cached_property
    def roll_ms(self) -> int:
        """Age at which the active segment is rolled. Only closed segments can be compacted."""
        is_compacted = CleanupPolicy.COMPACT in self.cleanup_policy
        return min(self.segment_ms, self.max_compaction_lag_ms) if is_compacted else self.segment_ms
