"""The `logbrook` command.

Starting it is part of starting a broker, so a command whose options take time to make is loaded when it is called.
"""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from logbrook.model.version import VERSION

_LOADED_WHEN_CALLED = {
    "serve": "logbrook.cli.serve",
    "config": "logbrook.cli.config",
    "archive": "logbrook.cli.archive",
    "replay": "logbrook.cli.replay",
    "audit": "logbrook.cli.audit",
    "pipeline": "logbrook.cli.pipeline",
    "table": "logbrook.cli.table",
}


class _Commands(TyperGroup):
    """Puts the real command in the place of its line in the help, once it is asked for by name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and (module := _LOADED_WHEN_CALLED.get(args[0])):
            self.add_command(typer.main.get_command(import_module(module).app), args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    help="Logbrook: a log-structured message broker for Kafka clients.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"logbrook {VERSION}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Logbrook: a log-structured message broker for Kafka clients."""


@app.command()
def serve() -> None:
    """Run a broker that Kafka clients can talk to."""


@app.command()
def config() -> None:
    """Show the settings that `serve` would run with, and where each is from."""


@app.command()
def archive() -> None:
    """Copy the records of topics into a table, each once (on Spark)."""


@app.command()
def replay() -> None:
    """Write the records of a topic or of a table to a topic (on Spark)."""


@app.command()
def audit() -> None:
    """Look at every record: counts, gaps, duplicates, keys and checksums (on Spark)."""


@app.command()
def pipeline() -> None:
    """Run topics through SQL into topics and tables (on Spark)."""


@app.command()
def table() -> None:
    """Look after the tables that pipelines write: compact, vacuum."""
