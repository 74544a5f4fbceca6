"""`logbrook cluster move` and `balance`: move partitions to other brokers, and even out replicas and leaders."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from logbrook.cli.cluster_moving import (
    CTRL_C,
    MOVE_COLUMNS,
    DryRun,
    NoWait,
    Throttle,
    carry_out,
    parse_rate,
    plan_rows,
    plan_summary,
)
from logbrook.cli.connection import Bootstrap, Json, connected_admin, topic_names
from logbrook.cli.failures import fail, refuse
from logbrook.cli.terminal import ParagraphCommand, Yes, confirm, plural, print_json, print_rows, print_title
from logbrook.cli.topic_patterns import PATTERN_EPILOG, is_pattern, matching_names
from logbrook.client.admin import Admin
from logbrook.client.cluster_overview import DOWN, ClusterOverview, PartitionOverview, read_overview
from logbrook.client.replica_plans import Plan, plan_balance, plan_placement, plan_replacement
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.error_codes import ErrorCode

# Names in a message.
_NAMED_MAX = 5


def add_to(app: typer.Typer) -> None:
    app.command(cls=ParagraphCommand, epilog=f"{CTRL_C}\n\n{PATTERN_EPILOG}")(move)
    app.command(cls=ParagraphCommand, epilog=CTRL_C)(balance)


def move(
    partitions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:PARTITION]...",
            help="Topics, or partitions as orders:3 or orders-3; default, with --from or --cancel: all.",
            autocompletion=topic_names,
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NODE,...", help="The nodes that have the replicas after the move.")
    ] = None,
    from_node: Annotated[
        int | None,
        typer.Option("--from", min=0, metavar="NODE", help="Move only the replicas of this node, to the one of --to."),
    ] = None,
    throttle: Throttle = None,
    no_wait: NoWait = False,
    dry_run: DryRun = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel moves under way: the old replicas stay.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Move partitions to other nodes, and wait until they have arrived.

    Reading and writing go on meanwhile. The first node of --to becomes the preferred leader of a single partition; the
    preferred leaders of several are spread over the nodes. Fewer or more nodes than before change the number of
    replicas. A move that is repeated with another --throttle gets the new limit.

    Examples: logbrook cluster move orders:0 --to 1,2,3; logbrook cluster move orders --to 2,3,4 --throttle 50MB;
    logbrook cluster move --from 3 --to 4

    JSON: {"state", "moves"}, with done, begun, planned or cancelled, and a list of {"topic", "partition", "from", "to",
    "size_bytes"}: the bytes to copy, null if unknown.
    """
    rate = parse_rate(throttle, waits=not no_wait)
    _check_options(partitions, to, from_node, throttle, cancel=cancel)
    with connected_admin(bootstrap) as admin:
        overview = read_overview(admin.client)
        chosen = _chosen(overview, partitions or [])
        if cancel:
            _cancel(admin, chosen, as_json=as_json, dry_run=dry_run)
            return
        nodes = _parse_nodes(overview, to or "")
        plan = _move_plan(overview, chosen, nodes, from_node)
        _check_not_cordoned(overview, plan)
        rows = plan_rows(overview, plan)
        # Those that are on their way already, so that a repeated command waits for them.
        under_way = {
            entry.partition: entry.target
            for entry in chosen
            if entry.is_moving
            and entry.partition not in plan
            and (from_node is None or (from_node in entry.removing and nodes[0] in entry.adding))
        }
        if not dry_run and (plan or under_way):
            carry_out(admin, overview, plan, rate=rate, waits=not no_wait, also_wait_for=under_way)
        state = "planned" if dry_run else "begun" if no_wait else "done"
        if as_json:
            print_json({"state": state, "moves": rows})
            return
        if rows:
            print_rows(rows, MOVE_COLUMNS)
        typer.echo(_conclusion(state, rows), err=True)


def balance(
    leaders_only: Annotated[
        bool, typer.Option("--leaders-only", help="Only make the preferred replicas leaders; nothing is copied.")
    ] = False,
    throttle: Throttle = None,
    no_wait: NoWait = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Even out the number of replicas and of leaders of the nodes, with the fewest moves.

    Replicas of a partition stay in different racks. A node that was added gets its share. At the end the preferred
    replicas become leaders.

    Examples: logbrook cluster balance --dry-run; logbrook cluster balance --throttle 50MB

    JSON: {"state", "moves", "elections", "nodes"}, with done, begun or planned, a list of {"topic", "partition",
    "from", "to", "size_bytes"}, a list of {"topic", "partition", "from", "to"} with the leaders, and a list of {"id",
    "rack", "replicas", "replicas_after", "leaders", "leaders_after"}.
    """
    if leaders_only and (throttle is not None or no_wait):
        refuse("--leaders-only", "nothing is copied, so there is nothing to limit or wait for")
    rate = parse_rate(throttle, waits=not no_wait)
    with connected_admin(bootstrap) as admin:
        overview = read_overview(admin.client)
        plan: Plan = {}
        if not leaders_only:
            _check_balance(overview)
            cordoned = {node.id for node in overview.cordoned}
            racks = {node: rack for node, rack in overview.racks.items() if node not in cordoned}
            plan = plan_balance(overview.assignment, racks, overview.sizes)
        rows = plan_rows(overview, plan)
        elections = _elections(overview, plan)
        if not dry_run and (plan or elections):
            changes = [plan_summary(rows)] if rows else []
            confirm(f"{', '.join([*changes, plural(len(elections), 'new leader')])}: go ahead?", yes)
            carry_out(admin, overview, plan, rate=rate, waits=not no_wait)
            if not no_wait:
                _elect(admin, elections)
        state = "planned" if dry_run else "begun" if no_wait else "done"
        nodes = _nodes_after(overview, plan, elections)
        if as_json:
            print_json({"state": state, "moves": rows, "elections": elections, "nodes": nodes})
            return
        if dry_run and rows:
            print_rows(rows, MOVE_COLUMNS)
            print_title("Nodes")
        after = (("after", "replicas_after"), "leaders", ("after", "leaders_after"))
        print_rows(nodes, (("node", "id"), "rack", "replicas", *after))
        typer.echo(_conclusion(state, rows, elections), err=True)


def _check_options(
    partitions: Sequence[str] | None, to: str | None, from_node: int | None, throttle: str | None, *, cancel: bool
) -> None:
    if cancel:
        if to is not None or from_node is not None or throttle is not None:
            refuse("--cancel", "it takes partitions only, without --to, --from and --throttle")
        return
    if to is None:
        refuse("--to", "name the nodes to move to, such as --to 1,2,3")
    if not partitions and from_node is None:
        refuse("TOPIC[:PARTITION]...", "name topics or partitions, or a node to move away from with --from")


def _chosen(overview: ClusterOverview, arguments: Sequence[str]) -> list[PartitionOverview]:
    """Return the partitions that the arguments name, all without any; end the command if one does not exist."""
    if not arguments:
        return list(overview.partitions)
    by_name = {partition.partition: partition for partition in overview.partitions}
    topics = {partition.topic for partition in by_name}
    public = {partition.partition.topic for partition in overview.partitions if not partition.is_internal}
    chosen: dict[TopicPartition, PartitionOverview] = {}
    for argument in arguments:
        names = matching_names(public, [argument]) if is_pattern(argument) else {argument} & topics
        named = [partition for partition in by_name if partition.topic in names]
        number = _numbered(argument)
        if not named and number in by_name:
            named = [number]
        if not named:
            fail(f"there is no topic or partition {argument!r}; `logbrook cluster partitions` lists them")
        chosen |= {partition: by_name[partition] for partition in named}
    return list(chosen.values())


def _numbered(argument: str) -> TopicPartition | None:
    """Parse TOPIC:PARTITION or TOPIC-PARTITION."""
    for separator in ":-":
        topic, _, number = argument.rpartition(separator)
        if topic and number.isascii() and number.isdecimal():
            return TopicPartition(topic, int(number))
    return None


def _parse_nodes(overview: ClusterOverview, text: str) -> list[BrokerId]:
    """Return the nodes of --to; end the command unless they are different and registered."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() for word in words):
        refuse("--to", f"{text!r} is not a list of nodes such as 1,2,3")
    nodes = [BrokerId(int(word)) for word in words]
    if len(set(nodes)) != len(nodes):
        refuse("--to", f"{text} names a node twice")
    live = overview.racks
    for node in nodes:
        if node not in live:
            known = node in [entry.id for entry in overview.nodes]
            reason = f"node {node} is down" if known else f"there is no node {node}"
            refuse("--to", f"{reason}; up are {', '.join(map(str, live))}")
    return nodes


def _check_not_cordoned(overview: ClusterOverview, plan: Plan) -> None:
    """End the command if a cordoned node would get a replica. Those that it has may stay."""
    before = overview.assignment
    added = {
        replica for partition, replicas in plan.items() for replica in replicas if replica not in before[partition]
    }
    for node in overview.cordoned:
        if node.id in added:
            refuse("--to", f"node {node.id} is cordoned; `logbrook cluster uncordon {node.id}` lets it get replicas")


def _move_plan(
    overview: ClusterOverview, chosen: Iterable[PartitionOverview], nodes: list[BrokerId], from_node: int | None
) -> Plan:
    assignment = {partition.partition: partition.target for partition in chosen}
    if from_node is None:
        return plan_placement(assignment, nodes)
    if len(nodes) != 1:
        refuse("--to", "with --from it is a single node, which takes its place")
    if from_node not in [node.id for node in overview.nodes]:
        refuse("--from", f"there is no node {from_node}")
    both = [partition for partition, replicas in assignment.items() if {from_node, nodes[0]} <= set(replicas)]
    if both and from_node != nodes[0]:
        typer.echo(
            f"partitions with replicas on both nodes stay: {_names(both)}; `logbrook cluster drain` chooses a node for "
            "each",
            err=True,
        )
    return plan_replacement(assignment, BrokerId(from_node), nodes[0])


def _cancel(admin: Admin, chosen: Iterable[PartitionOverview], *, as_json: bool, dry_run: bool) -> None:
    moving = {entry.partition: entry for entry in chosen if entry.is_moving}
    cancelled = sorted(moving if dry_run else admin.replicas.cancel(moving))
    if as_json:
        rows = [
            partition._asdict()
            | {
                "from": list(moving[partition].target),
                "to": list(moving[partition].before_move),
                "size_bytes": 0,
            }
            for partition in cancelled
        ]
        print_json({"state": "planned" if dry_run else "cancelled", "moves": rows})
        return
    for partition in cancelled:
        typer.echo(f"{'would cancel' if dry_run else 'cancelled'} the move of {partition}")
    if not cancelled:
        typer.echo("nothing is being moved", err=True)


def _check_balance(overview: ClusterOverview) -> None:
    """End the command unless all replicas are where they belong, on nodes that are up."""
    down = [node for node in overview.nodes if node.state == DOWN and node.replicas]
    if down:
        node = down[0].id
        fail(
            f"node {node} is down and has {plural(down[0].replicas, 'replica')}: start it, or move them away with "
            f"`logbrook cluster drain {node}`"
        )
    cordoned = [node for node in overview.cordoned if node.replicas]
    if cordoned:
        node = cordoned[0].id
        fail(
            f"node {node} is cordoned and has {plural(cordoned[0].replicas, 'replica')}: move them away with `logbrook "
            f"cluster drain {node}`, or let it get replicas with `logbrook cluster uncordon {node}`"
        )
    if overview.moving:
        count = len(overview.moving)
        fail(
            f"{plural(count, 'partition')} {'is' if count == 1 else 'are'} being moved: wait until that has ended "
            "(`logbrook cluster status --watch`), or cancel it (`logbrook cluster move --cancel`)"
        )


def _elections(overview: ClusterOverview, plan: Plan) -> list[dict[str, Any]]:
    """Return the partitions whose leader is not the preferred one, with both, if that is in sync after the plan."""
    rows = []
    for partition in overview.partitions:
        preferred = plan.get(partition.partition, partition.target)[0]
        may_lead = preferred in partition.in_sync or partition.partition in plan
        if partition.leader != preferred and may_lead:
            rows.append(partition.partition._asdict() | {"from": partition.leader, "to": preferred})
    return rows


def _elect(admin: Admin, elections: Iterable[dict[str, Any]]) -> None:
    partitions = [TopicPartition(row["topic"], row["partition"]) for row in elections]
    failed = {
        partition: code
        for partition, code in admin.replicas.elect_preferred(partitions).items()
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    if failed:
        code = next(iter(failed.values()))
        fail(
            f"the preferred replicas of {_names(failed)} do not lead ({code.name}): they are down or not in sync; "
            "`logbrook cluster balance --leaders-only` tries again"
        )


def _nodes_after(overview: ClusterOverview, plan: Plan, elections: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    assignment = {**overview.assignment, **plan}
    replicas = Counter(replica for members in assignment.values() for replica in members)
    leaders = {partition.partition: partition.leader for partition in overview.partitions}
    leaders |= {TopicPartition(row["topic"], row["partition"]): row["to"] for row in elections}
    leading = Counter(leaders.values())
    return [
        {
            "id": node.id,
            "rack": node.rack,
            "replicas": node.replicas,
            "replicas_after": replicas[node.id],
            "leaders": node.leaders,
            "leaders_after": leading[node.id],
        }
        for node in overview.nodes
    ]


def _conclusion(state: str, rows: Sequence[dict[str, Any]], elections: Sequence[dict[str, Any]] = ()) -> str:
    if not rows and not elections:
        return "nothing to move: everything is in its place"
    changes = [plan_summary(rows)] if rows else []
    changes += [plural(len(elections), "new leader")] if elections else []
    text = ", ".join(changes)
    if state == "planned":
        return f"{text}; nothing was changed"
    if state == "begun":
        return f"begun: {text}; `logbrook cluster status --watch` shows the progress"
    return f"done: {text}"


def _names(partitions: Iterable[TopicPartition]) -> str:
    names = [str(partition) for partition in partitions]
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
