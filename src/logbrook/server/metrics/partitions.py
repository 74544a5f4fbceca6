"""Metrics per partition, `__cluster_metadata` included, which clients do not see."""

from collections.abc import Callable, Iterator

from logbrook.config import CleanupPolicy
from logbrook.server.metrics.declaration import Metric, MetricKind
from logbrook.server.metrics.scrape import PARTITION_LABELS, Scrape
from logbrook.storage.errors import StorageError
from logbrook.storage.log import Log


def _partition(name: str, help_: str, read: Callable[[Log], int | None]) -> Metric:
    def lines(scrape: Scrape) -> Iterator[str]:
        for text, log in scrape.logs():
            number = read(log)
            if number is not None:
                yield f"{name}{text} {number}\n"

    return Metric(name, MetricKind.GAUGE, help_, PARTITION_LABELS, lines)


def _size(log: Log) -> int | None:
    """Return None if the disk fails: sizes of segments that were not read since the start are looked up there."""
    try:
        return log.size
    except (StorageError, OSError):
        return None


def _cleaned_offset(log: Log) -> int | None:
    return log.state.cleaned_offset if CleanupPolicy.COMPACT in log.config.cleanup_policy else None


PARTITIONS: tuple[Metric, ...] = (
    _partition("logbrook_partition_size_bytes", "Size of all segments of the partition.", _size),
    _partition("logbrook_partition_segments", "Number of segments of the partition.", lambda log: len(log.closed) + 1),
    _partition(
        "logbrook_partition_log_start_offset",
        "Log start offset: the first offset that can be read.",
        lambda log: log.log_start_offset,
    ),
    _partition(
        "logbrook_partition_high_watermark",
        "High watermark: consumers can read the records below it.",
        lambda log: log.high_watermark,
    ),
    _partition(
        "logbrook_partition_log_end_offset",
        "Log end offset: the offset of the next record.",
        lambda log: log.log_end_offset,
    ),
    _partition(
        "logbrook_partition_last_stable_offset",
        "Last stable offset. If it stays far below the high watermark, a transaction hangs.",
        lambda log: log.last_stable_offset,
    ),
    _partition(
        "logbrook_partition_undecided_offsets",
        "High watermark minus last stable offset: what read_committed consumers cannot read yet.",
        lambda log: log.high_watermark - log.last_stable_offset,
    ),
    _partition(
        "logbrook_partition_quarantined",
        "1 if corruption was found: the partition rejects writes until an operator repairs it.",
        lambda log: int(log.corruption is not None),
    ),
    _partition(
        "logbrook_partition_cleaned_offset",
        "Compacted topics: the log cleaner has processed the log up to this offset.",
        _cleaned_offset,
    ),
)
