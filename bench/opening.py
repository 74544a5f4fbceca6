"""Time to open a log, which must not depend on the size of the log."""

import statistics
import time

from bench.engine import NOW_MS, batch_of, open_directory, scratch
from bench.rows import Row
from logbrook.config import Durability, LogConfig
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.storage.log_directory import LogDirectory

_SEGMENT_BYTES = 64 << 20
_CONFIG = LogConfig(segment_bytes=_SEGMENT_BYTES, max_message_bytes=2 << 20)
_ROUNDS = 31


def run() -> list[Row]:
    times: dict[int, list[float]] = {1: [], 100: []}
    with scratch() as small, scratch() as large:
        paths = {1: small, 100: large}
        for segments, path in paths.items():
            _fill(path, segments)
        for _ in range(_ROUNDS):
            for segments, path in paths.items():
                started = time.perf_counter()
                directory = _open_and_read_the_end(path)
                times[segments].append(time.perf_counter() - started)
                directory.close()
    one_segment_s, hundred_segments_s = statistics.median(times[1]), statistics.median(times[100])
    return [
        Row("open a log of 1 segment of 64 MiB", 1e3 * one_segment_s, "ms"),
        Row("open a log of 100 segments of 64 MiB", 1e3 * hundred_segments_s, "ms"),
        Row("open 100 segments against 1", hundred_segments_s / one_segment_s, "ratio", 1.5, higher_is_better=False),
    ]


def _fill(path: str, segments: int) -> None:
    batch = batch_of(1 << 20, value_bytes=1000)
    directory = open_directory(path, _CONFIG, durability=Durability.FSYNC)
    log = directory.create(TopicPartition("opening", 0), _CONFIG)
    while len(log.closed) < segments:
        log.append(batch, now_ms=NOW_MS)
        directory.commit()
        if directory.is_checkpoint_due():
            directory.checkpoint()
    directory.close()


def _open_and_read_the_end(path: str) -> LogDirectory:
    """Open the directory after a clean shutdown and read the last record, as a broker does for its first fetch."""
    directory = open_directory(path, _CONFIG, durability=Durability.FSYNC)
    log = directory.get(TopicPartition("opening", 0))
    log.read(Offset(log.log_end_offset - 1), 1)
    return directory
