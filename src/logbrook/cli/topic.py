"""`logbrook topic`: create, list, describe, configure, grow, trim and delete topics."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from time import time
from typing import Annotated, Any

import typer

from logbrook.cli.arguments import PLACE_EPILOG, parse_offset_spec
from logbrook.cli.connection import Bootstrap, Json, Partitions, Topic, connected_admin, topic_names
from logbrook.cli.failures import fail, refuse
from logbrook.cli.setting_arguments import SET_FOR, VALUE_FORMS, parse_settings, refuse_unknown, setting_json
from logbrook.cli.terminal import (
    ParagraphCommand,
    Yes,
    byte_size,
    confirm,
    plural,
    print_fields,
    print_json,
    print_rows,
    print_title,
)
from logbrook.cli.topic_patterns import PATTERN_EPILOG, TopicPatterns, chosen_topics, matching_names
from logbrook.client.admin_results import Setting, TopicDescription
from logbrook.client.admin_topics import CLUSTER_DEFAULT
from logbrook.client.errors import BrokerError
from logbrook.client.offset_specs import AtOffset, AtTime, LogBounds, OffsetSpec
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

# Partitions that an error message names.
_ENDS_SHOWN = 4


@app.command(cls=ParagraphCommand, epilog=VALUE_FORMS)
def create(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of the topics.")],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Number of partitions; default: the cluster's.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-r", min=1, help="Replicas of each partition; default: the cluster's.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="Setting of the topic; repeatable."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if a topic already exists, whatever its settings.")
    ] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Create topics.

    Example: logbrook topic create orders -p 6 -c retention.ms=7d -c segment.bytes=64MiB
    """
    values = parse_settings(settings or [], "--config")
    with connected_admin(bootstrap) as admin:
        for name in names:
            try:
                admin.topics.create(name, partitions or CLUSTER_DEFAULT, replicas or CLUSTER_DEFAULT, values)
            except BrokerError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    raise
                typer.echo(f"{name} already exists")
            else:
                typer.echo(f"created {name}")


@app.command("list", cls=ParagraphCommand, epilog=PATTERN_EPILOG)
def show_all(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC...", help="Only these topics, or those that match patterns.", autocompletion=topic_names
        ),
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", "-i", help="Include the cluster's internal topics.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List topics with their partitions and sizes.

    OFFSETS is end offset minus start offset over all partitions: the number of records, unless the topic is compacted
    or has transactions.

    JSON: a list of {"name", "partitions", "replicas", "offsets", "size_bytes", "internal"}; offsets and size_bytes are
    null if the cluster does not report them.
    """
    with connected_admin(bootstrap) as admin:
        shown = [topic for topic in admin.topics.all() if internal or not topic.is_internal]
        matching = matching_names([topic.name for topic in shown], names or [])
        topics = [topic for topic in shown if topic.name in matching]
        rows = [
            {
                "name": topic.name,
                "partitions": len(topic.partitions),
                "replicas": topic.replication_factor,
                "offsets": topic.offsets,
                "size_bytes": topic.size_bytes,
                "internal": topic.is_internal,
            }
            for topic in topics
        ]
        columns = ("name", "partitions", "replicas", "offsets", ("size", "size_bytes"))
        print_rows(rows, columns, as_json=as_json)
        if not topics and not as_json:
            advice = "there are no topics; `logbrook topic create NAME` creates one"
            if names and shown:
                advice = f"no topic matches {', '.join(names)}; `logbrook topic list` shows all"
            typer.echo(advice, err=True)


@app.command(cls=ParagraphCommand)
def describe(topic: Topic, as_json: Json = False, bootstrap: Bootstrap = None) -> None:
    """Show a topic's partitions and the settings that differ from the default.

    JSON: {"name", "id", "internal", "partitions", "settings"}, with a list of {"partition", "leader", "leader_epoch",
    "replicas", "in_sync_replicas", "start_offset", "end_offset", "size_bytes"} and a list of {"name", "value",
    "source", "default", "read_only", "sensitive"}.
    """
    with connected_admin(bootstrap) as admin:
        description = admin.topics.describe(topic)
        settings = [setting for setting in admin.configs.of_topic(topic) if not setting.is_default]
        document = _description_json(description, settings)
        if as_json:
            print_json(document)
            return
        print_fields(
            [
                ("name", description.name),
                ("id", document["id"]),
                ("replicas", description.replication_factor),
                ("size", byte_size(description.size_bytes)),
            ]
        )
        print_title("Partitions")
        offsets = (("start", "start_offset"), ("end", "end_offset"))
        columns = ("partition", "leader", "replicas", ("in sync", "in_sync_replicas"), *offsets, ("size", "size_bytes"))
        print_rows(document["partitions"], columns)
        if settings:
            print_title("Settings that are not the default")
            print_rows(document["settings"], (("setting", "name"), "value", SET_FOR, ("otherwise", "default")))


@app.command(cls=ParagraphCommand, epilog=VALUE_FORMS)
def config(
    topic: Topic,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Settings to change; without any, all are shown.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Reset a setting to its default; repeatable.")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show or change the settings of a topic. Changes take effect at once.

    Example: logbrook topic config orders retention.ms=12h --unset segment.bytes

    JSON, all settings: a list of {"name", "value", "source", "default", "read_only", "sensitive"}.
    """
    values = parse_settings(changes or [], "KEY=VALUE...")
    if conflicts := sorted(values.keys() & set(unset or [])):
        refuse("--unset", f"{', '.join(conflicts)} cannot be set and unset at once")
    with connected_admin(bootstrap) as admin:
        if unset:
            settings = admin.configs.of_topic(topic)
            refuse_unknown(unset, settings, f"topic {topic}", f"logbrook topic config {topic}")
        if values or unset:
            admin.configs.alter_topic(topic, values, unset or [])
            if not as_json:
                typer.echo(f"changed {', '.join([*values, *(unset or [])])} of {topic}")
                return
        rows = [setting_json(setting) for setting in admin.configs.of_topic(topic)]
        print_rows(rows, (("setting", "name"), "value", SET_FOR), as_json=as_json)


@app.command(cls=ParagraphCommand, epilog=PATTERN_EPILOG)
def delete(names: TopicPatterns, yes: Yes = False, bootstrap: Bootstrap = None) -> None:
    """Delete topics with all their records. This cannot be undone.

    If one of them does not exist, none is deleted. The confirmation lists the topics that patterns match, which are
    never internal ones.

    Example: logbrook topic delete 'test-*'
    """
    with connected_admin(bootstrap) as admin:
        topics = chosen_topics(admin, names)
        existing = set(admin.topics.names())
        for topic in topics:
            if topic not in existing:
                fail(f"there is no topic {topic}, and none was deleted; `logbrook topic list` shows the topics")
        count = "" if len(topics) == 1 else f"{plural(len(topics), 'topic')}: "
        confirm(f"Delete {count}{', '.join(topics)}, with all records?", yes)
        admin.topics.delete(topics)
        for topic in topics:
            typer.echo(f"deleted {topic}")


@app.command("add-partitions", cls=ParagraphCommand)
def add_partitions(
    topic: Topic,
    more: Annotated[int | None, typer.Option("--num", "-n", min=1, help="Number of partitions to add.")] = None,
    total: Annotated[int | None, typer.Option("--to", min=1, help="Number of partitions after the change.")] = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Add partitions to a topic. They cannot be removed again.

    New records of a key may go to another partition than its old ones, so their order is lost for consumers.

    Example: logbrook topic add-partitions orders --to 12
    """
    if (more is None) == (total is None):
        refuse("--num / --to", "give the number to add (--num 3) or the number in all (--to 6)")
    with connected_admin(bootstrap) as admin:
        before = admin.client.partition_count(topic)
        after = before + (more or 0) if total is None else total
        admin.topics.set_partitions(topic, after)
        typer.echo(f"{topic} now has {after} partitions (before: {before})")


@app.command(cls=ParagraphCommand, epilog=PLACE_EPILOG)
def trim(
    topic: Topic,
    to: Annotated[str, typer.Option("--to", metavar="PLACE", help="Records before this position are deleted.")],
    partitions: Partitions = None,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete the records of a topic before a position. This cannot be undone.

    An offset past the end of a partition and a time in the future are refused; `--to end` deletes all records.

    Example: logbrook topic trim orders --to -7d

    JSON: a list of {"partition", "before", "after"}: the log start offset before and after.
    """
    spec = parse_offset_spec(to, "--to")
    with connected_admin(bootstrap) as admin:
        chosen = chosen_partitions(topic, admin.client.partitions(topic), partitions)
        bounds = LogBounds(admin.cluster, chosen)
        _refuse_past_the_end(topic, to, spec, bounds)
        targets = {
            partition: offset for partition, offset in bounds.resolve(spec).items() if offset > bounds.starts[partition]
        }
        count = sum(offset - bounds.starts[partition] for partition, offset in targets.items())
        if targets:
            confirm(f"Delete {plural(count, 'offset')} of {plural(len(targets), 'partition')} of {topic}?", yes)
        starts = bounds.starts | (admin.topics.delete_records(targets) if targets else {})
        rows = [
            {"partition": partition.partition, "before": bounds.starts[partition], "after": starts[partition]}
            for partition in chosen
        ]
        print_rows(rows, ("partition", ("start before", "before"), ("start now", "after")), as_json=as_json)


def chosen_partitions(topic: str, existing: list[int], numbers: list[int] | None) -> list[TopicPartition]:
    """Return the partitions with these numbers, all without any; end the command if one does not exist."""
    for number in numbers or ():
        if number not in existing:
            refuse(
                "--partition",
                f"{topic} has no available partition {number}; it has {plural(len(existing), 'partition')}",
            )
    return [TopicPartition(topic, number) for number in (sorted(set(numbers)) if numbers else existing)]


def _refuse_past_the_end(topic: str, text: str, spec: OffsetSpec, bounds: LogBounds) -> None:
    """End the command if `spec`, given as `text`, is past the end of a log: clamped, it would delete every record."""
    match spec:
        case AtOffset(offset):
            too_short = [partition for partition in bounds.partitions if bounds.ends[partition] < offset]
            reason = f"offset {offset} is past the end of {topic}"
        case AtTime(timestamp_ms) if timestamp_ms > time() * 1000:
            too_short = list(bounds.partitions)
            reason = f"{text} is in the future"
        case _:
            return
    if too_short:
        ends = ", ".join(f"partition {p.partition} ends at offset {bounds.ends[p]}" for p in too_short[:_ENDS_SHOWN])
        if len(too_short) > _ENDS_SHOWN:
            ends += f", and {len(too_short) - _ENDS_SHOWN} more"
        refuse(
            "--to", f"{reason}: {ends}; nothing was deleted (--partition selects some, `--to end` deletes all records)"
        )


def _description_json(topic: TopicDescription, settings: Iterable[Setting]) -> dict[str, Any]:
    return {
        "name": topic.name,
        # As Kafka's own tools show it.
        "id": urlsafe_b64encode(topic.id).decode().rstrip("="),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": partition.partition,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "in_sync_replicas": list(partition.in_sync_replicas),
                "start_offset": partition.start_offset,
                "end_offset": partition.end_offset,
                "size_bytes": partition.size_bytes,
            }
            for partition in topic.partitions
        ],
        "settings": [setting_json(setting) for setting in settings],
    }
