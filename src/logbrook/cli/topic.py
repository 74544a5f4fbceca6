"""`logbrook topic`: topics, their settings, and what is in them."""

from typing import Annotated

import typer

from logbrook.cli.confirmation import Yes, confirm
from logbrook.cli.connection import Bootstrap, Json, Topic, administered, topic_names
from logbrook.cli.failures import fail, refuse
from logbrook.cli.moments import EPILOG, position_of
from logbrook.cli.output import plural, print_facts, print_json, print_table, size, title
from logbrook.cli.paragraphs import ParagraphCommand
from logbrook.cli.topic_forms import changed_settings, described_as_json, listed_as_json, settings_as_json, shown_source
from logbrook.client.admin_topics import CLUSTER_DEFAULT
from logbrook.client.errors import BrokerError
from logbrook.client.positions import Positions
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Make topics, look at them, change them, delete them.",
)

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Their names.", autocompletion=topic_names)]


@app.command(cls=ParagraphCommand)
def create(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Their names.")],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="How many; else the cluster's default.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-r", min=1, help="Copies of each; else the cluster's default.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting; may be given again.")
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Be content with a topic that is there already.")
    ] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Make topics.

    Example: logbrook topic create orders -p 6 -c retention.ms=604800000
    """
    values = _settings_of(settings or [], "--config")
    with administered(bootstrap) as admin:
        for name in names:
            try:
                admin.topics.create(name, partitions or CLUSTER_DEFAULT, replicas or CLUSTER_DEFAULT, values)
            except BrokerError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    raise
                typer.echo(f"{name} is there already")
            else:
                typer.echo(f"created {name}")


@app.command("list", cls=ParagraphCommand)
def show_all(
    internal: Annotated[bool, typer.Option("--internal", "-i", help="The cluster's own topics too.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show all topics.

    JSON: a list of {"name", "partitions", "replicas", "offsets", "size_bytes", "internal"}; offsets and size_bytes are
    null where the cluster does not tell them. OFFSETS is how many there are: the number of records, unless the topic is
    compacted or written by transactions.
    """
    with administered(bootstrap) as admin:
        topics = [one for one in admin.topics.all() if internal or not one.is_internal]
        if as_json:
            print_json(listed_as_json(topics))
            return
        print_table(
            ("name", "partitions", "replicas", "offsets", "size"),
            [
                (one.name, len(one.partitions), one.replication_factor, one.offsets, size(one.size_bytes))
                for one in topics
            ],
        )
        if not topics:
            typer.echo("there are no topics; `logbrook topic create NAME` makes one", err=True)


@app.command(cls=ParagraphCommand)
def describe(topic: Topic, as_json: Json = False, bootstrap: Bootstrap = None) -> None:
    """Show a topic: its partitions, and the settings that are not the default.

    JSON: {"name", "id", "internal", "partitions", "settings"}, with a list of {"partition", "leader", "leader_epoch",
    "replicas", "in_sync_replicas", "start_offset", "end_offset", "size_bytes"} and a list of {"name", "value",
    "source", "default", "read_only", "sensitive"}.
    """
    with administered(bootstrap) as admin:
        found = admin.topics.describe(topic)
        settings = changed_settings(admin.configs.of_topic(topic))
        if as_json:
            print_json(described_as_json(found, settings))
            return
        print_facts(
            [
                ("name", found.name),
                ("id", described_as_json(found, [])["id"]),
                ("replicas", found.replication_factor),
                ("size", size(found.size_bytes)),
            ]
        )
        title("Partitions")
        print_table(
            ("partition", "leader", "replicas", "in sync", "start", "end", "size"),
            [
                (
                    one.partition,
                    one.leader,
                    ",".join(map(str, one.replicas)),
                    ",".join(map(str, one.in_sync_replicas)),
                    one.start_offset,
                    one.end_offset,
                    size(one.size_bytes),
                )
                for one in found.partitions
            ],
        )
        if settings:
            title("Settings that are not the default")
            print_table(
                ("setting", "value", "set for", "else"),
                [(one.name, one.value, shown_source(one), one.default) for one in settings],
            )


@app.command(cls=ParagraphCommand)
def config(
    topic: Topic,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="What to set; nothing to show all settings.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to the default; may be given again.")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show or change the settings of a topic.

    Example: logbrook topic config orders retention.ms=86400000 --unset segment.bytes

    JSON, of all settings: a list of {"name", "value", "source", "default", "read_only", "sensitive"}.
    """
    values = _settings_of(changes or [], "KEY=VALUE...")
    if both := sorted(values.keys() & set(unset or [])):
        refuse("--unset", f"{', '.join(both)} cannot be set and unset at once")
    with administered(bootstrap) as admin:
        if values or unset:
            admin.configs.alter_topic(topic, values, unset or [])
            if not as_json:
                typer.echo(f"changed {', '.join([*values, *(unset or [])])} of {topic}")
                return
        settings = admin.configs.of_topic(topic)
        if as_json:
            print_json(settings_as_json(settings))
            return
        print_table(("setting", "value", "set for"), [(one.name, one.value, shown_source(one)) for one in settings])


@app.command(cls=ParagraphCommand)
def delete(topics: Topics, yes: Yes = False, bootstrap: Bootstrap = None) -> None:
    """Delete topics with all that is in them. There is no way back."""
    with administered(bootstrap) as admin:
        known = set(admin.topics.names())
        for topic in topics:
            if topic not in known:
                fail(f"there is no topic {topic}, and none was deleted; `logbrook topic list` shows what there is")
        confirm(f"Delete {', '.join(topics)} with all records?", yes)
        admin.topics.delete(topics)
        for topic in topics:
            typer.echo(f"deleted {topic}")


@app.command("add-partitions", cls=ParagraphCommand)
def add_partitions(
    topic: Topic,
    more: Annotated[int | None, typer.Option("--num", "-n", min=1, help="How many more.")] = None,
    total: Annotated[int | None, typer.Option("--to", min=1, help="How many it shall have.")] = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Let a topic have more partitions.

    Keys go to other partitions from then on, so records of a key are not in one partition any more.
    """
    if (more is None) == (total is None):
        refuse("--num / --to", "say how many more (--num 3) or how many in all (--to 6)")
    with administered(bootstrap) as admin:
        before = admin.client.partition_count(topic)
        after = before + (more or 0) if total is None else total
        admin.topics.set_partitions(topic, after)
        typer.echo(f"{topic} has {after} partitions now, and had {before}")


@app.command(cls=ParagraphCommand, epilog=EPILOG)
def trim(
    topic: Topic,
    to: Annotated[str, typer.Option("--to", metavar="PLACE", help="What is before it goes.")],
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be given again.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete the records of a topic that are before a place. There is no way back.

    JSON: a list of {"partition", "before", "after"}, where the log started and where it starts now.
    """
    position = position_of(to, "--to")
    with administered(bootstrap) as admin:
        found = chosen_partitions(topic, admin.client.partitions(topic), partitions)
        positions = Positions(admin.cluster, found)
        wanted = positions.offsets(position)
        moved = {one: offset for one, offset in wanted.items() if offset > positions.starts[one]}
        count = sum(offset - positions.starts[one] for one, offset in moved.items())
        if moved:
            confirm(f"Delete {plural(count, 'offset')} of {plural(len(moved), 'partition')} of {topic}?", yes)
        starts = positions.starts | (admin.topics.delete_records(moved) if moved else {})
        rows = [(one.partition, positions.starts[one], starts[one]) for one in found]
        if as_json:
            print_json([{"partition": row[0], "before": row[1], "after": row[2]} for row in rows])
            return
        print_table(("partition", "start before", "start now"), rows)


def chosen_partitions(topic: str, there: list[int], wanted: list[int] | None) -> list[TopicPartition]:
    """Those that are wanted, or all. Ends the command for one that is not there."""
    for number in wanted or ():
        if number not in there:
            refuse(
                "--partition",
                f"{topic} has no partition {number} that could be asked; it has {plural(len(there), 'partition')}",
            )
    return [TopicPartition(topic, number) for number in (sorted(set(wanted)) if wanted else there)]


def _settings_of(given: list[str], option: str) -> dict[str, str]:
    values = {}
    for one in given:
        key, separator, value = one.partition("=")
        if not key or not separator:
            refuse(option, f"{one!r} is not KEY=VALUE")
        values[key] = value
    return values
