"""The result of a run of a Java program: exit code, output and warnings."""

import re
from dataclasses import dataclass

# A warning or worse in the format of the POMs' logger, and the start of a stack trace.
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
        """Lines of standard output that are not empty."""
        return [line for line in self.output.splitlines() if line.strip()]

    @property
    def table(self) -> list[dict[str, str]]:
        """The rows of standard output, keyed by the column names of its first line."""
        names, *rows = [line.split() for line in self.lines]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def check(self, code: int = 0, allowed: str = "") -> None:
        """Check the exit code, and that all warnings match `allowed`."""
        assert self.code == code, str(self)
        expected = re.compile(allowed) if allowed else None
        said = [*self.output.splitlines(), *self.errors.splitlines()]
        complaints = [line for line in said if _COMPLAINT.search(line)]
        assert [line for line in complaints if expected is None or not expected.search(line)] == [], str(self)

    def __str__(self) -> str:
        return f"{self.command}\nended with {self.code}\n{self.output}\n{self.errors}"
