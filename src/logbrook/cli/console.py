"""`logbrook console`: the web console and the HTTP API for any Kafka cluster, in a process of its own."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from logbrook.cli.client_options import client_security, given_options, security_options
from logbrook.cli.connection import Bootstrap, bootstrap_servers
from logbrook.cli.failures import fail, refuse, report_failures
from logbrook.cli.terminal import ClientCommand
from logbrook.client import Client
from logbrook.client.errors import SecurityOptionError
from logbrook.client.security import ClientSecurity, parse_client_security
from logbrook.config.network import CONSOLE_LISTEN, TOKEN_VARIABLE, is_loopback, split_address
from logbrook.model.security import SaslMechanism, SecurityProtocol
from logbrook.model.version import install_command
from logbrook.monitoring.metrics import DEFAULT_PORT
from logbrook.pipelines.report import REPORTS_TOPIC
from logbrook.ports.parent_process import end_with_parent

# Options of a client that the console must not have with --login.
_OWN_CREDENTIALS = ("sasl.username", "sasl.password", "sasl.jaas.config")
_REGISTRY_VARIABLE = "LOGBROOK_SCHEMA_REGISTRY"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=ClientCommand)
def console(
    bootstrap: Bootstrap = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")] = (
        CONSOLE_LISTEN
    ),
    token: Annotated[
        str | None,
        typer.Option(
            envvar=TOKEN_VARIABLE,
            metavar="TOKEN",
            show_envvar=True,
            help="Secret that browsers and scripts must send; required unless the console listens on loopback.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"Metrics of a Logbrook broker, for bytes and latencies; default: port {DEFAULT_PORT} of the first "
            "bootstrap server; empty for none.",
        ),
    ] = None,
    interval_ms: Annotated[int, typer.Option(min=100, help="Interval between samples of the cluster.")] = (2_000),
    reports: Annotated[
        str, typer.Option("--reports", metavar="TOPIC", help="Topic to which pipelines write their status.")
    ] = REPORTS_TOPIC,
    schema_registry: Annotated[
        str | None,
        typer.Option(envvar=_REGISTRY_VARIABLE, metavar="URL", help="Schema registry of Avro and Protobuf values."),
    ] = None,
    login: Annotated[
        bool,
        typer.Option(
            "--login",
            help="Users sign in with their own user name and password of the cluster, which needs SASL "
            "(-X security.protocol=SASL_SSL); its ACLs apply to what they see and do.",
        ),
    ] = False,
    session_minutes: Annotated[
        int,
        typer.Option(min=1, max=60 * 24 * 30, metavar="MINUTES", help="With --login: time until users sign in again."),
    ] = 480,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Address by which browsers reach the console, if a proxy is in front of it."),
    ] = None,
    certificate: Annotated[
        str | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate (PEM, with its issuers).")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Key of the certificate (PEM); default: the file of the certificate."),
    ] = None,
    oidc_issuer: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="With --login: OpenID Connect provider for single sign-on, whose tokens the cluster accepts "
            "(SASL/OAUTHBEARER). Needs --url and --oidc-client-id.",
        ),
    ] = None,
    oidc_client_id: Annotated[str, typer.Option(metavar="ID", help="Client id of the console at the provider.")] = "",
    oidc_client_secret_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File with its secret; without one it is a public client.")
    ] = None,
    oidc_scope: Annotated[str, typer.Option(metavar="SCOPES", help="Scopes to ask for.")] = "openid profile",
    with_parent: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the web console and the HTTP API until SIGTERM or Ctrl-C.

    Example: logbrook console --bootstrap broker-1:9092 --listen 127.0.0.1:9080
    """
    if with_parent:
        # The broker closes our standard input when it stops. If it is killed, so are we, whatever we are doing.
        end_with_parent()
    _check(listen, token, schema_registry, has_login=login)
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        refuse("--url", f"{url!r} is not the URL of the console: write https://HOST")
    with report_failures():
        servers = bootstrap_servers(bootstrap, os.environ)
        security = _login_security() if login else client_security()
    try:
        Client(servers).close()
    except ValueError as error:
        refuse("--bootstrap", str(error))
    # The console's libraries take a second to import.
    from logbrook.console.app import ConsoleOptions, run_console  # noqa: PLC0415
    from logbrook.console.oidc import OidcOptions  # noqa: PLC0415

    oidc = None
    if oidc_issuer is not None:
        _check_oidc(has_login=login, url=url, client_id=oidc_client_id)
        secret = "" if oidc_client_secret_file is None else _read_secret(oidc_client_secret_file)
        oidc = OidcOptions(oidc_issuer, oidc_client_id, url or "", secret, oidc_scope)
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


def _check_oidc(*, has_login: bool, url: str | None, client_id: str) -> None:
    if find_spec("joserfc") is None:
        fail(f"single sign-on is not installed: {install_command('security')}")
    if not has_login or not client_id or url is None:
        refuse("--oidc-issuer", "it needs --login, --oidc-client-id and --url, the address of the console for browsers")


def _read_secret(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        refuse("--oidc-client-secret-file", f"{path} cannot be read: {error.strerror}")


def _login_security() -> ClientSecurity:
    """Return the security of connections with the credentials of users. Raises SecurityOptionError."""
    options = security_options(os.environ)
    for name in _OWN_CREDENTIALS:
        if name in given_options().pairs:
            raise SecurityOptionError(name, "with --login the console uses the credentials of its users only")
        # A file of options may have those of its owner.
        options.pop(name, None)
    protocol = options.setdefault("security.protocol", SecurityProtocol.SASL_PLAINTEXT)
    if "sasl.mechanisms" not in options:
        options.setdefault("sasl.mechanism", SaslMechanism.SCRAM_SHA_512)
    # The names stand in for those of users, without which the options are not complete.
    security = parse_client_security({**options, "sasl.username": "user", "sasl.password": "password"})
    if security.sasl is None:
        raise SecurityOptionError("security.protocol", f"--login needs SASL_SSL or SASL_PLAINTEXT, not {protocol}")
    return security


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
