"""Detection of leaks by a test: Python threads, librdkafka threads and child processes."""

import threading
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_TASKS = Path("/proc/self/task")
# Threads that outlive a test on purpose: the session's broker, the loop of a client, and its name resolution.
_MAY_STAY = ("logbrook-", "aiokafka", "asyncio_", "uvloop_")
_LIBRDKAFKA = "rdk:"


def children() -> set[str]:
    """Return the ids of the current child processes."""
    process_ids: set[str] = set()
    for task in _TASKS.iterdir():
        try:
            process_ids.update((task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return process_ids


def client_threads() -> dict[str, str]:
    """Return the names of librdkafka's current threads by id."""
    names: dict[str, str] = {}
    for task in _TASKS.iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.startswith(_LIBRDKAFKA):
            names[task.name] = name
    return names


@dataclass(frozen=True, slots=True)
class Before:
    """The threads and child processes before a test. Fixtures of other folders may own some of them."""

    threads: AbstractSet[threading.Thread]
    client_threads: AbstractSet[str]
    children: AbstractSet[str]

    @classmethod
    def now(cls) -> Self:
        """Return the threads and child processes at this moment."""
        return cls(set(threading.enumerate()), client_threads().keys(), children())

    def left_behind(self) -> list[str]:
        """Return the names of new threads and the ids of new child processes."""
        new = {thread.name for thread in set(threading.enumerate()) - self.threads}
        leaks = [name for name in new if not name.startswith(_MAY_STAY)]
        leaks += [name for number, name in client_threads().items() if number not in self.client_threads]
        return leaks + [f"process {number}" for number in children() - self.children]
