"""Which cluster a command talks to, and talking to it."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from logbrook.cli.contexts import load_contexts
from logbrook.cli.failures import refuse, told_in_a_sentence
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.model import LogbrookError

VARIABLE = "LOGBROOK_BOOTSTRAP"
DEFAULT = "127.0.0.1:9092"

# A person waits this long for a broker that is not there, and for one that does not answer.
_CONNECT_S = 3.0
_ANSWER_S = 10.0
# Somebody has pressed the tabulator key.
_COMPLETION_S = 1.0

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT,...",
        help=f"The cluster; else {VARIABLE}, else the saved context, else {DEFAULT}.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def bootstrap_servers(given: str | None, environment: Mapping[str, str]) -> str:
    """What was given, or what stands in for it. Raises ContextsError."""
    return given or environment.get(VARIABLE) or load_contexts(environment).current_servers or DEFAULT


@contextmanager
def administered(bootstrap: str | None) -> Iterator[Admin]:
    """The cluster, for the work of a command. What goes wrong is told in a sentence and ends the command."""
    with told_in_a_sentence():
        servers = bootstrap_servers(bootstrap, os.environ)
        try:
            client = Client(servers, client_id="logbrook-cli", timeout_s=_ANSWER_S, connect_timeout_s=_CONNECT_S)
        except ValueError as error:
            refuse("--bootstrap", str(error))
        with client:
            yield Admin(client)


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """For completion."""
    return _completions(context, incomplete, lambda admin: admin.topics.names())


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    """For completion."""
    return _completions(context, incomplete, lambda admin: [one.group_id for one in admin.groups.all()])


def _completions(context: Any, incomplete: str, ask: Callable[[Admin], list[str]]) -> list[str]:
    """Nothing, if the cluster cannot be asked: the shell is no place for an error."""
    try:
        servers = bootstrap_servers(context.params.get("bootstrap"), os.environ)
        with Client(servers, timeout_s=_COMPLETION_S) as client:
            return [name for name in ask(Admin(client)) if name.startswith(incomplete)]
    except (LogbrookError, ValueError):
        return []


Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Its name.", autocompletion=topic_names)]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="Its id.", autocompletion=group_names)]
