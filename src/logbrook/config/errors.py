"""Errors about settings: the invalid value, its location, and the allowed values."""

import reprlib
from dataclasses import dataclass


class NotAllowedError(ValueError):
    """A value is not allowed for a setting; `must_be` describes the allowed ones."""

    def __init__(self, must_be: str) -> None:
        super().__init__(f"it must be {must_be}")
        self.must_be = must_be


class WrongValueError(NotAllowedError):
    """A `Settings` object was constructed with a value that is not allowed for the field `name`."""

    def __init__(self, name: str, value: object, must_be: str) -> None:
        super().__init__(must_be)
        self.args = (f"{name} = {reprlib.repr(value)}, but it must be {must_be}",)
        self.name = name


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file, in the environment or on the command line; `where` is its location.

    `line` counts from 1; it is 0 for everything but files.
    """

    where: str
    message: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.where}:{self.line}: {self.message}" if self.line else f"{self.where}: {self.message}"


class SettingsRefusedError(Exception):
    """The settings are invalid; `problems` lists every mistake in every source."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
