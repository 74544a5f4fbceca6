"""`logbrook security`: certificates, an administrator and settings for a broker with TLS, passwords and ACLs."""

import os
import secrets
import socket
from ipaddress import ip_address
from typing import Annotated

import typer

from logbrook.cli import security_files as files
from logbrook.cli.certificates import DEFAULT_DAYS, KeyPair, create_authority, create_certificate
from logbrook.cli.failures import refuse, report_failures
from logbrook.cli.security_files import ClientAccess, prepare_directory, read_file, write_file
from logbrook.cli.terminal import ParagraphCommand
from logbrook.cli.users_file import UsersFile
from logbrook.config.network import split_address

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

_ADMIN = "admin"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PASSWORD_BYTES = 24

Directory = Annotated[str, typer.Argument(metavar="DIR", help="Directory of the certificates and settings.")]
Days = Annotated[int, typer.Option("--days", min=1, max=36_500, help="Days that the certificate is valid.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host", metavar="HOST", help="Further name or address of the broker in its certificate; repeatable."
    ),
]


@app.command(cls=ParagraphCommand)
def init(
    directory: Directory,
    hosts: Hosts = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Address that the broker will listen on.")
    ] = "127.0.0.1:9092",
    days: Days = DEFAULT_DAYS,
) -> None:
    """Make what a broker with TLS, passwords and ACLs needs: an authority, a certificate, an administrator, settings.

    The certificate is for localhost, 127.0.0.1, ::1, the name of this machine and --host. The password of the user
    admin is random; it is shown once, and it is in the files with the settings of clients, which only their owner can
    read. Nothing is overwritten. The authority's key is not encrypted: this is for tests and small set-ups.

    Examples: logbrook security init secure; logbrook security init /etc/logbrook --listen 0.0.0.0:9092 --host
    broker.example.com
    """
    with report_failures():
        host, port = _listen_address(listen)
        machine = socket.gethostname()
        reachable = (hosts or [machine])[0] if _is_wildcard(host) else host
        names = [*_LOOPBACK, machine, *(hosts or ()), *([] if _is_wildcard(host) else [host])]
        absolute = os.path.abspath(directory)
        prepare_directory(absolute)
        authority = create_authority("Logbrook test authority")
        broker = create_certificate(authority, "logbrook-broker", names, days)
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        bootstrap = f"[{reachable}]:{port}" if ":" in reachable else f"{reachable}:{port}"
        advertise = bootstrap if _is_wildcard(host) else None
        access = ClientAccess(bootstrap, os.path.join(absolute, files.AUTHORITY), _ADMIN, password)
        _write_all(absolute, authority, broker, access, listen, advertise)
        typer.echo(_instructions(absolute, access))


@app.command(cls=ParagraphCommand)
def certificate(
    directory: Directory,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name in the certificate (CN) and of the files.")],
    hosts: Hosts = None,
    days: Days = DEFAULT_DAYS,
) -> None:
    """Make a certificate that is signed by the authority in DIR: of a client, or with --host of a further broker.

    It writes NAME.pem and NAME.key to DIR. With mutual TLS, a client with it is the principal User:CN=NAME.

    Examples: logbrook security certificate secure alice; logbrook security certificate secure broker-2 --host
    broker-2.example.com
    """
    with report_failures():
        if os.path.basename(name) != name or name.startswith("."):
            refuse("NAME", f"{name!r} cannot be the name of a file")
        paths = {kind: os.path.join(os.path.abspath(directory), f"{name}.{kind}") for kind in ("pem", "key")}
        authority = KeyPair(
            read_file(os.path.join(directory, files.AUTHORITY)), read_file(os.path.join(directory, files.AUTHORITY_KEY))
        )
        pair = create_certificate(authority, name, hosts or (), days)
        write_file(paths["key"], pair.key, is_secret=True)
        write_file(paths["pem"], pair.certificate, is_secret=False)
        typer.echo(f"wrote {paths['pem']} and {paths['key']}")


def _write_all(
    directory: str, authority: KeyPair, broker: KeyPair, access: ClientAccess, listen: str, advertise: str | None
) -> None:
    secret_files: dict[str, str | bytes] = {
        files.AUTHORITY_KEY: authority.key,
        files.BROKER_KEY: broker.key,
        files.LIBRDKAFKA_SETTINGS: access.librdkafka(),
        files.JAVA_SETTINGS: access.java(),
        files.PYTHON_SETTINGS: access.python(),
        files.SPARK_SETTINGS: access.spark(),
    }
    for name, content in secret_files.items():
        write_file(os.path.join(directory, name), content, is_secret=True)
    settings = files.broker_settings(directory, listen, advertise, access.user)
    public_files = {
        files.AUTHORITY: authority.certificate,
        files.BROKER_CERTIFICATE: broker.certificate,
        files.BROKER_SETTINGS: settings.encode(),
    }
    for name, data in public_files.items():
        write_file(os.path.join(directory, name), data, is_secret=False)
    users = UsersFile(os.path.join(directory, files.USERS))
    users.set_password(access.user, access.password)
    users.save()


def _listen_address(text: str) -> tuple[str, int]:
    try:
        return split_address(text)
    except ValueError as error:
        refuse("--listen", str(error))


def _is_wildcard(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _instructions(directory: str, access: ClientAccess) -> str:
    def path(name: str) -> str:
        return os.path.join(directory, name)

    return f"""\
Wrote an authority, a broker's certificate, a user and settings to {directory}.

The password of the user {access.user} is shown only now (the files of clients have it, too):
  {access.password}

Start the broker:
  logbrook serve --config {path(files.BROKER_SETTINGS)}

Use the commands of Logbrook:
  export LOGBROOK_CLIENT_CONFIG={path(files.LIBRDKAFKA_SETTINGS)}
  logbrook user create alice
  logbrook acl add --allow alice --producer --topic orders

Connect clients, with the settings in
  librdkafka: kcat -F {path(files.LIBRDKAFKA_SETTINGS)} -L
  Java:       kafka-topics.sh --bootstrap-server {access.bootstrap} --command-config {path(files.JAVA_SETTINGS)} --list
  Python:     KafkaConsumer("orders", **json.load(open("{path(files.PYTHON_SETTINGS)}")))
  Spark:      spark.read.format("logbrook").options(**json.load(open("{path(files.SPARK_SETTINGS)}")))"""
