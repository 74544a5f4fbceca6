"""Typed access to the keys of a TOML table that collects problems with their line numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from logbrook.config.errors import Problem
from logbrook.model.text import join_words, printable, quoted

Lines = Mapping[tuple[str, ...], int]


class ProblemList(NamedTuple):
    """Problems found in one file."""

    file: str
    problems: list[Problem]

    def add(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.file, message, line))


class TomlTable:
    """The table at `path`. Keys that are read count as known; `finish` reports the others.

    An invalid value is added to `problems`, and the default or an empty value is returned.
    """

    def __init__(self, problems: ProblemList, lines: Lines, path: tuple[str, ...], table: Mapping[str, Any]) -> None:
        self.path = path
        self._problems = problems
        self._lines = lines
        self._table = table
        self._known: list[str] = []

    @property
    def line(self) -> int:
        """Line of the table's header, or of its first key."""
        return self._lines.get(self.path) or min((self.line_of(name) for name in self._table), default=1)

    def line_of(self, name: str) -> int:
        return self._lines.get((*self.path, name)) or self._lines.get(self.path) or 1

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def names(self) -> Iterator[str]:
        return iter(self._table)

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._take(name, "a text that is not empty", lambda value: isinstance(value, str) and value.strip())
        return default if value is None else value.strip()

    def text_unless_false(self, name: str, default: str) -> str | None:
        """Return None if the value is `false`, else the text."""
        return None if self.is_false(name) else self.text(name, default)

    def is_false(self, name: str) -> bool:
        if self._table.get(name) is not False:
            return False
        self._known.append(name)
        return True

    def count(self, name: str, default: int) -> int:
        value = self._take(name, "a whole number that is not negative", _is_count)
        return default if value is None else int(value)

    def boolean(self, name: str) -> bool:
        """Return the value, False by default."""
        return bool(self._take(name, "true or false", lambda value: isinstance(value, bool)))

    def required(self, name: str, example: str) -> str:
        """Return the text, or "" after reporting that it is missing."""
        if name not in self._table:
            self._known.append(name)
            self.add_problem(f"{self._full(name)} is missing; write for example {example}")
            return ""
        return self.text(name) or ""

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._take(name, 'a list of texts, such as ["a", "b"]', _are_texts) or ())

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        value = self._take(name, join_words(allowed, "or"), lambda value: value in allowed)
        return default if value is None else str(value)

    def options(self, name: str) -> dict[str, str]:
        """Return a table of Spark options as strings. Dotted names may be nested tables."""
        must_be = "a table, such as { maxOffsetsPerTrigger = 1000 }"
        return dict(self._flatten(name, self._take(name, must_be, _is_table) or {}))

    def table(self, name: str) -> "TomlTable | None":
        table = self._take(name, f"the table [{self._full(name)}]", _is_table)
        return None if table is None else TomlTable(self._problems, self._lines, (*self.path, name), table)

    def tables(self, name: str) -> list[Mapping[str, Any]]:
        """Return the tables of an array of tables."""
        return self._take(name, f"tables, each under a line [[{self._full(name)}]]", _are_tables) or []

    def add_problem(self, message: str, name: str | None = None) -> None:
        """Report a problem with the table or one of its keys."""
        self._problems.add(self.line if name is None else self.line_of(name), message)

    def refuse(self, name: str, must_be: str) -> None:
        self.add_problem(f"{self._full(name)} = {quoted(self._table[name])}, but it must be {must_be}", name)

    def finish(self) -> None:
        """Report unknown keys."""
        for name in self._table:
            if name not in self._known:
                unused = [key for key in self._known if key not in self._table]
                nearest = get_close_matches(name, unused, 1) or get_close_matches(name, self._known, 1)
                known = join_words(self._known, "and")
                hint = f"did you mean {nearest[0]}?" if nearest else f"there are {known}"
                self.add_problem(f"{printable(self._full(name))} is not known; {hint}", name)

    def _take(self, name: str, must_be: str, is_valid: Callable[[Any], object]) -> Any:
        """Return the value; None if there is none, or after reporting that it is not `must_be`."""
        self._known.append(name)
        value = self._table.get(name)
        if value is not None and not is_valid(value):
            self.refuse(name, must_be)
            return None
        return value

    def _full(self, name: str) -> str:
        return ".".join((*self.path, name))

    def _flatten(self, name: str, table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
        for key, value in table.items():
            full = f"{above}{key}"
            if isinstance(value, dict):
                yield from self._flatten(name, value, f"{full}.")
            elif isinstance(value, bool):
                yield full, str(value).lower()
            elif isinstance(value, str | int | float):
                yield full, str(value)
            else:
                self.add_problem(f"{self._full(name)}.{printable(full)} must be a text, a number, true or false", name)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) and item for item in value)
