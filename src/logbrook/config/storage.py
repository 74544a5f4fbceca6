"""Settings of the data directory: durability, write-ahead log, caches and maintenance."""

from enum import StrEnum

from logbrook.config.setting import Settings, setting

_MIB = 1 << 20


class Durability(StrEnum):
    """The point at which an append is acknowledged."""

    FSYNC = "fsync"
    INTERVAL = "interval"


class MaintenanceMode(StrEnum):
    """The trigger of retention, compaction and expiry. Checkpoints run in both modes."""

    BACKGROUND = "background"
    ON_DEMAND = "on-demand"


class StorageConfig(Settings):
    """The settings of one data directory."""

    durability: Durability = setting(
        Durability.FSYNC,
        "fsync: an append is acknowledged after it is synced to the write-ahead log; one sync serves all waiting "
        "appends. interval: it is acknowledged at once and synced within flush_interval_ms.",
        flag="durability",
    )
    flush_interval_ms: int = setting(
        1_000,
        "With durability = interval: time between two syncs, and so the acknowledged writes that a power loss can "
        "lose. A crash of the process alone loses nothing.",
        at_least=1,
    )
    checkpoint_interval_ms: int = setting(
        60_000,
        "With durability = fsync: time between two checkpoints, which sync the segments and free the write-ahead log. "
        "Shorter intervals make recovery faster and cost more disk writes.",
        at_least=1,
    )
    wal_file_bytes: int = setting(
        32 * _MIB, "Size of a write-ahead log file. Its space is allocated when the file is created.", at_least=4096
    )
    wal_bytes_max: int = setting(
        256 * _MIB,
        "A checkpoint starts as soon as the write-ahead log holds this much. It bounds the data that recovery replays "
        "after a crash.",
        at_least=4096,
    )
    segment_sync_min_bytes: int = setting(
        1 * _MIB,
        "With durability = fsync: a segment that gets at least this much in one commit is synced itself, instead of "
        "writing the data to the write-ahead log too. Small commits cost one sync for all partitions; large ones do "
        "not write every byte twice.",
        at_least=1,
    )
    open_segments_max: int = setting(
        256,
        "Number of closed segments kept open for reading, each with a file descriptor and its index in memory; the "
        "least recently read is closed first.",
        at_least=1,
    )
    open_files_max: int = setting(
        4096,
        "Number of segments kept open for writing; the least recently written is closed first. The process limit "
        "(ulimit -n) lowers it.",
        at_least=1,
    )
    producer_id_expiration_ms: int = setting(
        24 * 60 * 60 * 1_000,
        "The sequence state of an idempotent producer is dropped after this time without an append. A producer that "
        "retries later than this may write a duplicate.",
        kafka="producer.id.expiration.ms",
        at_least=1,
    )
    producer_ids_max: int = setting(
        10_000,
        "Maximum number of idempotent producers per partition whose sequence state is kept. Beyond it, the state of "
        "those that have written nothing for the longest time is dropped, as after producer_id_expiration_ms.",
        at_least=10,
    )
    producer_ids_total_max: int = setting(
        200_000,
        "Maximum number of idempotent producers whose sequence state is kept, of all partitions together: a producer "
        "counts once per partition, and takes about 350 bytes. Beyond it, the partitions with the most producers drop "
        "those that have written nothing for the longest time. Producers with an open transaction are kept.",
        at_least=10,
    )
    compaction_map_bytes_max: int = setting(
        64 * _MIB,
        "Memory for the key map of a compaction, also in a process of its own. A log with more keys than fit is "
        "compacted in several passes: a key takes 200 bytes in the broker's process and 48 in its own.",
        at_least=1024,
    )
    decompressed_bytes_max: int = setting(
        128 * _MIB,
        "Maximum decompressed size of a batch that the broker itself has to read, for compaction, time lookups, the "
        "JSON protocol and internal topics. It protects against decompression bombs.",
        at_least=1024,
    )


class MaintenanceConfig(Settings):
    """The settings of the broker's housekeeping."""

    mode: MaintenanceMode = setting(
        MaintenanceMode.BACKGROUND,
        "background: retention, compaction and expiry run every interval_ms. on-demand: they run only when an operator "
        "asks (POST /maintenance, logbrook log compact and retain). Checkpoints always run.",
        flag="maintenance",
    )
    interval_ms: int = setting(
        15_000,
        "Time between two checks of all logs for segments to delete or compact.",
        kafka="log.retention.check.interval.ms",
        at_least=1,
    )
    compaction_worker: bool = setting(
        True,
        "Compactions of at least 16 MiB run in a process of their own, with a low priority and compiled code, "
        "where numba is installed (the extra columns). Without it they run in the broker's process, in 3 to 15 times "
        "the CPU time, and share the interpreter with its requests.",
    )
    scrub_interval_ms: int = setting(
        7 * 86_400_000,
        "Time in which every byte of all logs is read and checked once in the background, so that damage on the disk "
        "is found before a reader has it. A broker of a cluster repairs a damaged replica from its leader. 0 disables "
        "it.",
        at_least=0,
    )
