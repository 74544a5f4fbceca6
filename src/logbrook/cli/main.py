"""Entry point of the `logbrook` command.

The commands below carry only the first line of their help. The application of a command is imported when the command
is called, so that `logbrook serve` does not pay for the imports of the others.
"""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from logbrook.cli.output import output_failures_reported
from logbrook.model.version import VERSION

# Location (MODULE:APPLICATION) and summary of each command. The summary is the whole help of a group of commands.
_COMMANDS = {
    "serve": ("logbrook.cli.serve:serve_app", "Run a broker for Kafka clients."),
    "topic": ("logbrook.cli.topic:app", "Create, list, describe, configure and delete topics."),
    "produce": ("logbrook.cli.produce:app", "Write records to a topic, one per line of standard input or of files."),
    "consume": ("logbrook.cli.consume:app", "Print the records of topics."),
    "group": (
        "logbrook.cli.group:app",
        "List consumer groups, show their lag, reset or delete their offsets, delete them.",
    ),
    "transaction": ("logbrook.cli.transaction:app", "List and describe transactions, abort open ones."),
    "cluster": (
        "logbrook.cli.cluster:app",
        "Show and balance a cluster's nodes, move partitions, drain and remove nodes, change settings.",
    ),
    "security": (
        "logbrook.cli.security:app",
        "Make certificates, an administrator and settings for a broker with TLS, passwords and ACLs.",
    ),
    "user": ("logbrook.cli.user:app", "Create, list and delete users that log in with a password."),
    "acl": ("logbrook.cli.acl:app", "Allow or deny operations on topics, groups and the cluster to users."),
    "quota": ("logbrook.cli.quota:app", "Limit the rates of users, client ids and addresses."),
    "context": ("logbrook.cli.context:app", "Save clusters under names and choose the one that commands use."),
    "log": (
        "logbrook.cli.log:app",
        "Inspect and maintain log files: dump, verify, repair, skip, compact, retain, index.",
    ),
    "bench": ("logbrook.cli.bench:app", "Measure throughput and latency of producing and consuming."),
    "console": ("logbrook.cli.console:app", "Run the web console and the HTTP API."),
    "top": ("logbrook.cli.top:app", "Show live throughput, topics, sizes, consumer groups and lag."),
    "config": ("logbrook.cli.serve:config_app", "Show the settings that `serve` would run with."),
    "archive": (
        "logbrook.cli.spark_jobs:archive_app",
        "Copy the records of topics into a table, exactly once (on Spark).",
    ),
    "replay": ("logbrook.cli.spark_jobs:replay_app", "Write the records of a topic or a table to a topic (on Spark)."),
    "audit": (
        "logbrook.cli.spark_jobs:audit_app",
        "Check every record of topics: counts, gaps, duplicates, keys, checksums (on Spark).",
    ),
    "pipeline": ("logbrook.cli.pipeline:app", "Run SQL pipelines from topics to topics and tables (on Spark)."),
    "table": ("logbrook.cli.table:app", "Maintain the tables that pipelines write: optimize, vacuum, history."),
}


class _LazyCommands(TyperGroup):
    """Replaces a placeholder command by its real application when it is called."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line; failures of writing to standard output end it with one sentence."""
        with output_failures_reported():
            return super().main(*args, **options)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in _COMMANDS:
            location, summary = _COMMANDS[args[0]]
            module, _, attribute = location.partition(":")
            command: Any = typer.main.get_command(getattr(import_module(module), attribute))
            if isinstance(command, TyperGroup):
                command.help = summary
            self.add_command(command, args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=_LazyCommands, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"logbrook {VERSION}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Logbrook: a log-structured message broker for Kafka clients."""


for _name, (_, _summary) in _COMMANDS.items():
    app.command(_name, help=_summary)(lambda: None)
