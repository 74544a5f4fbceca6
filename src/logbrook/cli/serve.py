"""`logbrook serve` runs a broker in the foreground; `logbrook config show` prints the settings it would run with."""

import json
from typing import Annotated

import typer

from logbrook.cli.settings_options import CONTEXT_SETTINGS, SettingsCommand, with_settings
from logbrook.config.catalogue import DeclaredSetting, ValueKind, all_sections, all_settings
from logbrook.config.loading import LoadedSettings
from logbrook.config.values import show_value

serve_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
config_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


@serve_app.command(cls=SettingsCommand, context_settings=CONTEXT_SETTINGS)
@with_settings
def serve(loaded: LoadedSettings) -> None:
    """Run a broker for Kafka clients.

    Example: logbrook serve --data /var/lib/logbrook --listen 0.0.0.0:9092 --advertise broker.example.com:9092

    Every option is also an environment variable (--listen is LOGBROOK_LISTEN) and a key in the TOML file that --config
    names; `logbrook config show` prints such a file. Options override the environment, the environment overrides the
    file.

    A SIZE is 64MiB, 1GiB or a number of bytes; a DURATION is 500ms, 30s, 7d or a number of milliseconds. SIGTERM or
    Ctrl-C stops the broker after open requests are answered; a second one stops it at once.
    """
    # Imported after the settings were checked: mistakes are reported without loading the server.
    from logbrook.server.run import run  # noqa: PLC0415

    raise typer.Exit(run(loaded.config))


@config_app.callback()
def config() -> None:
    """Make `show` a subcommand: Typer would run an application's only command without its name."""


@config_app.command(cls=SettingsCommand, context_settings=CONTEXT_SETTINGS)
@with_settings
def show(
    loaded: LoadedSettings,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: value and origin of each setting.")
    ] = False,
) -> None:
    """Show the settings that `serve` would run with, and where each value comes from.

    It takes the options of serve. The output is a TOML file for --config.

    Example: logbrook config show --config logbrook.toml --durability interval
    """
    typer.echo(_as_json(loaded) if as_json else _as_toml(loaded))


def _as_json(loaded: LoadedSettings) -> str:
    document = {}
    for setting in all_settings():
        value = loaded.value(setting.key)
        if setting.form.kind is ValueKind.CHOICES:
            value = [choice for choice in setting.form.choices if choice in value]
        document[setting.key] = {"value": value, "from": loaded.origins[setting.key]}
    return json.dumps(document, indent=2)


def _as_toml(loaded: LoadedSettings) -> str:
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


def _assignment(setting: DeclaredSetting, value: object) -> str:
    text = show_value(setting, value)
    is_bare = setting.form.kind in (ValueKind.BOOLEAN, ValueKind.NUMBER) or text.isdecimal()
    return f"{setting.name} = {text if is_bare else _toml_string(text)}"


def _toml_string(text: str) -> str:
    """Quote a string; JSON's escapes are not all valid in TOML."""
    escapes = {'"': '\\"', "\\": "\\\\"}
    characters = [escapes.get(char) or (char if char.isprintable() else f"\\U{ord(char):08x}") for char in text]
    return f'"{"".join(characters)}"'
