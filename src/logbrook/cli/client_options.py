"""-X and --client-config: the security options of commands that connect to a cluster.

`ClientCommand` adds both to every command that has an option for brokers. -X KEY=VALUE sets one option, as kcat and rpk
have it. --client-config, else LOGBROOK_CLIENT_CONFIG, else the saved context names a .properties file of a Kafka client
(`--command-config` of Kafka's tools), of which the security options and bootstrap.servers are used. -X wins over the
file. No output has the values of secret options; a password on the command line is visible to other users of the
machine, in a file it is not.
"""

import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from typer.core import TyperOption

from logbrook.cli.failures import refuse
from logbrook.client.properties import read_properties
from logbrook.client.security import ClientSecurity, parse_client_security
from logbrook.client.security_options import is_security_option

CONFIG_VARIABLE = "LOGBROOK_CLIENT_CONFIG"
KAFKA_PREFIX = "kafka."
_SERVERS = "bootstrap.servers"
# Names of the parameters by which commands take the brokers of a cluster.
_BROKER_PARAMETERS = frozenset({"bootstrap", "servers", "bootstrap_servers", "broker"})


@dataclass(slots=True)
class GivenOptions:
    """The options of this command line. `context_config` is the file of the saved context, if that is used."""

    pairs: dict[str, str] = field(default_factory=dict, repr=False)
    config: str | None = None
    context_config: str | None = None

    def file_options(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return what the file of client options has. Raises PropertiesError."""
        path = self.config or environment.get(CONFIG_VARIABLE) or self.context_config
        return read_properties(os.path.expanduser(path)) if path else {}


_given: ContextVar[GivenOptions | None] = ContextVar("client_options", default=None)


def given_options() -> GivenOptions:
    """Return the options of the command that is running; none outside of a command."""
    options = _given.get()
    if options is None:
        options = GivenOptions()
        _given.set(options)
    return options


def configured_servers(environment: Mapping[str, str]) -> str | None:
    """Return the brokers that the file of client options names. Raises PropertiesError."""
    return given_options().file_options(environment).get(_SERVERS) or None


def security_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the security options of the file and of -X. Raises PropertiesError."""
    given = given_options()
    from_file = {name: value for name, value in given.file_options(environment).items() if is_security_option(name)}
    return from_file | given.pairs


def client_security(environment: Mapping[str, str] = os.environ) -> ClientSecurity:
    """Return the security of the command's connections. Raises PropertiesError or SecurityOptionError."""
    return parse_client_security(security_options(environment))


def spark_options(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the security options as options of Spark's source and sink. Raises as `client_security` does."""
    client_security(environment)
    return {f"{KAFKA_PREFIX}{name}": value for name, value in security_options(environment).items()}


def client_parameters(parameters: Sequence[Any]) -> list[TyperOption]:
    """Return -X and --client-config for a command that takes brokers, none for others."""
    if _BROKER_PARAMETERS.isdisjoint(parameter.name for parameter in parameters):
        return []
    return [
        TyperOption(
            param_decls=["client_option", "-X"],
            multiple=True,
            expose_value=False,
            callback=_take_pairs,
            metavar="KEY=VALUE",
            help="Security option of a Kafka client, such as security.protocol=SASL_SSL; repeatable.",
        ),
        TyperOption(
            param_decls=["client_config", "--client-config"],
            expose_value=False,
            callback=_take_config,
            metavar="FILE",
            help=f"File with the options of a Kafka client (.properties); default: {CONFIG_VARIABLE}, or the file of "
            "the saved context.",
        ),
    ]


def _take_pairs(context: Any, _parameter: Any, values: Sequence[str] | None) -> None:
    """Read the pairs of -X. Called for every command, with none if it is not given."""
    pairs: dict[str, str] = {}
    for text in values or ():
        name, equals, value = text.partition("=")
        name = name.strip().removeprefix(KAFKA_PREFIX)
        if context.resilient_parsing:
            # Completion in a shell, where a message would garble the user's prompt.
            pairs |= {name: value} if is_security_option(name) else {}
            continue
        if not equals:
            # What is not a pair may be a secret.
            refuse("-X", "it must be KEY=VALUE, such as security.protocol=SASL_SSL")
        if name == _SERVERS:
            refuse("-X", f"{name} is given with --bootstrap")
        if not is_security_option(name):
            refuse("-X", f"there is no security option {name!r}; docs/COMMANDS.md says which there are")
        pairs[name] = value
    given = given_options()
    _given.set(GivenOptions(pairs, given.config))


def _take_config(_context: Any, _parameter: Any, path: str | None) -> None:
    given = given_options()
    _given.set(GivenOptions(given.pairs, path))
