"""The cluster page: nodes, moves under way, partitions that are impaired, and a map of who leads what."""

from collections.abc import Iterable
from typing import Any

from nicegui import ui

from logbrook.client.cluster_overview import UP, ClusterOverview, PartitionOverview, ReplicaRole, read_overview
from logbrook.console.formatting import format_count, format_size
from logbrook.console.pages.layout import ConsoleContext, errors_shown, frame, heading, tile, topic_link
from logbrook.console.pages.widgets import LiveTable, column
from logbrook.model.identifiers import BrokerId

_INTERVAL_S = 3.0
# Rows of the map that are sent to the browser.
_MAPPED_MAX = 500
_IMPAIRED_MAX = 200

_ROLES = {
    ReplicaRole.LEADER: "leads",
    ReplicaRole.IN_SYNC: "follows in sync",
    ReplicaRole.LAGGING: "is not in sync",
    ReplicaRole.ADDING: "is being added",
}
_STYLE = """
.role { display: inline-block; min-width: 2.2rem; padding: 1px 6px; border-radius: 6px; text-align: center;
  font-size: .8rem; border: 1px solid transparent; }
.role-L { background: #0f766e; color: #fff; font-weight: 600; }
.role-F { border-color: #8889; }
.role-lag { background: #b91c1c; color: #fff; }
.role-add { background: #475569; color: #fff; }
"""
# The mark of a replica, with words for the title and for screen readers.
_MAP_CELL = """<q-td :props="props"><template v-if="props.col.name === 'partition'">
<a :href="props.row.link">{{ props.value }}</a></template>
<span v-else-if="props.value" role="img" :class="'role role-' + (props.value === '+' ? 'add' : props.value)"
:title="props.row.titles[props.col.name]" :aria-label="props.row.titles[props.col.name]">{{ props.value }}</span>
</q-td>"""
_PROGRESS_CELL = """<q-td :props="props"><div class="row items-center no-wrap" style="gap: .6rem; min-width: 9rem">
<q-linear-progress :value="props.row.share" rounded size="8px" style="width: 5rem" aria-hidden="true" />
<span>{{ props.value }}</span></div></q-td>"""


def add(console: ConsoleContext) -> None:
    @ui.page("/cluster")
    def cluster() -> None:
        with frame(console, "Cluster", "/cluster"):
            _ClusterPage(console)


class _ClusterPage:
    def __init__(self, console: ConsoleContext) -> None:
        self._console = console
        self._overview: ClusterOverview | None = None
        ui.add_css(_STYLE)
        with ui.row().classes("w-full gap-3 items-stretch"):
            self._nodes_up = tile("Nodes up")
            self._partitions = tile("Partitions")
            self._under_replicated = tile("Under-replicated")
            self._offline = tile("Offline")
            self._moving = tile("Being moved")
        heading("Nodes")
        self._nodes = LiveTable(
            [
                column("id", "Node"),
                column("address", "Address"),
                column("rack", "Rack"),
                column("leaders", "Leads", show=format_count),
                column("replicas", "Replicas", show=format_count),
                column("size", "Size", show=format_size),
                column("state", "State", wide=True),
            ],
            "id",
            empty="The nodes are being looked up.",
            rows_per_page=50,
        )
        heading("Moves under way")
        self._moves = LiveTable(
            [
                column("partition", "Partition"),
                column("before", "From"),
                column("after", "To"),
                column("size", "To copy", show=format_size),
                column("copied", "Copied"),
            ],
            "partition",
            empty="Nothing is being moved. logbrook cluster move, balance and drain move partitions.",
            link_column="partition",
        )
        self._moves.table.add_slot("body-cell-copied", _PROGRESS_CELL)
        heading("Offline or under-replicated partitions")
        self._impaired = LiveTable(
            [
                column("partition", "Partition"),
                column("state", "State"),
                column("leader", "Leader"),
                column("replicas", "Replicas"),
                column("in_sync", "In sync"),
                column("missing", "Not in sync"),
            ],
            "partition",
            empty="Every partition has a leader, and all replicas are in sync.",
            link_column="partition",
        )
        self._add_map()
        ui.timer(0.0, self._refresh, once=True)
        ui.timer(_INTERVAL_S, self._refresh)

    def _add_map(self) -> None:
        heading("Who leads what")
        with ui.row().classes("w-full items-center gap-3"):
            self._filter = ui.input("Topic", on_change=self._show_map).props("dense outlined clearable")
            self._only_impaired = ui.switch("Only impaired or moving", on_change=self._show_map)
            self._with_internal = ui.switch("Internal topics", on_change=self._show_map)
        ui.label("A column for each node: L leads, F follows in sync, lag is not in sync, + is being added.").classes(
            "text-sm"
        )
        self._map = LiveTable([column("partition", "Partition")], "partition", empty="There is no partition to show.")
        self._map.table.add_slot("body-cell", _MAP_CELL)
        self._more = ui.label().classes("text-sm")
        self._more.visible = False

    async def _refresh(self) -> None:
        if self._console.sampler.problem is not None:
            return
        with errors_shown():
            self._overview = await self._console.access.ask(lambda admin: read_overview(admin.client))
            self._show(self._overview)

    def _show(self, overview: ClusterOverview) -> None:
        up = sum(node.state == UP for node in overview.nodes)
        self._nodes_up.text = f"{up} of {len(overview.nodes)}"
        self._partitions.text = format_count(len(overview.partitions))
        for label, count in (
            (self._under_replicated, len(overview.under_replicated)),
            (self._offline, len(overview.offline)),
        ):
            label.text = format_count(count)
            label.classes(add="text-negative" if count else "", remove="" if count else "text-negative")
        self._moving.text = format_count(len(overview.moving))
        self._nodes.show(
            [
                {
                    "id": node.id,
                    "state": node.state_text,
                    "address": "-" if node.host is None else f"{node.host}:{node.port}",
                    "rack": node.rack or "-",
                    "leaders": node.leaders,
                    "replicas": node.replicas,
                    "size": node.size_bytes,
                }
                for node in overview.nodes
            ]
        )
        self._moves.show([_move_row(partition) for partition in overview.moving[:_IMPAIRED_MAX]])
        impaired = [partition for partition in overview.partitions if partition.state != "ok"]
        impaired.sort(key=lambda partition: not partition.is_offline)
        self._impaired.show([_impaired_row(partition) for partition in impaired[:_IMPAIRED_MAX]])
        self._show_map()

    def _show_map(self) -> None:
        overview = self._overview
        if overview is None:
            return
        text = (self._filter.value or "").lower()
        shown = [
            partition
            for partition in overview.partitions
            if text in partition.partition.topic.lower()
            and (self._with_internal.value or not partition.is_internal)
            and (not self._only_impaired.value or partition.is_moving or partition.state != "ok")
        ]
        columns = [column("partition", "Partition")]
        columns += [column(f"node-{node.id}", str(node.id)) | {"align": "center"} for node in overview.nodes]
        if [entry["name"] for entry in self._map.table.columns] != [entry["name"] for entry in columns]:
            self._map.table.columns = columns
        self._map.show([_map_row(partition) for partition in shown[:_MAPPED_MAX]])
        self._more.visible = len(shown) > _MAPPED_MAX
        self._more.text = f"The first {_MAPPED_MAX} of {len(shown):,} partitions; filter by topic to see others."


def _move_row(partition: PartitionOverview) -> dict[str, Any]:
    size_bytes = partition.bytes_to_copy
    share = partition.copied_bytes / size_bytes if size_bytes else 0.0
    return {
        "partition": str(partition.partition),
        "link": _link(partition),
        "before": _ids(partition.before_move),
        "after": _ids(partition.target),
        "size": size_bytes,
        "copied": f"{share:.0%}",
        "share": round(share, 3),
    }


def _impaired_row(partition: PartitionOverview) -> dict[str, Any]:
    missing = [replica for replica in partition.replicas if replica not in partition.in_sync]
    return {
        "partition": str(partition.partition),
        "link": _link(partition),
        "state": partition.state,
        "leader": "none" if partition.leader is None else str(partition.leader),
        "replicas": _ids(partition.replicas),
        "in_sync": _ids(partition.in_sync),
        "missing": _ids(missing),
    }


def _map_row(partition: PartitionOverview) -> dict[str, Any]:
    roles = partition.roles
    return {
        "partition": str(partition.partition),
        "link": _link(partition),
        "titles": {f"node-{node}": f"node {node} {_ROLES[role]}" for node, role in roles.items()},
        **{f"node-{node}": role.value for node, role in roles.items()},
    }


def _link(partition: PartitionOverview) -> str:
    return f"{topic_link(partition.partition.topic)}?tab=partitions"


def _ids(replicas: Iterable[BrokerId]) -> str:
    return ", ".join(map(str, replicas)) or "none"
