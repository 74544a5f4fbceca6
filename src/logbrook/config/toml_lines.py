"""Line numbers of keys in a TOML document, which the standard library's parser does not report.

A document is a sequence of statements (table headers, and keys with their values), each of which is a valid document by
itself. A statement therefore ends at the first line at which `tomllib` can parse it, and no second parser is needed.
"""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

_PLACE = re.compile(r"(?P<reason>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)", re.DOTALL)


class TomlSyntaxError(ValueError):
    """The document is not valid TOML; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


def parse_toml(content: bytes) -> dict[str, Any]:
    """Raises TomlSyntaxError."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise TomlSyntaxError(content.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from None
    try:
        return tomllib.loads(text)
    except ValueError as error:
        match = _PLACE.fullmatch(str(error))
        last_line = text.rstrip().count("\n") + 1
        line = int(match["line"]) if match and match["line"] else last_line
        raise TomlSyntaxError(line, match["reason"] if match else str(error)) from None
    except RecursionError:
        raise TomlSyntaxError(1, "it is nested too deeply") from None


def lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """Map the path of each key and table of a valid document to its first line, counted from 1."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for line, statement in _statements(text):
        parsed = tomllib.loads(statement)
        paths = list(_paths(parsed))
        is_header = statement.lstrip().startswith("[")
        if is_header:
            table = ()
        for path in paths:
            lines.setdefault(table + path, line)
        if is_header:
            table = paths[-1]
    return lines


def _statements(text: str) -> Iterator[tuple[int, str]]:
    statement, begun = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        if not statement:
            begun = number
        statement += f"{line}\n"
        try:
            parsed = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if parsed:
            yield begun, statement
        statement = ""


def _paths(table: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in table.items():
        path = (*above, name)
        yield path
        if isinstance(value, dict):
            yield from _paths(value, path)
