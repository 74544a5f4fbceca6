"""`logbrook group`: consumer groups, how far they are, and putting them elsewhere."""

from typing import Annotated, Any

import typer

from logbrook.cli.confirmation import Yes, confirm
from logbrook.cli.connection import Bootstrap, Group, Json, administered, group_names, topic_names
from logbrook.cli.failures import fail, refuse
from logbrook.cli.moments import EPILOG, position_of
from logbrook.cli.output import plural, print_facts, print_json, print_table, title
from logbrook.cli.paragraphs import ParagraphCommand
from logbrook.client.admin_groups import Shift
from logbrook.client.admin_results import GroupInfo

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Look at consumer groups and their lag, reset them, delete them.",
)


@app.command("list", cls=ParagraphCommand)
def show_all(as_json: Json = False, bootstrap: Bootstrap = None) -> None:
    """Show all groups.

    JSON: a list of {"group", "state", "protocol_type", "type"}.
    """
    with administered(bootstrap) as admin:
        groups = admin.groups.all()
        if as_json:
            print_json(
                [
                    {"group": one.group_id, "state": one.state, "protocol_type": one.protocol_type, "type": one.type}
                    for one in groups
                ]
            )
            return
        print_table(
            ("group", "state", "protocol type", "type"),
            [(one.group_id, one.state, one.protocol_type, one.type) for one in groups],
        )
        if not groups:
            typer.echo("there are no groups; `logbrook consume TOPIC --group NAME` makes one", err=True)


@app.command(cls=ParagraphCommand)
def describe(group: Group, as_json: Json = False, bootstrap: Bootstrap = None) -> None:
    """Show who is in a group, how far it is in each partition, and how much is left.

    The type is classic, or consumer for a group of Kafka's newer protocol (KIP-848), which other clusters may have.

    JSON: {"group", "type", "state", "protocol_type", "assignor", "coordinator", "lag", "members", "partitions"}, with a
    list of {"member", "instance", "client", "host", "partitions"} and a list of {"topic", "partition", "committed",
    "start", "end", "lag", "metadata", "member", "host"}; what is not known is null.
    """
    with administered(bootstrap) as admin:
        found = admin.groups.describe(group)
        if as_json:
            print_json(_described(found))
            return
        print_facts(
            [
                ("group", found.group_id),
                ("type", found.type),
                ("state", found.state),
                ("assignor", found.assignor),
                ("coordinator", "{}:{}".format(*found.coordinator)),
                ("members", len(found.members)),
                ("lag", found.lag),
            ]
        )
        if not found.partitions:
            return
        title("Partitions")
        print_table(
            ("topic", "partition", "committed", "end", "lag", "member", "host"),
            [
                (
                    one.partition.topic,
                    one.partition.partition,
                    one.committed_offset,
                    one.end_offset,
                    one.lag,
                    one.member.member_id if one.member else None,
                    one.member.host if one.member else None,
                )
                for one in found.partitions
            ],
        )


@app.command(cls=ParagraphCommand, epilog=EPILOG)
def reset(
    group: Group,
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="Where it is to go on.")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="From where it is: 10 skips 10, -10 reads 10 again.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Only this one; may be given again.", autocompletion=topic_names),
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be given again.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without, it is only shown.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Let a group go on from another place. Its members have to be stopped first.

    Without --execute it shows what would change. An offset outside of a log becomes the nearest one inside.

    JSON: {"group", "executed", "changes"}, with a list of {"topic", "partition", "before", "after"}; before is null
    where the group has committed nothing.
    """
    if (to is None) == (shift_by is None):
        refuse("--to / --shift-by", "say where to: --to start, say, or --shift-by -100")
    target = Shift(shift_by) if shift_by is not None else position_of(to or "", "--to")
    with administered(bootstrap) as admin:
        changes = admin.groups.plan_reset(group, target, topics or (), partitions or ())
        if not changes:
            fail(f"group {group} has committed nothing there; --topic names what it is to read")
        if execute:
            admin.groups.reset(group, changes)
        if as_json:
            listed = [
                {
                    "topic": one.partition.topic,
                    "partition": one.partition.partition,
                    "before": one.before,
                    "after": one.after,
                }
                for one in changes
            ]
            print_json({"group": group, "executed": execute, "changes": listed})
            return
        print_table(
            ("topic", "partition", "before", "after"),
            [(one.partition.topic, one.partition.partition, one.before, one.after) for one in changes],
        )
        typer.echo(f"group {group} is reset" if execute else "nothing was changed; --execute does it", err=True)


@app.command(cls=ParagraphCommand)
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Their ids.", autocompletion=group_names)],
    yes: Yes = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete groups: how far they are is forgotten. Their members have to be stopped first."""
    with administered(bootstrap) as admin:
        known = {one.group_id for one in admin.groups.all()}
        for group in groups:
            if group not in known:
                fail(f"there is no group {group}, and none was deleted; `logbrook group list` shows what there is")
        confirm(f"Delete {plural(len(groups), 'group')} ({', '.join(groups)}) with their offsets?", yes)
        admin.groups.delete(groups)
        for group in groups:
            typer.echo(f"deleted {group}")


def _described(group: GroupInfo) -> dict[str, Any]:
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
                "member": one.member_id,
                "instance": one.instance_id,
                "client": one.client_id,
                "host": one.host,
                "partitions": [{"topic": each.topic, "partition": each.partition} for each in one.partitions],
            }
            for one in group.members
        ],
        "partitions": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "committed": one.committed_offset,
                "start": one.start_offset,
                "end": one.end_offset,
                "lag": one.lag,
                "metadata": one.metadata,
                "member": one.member.member_id if one.member else None,
                "host": one.member.host if one.member else None,
            }
            for one in group.partitions
        ],
    }
