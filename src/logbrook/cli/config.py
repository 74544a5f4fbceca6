"""`logbrook config show`: the settings as they would be, and where each is from."""

import json
from typing import Annotated

import typer

from logbrook.cli.help import SettingsCommand
from logbrook.cli.options import CONTEXT_SETTINGS, with_settings
from logbrook.config.catalogue import Declared, Kind, all_sections, all_settings
from logbrook.config.loading import Loaded
from logbrook.config.values import show_value

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Look at the settings that `serve` would run with.",
)


@app.callback()
def config() -> None:
    """Without it Typer would take the one command for the whole."""


@app.command(cls=SettingsCommand, context_settings=CONTEXT_SETTINGS)
@with_settings
def show(
    loaded: Loaded,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object: for each setting its value and where it is from.")
    ] = False,
) -> None:
    """Show the settings that `serve` would run with, and where each is from.

    It takes the options of serve. What it prints is a TOML file that --config takes.
    """
    typer.echo(_as_json(loaded) if as_json else _as_toml(loaded))


def _as_json(loaded: Loaded) -> str:
    found = {}
    for setting in all_settings():
        value = loaded.value(setting.key)
        if setting.form.kind is Kind.CHOICES:
            value = [choice for choice in setting.form.choices if choice in value]
        found[setting.key] = {"value": value, "from": loaded.origins[setting.key]}
    return json.dumps(found, indent=2)


def _as_toml(loaded: Loaded) -> str:
    tables = []
    for section in all_sections():
        rows = [
            (_assignment(setting, loaded.value(setting.key)), loaded.origins[setting.key])
            for setting in all_settings()
            if setting.section == section.name
        ]
        width = max(len(assignment) for assignment, _ in rows)
        lines = [f"{assignment:<{width}}  # {origin}" for assignment, origin in rows]
        tables.append("\n".join([f"[{section.name}]", *lines] if section.name else lines))
    return "\n\n".join(tables)


def _assignment(setting: Declared, value: object) -> str:
    shown = show_value(setting, value)
    bare = setting.form.kind in (Kind.BOOLEAN, Kind.NUMBER) or shown.isdecimal()
    return f"{setting.name} = {shown if bare else _quoted(shown)}"


def _quoted(text: str) -> str:
    """A TOML string; the escapes of JSON are not all TOML's."""
    escapes = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(escapes.get(one) or (one if one.isprintable() else f"\\U{ord(one):08x}") for one in text) + '"'
