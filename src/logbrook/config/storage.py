"""What may be set for a data directory."""

from enum import StrEnum

from logbrook.config.setting import Settings, setting

_MIB = 1 << 20


class Durability(StrEnum):
    """When an append counts as done."""

    FSYNC = "fsync"
    INTERVAL = "interval"


class StorageConfig(Settings):
    """The settings of one data directory."""

    durability: Durability = setting(
        Durability.FSYNC,
        "fsync: an append is done when it would survive a power loss, one sync serving all that wait. "
        "interval: it is done at once and is synced within flush_interval_ms.",
        flag="durability",
    )
    flush_interval_ms: int = setting(
        1_000,
        "With durability = interval: the most that a power loss may take.",
        unit="ms",
        at_least=1,
    )
    checkpoint_interval_ms: int = setting(
        60_000,
        "With durability = fsync: how often the segments themselves are synced, which shortens recovery.",
        unit="ms",
        at_least=1,
    )
    wal_file_bytes: int = setting(
        32 * _MIB,
        "The size of a file of the write-ahead log; its room on the disk is taken when it is created.",
        unit="bytes",
        at_least=4096,
    )
    wal_bytes_max: int = setting(
        256 * _MIB,
        "A checkpoint is due once the write-ahead log holds this much.",
        unit="bytes",
        at_least=4096,
    )
    mapped_segments_max: int = setting(
        256,
        "How many closed segments are kept mapped for reading; each costs up to two file descriptors.",
        at_least=1,
    )
    open_files_max: int = setting(
        4096,
        "How many segments are kept open for writing, as far as the process may have files open.",
        at_least=1,
    )
    producer_id_expiration_ms: int = setting(
        24 * 60 * 60 * 1_000,
        "A producer that was silent for this long is forgotten.",
        unit="ms",
        kafka="producer.id.expiration.ms",
        at_least=1,
    )
    compaction_map_bytes_max: int = setting(
        64 * _MIB,
        "Memory for the key map of a compaction; a log with more keys is compacted in several rounds.",
        unit="bytes",
        at_least=1024,
    )
    decompressed_bytes_max: int = setting(
        128 * _MIB,
        "The most that one batch may decompress to where the engine itself must look inside.",
        unit="bytes",
        at_least=1024,
    )
