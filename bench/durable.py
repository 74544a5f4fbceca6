"""Cost of a group commit that covers 1, 32 and 512 partitions with one sync."""

import os
import statistics
from collections.abc import Callable

from bench.engine import NOW_MS, batch_of, open_directory, scratch
from bench.rows import Row, seconds
from logbrook.config import Durability, LogConfig
from logbrook.model import TopicPartition

_BATCHES_PER_ROUND = 512
_ROUNDS = 41
_PARTITIONS = (1, 32, 512)


def run() -> list[Row]:
    batch = batch_of(1024)
    with scratch() as path:
        directory = open_directory(path, durability=Durability.FSYNC)
        logs = [directory.create(TopicPartition("durable", number), LogConfig()) for number in range(512)]

        def round_over(partitions: int) -> Callable[[], None]:
            def commit_round() -> None:
                for number in range(_BATCHES_PER_ROUND):
                    logs[number % partitions].append(batch, now_ms=NOW_MS)
                directory.commit()

            return commit_round

        rounds = {partitions: round_over(partitions) for partitions in _PARTITIONS}
        times: dict[int, list[float]] = {partitions: [] for partitions in _PARTITIONS}
        for _ in range(_ROUNDS):
            for partitions, commit_round in rounds.items():
                times[partitions].append(seconds(commit_round))
        directory.checkpoint()
        syncs = _separate_syncs(path, batch)
        directory.close()
    medians = {partitions: statistics.median(took_s) for partitions, took_s in times.items()}
    name = f"durable round of {_BATCHES_PER_ROUND} batches of 1 KiB"
    return [
        *(Row(f"{name}, {n} partitions", 1e3 * medians[n], "ms") for n in _PARTITIONS),
        Row(f"{name}, 512 partitions against 1", medians[512] / medians[1], "ratio", 2, higher_is_better=False),
        Row(f"{name}, 512 files synced one by one instead", 1e3 * syncs, "ms"),
    ]


def _separate_syncs(path: str, batch: bytearray) -> float:
    """Return the time of the same round with one sync per partition instead of a shared write-ahead log."""
    descriptors = [os.open(f"{path}/separate-{number}", os.O_RDWR | os.O_CREAT) for number in range(512)]

    def commit_round() -> None:
        for fd in descriptors:
            os.write(fd, batch)
        for fd in descriptors:
            os.fdatasync(fd)

    commit_round()
    median_s = statistics.median(seconds(commit_round) for _ in range(5))
    for fd in descriptors:
        os.close(fd)
    return median_s
