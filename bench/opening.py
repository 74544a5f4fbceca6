"""Opening a log: the time must depend on what was not synced, not on how much there is."""

import statistics
import time

from bench.engine import NOW_MS, batch_of, open_directory, scratch
from bench.rows import Row
from logbrook.config import Durability, LogConfig
from logbrook.model import TopicPartition
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
    one, hundred = statistics.median(times[1]), statistics.median(times[100])
    return [
        Row("open a log of 1 segment of 64 MiB", 1e3 * one, "ms"),
        Row("open a log of 100 segments of 64 MiB", 1e3 * hundred, "ms"),
        Row("open 100 segments against 1", hundred / one, "ratio", 1.5, higher_is_better=False),
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
    """As a broker does: opened after a stop in good order, with the defaults, up to the first answer."""
    directory = open_directory(path, _CONFIG, durability=Durability.FSYNC)
    log = directory.get(TopicPartition("opening", 0))
    log.read(log.log_end_offset - 1, 1)
    return directory
