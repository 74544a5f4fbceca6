"""Options made from settings, for `serve` and `config show`, and the help of these commands.

Typer derives options from a function's signature, so `with_settings` generates the signature: one option per setting.
Values arrive as strings and are parsed by `logbrook.config`, by the same rules as the environment and the file.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from logbrook.config.catalogue import SEPARATORS, DeclaredSetting, ValueKind, all_sections, all_settings
from logbrook.config.errors import SettingsRefusedError
from logbrook.config.loading import CONFIG_FLAG, CONFIG_VARIABLE, LoadedSettings, load_settings
from logbrook.config.network import CONSOLE_LISTEN
from logbrook.config.values import show_value

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

# The parser passes unknown options through, so that they are reported together with all other mistakes.
CONTEXT_SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True}
INVALID_SETTINGS = 2

_CONTEXT = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
_METAVARS = {
    ValueKind.BOOLEAN: "",
    ValueKind.INTEGER: "N",
    ValueKind.NUMBER: "NUMBER",
    ValueKind.TEXT: "TEXT",
    ValueKind.PATHS: "DIR",
    ValueKind.ADDRESS: "HOST:PORT",
    ValueKind.LISTENERS: "NAME=HOST:PORT",
    ValueKind.CHOICE: "WORD",
    ValueKind.CHOICES: "WORD,...",
}
_UNIT_METAVARS = {"bytes": "SIZE", "ms": "DURATION"}
_CONSOLE_FLAG = "--console"
_WIDTH_MAX = 120
_SIDE_BY_SIDE_WIDTH_MIN = 110


@dataclass(frozen=True, slots=True)
class HelpEntry:
    """An option in the help. `facts` are its choices and its default, shown in brackets."""

    flag: str
    metavar: str
    doc: str
    facts: str = ""


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate `command(loaded, **own_options)` with an option for each setting, besides its own options."""
    own = list(inspect.signature(command).parameters.values())[1:]

    def with_loaded(context: typer.Context, **values: Any) -> None:
        own_values = {parameter.name: values.pop(parameter.name) for parameter in own}
        command(load_or_exit(_flags(values) | dict(_unknown(context.args))), **own_values)

    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    parameters = [_CONTEXT, *_setting_parameters(), *keywords]
    with_loaded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_loaded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    with_loaded.__name__ = command.__name__
    with_loaded.__doc__ = command.__doc__
    return with_loaded


class SettingsCommand(TyperCommand):
    """A command decorated with `with_settings`. Its help has a panel per section and never truncates a flag."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give `--console` without a value its default; click has no options with an optional value."""
        for index, word in enumerate(args):
            has_no_value = index + 1 == len(args) or args[index + 1].startswith("-")
            if word == _CONSOLE_FLAG and has_no_value:
                args[index] = f"{_CONSOLE_FLAG}={CONSOLE_LISTEN}"
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002, signature of click
        """Print the help to standard output, as Typer does."""
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        lines = [paragraph.replace("\n", " ") for paragraph in paragraphs]
        _print_help(ctx.command_path, lines, list(self._panels()))

    def _panels(self) -> Iterator[tuple[str, list[HelpEntry]]]:
        setting_flags = {CONFIG_FLAG, *(setting.flag for setting in all_settings())}
        own = [
            HelpEntry(option.opts[0], "", getattr(option, "help", None) or "")
            for option in self.params
            if option.opts[0] not in setting_flags
        ]
        yield "Options", [*own, HelpEntry("--help", "", "Show this message and exit.")]
        for section in all_sections():
            entries = [_help_entry(setting) for setting in all_settings() if setting.section == section.name]
            if not section.name:
                doc = f"TOML file with settings; {CONFIG_VARIABLE} can name it too."
                entries.insert(0, HelpEntry(CONFIG_FLAG, "FILE", doc))
            yield section.title, entries


def metavar_of(setting: DeclaredSetting) -> str:
    """Return the placeholder of a setting's value in the help, empty for a boolean."""
    return _UNIT_METAVARS.get(setting.facts.unit or "") or _METAVARS[setting.form.kind]


def _setting_parameters() -> Iterator[inspect.Parameter]:
    yield _keyword(CONFIG_FLAG, Annotated[str | None, typer.Option(CONFIG_FLAG, metavar="FILE")])
    for setting in all_settings():
        yield _keyword(setting.flag, _annotation(setting))


def _keyword(flag: str, annotation: object) -> inspect.Parameter:
    name = flag.removeprefix("--").replace("-", "_")
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _annotation(setting: DeclaredSetting) -> object:
    if setting.form.kind is ValueKind.BOOLEAN:
        negation = f"--no-{setting.flag.removeprefix('--')}"
        return Annotated[bool | None, typer.Option(f"{setting.flag}/{negation}", help=setting.facts.doc)]
    completion = (lambda: list(setting.form.choices)) if setting.form.choices else None
    option = typer.Option(setting.flag, metavar=metavar_of(setting), help=setting.facts.doc, autocompletion=completion)
    return Annotated[list[str] | None if setting.form.kind in SEPARATORS else str | None, option]


def _flags(values: Mapping[str, Any]) -> dict[str, object]:
    separators = {setting.flag: SEPARATORS.get(setting.form.kind, "") for setting in all_settings()}
    flags = {f"--{name.replace('_', '-')}": value for name, value in values.items() if value is not None}
    return {flag: separators[flag].join(value) if isinstance(value, list) else value for flag, value in flags.items()}


def load_or_exit(flags: Mapping[str, object]) -> LoadedSettings:
    """Load the settings of these options, the environment and the file; end the command if they are invalid."""
    try:
        return load_settings(flags, os.environ)
    except SettingsRefusedError as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(INVALID_SETTINGS) from None


def _unknown(arguments: list[str]) -> Iterator[tuple[str, object]]:
    """Yield the arguments that no option took. A word after an unknown flag is taken for its value and skipped."""
    follows_flag = False
    for argument in arguments:
        if argument.startswith("-"):
            yield argument.partition("=")[0], None
        elif not follows_flag:
            yield argument, None
        follows_flag = argument.startswith("-") and "=" not in argument


def _help_entry(setting: DeclaredSetting) -> HelpEntry:
    flag = setting.flag
    if setting.form.kind is ValueKind.BOOLEAN:
        flag = f"--[no-]{flag.removeprefix('--')}"
    facts = []
    if len(setting.form.choices) > 1:
        facts.append("|".join(setting.form.choices))
    if default := show_value(setting, setting.default):
        facts.append(f"default: {default}")
    return HelpEntry(flag, metavar_of(setting), setting.facts.doc, "; ".join(facts))


def _print_help(command: str, paragraphs: Sequence[str], panels: Sequence[tuple[str, list[HelpEntry]]]) -> None:
    # Rich is slow to import, so only here.
    from rich.console import Console  # noqa: PLC0415
    from rich.panel import Panel  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    console.width = min(console.width, _WIDTH_MAX)
    console.print(Text.assemble("Usage: ", (command, "bold"), " [OPTIONS]\n"))
    for paragraph in paragraphs:
        console.print(Text(f"{paragraph}\n"))
    flags_width = max(_flag_text(entry).cell_len for _, entries in panels for entry in entries)
    for title, entries in panels:
        is_wide = console.width >= _SIDE_BY_SIDE_WIDTH_MIN
        table = _two_columns(entries, flags_width) if is_wide else _one_column(entries)
        console.print(Panel(table, title=title, title_align="left", border_style="dim"))


def _two_columns(entries: Sequence[HelpEntry], flags_width: int) -> "Table":
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, width=flags_width)
    table.add_column(ratio=1)
    for entry in entries:
        table.add_row(_flag_text(entry), Text(entry.doc) + _facts_text(entry))
    return table


def _one_column(entries: Sequence[HelpEntry]) -> "Table":
    from rich.padding import Padding  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table.grid()
    table.add_column()
    for entry in entries:
        table.add_row(_flag_text(entry) + _facts_text(entry))
        table.add_row(Padding(entry.doc, (0, 0, 0, 4)))
    return table


def _flag_text(entry: HelpEntry) -> "Text":
    from rich.text import Text  # noqa: PLC0415

    text = Text(entry.flag, "bold cyan")
    return text.append(f" {entry.metavar}", "not bold yellow") if entry.metavar else text


def _facts_text(entry: HelpEntry) -> "Text":
    from rich.text import Text  # noqa: PLC0415

    return Text(f" [{entry.facts}]" if entry.facts else "", "dim")
