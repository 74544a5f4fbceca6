"""Stops at commits: a writer waits before or after its commit for as long as it is ordered to, and is killed there.

A target is a table or an output topic of a scenario. Its commit is a commit of the table's log, or the end of a
transaction. A driver that is killed while a writer waits before it leaves uncommitted data files or an open
transaction. After it, the rows are committed, but Spark has not recorded the micro-batch.

Orders are files, because the writers are Spark's Python processes. `stopping_topics` and `stopping_tables` are the data
sources whose writers follow them.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from logbrook.testing.exactly_once.control_files import VARIABLE
from logbrook.testing.processes import pause

_POLL_S = 0.05
_STOPPED = ".stopped"


class StopPoint(StrEnum):
    BEFORE_COMMIT = "before its commit"
    AFTER_COMMIT = "after its commit"


class StopOrders:
    """The orders in a directory, by target."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def of_process(cls) -> "StopOrders":
        """Return the orders for this process of a driver."""
        return cls(Path(os.environ[VARIABLE]))

    def order(self, points: Mapping[str, StopPoint]) -> None:
        """Order a stop of each target at its point."""
        self.directory.mkdir(exist_ok=True)
        for target, point in points.items():
            draft = self.directory / f"{target}.draft"
            draft.write_text(point)
            draft.rename(self.directory / target)

    @property
    def has_orders(self) -> bool:
        return self.directory.exists() and any(self.directory.iterdir())

    def withdraw(self) -> None:
        """Remove all orders. A process that waits goes on."""
        with suppress(FileNotFoundError):
            for name in os.listdir(self.directory):
                (self.directory / name).unlink(missing_ok=True)

    def has_stopped(self, target: str) -> bool:
        """Return True if a writer has stopped at the target since the order."""
        return (self.directory / f"{target}{_STOPPED}").exists()

    def wait_at(self, target: str, point: StopPoint) -> None:
        """Wait for as long as there is an order for this point of the target."""
        if not self._is_ordered(target, point):
            return
        with suppress(FileNotFoundError):
            (self.directory / f"{target}{_STOPPED}").touch()
        while self._is_ordered(target, point):
            pause(_POLL_S)

    def _is_ordered(self, target: str, point: StopPoint) -> bool:
        try:
            return (self.directory / target).read_text() == point
        except FileNotFoundError:
            return False
