"""Memory of the storage engine after 10 GB of appends."""

import subprocess
import sys
from pathlib import Path

from bench.engine import NOW_MS, batch_of, open_directory, scratch
from bench.rows import Row
from logbrook.config import Durability, LogConfig
from logbrook.model import TopicPartition
from logbrook.storage.retention import apply_retention

_TOTAL_BYTES = 10_000_000_000
_CONFIG = LogConfig(segment_bytes=128 << 20, retention_bytes=512 << 20, file_delete_delay_ms=0)


def run() -> list[Row]:
    """Measure in a new process, without the modules and memory of other benchmarks."""
    command = [sys.executable, "-m", "bench.memory"]
    peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [Row("memory after appending 10 GB, beyond mapped pages", peak, "MiB", 150, higher_is_better=False)]


def _peak_mib() -> float:
    batch = batch_of(256 << 10, value_bytes=1000)
    peak = 0.0
    with scratch() as path:
        directory = open_directory(path, _CONFIG, durability=Durability.FSYNC)
        logs = [directory.create(TopicPartition("memory", number), _CONFIG) for number in range(4)]
        written = 0
        while written < _TOTAL_BYTES:
            for log in logs:
                log.append(batch, now_ms=NOW_MS)
                written += len(batch)
            directory.commit()
            if directory.is_checkpoint_due():
                directory.checkpoint()
                for log in logs:
                    log.read(log.log_start_offset, 1 << 20)
                    apply_retention(log, NOW_MS)
                directory.remove_files(NOW_MS)
                peak = max(peak, _anonymous_mib())
        directory.close()
    return peak


def _anonymous_mib() -> float:
    """Return the anonymous memory of the process, without mapped files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no RssAnon on this kernel")


if __name__ == "__main__":
    print(_peak_mib())
