"""`logbrook group`: list and describe consumer groups, reset and delete their offsets, delete them."""

from typing import Annotated, Any

import typer

from logbrook.cli.arguments import PLACE_EPILOG, parse_offset_spec
from logbrook.cli.connection import Bootstrap, Group, Json, Partitions, connected_admin, group_names, topic_names
from logbrook.cli.failures import fail, refuse
from logbrook.cli.terminal import (
    ParagraphCommand,
    Yes,
    confirm,
    plural,
    print_fields,
    print_json,
    print_rows,
    print_title,
)
from logbrook.client.admin_groups import Shift
from logbrook.client.admin_results import GroupInfo

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


@app.command("list", cls=ParagraphCommand)
def show_all(as_json: Json = False, bootstrap: Bootstrap = None) -> None:
    """List all groups with their state.

    JSON: a list of {"group", "state", "protocol_type", "type"}.
    """
    with connected_admin(bootstrap) as admin:
        groups = admin.groups.all()
        rows = [
            {"group": group.group_id, "state": group.state, "protocol_type": group.protocol_type, "type": group.type}
            for group in groups
        ]
        print_rows(rows, ("group", "state", "protocol type", "type"), as_json=as_json)
        if not groups and not as_json:
            typer.echo("there are no groups; `logbrook consume TOPIC --group NAME` creates one", err=True)


@app.command(cls=ParagraphCommand)
def describe(group: Group, as_json: Json = False, bootstrap: Bootstrap = None) -> None:
    """Show the members of a group, and its committed offset and lag in each partition.

    The type is classic, or consumer for a group of Kafka's newer protocol (KIP-848) on other clusters.

    JSON: {"group", "type", "state", "protocol_type", "assignor", "coordinator", "lag", "members", "partitions"}, with a
    list of {"member", "instance", "client", "host", "partitions"} and a list of {"topic", "partition", "committed",
    "start", "end", "lag", "metadata", "member", "host"}; unknown values are null.
    """
    with connected_admin(bootstrap) as admin:
        description = _description_json(admin.groups.describe(group))
        if as_json:
            print_json(description)
            return
        fields = [(name, description[name]) for name in ("group", "type", "state", "assignor", "coordinator")]
        print_fields([*fields, ("members", len(description["members"])), ("lag", description["lag"])])
        if description["partitions"]:
            print_title("Partitions")
            columns = ("topic", "partition", "committed", "end", "lag", "member", "host")
            print_rows(description["partitions"], columns)


@app.command(cls=ParagraphCommand, epilog=PLACE_EPILOG)
def reset(
    group: Group,
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="New position of the group.")] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="Move relative to the committed offset: 10 skips, -10 repeats."),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Only this topic; repeatable.", autocompletion=topic_names),
    ] = None,
    partitions: Partitions = None,
    execute: Annotated[bool, typer.Option("--execute", help="Apply the changes; without it they are shown.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Set the committed offsets of a group. Stop its members first.

    Without --execute it only shows the changes. An offset outside the log is moved to the nearest one inside. A group
    without committed offsets needs --topic.

    Examples: logbrook group reset billing --to start; logbrook group reset billing -t orders --to -1h --execute

    JSON: {"group", "executed", "changes"}, with a list of {"topic", "partition", "before", "after"}; before is null
    if the group has no committed offset there.
    """
    if (to is None) == (shift_by is None):
        refuse("--to / --shift-by", "give one of them, such as --to start or --shift-by -100")
    target = Shift(shift_by) if shift_by is not None else parse_offset_spec(to or "", "--to")
    with connected_admin(bootstrap) as admin:
        changes = admin.groups.plan_reset(group, target, topics or (), partitions or ())
        if not changes:
            fail(f"group {group} has no committed offsets there; name the topics to reset with --topic")
        if execute:
            admin.groups.reset(group, changes)
        rows = [change.partition._asdict() | {"before": change.before, "after": change.after} for change in changes]
        if as_json:
            print_json({"group": group, "executed": execute, "changes": rows})
            return
        print_rows(rows, ("topic", "partition", "before", "after"))
        typer.echo(f"group {group} is reset" if execute else "nothing was changed; --execute does it", err=True)


@app.command(cls=ParagraphCommand)
def delete(
    groups: Annotated[
        list[str], typer.Argument(metavar="GROUP...", help="Ids of the groups.", autocompletion=group_names)
    ],
    yes: Yes = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete groups with their committed offsets. Stop their members first."""
    with connected_admin(bootstrap) as admin:
        existing = {group.group_id for group in admin.groups.all()}
        for group in groups:
            if group not in existing:
                fail(f"there is no group {group}, and none was deleted; `logbrook group list` shows the groups")
        confirm(f"Delete {plural(len(groups), 'group')} ({', '.join(groups)}) with their offsets?", yes)
        admin.groups.delete(groups)
        for group in groups:
            typer.echo(f"deleted {group}")


@app.command("offset-delete", cls=ParagraphCommand)
def offset_delete(
    group: Group,
    topics: Annotated[
        list[str],
        typer.Option("--topic", "-t", help="Topic of the offsets; repeatable.", autocompletion=topic_names),
    ],
    partitions: Partitions = None,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete committed offsets of a group in some topics. Members that read these topics must be stopped first.

    Without a committed offset, a consumer starts where its own setting (auto.offset.reset) says.

    Example: logbrook group offset-delete billing -t orders -p 0

    JSON: a list of {"topic", "partition", "committed"}: the offsets that were deleted.
    """
    with connected_admin(bootstrap) as admin:
        committed = admin.groups.committed(group)
        chosen = sorted(
            partition
            for partition in committed
            if partition.topic in topics and (not partitions or partition.partition in partitions)
        )
        missing = sorted(set(topics) - {partition.topic for partition in chosen})
        if missing:
            where = "these partitions of " if partitions else ""
            fail(
                f"group {group} has no committed offsets in {where}{', '.join(missing)}, and none was deleted; "
                f"`logbrook group describe {group}` shows them"
            )
        confirm(f"Delete {plural(len(chosen), 'committed offset')} of group {group} in {', '.join(topics)}?", yes)
        admin.groups.delete_offsets(group, chosen)
        rows = [partition._asdict() | {"committed": committed[partition].offset} for partition in chosen]
        print_rows(rows, ("topic", "partition", ("deleted", "committed")), as_json=as_json)


def _description_json(group: GroupInfo) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": "{}:{}".format(*group.coordinator),
        "lag": group.lag,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [partition._asdict() for partition in member.partitions],
            }
            for member in group.members
        ],
        "partitions": [
            row.partition._asdict()
            | {
                "committed": row.committed_offset,
                "start": row.start_offset,
                "end": row.end_offset,
                "lag": row.lag,
                "metadata": row.metadata,
                "member": row.member.member_id if row.member else None,
                "host": row.member.host if row.member else None,
            }
            for row in group.partitions
        ],
    }
