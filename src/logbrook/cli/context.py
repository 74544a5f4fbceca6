"""`logbrook context`: named clusters, so that --bootstrap need not be typed."""

import os
from typing import Annotated

import typer

from logbrook.cli.connection import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_BOOTSTRAP,
    ContextsError,
    Json,
    load_contexts,
    with_ports,
)
from logbrook.cli.failures import refuse, report_failures
from logbrook.cli.terminal import ParagraphCommand, print_rows
from logbrook.client import Client

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


def _context_names(incomplete: str) -> list[str]:
    try:
        return [name for name in load_contexts(os.environ).servers if name.startswith(incomplete)]
    except ContextsError:
        return []


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=_context_names)]


@app.command(cls=ParagraphCommand)
def save(
    name: Name,
    servers: Annotated[str, typer.Argument(metavar="HOST[:PORT],...", help="One or more of the cluster's brokers.")],
) -> None:
    """Save a cluster under a name, or change its address, and use it from now on.

    Example: logbrook context save staging broker-1:9092,broker-2:9092
    """
    with report_failures():
        servers = with_ports(servers)
        try:
            Client(servers).close()
        except ValueError as error:
            refuse("HOST[:PORT],...", str(error))
        load_contexts(os.environ).save(name, servers)
        typer.echo(f"commands now use {servers}")


@app.command("list", cls=ParagraphCommand)
def show(as_json: Json = False) -> None:
    """List the saved clusters and mark the one in use.

    JSON: a list of {"name", "bootstrap", "current"}.
    """
    with report_failures():
        saved = load_contexts(os.environ)
        rows = [
            {"name": name, "bootstrap": servers, "current": name == saved.current}
            for name, servers in sorted(saved.servers.items())
        ]
        columns = (("current", lambda row: "*" if row["current"] else " "), "name", "bootstrap")
        print_rows(rows, columns, as_json=as_json)
        if as_json:
            return
        if BOOTSTRAP_VARIABLE in os.environ:
            typer.echo(f"{BOOTSTRAP_VARIABLE} is set and overrides it: {os.environ[BOOTSTRAP_VARIABLE]}", err=True)
        elif saved.current is None:
            typer.echo(f"no context is in use; commands use {DEFAULT_BOOTSTRAP}", err=True)


@app.command(cls=ParagraphCommand)
def use(name: Name) -> None:
    """Use a saved cluster from now on."""
    with report_failures():
        saved = load_contexts(os.environ)
        saved.use(name)
        typer.echo(f"commands now use {saved.servers[name]}")


@app.command(cls=ParagraphCommand)
def remove(name: Name) -> None:
    """Remove a saved cluster."""
    with report_failures():
        saved = load_contexts(os.environ)
        saved.remove(name)
        typer.echo(f"removed {name}; commands now use {saved.current_servers or DEFAULT_BOOTSTRAP}")
