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
    "topic": "logbrook.cli.topic",
    "produce": "logbrook.cli.produce",
    "consume": "logbrook.cli.consume",
    "group": "logbrook.cli.group",
    "context": "logbrook.cli.context",
    "console": "logbrook.cli.console",
    "log": "logbrook.cli.log",
    "bench": "logbrook.cli.bench",
    "top": "logbrook.cli.top",
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
def topic() -> None:
    """Make topics, look at them, change them, delete them."""


@app.command()
def produce() -> None:
    """Write records to a topic: lines of standard input or of a file."""


@app.command()
def consume() -> None:
    """Print the records of topics."""


@app.command()
def group() -> None:
    """Look at consumer groups and their lag, reset them, delete them."""


@app.command()
def context() -> None:
    """Name clusters, and say which of them commands talk to."""


@app.command()
def log() -> None:
    """Look into a broker's files, and look after them: dump, verify, repair, compact, retain, index."""


@app.command()
def bench() -> None:
    """Produce and consume as fast as it goes, or at a rate, and tell how fast it was and how long it took."""


@app.command()
def console() -> None:
    """Run the web console and the HTTP API."""


@app.command()
def top() -> None:
    """Show what a cluster does: throughput, topics, partitions, sizes, groups and their lag."""


@app.command()
def config() -> None:
    """Look at the settings that `serve` would run with."""


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
