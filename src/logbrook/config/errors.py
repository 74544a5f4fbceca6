"""What is said about settings that are wrong: where each was written, what was written, and what is allowed."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass


class NotAllowedError(ValueError):
    """A value that a setting cannot have. `must_be` says what it can have."""

    def __init__(self, must_be: str) -> None:
        super().__init__(f"it must be {must_be}")
        self.must_be = must_be


class WrongValueError(NotAllowedError):
    """Settings were made with a value that the field `name` cannot have."""

    def __init__(self, name: str, value: object, must_be: str) -> None:
        super().__init__(must_be)
        self.args = (f"{name} = {reprlib.repr(value)}, but it must be {must_be}",)
        self.name = name


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `where` is a file, the environment, or the command line; only a file has a `line`."""

    where: str
    what: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.where}:{self.line}: {self.what}" if self.line else f"{self.where}: {self.what}"


class SettingsRefusedError(Exception):
    """The settings are wrong; all that is wrong with them is in `problems`."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def listed(words: Sequence[str], last: str) -> str:
    """The words as a sentence lists them, with `last` before the last."""
    *others, end = words
    return f"{', '.join(others)} {last} {end}" if others else end
