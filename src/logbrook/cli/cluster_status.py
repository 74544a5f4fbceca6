"""`logbrook cluster status` and `partitions`: nodes, who leads what, replicas out of sync, and moves under way."""

import json
import sys
from threading import Event
from typing import Annotated, Any

import typer

from logbrook.cli.connection import Bootstrap, Json, connected_admin, topic_names
from logbrook.cli.failures import describe_error, fail, refuse
from logbrook.cli.terminal import (
    Column,
    ParagraphCommand,
    byte_size,
    plural,
    print_fields,
    print_json,
    print_rows,
    print_table,
    print_title,
)
from logbrook.cli.topic_patterns import PATTERN_EPILOG, matching_names
from logbrook.client.admin import Admin
from logbrook.client.cluster_overview import UP, ClusterOverview, PartitionOverview, read_overview
from logbrook.client.errors import ClientError

# Partitions that `status` lists; `partitions` lists all.
_LISTED_MAX = 20

_CLEAR_SCREEN = "\x1b[2J\x1b[H"

_PARTITION: Column = ("partition", lambda row: f"{row['topic']}-{row['partition']}")


def add_to(app: typer.Typer) -> None:
    app.command(cls=ParagraphCommand)(status)
    app.command(cls=ParagraphCommand, epilog=PATTERN_EPILOG)(partitions)


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="Time between two refreshes.")
    ] = 2.0,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the nodes of the cluster, partitions that are offline or lack replicas, and moves with their progress.

    The state of a node is up, down, or "not answering" if the cluster takes it for alive and it does not answer. A node
    that is cordoned gets no further replicas. With --watch and --json, each refresh is one line.

    JSON: {"cluster_id", "nodes", "topics", "partitions", "size_bytes", "under_replicated", "offline", "moving"}, with a
    list of {"id", "host", "port", "rack", "state", "cordoned", "problem", "leaders", "replicas", "size_bytes"}, two
    lists of TOPIC-NUMBER and a list of {"topic", "partition", "from", "to", "copied_bytes", "size_bytes"}; unknown
    values are null. Sizes are in bytes of all replicas.

    Examples: logbrook cluster status; logbrook cluster status --watch
    """
    if watch and not as_json and not sys.stdout.isatty():
        refuse("--watch", "there is no terminal to draw on; --json prints a line for each refresh")
    with connected_admin(bootstrap) as admin:
        if watch:
            _watch(admin, interval, as_json)
            return
        overview = read_overview(admin.client)
        if as_json:
            print_json(_status_json(overview))
        else:
            _print_status(overview)


def _watch(admin: Admin, interval_s: float, as_json: bool) -> None:
    waiting = Event()
    while True:
        problem = None
        try:
            overview = read_overview(admin.client)
        except ClientError as error:
            problem = describe_error(error)
        if not as_json:
            typer.echo(_CLEAR_SCREEN, nl=False)
        if problem is not None:
            typer.echo(problem, err=True)
        elif as_json:
            typer.echo(json.dumps(_status_json(overview), ensure_ascii=False))
            sys.stdout.flush()
        else:
            _print_status(overview)
        waiting.wait(interval_s)


def _print_status(overview: ClusterOverview) -> None:
    up = sum(node.state == UP for node in overview.nodes)
    topics = {partition.partition.topic for partition in overview.partitions}
    moving = overview.moving
    print_fields(
        [
            ("cluster", overview.cluster_id),
            ("nodes", f"{up} of {len(overview.nodes)} up"),
            ("partitions", f"{len(overview.partitions)} of {plural(len(topics), 'topic')}"),
            ("size", byte_size(_total_bytes(overview))),
            ("under-replicated", len(overview.under_replicated)),
            ("offline", len(overview.offline)),
            ("moving", len(moving)),
        ]
    )
    print_title("Nodes")
    rows = _status_json(overview)["nodes"]
    address: Column = ("address", lambda row: f"{row['host']}:{row['port']}" if row["host"] else None)
    columns: tuple[Column, ...] = (("node", "id"), address, "rack", "leaders", "replicas", ("size", "size_bytes"))
    texts = {node.id: node.state_text for node in overview.nodes}
    print_rows(rows, (*columns, ("state", lambda row: texts[row["id"]])))
    impaired = [*overview.offline, *(entry for entry in overview.under_replicated if not entry.is_offline)]
    if impaired:
        print_title("Offline or under-replicated")
        _print_partitions(impaired[:_LISTED_MAX])
        _print_more(len(impaired), "--under-replicated or --offline")
    if moving:
        print_title("Moving")
        progress: Column = ("copied", _progress_text)
        print_rows(
            [move_json(partition) for partition in moving[:_LISTED_MAX]],
            (_PARTITION, "from", "to", ("size", "size_bytes"), progress),
        )
        _print_more(len(moving), "--moving")


def partitions(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC...", help="Only these topics, or patterns.", autocompletion=topic_names),
    ] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions with a replica that is not in sync.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Only partitions without a leader.")] = False,
    moving: Annotated[bool, typer.Option("--moving", help="Only partitions that are being moved.")] = False,
    broker: Annotated[
        int | None, typer.Option("--broker", min=0, metavar="NODE", help="Only partitions with a replica on this node.")
    ] = None,
    as_map: Annotated[
        bool, typer.Option("--map", help="Show who leads what: a row for each partition, a column for each node.")
    ] = False,
    internal: Annotated[bool, typer.Option("--internal", "-i", help="Include the cluster's internal topics.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List partitions with their leader, replicas and size.

    Several filters list the partitions that meet one of --under-replicated, --offline and --moving, and --broker. With
    one of these three, internal topics are included. In the map, L is the leader, F a follower in sync, lag a follower
    that is not, + a replica that a move adds.

    JSON: a list of {"topic", "partition", "leader", "replicas", "in_sync_replicas", "offline_replicas", "adding",
    "removing", "size_bytes", "state"}. The state is ok, under-replicated or offline, the size that of the leader's
    replica; leader and size are null if unknown. With --map: a list of {"topic", "partition", "nodes"}, where nodes
    maps ids to L, F, lag and +.

    Examples: logbrook cluster partitions --under-replicated; logbrook cluster partitions orders --map
    """
    with connected_admin(bootstrap) as admin:
        overview = read_overview(admin.client)
        if broker is not None and broker not in [node.id for node in overview.nodes]:
            refuse("--broker", f"there is no node {broker}; there are {', '.join(str(n.id) for n in overview.nodes)}")
        shown = [
            partition
            for partition in _named_partitions(
                overview, topics or [], internal or under_replicated or offline or moving
            )
            if broker is None or broker in partition.replicas
        ]
        if under_replicated or offline or moving:
            shown = [
                partition
                for partition in shown
                if (under_replicated and partition.is_under_replicated)
                or (offline and partition.is_offline)
                or (moving and partition.is_moving)
            ]
        if as_map:
            _print_map(overview, shown, as_json=as_json)
        else:
            _print_partitions(shown, as_json=as_json)
        if not shown and not as_json:
            typer.echo("no partition matches", err=True)


def _named_partitions(overview: ClusterOverview, topics: list[str], internal: bool) -> list[PartitionOverview]:
    existing = {partition.partition.topic for partition in overview.partitions}
    public = {partition.partition.topic for partition in overview.partitions if not partition.is_internal}
    names = matching_names(existing if internal else public, topics) | (existing & set(topics))
    for topic in topics:
        if not matching_names(existing, [topic]):
            fail(f"no topic matches {topic!r}; `logbrook topic list` shows the topics")
    return [partition for partition in overview.partitions if partition.partition.topic in names]


def _print_partitions(shown: list[PartitionOverview], *, as_json: bool = False) -> None:
    rows = [_partition_json(partition) for partition in shown]
    in_sync: Column = ("in sync", "in_sync_replicas")
    state: Column = ("state", lambda row: row["state"] + (", moving" if row["adding"] or row["removing"] else ""))
    print_rows(rows, (_PARTITION, "leader", "replicas", in_sync, ("size", "size_bytes"), state), as_json=as_json)


def _print_map(overview: ClusterOverview, shown: list[PartitionOverview], *, as_json: bool) -> None:
    rows = [
        partition.partition._asdict() | {"nodes": {str(node): role.value for node, role in partition.roles.items()}}
        for partition in shown
    ]
    if as_json:
        print_json(rows)
        return
    nodes = [str(node.id) for node in overview.nodes]
    print_table(
        ["partition", *nodes],
        [[f"{row['topic']}-{row['partition']}", *(row["nodes"].get(node, ".") for node in nodes)] for row in rows],
    )


def _print_more(count: int, option: str) -> None:
    if count > _LISTED_MAX:
        typer.echo(f"and {count - _LISTED_MAX} more: `logbrook cluster partitions {option}`")


def _progress_text(row: Any) -> str:
    if not row["size_bytes"]:
        return "-"
    return f"{100 * row['copied_bytes'] // row['size_bytes']} %"


def _total_bytes(overview: ClusterOverview) -> int | None:
    sizes = [node.size_bytes for node in overview.nodes if node.size_bytes is not None]
    return sum(sizes) if sizes else None


def _status_json(overview: ClusterOverview) -> dict[str, Any]:
    return {
        "cluster_id": overview.cluster_id,
        "nodes": [
            {
                "id": node.id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "state": node.state,
                "cordoned": node.is_cordoned,
                "problem": node.problem,
                "leaders": node.leaders,
                "replicas": node.replicas,
                "size_bytes": node.size_bytes,
            }
            for node in overview.nodes
        ],
        "topics": len({partition.partition.topic for partition in overview.partitions}),
        "partitions": len(overview.partitions),
        "size_bytes": _total_bytes(overview),
        "under_replicated": [str(partition.partition) for partition in overview.under_replicated],
        "offline": [str(partition.partition) for partition in overview.offline],
        "moving": [move_json(partition) for partition in overview.moving],
    }


def move_json(partition: PartitionOverview) -> dict[str, Any]:
    """Return a move under way for JSON and tables."""
    return partition.partition._asdict() | {
        "from": list(partition.before_move),
        "to": list(partition.target),
        "copied_bytes": partition.copied_bytes,
        "size_bytes": partition.bytes_to_copy,
    }


def _partition_json(partition: PartitionOverview) -> dict[str, Any]:
    return partition.partition._asdict() | {
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "in_sync_replicas": list(partition.in_sync),
        "offline_replicas": list(partition.offline),
        "adding": list(partition.adding),
        "removing": list(partition.removing),
        "size_bytes": partition.size_bytes,
        "state": partition.state,
    }
