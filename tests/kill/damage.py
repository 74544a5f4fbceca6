"""Planted loss of acknowledged records, to prove that the kill test finds it.

A killed process loses nothing that it wrote, since the page cache survives. So the loss is planted in the data
directory of a killed broker: its write-ahead log and segments are truncated as if their ends had never been synced.
"""

import os
from collections.abc import Iterator

from logbrook.storage.paths import LOG_SUFFIX, WAL_SUFFIX
from logbrook.storage.wal_format import BLOCK_ALIGNMENT


def cut_tails(data: str) -> int:
    """Truncate the content of each file by half; write-ahead log files keep their size. Returns the bytes lost."""
    lost = 0
    for path in _files(data):
        with open(path, "r+b") as file:
            content = file.read()
            used = len(content.rstrip(b"\0"))
            kept = used // 2 // BLOCK_ALIGNMENT * BLOCK_ALIGNMENT
            file.truncate(kept)
            if path.endswith(WAL_SUFFIX):
                file.truncate(len(content))
            lost += used - kept
    return lost


def _files(data: str) -> Iterator[str]:
    for directory, _, names in os.walk(data):
        if os.path.basename(directory).startswith("__"):
            continue
        for name in names:
            if name.endswith((LOG_SUFFIX, WAL_SUFFIX)):
                yield os.path.join(directory, name)
