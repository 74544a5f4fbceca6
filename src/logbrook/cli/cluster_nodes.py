"""`logbrook cluster drain`, `uncordon` and `remove`: empty a node, use it again, or make the cluster forget it."""

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
from logbrook.client.errors import BrokerError, ClientError
from logbrook.client.replica_plans import Plan, TooFewBrokersError, plan_drain
from logbrook.config.accepted_settings import CORDONED_LOG_DIRS
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.error_codes import ErrorCode

# Kafka's brokers before 4.3 cannot be cordoned, and may get replicas of topics that are created meanwhile.
_ROUNDS_MAX = 10
# Every value but this one would be of single data directories.
_ALL_DIRECTORIES = "*"


def add_to(app: typer.Typer) -> None:
    app.command(cls=ParagraphCommand, epilog=CTRL_C)(drain)
    app.command(cls=ParagraphCommand)(uncordon)
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
    that is up is cordoned first, and stays so if the command is interrupted: it gets no further replicas until
    `logbrook cluster uncordon`.

    Example: logbrook cluster drain 3 --throttle 50MB

    JSON: {"state", "nodes", "moves"}, with done or planned, the ids, and a list of {"topic", "partition", "from", "to",
    "size_bytes"}: the bytes to copy, null if unknown.
    """
    rate = parse_rate(throttle, waits=True)
    with connected_admin(bootstrap) as admin:
        overview = read_overview(admin.client)
        _check_known(overview, nodes)
        plan = _drain_plan(overview, nodes)
        rows = plan_rows(overview, plan)
        if not dry_run:
            if plan or _leaving(overview, nodes):
                confirm(f"Drain {_named(nodes)}: {plan_summary(rows)}?", yes)
            rows = _empty(admin, overview, nodes, rate)
        if as_json:
            print_json({"state": "planned" if dry_run else "done", "nodes": nodes, "moves": rows})
            return
        if rows:
            print_rows(rows, MOVE_COLUMNS)
        if dry_run:
            typer.echo(f"{plan_summary(rows)}; nothing was changed", err=True)
            return
        node = str(nodes[0]) if len(nodes) == 1 else "NODE"
        typer.echo(
            f"drained {_named(nodes)}; next: stop it, then `logbrook cluster remove {node}`, or use it again with "
            f"`logbrook cluster uncordon {node}`",
            err=True,
        )


def uncordon(
    nodes: Annotated[list[int], typer.Argument(metavar="NODE...", help="Nodes to use again.", min=0)],
    bootstrap: Bootstrap = None,
) -> None:
    """Let nodes that were drained get replicas again, of new partitions and by moves.

    Nothing is moved to them: `logbrook cluster balance` gives them their share.

    Example: logbrook cluster uncordon 3
    """
    with connected_admin(bootstrap) as admin:
        overview = read_overview(admin.client)
        _check_known(overview, nodes)
        live = [node.id for node in overview.live_nodes]
        for node in nodes:
            if node not in live:
                fail(f"node {node} is down: start it first")
        for node in nodes:
            admin.configs.alter_broker(BrokerId(node), {}, unset=[CORDONED_LOG_DIRS])
        for cordoned in read_overview(admin.client).cordoned:
            if cordoned.id in nodes:
                # By the setting of all brokers.
                admin.configs.alter_broker(cordoned.id, {CORDONED_LOG_DIRS: ""})
        typer.echo(f"uncordoned {_named(nodes)}")


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


def _empty(admin: Admin, overview: ClusterOverview, nodes: list[int], rate: int | None) -> list[dict[str, Any]]:
    """Cordon the nodes and move their replicas away. Return the moves."""
    _cordon(admin, overview, nodes)
    rows: list[dict[str, Any]] = []
    for _ in range(_ROUNDS_MAX):
        # Topics may have been created before the nodes were cordoned.
        overview = read_overview(admin.client)
        plan, leaving = _drain_plan(overview, nodes), _leaving(overview, nodes)
        if not (plan or leaving):
            break
        rows += plan_rows(overview, plan)
        carry_out(admin, overview, plan, rate=rate, also_wait_for=leaving)
    else:
        fail(f"topics are created on {_named(nodes)} as fast as they are moved away; try again")
    return rows


def _cordon(admin: Admin, overview: ClusterOverview, nodes: list[int]) -> None:
    """Keep further replicas away from those of the nodes that are up."""
    for node in overview.live_nodes:
        if node.id not in nodes or node.is_cordoned:
            continue
        try:
            admin.configs.alter_broker(node.id, {CORDONED_LOG_DIRS: _ALL_DIRECTORIES})
        except ClientError as error:
            refused = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
            if isinstance(error, BrokerError) and error.code not in refused:
                raise
            typer.echo(
                f"node {node.id} cannot be cordoned ({error}): topics that are created later may get replicas on it",
                err=True,
            )


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
    cordoned = {node.id for node in overview.cordoned}
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
        return plan_drain(assignment, list(map(BrokerId, nodes)), racks, overview.sizes, cordoned)
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
