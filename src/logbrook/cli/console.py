"""`logbrook console`: the web console and the HTTP API, for any Kafka-protocol cluster."""

import os
from importlib.util import find_spec
from typing import Annotated

import typer

from logbrook.cli.connection import Bootstrap, bootstrap_servers
from logbrook.cli.failures import fail, refuse, told_in_a_sentence
from logbrook.client import Client
from logbrook.config.console import CONSOLE_LISTEN, TOKEN_VARIABLE, is_loopback
from logbrook.config.values import split_address
from logbrook.pipelines.report import REPORTS_TOPIC

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_METRICS_PORT = 9644


@app.command()
def console(
    bootstrap: Bootstrap = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")] = (
        CONSOLE_LISTEN
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
            help=f"A Logbrook broker's metrics, for latencies; port {_METRICS_PORT} of the broker unless given. "
            "Empty for none.",
        ),
    ] = None,
    interval_ms: Annotated[int, typer.Option(min=100, help="How often the cluster is asked for the charts.")] = (2_000),
    reports: Annotated[
        str, typer.Option("--reports", metavar="TOPIC", help="Where pipelines say how they are.")
    ] = REPORTS_TOPIC,
    with_parent: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the web console and the HTTP API, until it is told to stop."""
    _check(listen, token)
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
    options = ConsoleOptions(
        servers, host, port, token or None, metrics or None, with_parent, interval_ms / 1000, reports
    )
    try:
        run_console(options, lambda url: typer.echo(f"the console is at {url}"))
    except OSError as error:
        fail(f"cannot listen on {listen}: {error.strerror or error}")


def _check(listen: str, token: str | None) -> None:
    """Ends the command where a console could not or should not be run."""
    if find_spec("nicegui") is None:
        fail("the console is not installed: pip install 'logbrook[console]'")
    try:
        host, _ = split_address(listen)
    except ValueError as error:
        refuse("--listen", str(error))
    if not is_loopback(host) and not token:
        refuse(
            "--listen",
            f"others than this machine could ask at {listen}: set {TOKEN_VARIABLE} or --token, or listen on 127.0.0.1",
        )
