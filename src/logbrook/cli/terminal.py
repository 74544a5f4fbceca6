"""Terminal input and output of commands: help text, tables, JSON, progress bars, confirmation.

Results go to standard output: a table on a terminal, aligned text in a pipe, JSON with --json. Everything else goes to
standard error. Rich is imported only when something is drawn on a terminal, because it is slow to import.
"""

import inspect
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand

from logbrook.cli.client_options import client_parameters
from logbrook.cli.failures import FAILED, refuse
from logbrook.cli.output import escape_controls
from logbrook.model.text import size_text

_UNKNOWN = "-"
_GAP = "  "

Row: TypeAlias = Mapping[str, Any]
Source: TypeAlias = str | Callable[[Row], object]
# The title, whose words are the key of the values; or the title, and the key or a function of the row. Values of keys
# with the word bytes are shown with a unit, lists as words separated by commas.
Column: TypeAlias = str | tuple[str, Source]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; needed in scripts.")]


class ClientCommand(TyperCommand):
    """A command that also has -X and --client-config if it connects to brokers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += client_parameters(self.params)


class ParagraphCommand(ClientCommand):
    """A command whose help is filled to the width of the terminal; Typer does so for the first paragraph only."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        paragraphs = inspect.cleandoc(options.pop("help", None) or "").split("\n\n")
        filled = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
        super().__init__(*arguments, help=filled, **options)


def print_json(value: Any) -> None:
    """Print an indented JSON document."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_rows(rows: Sequence[Row], columns: Sequence[Column], *, as_json: bool = False) -> None:
    """Print JSON objects as a table, or as a JSON list."""
    if as_json:
        print_json(rows)
        return
    pairs = [(column, column.replace(" ", "_")) if isinstance(column, str) else column for column in columns]
    print_table([title for title, _ in pairs], [[_value(row, source) for _, source in pairs] for row in rows])


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Columns of numbers are right-aligned; None is shown as a dash."""
    rows = [list(row) for row in rows]
    numeric = [_are_numbers([row[index] for row in rows]) for index in range(len(columns))]
    texts = [[_cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, texts, numeric)
    else:
        _print_plain(columns, texts, numeric)


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """Print names and values, one pair per line."""
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        typer.echo(f"{typer.style(f'{name:<{width}}', bold=True)}{_GAP}{_cell(value)}")


def print_title(text: str) -> None:
    """Print the title of a table that follows other output."""
    typer.echo()
    typer.secho(text, bold=True)


class _ByteSize(int):
    """A number of bytes that is shown with a unit."""

    def __str__(self) -> str:
        return size_text(int(self))


def byte_size(count: int | None) -> object:
    """Return a table cell for a number of bytes."""
    return None if count is None else _ByteSize(count)


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def confirm(question: str, yes: bool) -> None:
    """Return if the user confirms or --yes was given; end the command otherwise, and where there is no terminal."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        refuse("--yes", f"{question} There is no terminal to confirm on: give --yes to go ahead")
    if not typer.confirm(question):
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(FAILED)


@contextmanager
def reading_progress(descriptor: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of bytes just read.

    It shows a bar on standard error if that is a terminal and the input is a regular file.
    """
    status = os.fstat(descriptor)
    if not sys.stderr.isatty() or not stat.S_ISREG(status.st_mode):
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (TextColumn("writing"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=status.st_size)
        yield lambda count: progress.advance(task, count)


@contextmanager
def verifying_progress() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function that takes a broker's progress reports: topic, partition, bytes and bytes_total.

    It shows a bar on standard error if that is a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn("verifying {task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def show(report: Mapping[str, Any]) -> None:
            name = f"{report['topic']}-{report['partition']}"
            progress.update(task, description=name, completed=report["bytes"], total=report["bytes_total"])

        yield show


def _value(row: Row, source: Source) -> object:
    if not isinstance(source, str):
        return source(row)
    value = row[source]
    if "bytes" in source.split("_"):
        return byte_size(value)
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _are_numbers(values: Sequence[object]) -> bool:
    known_values = [value for value in values if value is not None]
    return bool(known_values) and all(isinstance(value, int) for value in known_values)


def _cell(value: object) -> str:
    if value is None or value == "":
        return _UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    # Ids of groups and clients can be any text.
    return escape_controls(text.replace("\n", r"\n")) if sys.stdout.isatty() else text


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    lines = [[name.upper() for name in columns], *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, numeric, strict=True)
        ]
        typer.echo(_GAP.join(cells).rstrip())


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for name, is_number in zip(columns, numeric, strict=True):
        table.add_column(name.upper(), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # As Text: names may contain Rich's markup.
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
