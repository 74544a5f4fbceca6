"""`logbrook console`: the web console and the HTTP API, for any Kafka-protocol cluster."""

import os
from importlib.util import find_spec
from typing import Annotated

import typer

from logbrook.cli.connection import Bootstrap, bootstrap_servers
from logbrook.cli.failures import fail, refuse, told_in_a_sentence
from logbrook.client import Client
from logbrook.config.values import split_address

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

TOKEN_VARIABLE = "LOGBROOK_CONSOLE_TOKEN"
DEFAULT_LISTEN = "127.0.0.1:9080"
_METRICS_PORT = 9644


@app.command()
def console(
    bootstrap: Bootstrap = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")] = (
        DEFAULT_LISTEN
    ),
    token: Annotated[
        str | None,
        typer.Option(
            envvar=TOKEN_VARIABLE,
            metavar="TOKEN",
            show_envvar=True,
            help="What browsers and scripts have to know. Needed where others than this machine can ask.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"A Logbrook broker's metrics, for latencies; port {_METRICS_PORT} of the broker unless given.",
        ),
    ] = None,
    with_parent: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the web console and the HTTP API, until it is told to stop."""
    check_console(listen, token, "--listen")
    with told_in_a_sentence():
        servers = bootstrap_servers(bootstrap, os.environ)
    try:
        Client(servers).close()
    except ValueError as error:
        refuse("--bootstrap", str(error))
    # Its libraries take a second to import.
    from logbrook.console.app import ConsoleOptions, run_console  # noqa: PLC0415

    host, port = split_address(listen)
    if metrics is None:
        metrics = f"{servers.split(',')[0].strip().rpartition(':')[0]}:{_METRICS_PORT}"
    options = ConsoleOptions(servers, host, port, token or None, metrics, with_parent)
    try:
        run_console(options, lambda url: typer.echo(f"the console is at {url}"))
    except OSError as error:
        fail(f"cannot listen on {listen}: {error.strerror or error}")


def check_console(listen: str, token: str | None, option: str) -> None:
    """Ends the command where a console could not or should not be run."""
    if find_spec("nicegui") is None:
        fail("the console is not installed: pip install 'logbrook[console]'")
    # Both of these have to be known before the broker starts, and the console's own modules are slow to import.
    from logbrook.config.loopback import is_loopback  # noqa: PLC0415

    try:
        host, _ = split_address(listen)
    except ValueError as error:
        refuse(option, str(error))
    if not is_loopback(host) and not token:
        refuse(
            option,
            f"others than this machine could ask at {listen}: set {TOKEN_VARIABLE} or --token, or listen on 127.0.0.1",
        )
