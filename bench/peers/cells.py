"""Cases of produce and consume: the size of messages, their partitions and codec; and how many make a run."""

from itertools import product
from typing import NamedTuple

from bench.peers.lab import Lab, Running, load_processes
from bench.peers.load import Spent

_BYTES_MAX = 4_000_000_000
_PROBE_BYTES = 2_000_000
_PROBE_MESSAGES_MIN = 1_000
_PROBE_RUN_S_MAX = 1.0
_SIZES = {100: "100 B", 1_000: "1 KB", 10_000: "10 KB"}


class Cell(NamedTuple):
    """Messages of one size and codec, to a number of partitions."""

    size: int
    partitions: int
    codec: str
    in_turn: bool = False

    def __str__(self) -> str:
        spread = "1 partition" if self.partitions == 1 else f"{self.partitions:,} partitions"
        return f"{_SIZES[self.size]}, {spread}" + " in turn" * self.in_turn + ", zstd" * (self.codec == "zstd")


CELLS = (
    *(Cell(*cell) for cell in product(_SIZES, (1, 16), ("none", "zstd"))),
    *(Cell(1_000, 16, codec, in_turn=True) for codec in ("none", "zstd")),
)


def probe_count(lab: Lab, running: Running, cell: Cell, run_s: float) -> int:
    """Return the number of messages for a run of `run_s` seconds, estimated by two runs of increasing length."""
    count_min = max(_PROBE_MESSAGES_MIN, _PROBE_BYTES // cell.size)
    count = count_min
    for share in (min(0.5, _PROBE_RUN_S_MAX / run_s), 1.0):
        job = running.job(lab.topic(), **cell._asdict(), count=count)
        with lab.created(running, job):
            lab.prime(running, job)
            spent, _ = running.spend("produce", job, load_processes(running.system))
        count = max(count_min // 2, next_count(spent, share * run_s, cell.size))
    return count


def next_count(spent: Spent, run_s: float, size: int) -> int:
    """Return the number of messages for a run of `run_s` seconds, by the rate of the last run."""
    return max(1, min(_BYTES_MAX // size, round(spent.messages / spent.took_s * run_s)))
