"""Files through which a campaign and the processes that it kills communicate, since any of them may die."""

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

# Environment variable with the directory, for Spark's workers. LOGBROOK_ is the prefix of a broker's settings.
VARIABLE = "EXACTLY_ONCE_CONTROL"


class KillPoint(StrEnum):
    """Points at which a worker can be made to kill itself."""

    BEFORE_END = "before the transaction's end"
    AFTER_END = "after the transaction's end"


class TaskWrite(NamedTuple):
    """A task that has begun to write, and its process."""

    pid: int
    batch_id: int
    task: int


class ControlFiles:
    """The directory of a campaign: checkpoint, log, started writes, and kill orders."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.checkpoint = directory / "checkpoint"
        self.log = directory / "log"
        self._writes = directory / "writes"

    @classmethod
    def of_worker(cls) -> "ControlFiles":
        return cls(Path(os.environ[VARIABLE]))

    def record_write(self, write: TaskWrite) -> None:
        with open(self._writes, "ab", buffering=0) as file:
            file.write(f"{write.pid} {write.batch_id} {write.task}\n".encode())

    def writes(self) -> list[TaskWrite]:
        """All writes so far, including those of dead processes."""
        with suppress(FileNotFoundError):
            lines = self._writes.read_text().splitlines()
            return [TaskWrite(*map(int, line.split())) for line in lines]
        return []

    def order(self, point: KillPoint) -> None:
        """Make the next worker that reaches this point kill itself."""
        self._order(point).touch()

    def is_carried_out(self, point: KillPoint) -> bool:
        return not self._order(point).exists()

    def take_order(self, point: KillPoint) -> bool:
        """Remove the kill order for this point. Returns True if there was one: the worker must kill itself."""
        try:
            self._order(point).unlink()
        except FileNotFoundError:
            return False
        return True

    def withdraw_orders(self) -> None:
        for point in KillPoint:
            self.take_order(point)

    def _order(self, point: KillPoint) -> Path:
        return self.directory / f"die-{point.name.lower()}"
