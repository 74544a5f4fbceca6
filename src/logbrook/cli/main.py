"""The `logbrook` command."""

from typing import Annotated

import typer

from logbrook import __version__

app = typer.Typer(help="Logbrook: a log-structured message broker for Kafka clients.", no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"logbrook {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Logbrook: a log-structured message broker for Kafka clients."""
