"""The directory in which a campaign and the processes that it kills leave each other notes."""

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

# Where the workers of Spark look for it.
VARIABLE = "LOGBROOK_EXACTLY_ONCE"


class Step(StrEnum):
    """Where a worker can be made to die."""

    BEFORE_END = "before the transaction's end"
    AFTER_END = "after the transaction's end"


class Writing(NamedTuple):
    """A task that has begun to write, and its process."""

    pid: int
    batch_id: int
    task: int


class Scene:
    """Notes are files, because those who read them may be dead at any moment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.checkpoint = directory / "checkpoint"
        self.log = directory / "log"
        self._begun = directory / "begun"

    @classmethod
    def of_worker(cls) -> "Scene":
        return cls(Path(os.environ[VARIABLE]))

    def note_begin(self, writing: Writing) -> None:
        with open(self._begun, "ab", buffering=0) as file:
            file.write(f"{writing.pid} {writing.batch_id} {writing.task}\n".encode())

    def begun(self) -> list[Writing]:
        """All writes so far, those of processes that are gone too."""
        with suppress(FileNotFoundError):
            lines = self._begun.read_text().splitlines()
            return [Writing(*map(int, line.split())) for line in lines]
        return []

    def order(self, step: Step) -> None:
        """Let the next worker that comes to this step die there."""
        self._order(step).touch()

    def has_been_obeyed(self, step: Step) -> bool:
        return not self._order(step).exists()

    def take_order(self, step: Step) -> bool:
        """Whether it is this worker that is to die: an order is for one."""
        try:
            self._order(step).unlink()
        except FileNotFoundError:
            return False
        return True

    def withdraw_orders(self) -> None:
        for step in Step:
            self.take_order(step)

    def _order(self, step: Step) -> Path:
        return self.directory / f"die-{step.name.lower()}"
