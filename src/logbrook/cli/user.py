"""`logbrook user`: users that log in with a password (SASL SCRAM, and PLAIN on Logbrook).

A password is typed twice on a terminal, or read from a file or standard input. It is no argument: the command line is
in the shell's history, and other users of the machine see it.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from logbrook.cli.connection import Bootstrap, Json, connected_admin
from logbrook.cli.failures import fail, refuse, report_failures
from logbrook.cli.terminal import ParagraphCommand, Yes, confirm, plural, print_rows
from logbrook.cli.users_file import UsersFile
from logbrook.client.admin_users import (
    DEFAULT_ITERATIONS,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    UserInfo,
)
from logbrook.model.security import SaslMechanism

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

_STANDARD_INPUT = "-"
# Larger files are not password files.
_PASSWORD_BYTES_MAX = 4096

User = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Read the password from the first line of this file, - for standard input; without it, it is asked for.",
    ),
]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        "-m",
        metavar="NAME",
        help="SCRAM-SHA-256 or SCRAM-SHA-512; repeatable. Default: both.",
        autocompletion=lambda: list(SCRAM_MECHANISMS),
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations",
        min=ITERATIONS_MIN,
        max=ITERATIONS_MAX,
        help="Rounds of hashing; more make guessing of passwords from stolen credentials slower.",
    ),
]
UsersPath = Annotated[
    str | None,
    typer.Option(
        "--users-file",
        metavar="FILE",
        help="Use a broker's file of bootstrap users (the setting security.users_file), not a running cluster.",
    ),
]


@app.command(cls=ParagraphCommand)
def create(
    user: User,
    password_file: PasswordFile = None,
    mechanisms: Mechanisms = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    users_file: UsersPath = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Create a user that logs in with a password.

    The cluster stores salted hashes of the password, never the password. A new user has no rights: grant them with
    `logbrook acl add`.

    Examples: logbrook user create alice; logbrook user create etl --password-file /run/secrets/etl
    """
    chosen = _chosen_mechanisms(mechanisms)
    if users_file is not None:
        with report_failures():
            users = UsersFile.load(users_file)
            if user in users.names():
                fail(f"user {user} already exists in {users_file}; `logbrook user password` changes the password")
            users.set_password(user, _read_password(user, password_file), chosen, iterations)
            users.save()
    else:
        with connected_admin(bootstrap) as admin:
            if user in admin.users.existing([user]):
                fail(f"user {user} already exists; `logbrook user password {user}` changes the password")
            admin.users.set_password(user, _read_password(user, password_file), chosen, iterations)
    typer.echo(f"created {user}")


@app.command(cls=ParagraphCommand)
def password(
    user: User,
    password_file: PasswordFile = None,
    mechanisms: Mechanisms = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    users_file: UsersPath = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Change the password of a user. Open connections stay; new ones need the new password.

    With --mechanism, credentials of the other mechanism keep the old password.

    Example: logbrook user password alice
    """
    chosen = _chosen_mechanisms(mechanisms)
    if users_file is not None:
        with report_failures():
            users = UsersFile.load(users_file)
            if user not in users.names():
                fail(f"there is no user {user} in {users_file}; `logbrook user create` creates one")
            users.set_password(user, _read_password(user, password_file), chosen, iterations)
            users.save()
    else:
        with connected_admin(bootstrap) as admin:
            if user not in admin.users.existing([user]):
                fail(f"there is no user {user}; `logbrook user create {user}` creates one")
            admin.users.set_password(user, _read_password(user, password_file), chosen, iterations)
    typer.echo(f"changed the password of {user}")


@app.command("list", cls=ParagraphCommand)
def show_all(as_json: Json = False, users_file: UsersPath = None, bootstrap: Bootstrap = None) -> None:
    """List users with their mechanisms.

    Users of certificates and of OAuth tokens are not listed: a broker does not store them.

    JSON: a list of {"user", "mechanisms"}, with the number of iterations by mechanism.
    """
    if users_file is not None:
        with report_failures():
            users = UsersFile.load(users_file).all()
    else:
        with connected_admin(bootstrap) as admin:
            users = admin.users.all()
    rows = [_user_json(user) for user in users]
    print_rows(rows, ("user", ("mechanisms", _mechanisms_text)), as_json=as_json)
    if not users and not as_json:
        typer.echo("there are no users; `logbrook user create NAME` creates one", err=True)


@app.command(cls=ParagraphCommand)
def delete(
    users: Annotated[list[str], typer.Argument(metavar="USER...", help="Names of the users.")],
    mechanisms: Mechanisms = None,
    yes: Yes = False,
    users_file: UsersPath = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete users, or with --mechanism their credentials for it. Their ACLs and quotas stay.

    Open connections stay until they end or have to authenticate again. If one of the users does not exist, none is
    deleted.
    """
    chosen = _chosen_mechanisms(mechanisms)
    question = f"Delete {plural(len(users), 'user')} ({', '.join(users)})?"
    if users_file is not None:
        with report_failures():
            file = UsersFile.load(users_file)
            _refuse_missing(users, file.names())
            confirm(question, yes)
            file.delete(users, chosen)
            file.save()
    else:
        with connected_admin(bootstrap) as admin:
            existing = admin.users.existing(users)
            _refuse_missing(users, existing)
            confirm(question, yes)
            admin.users.delete(existing.values(), chosen)
    for user in users:
        typer.echo(f"deleted {user}")


def _refuse_missing(users: Sequence[str], existing: Any) -> None:
    for user in users:
        if user not in existing:
            fail(f"there is no user {user}, and none was deleted; `logbrook user list` shows the users")


def _chosen_mechanisms(names: Sequence[str] | None) -> list[SaslMechanism]:
    words = [name.upper() for name in names or SCRAM_MECHANISMS]
    for word in words:
        if word not in tuple(SCRAM_MECHANISMS):
            refuse("--mechanism", f"{word!r} is not SCRAM-SHA-256 or SCRAM-SHA-512")
    return [SaslMechanism(word) for word in dict.fromkeys(words)]


def _read_password(user: str, path: str | None) -> str:
    """Return the password from the file, standard input or the terminal; end the command if there is none."""
    if path is None and sys.stdin.isatty():
        text = str(typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True))
    else:
        text = _first_line(path or _STANDARD_INPUT)
    if not text:
        refuse("--password-file", "the password is empty")
    return text


def _first_line(path: str) -> str:
    try:
        if path == _STANDARD_INPUT:
            data = sys.stdin.buffer.readline(_PASSWORD_BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:
                data = file.readline(_PASSWORD_BYTES_MAX + 1)
    except OSError as error:
        refuse("--password-file", f"{path} cannot be read: {error.strerror}")
    if len(data) > _PASSWORD_BYTES_MAX:
        refuse("--password-file", f"the first line is longer than {_PASSWORD_BYTES_MAX} bytes")
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        refuse("--password-file", "the password is not UTF-8")


def _user_json(user: UserInfo) -> dict[str, Any]:
    return {"user": user.name, "mechanisms": {str(name): count for name, count in sorted(user.iterations.items())}}


def _mechanisms_text(row: Any) -> str:
    return ", ".join(f"{name} ({count} iterations)" for name, count in row["mechanisms"].items())
