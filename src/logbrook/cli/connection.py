"""The cluster that a command talks to: --bootstrap, LOGBROOK_BOOTSTRAP, the saved context, or 127.0.0.1:9092.

Contexts are named clusters, in one file of the user's configuration directory ($XDG_CONFIG_HOME/logbrook):

    {"current": "staging", "contexts": {"staging": "broker-1:9092,broker-2:9092"},
     "client_configs": {"staging": "/home/ann/staging.properties"}}

A context may name a file of client options (see `client_options`); the secrets stay in that file.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from logbrook.cli.client_options import client_security, configured_servers, given_options
from logbrook.cli.failures import refuse, report_failures
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.model import LogbrookError

BOOTSTRAP_VARIABLE = "LOGBROOK_BOOTSTRAP"
DEFAULT_PORT = 9092
DEFAULT_BOOTSTRAP = f"127.0.0.1:{DEFAULT_PORT}"

_CONTEXTS_FILE = "contexts.json"
# Short enough for a person at a terminal.
_CONNECT_TIMEOUT_S = 3.0
_RESPONSE_TIMEOUT_S = 10.0
_COMPLETION_TIMEOUT_S = 1.0

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST[:PORT],...",
        help=f"Brokers of the cluster; default: {BOOTSTRAP_VARIABLE}, the saved context, or {DEFAULT_BOOTSTRAP}.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class ContextsError(LogbrookError):
    """The contexts file cannot be read or written, or lacks the named context."""


@dataclass(slots=True)
class Contexts:
    """Bootstrap servers by context name, and the name of the current context."""

    path: str
    servers: dict[str, str] = field(default_factory=dict)
    current: str | None = None
    client_configs: dict[str, str] = field(default_factory=dict)

    @property
    def current_servers(self) -> str | None:
        return None if self.current is None else self.servers[self.current]

    @property
    def current_client_config(self) -> str | None:
        return None if self.current is None else self.client_configs.get(self.current)

    def save(self, name: str, servers: str, client_config: str | None = None) -> None:
        """Add or replace a context and make it the current one. Raises ContextsError."""
        self.servers[name] = servers
        self.client_configs.pop(name, None)
        if client_config is not None:
            self.client_configs[name] = client_config
        self.current = name
        self._write()

    def use(self, name: str) -> None:
        """Raises ContextsError."""
        self._check(name)
        self.current = name
        self._write()

    def remove(self, name: str) -> None:
        """Raises ContextsError."""
        self._check(name)
        del self.servers[name]
        self.client_configs.pop(name, None)
        self.current = None if self.current == name else self.current
        self._write()

    def _check(self, name: str) -> None:
        if name not in self.servers:
            saved = f"saved are {', '.join(sorted(self.servers))}" if self.servers else "none is saved"
            raise ContextsError(f"there is no context {name!r}; {saved} (`logbrook context save NAME HOST:PORT`)")

    def _write(self) -> None:
        document: dict[str, object] = {"current": self.current, "contexts": self.servers}
        if self.client_configs:
            document["client_configs"] = self.client_configs
        text = json.dumps(document, indent=2, sort_keys=True)
        temporary = f"{self.path}.new"
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            # Atomic: a concurrent command reads the old file or the new one.
            os.replace(temporary, self.path)
        except OSError as error:
            raise ContextsError(f"the contexts cannot be saved: {error}") from None


def load_contexts(environment: Mapping[str, str]) -> Contexts:
    """Load the saved contexts; there are none if the file does not exist. Raises ContextsError."""
    path = _contexts_path(environment)
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except FileNotFoundError:
        return Contexts(path)
    except (OSError, ValueError) as error:
        raise ContextsError(f"the saved contexts cannot be read: {path}: {error}") from None
    return _validated(path, document)


def bootstrap_servers(option: str | None, environment: Mapping[str, str]) -> str:
    """Return the value of --bootstrap, or its default, with ports. Raises ContextsError or PropertiesError.

    The client options of the saved context are used if its brokers are.
    """
    servers = option or environment.get(BOOTSTRAP_VARIABLE) or configured_servers(environment)
    if not servers:
        contexts = load_contexts(environment)
        given_options().context_config = contexts.current_client_config
        servers = contexts.current_servers or configured_servers(environment)
    return with_ports(servers or DEFAULT_BOOTSTRAP)


def with_ports(servers: str) -> str:
    """Add port 9092 to brokers that are given without a port. A number alone is a port of this machine."""
    return ",".join(_with_port(server.strip()) for server in servers.split(","))


@contextmanager
def connected_admin(bootstrap: str | None) -> Iterator[Admin]:
    """Yield an `Admin` for the work of a command. Errors inside the block are reported and end the command."""
    with report_failures():
        servers = bootstrap_servers(bootstrap, os.environ)
        try:
            client = Client(
                servers,
                client_id="logbrook-cli",
                timeout_s=_RESPONSE_TIMEOUT_S,
                connect_timeout_s=_CONNECT_TIMEOUT_S,
                security=client_security(),
            )
        except ValueError as error:
            refuse("--bootstrap", str(error))
        with client:
            yield Admin(client)


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a topic name in the shell."""
    return _completions(context, incomplete, lambda admin: admin.topics.names())


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a group id in the shell."""
    return _completions(context, incomplete, lambda admin: [group.group_id for group in admin.groups.all()])


def transactional_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a transactional id in the shell."""
    return _completions(
        context, incomplete, lambda admin: [state.transactional_id for state in admin.transactions.all()]
    )


def _completions(context: Any, incomplete: str, ask: Callable[[Admin], list[str]]) -> list[str]:
    """Return no completions on an error: a message would garble the user's prompt."""
    try:
        servers = bootstrap_servers(context.params.get("bootstrap"), os.environ)
        with Client(servers, timeout_s=_COMPLETION_TIMEOUT_S, security=client_security()) as client:
            return [name for name in ask(Admin(client)) if name.startswith(incomplete)]
    except (LogbrookError, ValueError):
        return []


def _with_port(server: str) -> str:
    if server.isdecimal():
        return f"127.0.0.1:{server}"
    if server.count(":") > 1 and not server.startswith("["):
        # An IPv6 address: with a port, it would be in brackets.
        return f"[{server}]:{DEFAULT_PORT}"
    return server if not server or ":" in server.rpartition("]")[2] else f"{server}:{DEFAULT_PORT}"


def _validated(path: str, document: Any) -> Contexts:
    fields = document if isinstance(document, dict) else {}
    servers, current, configs = fields.get("contexts"), fields.get("current"), fields.get("client_configs", {})
    if (
        not isinstance(servers, dict)
        or not isinstance(configs, dict)
        or not all(isinstance(text, str) for text in (*servers.values(), *configs.values()))
        or (current is not None and current not in servers)
    ):
        raise ContextsError(f"the saved contexts are not as `logbrook context` writes them; repair or remove {path}")
    return Contexts(path, servers, current, configs)


def _contexts_path(environment: Mapping[str, str]) -> str:
    """Follow the XDG base directory specification, which says to ignore a relative path in the variable."""
    base = environment.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(environment.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(base, "logbrook", _CONTEXTS_FILE)


Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; repeatable.")
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=topic_names)]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="Id of the group.", autocompletion=group_names)]
