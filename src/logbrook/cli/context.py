"""`logbrook context`: names for clusters, so that --bootstrap need not be typed."""

import os
from typing import Annotated

import typer

from logbrook.cli.connection import DEFAULT, VARIABLE, Json
from logbrook.cli.contexts import ContextsError, load_contexts
from logbrook.cli.failures import refuse, told_in_a_sentence
from logbrook.cli.output import print_json, print_table
from logbrook.cli.paragraphs import ParagraphCommand
from logbrook.client import Client

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Name clusters, and say which of them commands talk to.",
)


def _names(incomplete: str) -> list[str]:
    try:
        return [name for name in load_contexts(os.environ).servers if name.startswith(incomplete)]
    except ContextsError:
        return []


Name = Annotated[str, typer.Argument(metavar="NAME", help="What it is called.", autocompletion=_names)]


@app.command(cls=ParagraphCommand)
def save(
    name: Name,
    servers: Annotated[str, typer.Argument(metavar="HOST:PORT,...", help="One or more of the cluster's brokers.")],
) -> None:
    """Give a cluster a name, or a new address, and use it from now on."""
    with told_in_a_sentence():
        try:
            Client(servers).close()
        except ValueError as error:
            refuse("HOST:PORT,...", str(error))
        load_contexts(os.environ).save(name, servers)
        typer.echo(f"commands talk to {servers} now")


@app.command("list", cls=ParagraphCommand)
def show(as_json: Json = False) -> None:
    """Show what is saved, and what is used.

    JSON: a list of {"name", "bootstrap", "current"}.
    """
    with told_in_a_sentence():
        saved = load_contexts(os.environ)
        names = sorted(saved.servers)
        if as_json:
            print_json(
                [{"name": one, "bootstrap": saved.servers[one], "current": one == saved.current} for one in names]
            )
            return
        print_table(
            ("current", "name", "bootstrap"),
            [("*" if one == saved.current else " ", one, saved.servers[one]) for one in names],
        )
        if VARIABLE in os.environ:
            typer.echo(f"{VARIABLE} is set, and goes before: {os.environ[VARIABLE]}", err=True)
        elif saved.current is None:
            typer.echo(f"none is used, so commands talk to {DEFAULT}", err=True)


@app.command(cls=ParagraphCommand)
def use(name: Name) -> None:
    """Let commands talk to this cluster."""
    with told_in_a_sentence():
        saved = load_contexts(os.environ)
        saved.use(name)
        typer.echo(f"commands talk to {saved.servers[name]} now")


@app.command(cls=ParagraphCommand)
def remove(name: Name) -> None:
    """Forget a name."""
    with told_in_a_sentence():
        saved = load_contexts(os.environ)
        saved.remove(name)
        after = f"commands talk to {saved.current_servers or DEFAULT}"
        typer.echo(f"removed {name}; {after}")
