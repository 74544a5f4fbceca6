"""What the help of a command that takes settings says: an entry for each option, a panel for each section."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typer.core import TyperCommand

from logbrook.config.catalogue import Declared, Kind, all_sections, all_settings
from logbrook.config.console import CONSOLE_LISTEN
from logbrook.config.sources import CONFIG_FLAG, CONFIG_VARIABLE
from logbrook.config.values import show_value

_METAVARS = {
    Kind.BOOLEAN: "",
    Kind.INTEGER: "N",
    Kind.NUMBER: "NUMBER",
    Kind.TEXT: "TEXT",
    Kind.PATH: "DIR",
    Kind.ADDRESS: "HOST:PORT",
    Kind.CHOICE: "WORD",
    Kind.CHOICES: "WORD,...",
}
_CONSOLE_FLAG = "--console"
_UNIT_METAVARS = {"bytes": "SIZE", "ms": "DURATION"}


@dataclass(frozen=True, slots=True)
class Entry:
    """An option: what is typed, what it does, and in brackets the words it takes and its default."""

    flag: str
    metavar: str
    doc: str
    facts: str = ""


@dataclass(frozen=True, slots=True)
class Help:
    """The whole text, before it is laid out."""

    command: str
    paragraphs: tuple[str, ...]
    panels: tuple[tuple[str, tuple[Entry, ...]], ...]


class SettingsCommand(TyperCommand):
    """A command whose options are the settings, besides a few of its own.

    Typer's own layout cuts the longer flags off at 80 columns.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`--console` alone is the console where it is usually; click knows no options whose value may be left out."""
        for at, word in enumerate(args):
            is_alone = at + 1 == len(args) or args[at + 1].startswith("-")
            if word == _CONSOLE_FLAG and is_alone:
                args[at] = f"{_CONSOLE_FLAG}={CONSOLE_LISTEN}"
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002, Typer calls it so
        """Prints to standard output, as Typer's own help does. Rich takes its time to import, so only here."""
        from logbrook.cli.help_screen import print_help  # noqa: PLC0415

        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        lines = tuple(paragraph.replace("\n", " ") for paragraph in paragraphs)
        print_help(Help(ctx.command_path, lines, tuple(self._panels())))

    def _panels(self) -> Iterator[tuple[str, tuple[Entry, ...]]]:
        from_settings = {CONFIG_FLAG, *(setting.flag for setting in all_settings())}
        own = [
            Entry(option.opts[0], "", getattr(option, "help", None) or "")
            for option in self.params
            if option.opts[0] not in from_settings
        ]
        yield "Options", (*own, Entry("--help", "", "Show this message and stop."))
        for section in all_sections():
            entries = [_entry(setting) for setting in all_settings() if setting.section == section.name]
            if not section.name:
                doc = f"A TOML file of settings; {CONFIG_VARIABLE} can name it too."
                entries.insert(0, Entry(CONFIG_FLAG, "FILE", doc))
            yield section.title, tuple(entries)


def metavar_of(setting: Declared) -> str:
    """What stands for the value of a setting; empty if it takes none."""
    return _UNIT_METAVARS.get(setting.unit or "") or _METAVARS[setting.form.kind]


def _entry(setting: Declared) -> Entry:
    flag = setting.flag
    if setting.form.kind is Kind.BOOLEAN:
        flag = f"--[no-]{flag.removeprefix('--')}"
    facts = []
    if len(setting.form.choices) > 1:
        facts.append("|".join(setting.form.choices))
    if default := show_value(setting, setting.default):
        facts.append(f"default: {default}")
    return Entry(flag, metavar_of(setting), setting.doc, "; ".join(facts))
