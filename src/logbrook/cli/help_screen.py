"""The help on a terminal: no flag is cut short, and no line is too long to read."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from logbrook.cli.help import Entry, Help

_WIDTH_MAX = 120
_SIDE_BY_SIDE_WIDTH_MIN = 110


def print_help(text: Help) -> None:
    """Prints to standard output."""
    console = Console(highlight=False)
    console.width = min(console.width, _WIDTH_MAX)
    console.print(Text.assemble("Usage: ", (text.command, "bold"), " [OPTIONS]\n"))
    for paragraph in text.paragraphs:
        console.print(Text(f"{paragraph}\n"))
    flags_width = max(_typed(entry).cell_len for _, entries in text.panels for entry in entries)
    for title, entries in text.panels:
        side_by_side = console.width >= _SIDE_BY_SIDE_WIDTH_MIN
        table = _side_by_side(entries, flags_width) if side_by_side else _one_below_the_other(entries)
        console.print(Panel(table, title=title, title_align="left", border_style="dim"))


def _side_by_side(entries: Sequence[Entry], flags_width: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, width=flags_width)
    table.add_column(ratio=1)
    for entry in entries:
        table.add_row(_typed(entry), Text(entry.doc) + _facts(entry))
    return table


def _one_below_the_other(entries: Sequence[Entry]) -> Table:
    table = Table.grid()
    table.add_column()
    for entry in entries:
        table.add_row(_typed(entry) + _facts(entry))
        table.add_row(Padding(entry.doc, (0, 0, 0, 4)))
    return table


def _typed(entry: Entry) -> Text:
    typed = Text(entry.flag, "bold cyan")
    return typed.append(f" {entry.metavar}", "not bold yellow") if entry.metavar else typed


def _facts(entry: Entry) -> Text:
    return Text(f" [{entry.facts}]" if entry.facts else "", "dim")
