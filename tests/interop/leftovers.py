"""What a test has left behind: threads of Python and of librdkafka, and processes."""

import gc
import threading
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_TASKS = Path("/proc/self/task")
# What outlives a test on purpose: the session's broker, the loop of a client, and where that looks up names.
_MAY_STAY = ("logbrook-", "aiokafka", "asyncio_")
_LIBRDKAFKA = "rdk:"


def children() -> set[str]:
    """The numbers of the child processes there are."""
    found: set[str] = set()
    for task in _TASKS.iterdir():
        try:
            found.update((task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def client_threads() -> dict[str, str]:
    """The threads of librdkafka there are, by number, with their names."""
    found: dict[str, str] = {}
    for task in _TASKS.iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.startswith(_LIBRDKAFKA):
            found[task.name] = name
    return found


@dataclass(frozen=True, slots=True)
class Before:
    """What was there before a test; tests of other folders have some of it for longer than a test."""

    threads: AbstractSet[threading.Thread]
    client_threads: AbstractSet[str]
    children: AbstractSet[str]

    @classmethod
    def now(cls) -> Self:
        """What is there at this moment."""
        return cls(set(threading.enumerate()), client_threads().keys(), children())

    def left_behind(self) -> list[str]:
        """The names of threads that were not there before, and the numbers of child processes that were not."""
        found = self._new()
        if found:
            # A client ends with its last reference, and one that a caught error's frames hold ends in a collection,
            # which takes longer than most tests.
            gc.collect()
            found = self._new()
        return found

    def _new(self) -> list[str]:
        new = {thread.name for thread in set(threading.enumerate()) - self.threads}
        found = [name for name in new if not name.startswith(_MAY_STAY)]
        found += [name for number, name in client_threads().items() if number not in self.client_threads]
        return found + [f"process {number}" for number in children() - self.children]
