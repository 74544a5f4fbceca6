"""What a test has left behind: threads of Python and of librdkafka, and processes."""

import threading
from collections.abc import Set as AbstractSet
from pathlib import Path

_TASKS = Path("/proc/self/task")
# What outlives a test on purpose: the session's broker, the loop of a client, and where that looks up names.
_MAY_STAY = ("logbrook-", "aiokafka", "asyncio_")
_LIBRDKAFKA = "rdk:"


def children() -> set[str]:
    """The numbers of the child processes there are; tests of other folders have some for longer than a test."""
    found: set[str] = set()
    for task in _TASKS.iterdir():
        try:
            found.update((task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def left_behind(before: AbstractSet[threading.Thread], children_before: AbstractSet[str]) -> list[str]:
    """The names of threads that were not there before, and the numbers of child processes that were not."""
    new = {thread.name for thread in set(threading.enumerate()) - before}
    found = [name for name in new if not name.startswith(_MAY_STAY)]
    for task in _TASKS.iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [name] if name.startswith(_LIBRDKAFKA) else []
    return found + [f"process {number}" for number in children() - children_before]
