"""How a run of a Java program ended, and what it complained about."""

import re
from dataclasses import dataclass

# What the logger of the POMs writes for a warning or worse, and what a stack trace begins with.
_COMPLAINT = re.compile(r"\b(WARN|ERROR)\b|Exception\b")


@dataclass(frozen=True)
class ToolRun:
    """The exit code is -1 for a run that did not end in time."""

    command: str
    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        """Of standard output, without the empty ones."""
        return [line for line in self.output.splitlines() if line.strip()]

    @property
    def table(self) -> list[dict[str, str]]:
        """What it printed as a table with a line of column names."""
        names, *rows = [line.split() for line in self.lines]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def check(self, code: int = 0, allowed: str = "") -> None:
        """It ended as it should have, and complained of nothing but what matches `allowed`."""
        assert self.code == code, str(self)
        expected = re.compile(allowed) if allowed else None
        said = [*self.output.splitlines(), *self.errors.splitlines()]
        complaints = [line for line in said if _COMPLAINT.search(line)]
        assert [line for line in complaints if expected is None or not expected.search(line)] == [], str(self)

    def __str__(self) -> str:
        return f"{self.command}\nended with {self.code}\n{self.output}\n{self.errors}"
