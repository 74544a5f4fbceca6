"""`logbrook cluster drain` and `remove`: empty a node, and make the cluster forget it."""

from typing import Annotated, Any

import typer

from logbrook.cli.cluster_moving import (
    CTRL_C,
    MOVE_COLUMNS,
    DryRun,
    Throttle,
    carry_out,
    parse_rate,
    plan_rows,
    plan_summary,
)
from logbrook.cli.connection import Bootstrap, Json, connected_admin
from logbrook.cli.failures import fail
from logbrook.cli.terminal import ParagraphCommand, Yes, confirm, plural, print_json, print_rows
from logbrook.client.admin import Admin
from logbrook.client.cluster_overview import DOWN, ClusterOverview, read_overview
from logbrook.client.errors import BrokerError
from logbrook.client.replica_plans import Plan, TooFewBrokersError, plan_drain
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.error_codes import ErrorCode

# Topics may be created while a node is drained.
_ROUNDS_MAX = 10


def add_to(app: typer.Typer) -> None:
    app.command(cls=ParagraphCommand, epilog=CTRL_C)(drain)
    app.command(cls=ParagraphCommand)(remove)


def drain(
    nodes: Annotated[list[int], typer.Argument(metavar="NODE...", help="Nodes to empty.", min=0)],
    throttle: Throttle = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Move all replicas of a node to the others, and wait until it has none.

    Each replica goes to the node with the fewest, in a rack without a replica of the partition if there is one. Reading
    and writing go on meanwhile. The node may be up or down; if several are down for good, drain them together. A node
    that is up may get replicas of topics that are created later: stop it when it is drained.

    Example: logbrook cluster drain 3 --throttle 50MB

    JSON: {"state", "nodes", "moves"}, with done or planned, the ids, and a list of {"topic", "partition", "from", "to",
    "size_bytes"}: the bytes to copy, null if unknown.
    """
    rate = parse_rate(throttle, waits=True)
    with connected_admin(bootstrap) as admin:
        overview = read_overview(admin.client)
        rows: list[dict[str, Any]] = []
        for number in range(_ROUNDS_MAX):
            _check_known(overview, nodes)
            plan, leaving = _drain_plan(overview, nodes), _leaving(overview, nodes)
            planned = plan_rows(overview, plan)
            rows += planned
            if dry_run or not (plan or leaving):
                break
            if number == 0:
                confirm(f"Drain {_named(nodes)}: {plan_summary(planned)}?", yes)
            carry_out(admin, overview, plan, rate=rate, also_wait_for=leaving)
            overview = read_overview(admin.client)
        else:
            fail(f"topics are created on {_named(nodes)} as fast as they are moved away; try again")
        if as_json:
            print_json({"state": "planned" if dry_run else "done", "nodes": nodes, "moves": rows})
            return
        if rows:
            print_rows(rows, MOVE_COLUMNS)
        if dry_run:
            typer.echo(f"{plan_summary(rows)}; nothing was changed", err=True)
            return
        node = str(nodes[0]) if len(nodes) == 1 else "NODE"
        typer.echo(f"drained {_named(nodes)}; next: stop it, then `logbrook cluster remove {node}`", err=True)


def remove(
    node: Annotated[int, typer.Argument(metavar="NODE", help="Node to remove.", min=0)],
    bootstrap: Bootstrap = None,
) -> None:
    """Make the cluster forget a node that was drained and stopped.

    Until then a node that comes back under its id with an empty disk is recognised, and cannot lose records.

    Example: logbrook cluster remove 3
    """
    with connected_admin(bootstrap) as admin:
        overview = read_overview(admin.client)
        known = next((entry for entry in overview.nodes if entry.id == node), None)
        if known is not None and known.replicas:
            fail(
                f"node {node} has {plural(known.replicas, 'replica')}: move them away first with `logbrook cluster "
                f"drain {node}`"
            )
        if known is not None and known.state != DOWN:
            fail(f"node {node} has no replicas, but it runs: stop it first, then remove it")
        _unregister(admin, overview, node)
        typer.echo(f"removed node {node}")


def _unregister(admin: Admin, overview: ClusterOverview, node: int) -> None:
    try:
        admin.replicas.unregister(BrokerId(node))
    except BrokerError as error:
        if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
            raise
        fail(f"there is no node {node}; there are {', '.join(str(entry.id) for entry in overview.nodes)}")


def _check_known(overview: ClusterOverview, nodes: list[int]) -> None:
    known = [node.id for node in overview.nodes]
    for node in nodes:
        if node not in known:
            fail(f"there is no node {node}; there are {', '.join(map(str, known))}")


def _drain_plan(overview: ClusterOverview, nodes: list[int]) -> Plan:
    """Return the moves; end the command if there are too few nodes, or other replicas are on nodes that are down."""
    racks = {node: rack for node, rack in overview.racks.items() if node not in nodes}
    assignment = overview.assignment
    for partition, replicas in assignment.items():
        down = [replica for replica in replicas if replica not in racks and replica not in nodes]
        if down and set(replicas) & set(nodes):
            ids = " ".join(map(str, [*nodes, *down[:1]]))
            fail(
                f"{partition} has a replica on node {down[0]}, too, which is down: start it, or drain both with "
                f"`logbrook cluster drain {ids}`"
            )
    try:
        return plan_drain(assignment, list(map(BrokerId, nodes)), racks, overview.sizes)
    except TooFewBrokersError as error:
        remaining = ",".join(map(str, error.brokers)) or "NODE,..."
        fail(
            f"{error}: start another node first, or give the topic fewer replicas with `logbrook cluster move "
            f"{error.partition.topic} --to {remaining}`"
        )


def _leaving(overview: ClusterOverview, nodes: list[int]) -> Plan:
    """Return the partitions that an earlier command moves away."""
    return {
        partition.partition: partition.target
        for partition in overview.moving
        if set(partition.removing) & set(nodes) and not set(partition.target) & set(nodes)
    }


def _named(nodes: list[int]) -> str:
    return f"node{'' if len(nodes) == 1 else 's'} {', '.join(map(str, nodes))}"
