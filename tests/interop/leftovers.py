"""What a test has left behind: threads of Python and of librdkafka, and processes."""

import threading
from collections.abc import Set as AbstractSet
from pathlib import Path

_TASKS = Path("/proc/self/task")
# What outlives a test on purpose: the session's broker, the loop of a client, and where that looks up names.
_MAY_STAY = ("logbrook-", "aiokafka", "asyncio_")
_LIBRDKAFKA = "rdk:"


def left_behind(before: AbstractSet[threading.Thread]) -> list[str]:
    """The names of threads that were not there before, and the numbers of child processes."""
    new = {thread.name for thread in set(threading.enumerate()) - before}
    found = [name for name in new if not name.startswith(_MAY_STAY)]
    for task in _TASKS.iterdir():
        try:
            name = (task / "comm").read_text().strip()
            children = (task / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [name] if name.startswith(_LIBRDKAFKA) else []
        found += [f"process {number}" for number in children]
    return found
