"""The broker page: disks, largest partitions, process state, and settings of every broker."""

from collections.abc import Iterable, Mapping

from nicegui import ui

from logbrook.client.admin import Admin
from logbrook.client.admin_results import ClusterInfo, LogDirDescription
from logbrook.console.formatting import format_size
from logbrook.console.pages.layout import ConsoleContext, errors_shown, frame, heading, tile
from logbrook.console.pages.widgets import LiveTable, SettingsTable, column
from logbrook.model.identifiers import BrokerId

_DISKS_INTERVAL_S = 10.0
_LARGEST = 15


def add(console: ConsoleContext) -> None:
    @ui.page("/broker")
    def broker() -> None:
        with frame(console, "Broker", "/broker"):
            _BrokerPage(console)


class _BrokerPage:
    def __init__(self, console: ConsoleContext) -> None:
        self._console = console
        with ui.row().classes("w-full gap-3 items-stretch"):
            self._cluster = tile("Cluster")
            self._brokers = tile("Brokers")
            self._uptime = tile("Up for")
            self._memory = tile("Memory")
            self._connections = tile("Connections")
        heading("Disks")
        self._disks = ui.column().classes("w-full gap-3")
        heading("Largest partitions")
        self._largest = LiveTable(
            [column("partition", "Partition"), column("size", "Size", show=format_size)],
            "partition",
            empty="There are no partitions yet.",
        )
        self._settings = ui.column().classes("w-full gap-3")
        ui.timer(0.0, self._load, once=True)
        ui.timer(_DISKS_INTERVAL_S, self._refresh_disks)

    async def _load(self) -> None:
        with errors_shown():
            cluster = await self._console.access.ask(lambda admin: admin.describe_cluster())
            with self._settings:
                for broker in cluster.brokers:
                    heading(f"Settings of broker {broker.id} ({broker.host}:{broker.port})")
                    self._add_settings(broker.id)
            self._show_facts(cluster)
        await self._refresh_disks()

    def _add_settings(self, broker_id: BrokerId) -> None:
        def alter(admin: Admin, values: Mapping[str, str], unset: Iterable[str]) -> None:
            admin.configs.alter_broker(broker_id, values, unset)

        SettingsTable(self._console, lambda admin: admin.configs.of_broker(broker_id), alter)

    def _show_facts(self, cluster: ClusterInfo) -> None:
        gauges = self._console.sampler.gauges
        self._cluster.text = cluster.cluster_id or "-"
        self._cluster.classes("text-base break-all")
        self._brokers.text = str(len(cluster.brokers))
        self._uptime.text = _duration(gauges.get("logbrook_uptime_seconds"))
        self._memory.text = format_size(gauges.get("process_resident_memory_bytes"))
        self._connections.text = "-" if not gauges else f"{gauges.get('logbrook_connections', 0):,.0f}"

    async def _refresh_disks(self) -> None:
        if self._console.sampler.problem is not None:
            return
        with errors_shown():
            directories = await self._console.access.ask(lambda admin: admin.log_directories())
            self._show_disks(directories)
            if self._console.sampler.cluster is not None:
                self._show_facts(self._console.sampler.cluster)

    def _show_disks(self, directories: list[LogDirDescription]) -> None:
        self._disks.clear()
        with self._disks:
            for directory in directories:
                with ui.card().classes("w-full gap-1"):
                    ui.label(f"Broker {directory.broker_id}: {directory.path}").classes("break-all")
                    text = f"{format_size(directory.size_bytes)} in {len(directory.partitions)} partitions"
                    if directory.total_bytes and directory.usable_bytes is not None:
                        used = 1 - directory.usable_bytes / directory.total_bytes
                        color = "negative" if used > 0.9 else "primary"
                        ui.linear_progress(round(used, 3), show_value=False, color=color).props("rounded size=10px")
                        free, total = format_size(directory.usable_bytes), format_size(directory.total_bytes)
                        text += f"; the disk has {free} free of {total}"
                    ui.label(text).classes("text-sm faint")
        sizes = [(str(name), size) for directory in directories for name, size in directory.partitions.items()]
        largest = sorted(sizes, key=lambda name_and_size: -name_and_size[1])[:_LARGEST]
        self._largest.show([{"partition": name, "size": size} for name, size in largest])


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days:.0f} d {hours % 24:.0f} h"
    return f"{hours:.0f} h {minutes % 60:.0f} min" if hours else f"{minutes:.0f} min"
