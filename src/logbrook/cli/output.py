"""What a command prints: a table on a terminal, aligned text for a pipe, JSON for a program."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer

_UNKNOWN = "-"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_GAP = "  "


def print_json(value: Any) -> None:
    """A whole document."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns whose values are all numbers stand on the right. None is something that nobody knows."""
    rows = [list(row) for row in rows]
    numbers = [_are_numbers([row[n] for row in rows]) for n in range(len(columns))]
    texts = [[_shown(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, texts, numbers)
    else:
        _print_plain(columns, texts, numbers)


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    """Names and values, one below the other."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        typer.echo(f"{typer.style(f'{name:<{width}}', bold=True)}{_GAP}{_shown(value)}")


def title(text: str) -> None:
    """Above the second and any further table."""
    typer.echo()
    typer.secho(text, bold=True)


class _Size(int):
    """Bytes, to be shown in the unit that suits them."""

    def __str__(self) -> str:
        size, unit = float(self), 0
        while size >= 1024 and unit + 1 < len(_UNITS):
            size, unit = size / 1024, unit + 1
        return f"{size:.1f} {_UNITS[unit]}" if unit else f"{int(self)} B"


def size(count: int | None) -> object:
    """A cell with a number of bytes."""
    return None if count is None else _Size(count)


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _are_numbers(values: Sequence[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int) for value in known)


def _shown(value: object) -> str:
    if value is None or value == "":
        return _UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> None:
    lines = [[name.upper() for name in columns], *rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, numbers, strict=True)
        ]
        typer.echo(_GAP.join(cells).rstrip())


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> None:
    # It takes its time to import, and a script has no use for it.
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for name, is_number in zip(columns, numbers, strict=True):
        table.add_column(name.upper(), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # Names may hold what Rich would take for its markup.
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
