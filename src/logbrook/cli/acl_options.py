"""Options of `logbrook acl` that name resources, principals, hosts and operations, and the ACLs that they stand for.

As in kafka-acls: every resource is combined with every principal, host and operation; --producer and --consumer stand
for the operations that such a client needs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, TypeAlias

import typer

from logbrook.cli.connection import group_names, topic_names, transactional_ids
from logbrook.cli.failures import refuse
from logbrook.client.admin_acls import (
    ALLOW,
    ANY,
    CLUSTER_NAME,
    DENY,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    WILDCARD,
    AclEntry,
    AclSelection,
)
from logbrook.model.security import USER

# Type and name of a resource.
Resource: TypeAlias = tuple[str, str]

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Topic, * for all; repeatable.", autocompletion=topic_names),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", "-g", help="Consumer group, * for all; repeatable.", autocompletion=group_names),
]
TransactionalIds = Annotated[
    list[str] | None,
    typer.Option(
        "--transactional-id", help="Transactional id, * for all; repeatable.", autocompletion=transactional_ids
    ),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Users = Annotated[
    list[str] | None,
    typer.Option("--user", metavar="PRINCIPAL", help="User as a resource, for delegation tokens; repeatable."),
]
Tokens = Annotated[list[str] | None, typer.Option("--delegation-token", help="Delegation token; repeatable.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="The names are prefixes: orders- is orders-eu and orders-us.")]
Allowed = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="PRINCIPAL", help="Who is allowed: a user's name, or * for all; repeatable."),
]
Denied = Annotated[
    list[str] | None,
    typer.Option("--deny", metavar="PRINCIPAL", help="Who is denied, whatever else is allowed; repeatable."),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="ADDRESS", help="Only from this address; repeatable. Default: any."),
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        "-o",
        metavar="NAME",
        help=f"Operation; repeatable. Default: all. One of: {', '.join(OPERATIONS)}.",
        autocompletion=lambda: list(OPERATIONS),
    ),
]
AsProducer = Annotated[
    bool, typer.Option("--producer", help="What a producer needs of --topic and --transactional-id.")
]
AsConsumer = Annotated[bool, typer.Option("--consumer", help="What a consumer needs of --topic and --group.")]

_PRODUCER = {"topic": ("write", "describe", "create"), "transactional-id": ("write", "describe")}
_CONSUMER = {"topic": ("read", "describe"), "group": ("read",)}


@dataclass(frozen=True, slots=True)
class AclOptions:
    """The options as given, checked when they are used."""

    resources: Sequence[Resource]
    is_prefix: bool = False
    allowed: Sequence[str] = ()
    denied: Sequence[str] = ()
    hosts: Sequence[str] = ()
    operations: Sequence[str] = ()
    is_producer: bool = False
    is_consumer: bool = False

    def entries(self) -> list[AclEntry]:
        """Return the ACLs to add; end the command if the options do not describe any."""
        if not self.resources:
            refuse("--topic / --group / --transactional-id / --cluster", "say for which resource the ACL is")
        principals = list(self._principals())
        if not principals:
            refuse("--allow / --deny", "say who is allowed or denied, such as --allow alice")
        pattern = PREFIXED if self.is_prefix else LITERAL
        entries = [
            AclEntry(kind, name, LITERAL if kind == "cluster" else pattern, principal, host, operation, permission)
            for (kind, name), operation in self._operations("all")
            for (principal, permission), host in product(principals, self.hosts or [WILDCARD])
        ]
        return list(dict.fromkeys(entries))

    def selections(self, pattern_type: str) -> list[AclSelection]:
        """Return the filters of the ACLs with all given parts; an option that was not given matches everything.

        `pattern_type` is used for names without --prefix.
        """
        pattern = PREFIXED if self.is_prefix else pattern_type
        resources: list[tuple[tuple[str, str | None], str]] = [(pair, word) for pair, word in self._operations(ANY)]
        principals: list[tuple[str | None, str]] = [*self._principals()]
        hosts: list[str | None] = [*self.hosts]
        return [
            AclSelection(
                kind, name, ANY if name is None or kind == "cluster" else pattern, principal, host, word, permission
            )
            for (kind, name), word in resources or [((ANY, None), word) for word in self._words(ANY)]
            for (principal, permission), host in product(principals or [(None, ANY)], hosts or [None])
        ]

    def _principals(self) -> Iterator[tuple[str, str]]:
        for name in self.allowed:
            yield principal_text(name, "--allow"), ALLOW
        for name in self.denied:
            yield principal_text(name, "--deny"), DENY

    def _operations(self, default: str) -> list[tuple[Resource, str]]:
        """Return each resource with each of its operations."""
        if not (self.is_producer or self.is_consumer):
            return list(product(self.resources, self._words(default)))
        self._check_client_options()
        pairs: list[tuple[Resource, str]] = []
        for needed in [_PRODUCER] * self.is_producer + [_CONSUMER] * self.is_consumer:
            pairs += [(resource, word) for resource in self.resources for word in needed.get(resource[0], ())]
        return list(dict.fromkeys(pairs))

    def _words(self, default: str) -> list[str]:
        words = [operation.lower().replace("_", "-") for operation in self.operations]
        for word in words:
            if word not in OPERATIONS:
                refuse("--operation", f"{word!r} is not one of {', '.join(OPERATIONS)}")
        return words or [default]

    def _check_client_options(self) -> None:
        option = "--producer" if self.is_producer else "--consumer"
        kinds = {kind for kind, _ in self.resources}
        usable = {*(_PRODUCER if self.is_producer else ()), *(_CONSUMER if self.is_consumer else ())}
        if self.operations:
            refuse("--operation", f"{option} stands for the operations")
        if self.denied:
            refuse("--deny", f"{option} is for --allow")
        if kinds - usable:
            refuse(option, f"it does not apply to --{min(kinds - usable)}")
        if "topic" not in kinds:
            refuse(option, "give the topics with --topic")
        if self.is_consumer and "group" not in kinds:
            refuse(option, "give the consumer groups with --group")


def resource_list(
    topics: Sequence[str] | None,
    groups: Sequence[str] | None,
    transactional_ids: Sequence[str] | None,
    is_cluster: bool,
    users: Sequence[str] | None,
    tokens: Sequence[str] | None,
) -> list[Resource]:
    """Return the resources that the options name."""
    named = {
        "topic": topics,
        "group": groups,
        "transactional-id": transactional_ids,
        "user": [principal_text(user, "--user") for user in users or ()],
        "delegation-token": tokens,
    }
    resources = [(kind, name) for kind, names in named.items() for name in names or ()]
    for kind, name in resources:
        if not name:
            refuse(f"--{kind}", "the name is empty")
    return [*resources, ("cluster", CLUSTER_NAME)] if is_cluster else resources


def principal_text(name: str, option: str) -> str:
    """Return TYPE:NAME of a principal; a name without a type is a user's."""
    if not name or name.endswith(":"):
        refuse(option, f"{name!r} is not the name of a user or TYPE:NAME, such as User:alice")
    return name if ":" in name else f"{USER}:{name}"
