"""Losing what was acknowledged, on purpose: the proof that the kill test would notice.

A killed process loses nothing that it wrote, since the kernel keeps it. So the loss is made by hand, on the data
directory of a dead broker: its write-ahead log and its segments are cut, as if their ends had never reached the disk.
"""

import os
from collections.abc import Iterator

from logbrook.storage.paths import LOG_SUFFIX, WAL_SUFFIX
from logbrook.storage.wal_format import BLOCK_ALIGNMENT


def cut_tails(data: str) -> int:
    """Cut half of what is in each file. How many bytes are gone; a file of the write-ahead log keeps its size."""
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
