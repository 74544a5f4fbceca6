"""`logbrook console`: the web console and the HTTP API for any Kafka cluster, in a process of its own."""

import os
from importlib.util import find_spec
from typing import Annotated
from urllib.parse import urlsplit

import typer

from logbrook.cli.client_options import client_security
from logbrook.cli.connection import Bootstrap, bootstrap_servers
from logbrook.cli.console_options import (
    Certificate,
    Key,
    Login,
    OidcClientId,
    OidcClientSecretFile,
    OidcIssuer,
    OidcScope,
    SessionMinutes,
    Token,
    Url,
    check_address,
    login_security,
    oidc_options,
)
from logbrook.cli.failures import fail, refuse, report_failures
from logbrook.cli.terminal import ClientCommand
from logbrook.client import Client
from logbrook.config.network import CONSOLE_LISTEN, TOKEN_VARIABLE, is_loopback, split_address
from logbrook.model.version import install_command
from logbrook.monitoring.metrics import DEFAULT_PORT
from logbrook.pipelines.report import REPORTS_TOPIC
from logbrook.ports.parent_process import end_with_parent

_REGISTRY_VARIABLE = "LOGBROOK_SCHEMA_REGISTRY"

Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")]
Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help=f"Metrics of a Logbrook broker, for bytes and latencies; default: port {DEFAULT_PORT} of the first "
        "bootstrap server; empty for none.",
    ),
]
Reports = Annotated[
    str, typer.Option("--reports", metavar="TOPIC", help="Topic to which pipelines write their status.")
]
SchemaRegistry = Annotated[
    str | None,
    typer.Option(envvar=_REGISTRY_VARIABLE, metavar="URL", help="Schema registry of Avro and Protobuf values."),
]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=ClientCommand)
def console(
    bootstrap: Bootstrap = None,
    listen: Listen = CONSOLE_LISTEN,
    token: Token = None,
    metrics: Metrics = None,
    interval_ms: Annotated[int, typer.Option(min=100, help="Interval between samples of the cluster.")] = (2_000),
    reports: Reports = REPORTS_TOPIC,
    schema_registry: SchemaRegistry = None,
    login: Login = False,
    session_minutes: SessionMinutes = 480,
    url: Url = None,
    certificate: Certificate = None,
    key: Key = None,
    oidc_issuer: OidcIssuer = None,
    oidc_client_id: OidcClientId = "",
    oidc_client_secret_file: OidcClientSecretFile = None,
    oidc_scope: OidcScope = "openid profile",
    with_parent: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the web console and the HTTP API until SIGTERM or Ctrl-C.

    Example: logbrook console --bootstrap broker-1:9092 --listen 127.0.0.1:9080
    """
    if with_parent:
        # The broker closes our standard input when it stops. If it is killed, so are we, whatever we are doing.
        end_with_parent()
    _check(listen, token, schema_registry, has_login=login)
    check_address(url, certificate, key)
    with report_failures():
        servers = bootstrap_servers(bootstrap, os.environ)
        security = login_security() if login else client_security()
    try:
        Client(servers).close()
    except ValueError as error:
        refuse("--bootstrap", str(error))
    # The console's libraries take a second to import.
    from logbrook.console.app import ConsoleOptions, run_console  # noqa: PLC0415

    oidc = oidc_options(oidc_issuer, oidc_client_id, oidc_client_secret_file, oidc_scope, url=url, has_login=login)
    host, port = split_address(listen)
    guessed = f"{servers.split(',')[0].strip().rpartition(':')[0]}:{DEFAULT_PORT}"
    options = ConsoleOptions(
        servers,
        host,
        port,
        token=token or None,
        metrics=(guessed if metrics is None else metrics) or None,
        is_metrics_guessed=metrics is None,
        with_parent=with_parent,
        interval_s=interval_ms / 1000,
        reports=reports,
        schema_registry=schema_registry or None,
        security=security,
        has_login=login,
        session_s=60.0 * session_minutes,
        url=url,
        certificate=certificate,
        key=key,
        oidc=oidc,
    )
    try:
        with report_failures():
            run_console(options, lambda url: typer.echo(f"the console is at {url}"))
    except OSError as error:
        fail(f"cannot listen on {listen}: {error.strerror or error}")


def _check(listen: str, token: str | None, schema_registry: str | None, *, has_login: bool) -> None:
    """End the command if the console is not installed, would listen beyond loopback without a login, or has no URL."""
    if find_spec("nicegui") is None:
        fail(f"the console is not installed: {install_command('console')}")
    try:
        host, _ = split_address(listen)
    except ValueError as error:
        refuse("--listen", str(error))
    if has_login and token:
        refuse("--login", f"it cannot be combined with --token or {TOKEN_VARIABLE}")
    if not is_loopback(host) and not token and not has_login:
        refuse(
            "--listen",
            f"{listen} is reachable from other hosts: use --login, set {TOKEN_VARIABLE} or --token, or listen on "
            "127.0.0.1",
        )
    parts = urlsplit(schema_registry or "http://none")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        refuse("--schema-registry", f"{schema_registry!r} is not the URL of a schema registry: write http://HOST:PORT")
