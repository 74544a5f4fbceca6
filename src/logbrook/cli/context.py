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
from logbrook.cli.terminal import Column, ParagraphCommand, print_rows
from logbrook.client import Client, parse_client_security
from logbrook.client.properties import read_properties
from logbrook.client.security_options import is_security_option

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
    addresses: Annotated[str, typer.Argument(metavar="HOST[:PORT],...", help="One or more of the cluster's brokers.")],
    config: Annotated[
        str | None,
        typer.Option("--client-config", metavar="FILE", help="File with the security options of a Kafka client."),
    ] = None,
) -> None:
    """Save a cluster under a name, or change its address, and use it from now on.

    Examples: logbrook context save staging broker-1:9092,broker-2:9092; logbrook context save live broker-1:9094
    --client-config live.properties
    """
    with report_failures():
        servers = with_ports(addresses)
        try:
            Client(servers).close()
        except ValueError as error:
            refuse("HOST[:PORT],...", str(error))
        path = None if config is None else os.path.abspath(config)
        if path is not None:
            parse_client_security(
                {name: value for name, value in read_properties(path).items() if is_security_option(name)}
            )
        load_contexts(os.environ).save(name, servers, path)
        typer.echo(f"commands now use {servers}")


@app.command("list", cls=ParagraphCommand)
def show(as_json: Json = False) -> None:
    """List the saved clusters and mark the one in use.

    JSON: a list of {"name", "bootstrap", "current", "client_config"}; client_config is null or the path of a file.
    """
    with report_failures():
        saved = load_contexts(os.environ)
        rows = [
            {
                "name": name,
                "bootstrap": servers,
                "current": name == saved.current,
                "client_config": saved.client_configs.get(name),
            }
            for name, servers in sorted(saved.servers.items())
        ]
        columns: list[Column] = [("current", lambda row: "*" if row["current"] else " "), "name", "bootstrap"]
        columns += ["client config"] if saved.client_configs else []
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
