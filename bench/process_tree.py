"""CPU time of a process and all its descendants, from /proc."""

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree_cpu_s(pid: int) -> float:
    """Return user and system time of `pid`, its descendants, and the children that they have waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                # It has ended, and its parent has its time when it has waited for it.
                continue
            number = int(directory.name)
            parents[number] = int(fields[1])
            ticks[number] = sum(map(int, fields[11:15]))
    return sum(ticks[number] for number in ticks if _is_within(number, pid, parents)) / _TICKS_PER_S


def _is_within(number: int, pid: int, parents: dict[int, int]) -> bool:
    while number != pid:
        if number not in parents:
            return False
        number = parents[number]
    return True
