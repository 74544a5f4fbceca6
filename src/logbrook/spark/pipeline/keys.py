"""The keys of a TOML table, one by one: what is missing, unknown or of the wrong kind is noted with its line."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from logbrook.config.errors import Problem, listed
from logbrook.config.printable import printable
from logbrook.config.sources import shown

Lines = Mapping[tuple[str, ...], int]


class Notes(NamedTuple):
    """Where the problems of one file are gathered."""

    file: str
    problems: list[Problem]

    def add(self, line: int, what: str) -> None:
        self.problems.append(Problem(self.file, what, line))


class Keys:
    """The keys of the table at `path`. Whoever reads a key names it, and `finish` refuses the others."""

    def __init__(self, notes: Notes, lines: Lines, path: tuple[str, ...], table: Mapping[str, Any]) -> None:
        self.path = path
        self._notes = notes
        self._lines = lines
        self._table = table
        self._known: list[str] = []

    @property
    def line(self) -> int:
        """Of the table itself, or of the first key in it."""
        return self._lines.get(self.path) or min((self.line_of(name) for name in self._table), default=1)

    def line_of(self, name: str) -> int:
        return self._lines.get((*self.path, name)) or self._lines.get(self.path) or 1

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def names(self) -> Iterator[str]:
        return iter(self._table)

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, str) or not value.strip():
            self.refuse(name, "a text that is not empty")
            return default
        return value.strip()

    def text_unless_false(self, name: str, default: str) -> str | None:
        """None where it is switched off."""
        if self._table.get(name) is False:
            self._known.append(name)
            return None
        return self.text(name, default)

    def required(self, name: str, example: str) -> str:
        """The text, or an empty one after the problem is noted."""
        if name not in self._table:
            self._known.append(name)
            self.note(f"{self._full(name)} is missing; write for example {example}")
            return ""
        return self.text(name) or ""

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._take(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
            self.refuse(name, 'a list of texts, such as ["a", "b"]')
            return ()
        return tuple(value)

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        value = self._take(name)
        if value is None:
            return default
        if value not in allowed:
            self.refuse(name, listed(allowed, "or"))
            return default
        return str(value)

    def options(self, name: str) -> dict[str, str]:
        """A table of options as Spark takes them: texts. Names with dots may be written as tables in tables."""
        value = self._take(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(name, "a table, such as { maxOffsetsPerTrigger = 1000 }")
            return {}
        return dict(self._flat(name, value))

    def table(self, name: str) -> "Keys | None":
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(name, f"the table [{self._full(name)}]")
            return None
        return Keys(self._notes, self._lines, (*self.path, name), value)

    def tables(self, name: str) -> list[Mapping[str, Any]]:
        """An array of tables."""
        value = self._take(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            self.refuse(name, f"tables, each under a line [[{self._full(name)}]]")
            return []
        return value

    def note(self, what: str, name: str | None = None) -> None:
        """Something is wrong with the table, or with one of its keys."""
        self._notes.add(self.line if name is None else self.line_of(name), what)

    def refuse(self, name: str, must_be: str) -> None:
        self.note(f"{self._full(name)} = {shown(self._table[name])}, but it must be {must_be}", name)

    def finish(self) -> None:
        """Refuse what nobody has asked for."""
        for name in self._table:
            if name not in self._known:
                others = [one for one in self._known if one not in self._table]
                nearest = get_close_matches(name, others, 1) or get_close_matches(name, self._known, 1)
                known = listed(self._known, "and")
                hint = f"did you mean {nearest[0]}?" if nearest else f"there are {known}"
                self.note(f"{printable(self._full(name))} is not known; {hint}", name)

    def _take(self, name: str) -> Any:
        self._known.append(name)
        return self._table.get(name)

    def _full(self, name: str) -> str:
        return ".".join((*self.path, name))

    def _flat(self, name: str, table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
        for key, value in table.items():
            full = f"{above}{key}"
            if isinstance(value, dict):
                yield from self._flat(name, value, f"{full}.")
            elif isinstance(value, bool):
                yield full, str(value).lower()
            elif isinstance(value, str | int | float):
                yield full, str(value)
            else:
                self.note(f"{self._full(name)}.{printable(full)} must be a text, a number, true or false", name)
