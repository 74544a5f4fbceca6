"""The metrics of each partition. `__cluster_metadata`, which clients do not see, is among them."""

from collections.abc import Callable, Iterator

from logbrook.config import CleanupPolicy
from logbrook.server.metrics.declaration import Kind, Metric
from logbrook.server.metrics.scrape import PARTITION_LABELS, Scrape
from logbrook.storage.errors import StorageError
from logbrook.storage.log import Log


def _partition(name: str, help_: str, read: Callable[[Log], int | None]) -> Metric:
    def lines(scrape: Scrape) -> Iterator[str]:
        for text, log in scrape.logs():
            number = read(log)
            if number is not None:
                yield f"{name}{text} {number}\n"

    return Metric(name, Kind.GAUGE, help_, PARTITION_LABELS, lines)


def _size(log: Log) -> int | None:
    """The sizes of segments that were not read since the start are asked from the disk, which may fail."""
    try:
        return log.size
    except (StorageError, OSError):
        return None


def _cleaned_offset(log: Log) -> int | None:
    return log.state.cleaned_offset if CleanupPolicy.COMPACT in log.config.cleanup_policy else None


PARTITIONS: tuple[Metric, ...] = (
    _partition("logbrook_partition_size_bytes", "Bytes of all segments of the partition.", _size),
    _partition("logbrook_partition_segments", "Segments of the partition.", lambda log: len(log.closed) + 1),
    _partition(
        "logbrook_partition_log_start_offset", "The first offset that can be read.", lambda log: log.log_start_offset
    ),
    _partition(
        "logbrook_partition_high_watermark",
        "The first offset that is not committed: readers are shown what is before it.",
        lambda log: log.high_watermark,
    ),
    _partition(
        "logbrook_partition_log_end_offset", "The offset that the next record gets.", lambda log: log.log_end_offset
    ),
    _partition(
        "logbrook_partition_last_stable_offset",
        "The first offset that an open transaction may still undo. Far below the high watermark, one hangs.",
        lambda log: log.last_stable_offset,
    ),
    _partition(
        "logbrook_partition_undecided_offsets",
        "How far the last stable offset is behind the high watermark: what readers of committed records wait for.",
        lambda log: log.high_watermark - log.last_stable_offset,
    ),
    _partition(
        "logbrook_partition_quarantined",
        "1 when bad bytes were found in the partition: it takes no more until an operator repairs it.",
        lambda log: int(log.corruption is not None),
    ),
    _partition(
        "logbrook_partition_cleaned_offset",
        "How far the log cleaner has come. For compacted topics.",
        _cleaned_offset,
    ),
)
