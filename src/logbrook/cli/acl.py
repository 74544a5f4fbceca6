"""`logbrook acl`: who may do what on which topics, groups, transactional ids and on the cluster."""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

import typer

from logbrook.cli.acl_options import (
    AclOptions,
    Allowed,
    AsConsumer,
    AsProducer,
    Cluster,
    Denied,
    Groups,
    Hosts,
    Operations,
    Prefix,
    Tokens,
    Topics,
    TransactionalIds,
    Users,
    principal_text,
    resource_list,
)
from logbrook.cli.connection import Bootstrap, Json, connected_admin
from logbrook.cli.failures import fail, refuse
from logbrook.cli.terminal import Column, ParagraphCommand, Yes, confirm, plural, print_rows
from logbrook.client.admin import Admin
from logbrook.client.admin_acls import LITERAL, MATCH, PREFIXED, AclEntry, AclSelection

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

_COLUMNS: tuple[Column, ...] = (
    ("resource", "resource_type"),
    ("name", lambda row: f"{row['name']}*" if row["pattern_type"] == PREFIXED else row["name"]),
    "principal",
    "permission",
    "operation",
    "host",
)


@app.command(cls=ParagraphCommand)
def add(
    allowed: Allowed = None,
    denied: Denied = None,
    operations: Operations = None,
    is_producer: AsProducer = False,
    is_consumer: AsConsumer = False,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    is_cluster: Cluster = False,
    users: Users = None,
    tokens: Tokens = None,
    is_prefix: Prefix = False,
    hosts: Hosts = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Allow or deny operations on resources to users.

    Each resource is combined with each principal, host and operation. A denial overrides every permission. Without an
    ACL that allows it, nothing is allowed, except to super users.

    Examples: logbrook acl add --allow app --producer --topic orders; logbrook acl add --allow app --consumer -t orders
    -g billing; logbrook acl add --allow ops -o describe -o alter-configs --cluster; logbrook acl add --deny '*' -t
    audit- --prefix --host 10.0.0.7
    """
    resources = resource_list(topics, groups, transactional_ids, is_cluster, users, tokens)
    options = AclOptions(
        resources, is_prefix, allowed or (), denied or (), hosts or (), operations or (), is_producer, is_consumer
    )
    entries = options.entries()
    with connected_admin(bootstrap) as admin:
        admin.acls.create(entries)
    for entry in entries:
        typer.echo(f"added: {_sentence(entry)}")


@app.command("list", cls=ParagraphCommand)
def show(
    principals: Annotated[
        list[str] | None,
        typer.Option("--principal", "-p", metavar="PRINCIPAL", help="Only ACLs of this user; repeatable."),
    ] = None,
    operations: Operations = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    is_cluster: Cluster = False,
    users: Users = None,
    tokens: Tokens = None,
    is_prefix: Prefix = False,
    hosts: Hosts = None,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List ACLs.

    With a resource, all ACLs that apply to it: its own, those of prefixes of its name, and those of *. With --prefix,
    only the ACLs of exactly this prefix.

    JSON: a list of {"resource_type", "name", "pattern_type", "principal", "host", "operation", "permission"}.
    """
    resources = resource_list(topics, groups, transactional_ids, is_cluster, users, tokens)
    names = [principal_text(name, "--principal") for name in principals or ()]
    options = AclOptions(resources, is_prefix, hosts=hosts or (), operations=operations or ())
    with connected_admin(bootstrap) as admin:
        entries = _selected(admin, options.selections(MATCH))
        entries = [entry for entry in entries if not names or entry.principal in names]
    print_rows([asdict(entry) for entry in entries], _COLUMNS, as_json=as_json)
    if not entries and not as_json:
        typer.echo("there are no such ACLs; `logbrook acl add` adds one", err=True)


@app.command(cls=ParagraphCommand)
def remove(
    allowed: Allowed = None,
    denied: Denied = None,
    operations: Operations = None,
    is_producer: AsProducer = False,
    is_consumer: AsConsumer = False,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    is_cluster: Cluster = False,
    users: Users = None,
    tokens: Tokens = None,
    is_prefix: Prefix = False,
    hosts: Hosts = None,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Remove ACLs: those that `acl add` with the same options adds, and with fewer options all that have these parts.

    A name means the ACLs of exactly this name, not those of a prefix of it or of *.

    Examples: logbrook acl remove --allow app --topic orders; logbrook acl remove --topic orders --yes
    """
    resources = resource_list(topics, groups, transactional_ids, is_cluster, users, tokens)
    if not (resources or allowed or denied):
        refuse("--topic / --allow / ...", "say whose ACLs or the ACLs of which resource to remove")
    options = AclOptions(
        resources, is_prefix, allowed or (), denied or (), hosts or (), operations or (), is_producer, is_consumer
    )
    selections = options.selections(LITERAL)
    with connected_admin(bootstrap) as admin:
        entries = _selected(admin, selections)
        if not entries:
            fail("there are no such ACLs; `logbrook acl list` shows all")
        if not yes and sys.stdout.isatty():
            print_rows([asdict(entry) for entry in entries], _COLUMNS)
        confirm(f"Remove {plural(len(entries), 'ACL')}?", yes)
        for entry in admin.acls.delete(entries):
            typer.echo(f"removed: {_sentence(entry)}")


def _selected(admin: Admin, selections: Iterable[AclSelection]) -> list[AclEntry]:
    return sorted({entry for selection in selections for entry in admin.acls.select(selection)})


def _sentence(entry: AclEntry) -> str:
    resource = entry.resource_type if entry.resource_type == "cluster" else f"{entry.resource_type} {entry.name}"
    names = f"{resource}*" if entry.pattern_type == PREFIXED else resource
    host = "" if entry.host == "*" else f" from {entry.host}"
    return f"{entry.permission} {entry.principal}{host} to {entry.operation} {names}"
