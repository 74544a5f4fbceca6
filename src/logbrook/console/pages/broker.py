"""The brokers of the cluster: what is on their disks, and their settings."""

from collections.abc import Iterable, Mapping

from nicegui import ui

from logbrook.client.admin import Admin
from logbrook.client.admin_results import ClusterInfo, LogDirectory
from logbrook.console.forms import shown_size
from logbrook.console.pages.layout import Console, frame, telling, tile
from logbrook.console.pages.settings import SettingsTable
from logbrook.console.pages.tables import LiveTable, column

_DISK_EVERY_S = 10.0
_LARGEST = 15


def add(console: Console) -> None:
    @ui.page("/broker")
    def broker() -> None:
        with frame(console, "Broker", "/broker"):
            _Broker(console)


class _Broker:
    def __init__(self, console: Console) -> None:
        self._console = console
        with ui.row().classes("w-full gap-3 items-stretch"):
            self._cluster = tile("Cluster")
            self._brokers = tile("Brokers")
            self._uptime = tile("Up for")
            self._memory = tile("Memory")
            self._connections = tile("Connections")
        ui.label("Disks").classes("text-lg font-semibold")
        self._disks = ui.column().classes("w-full gap-3")
        ui.label("Largest partitions").classes("text-lg font-semibold")
        self._largest = LiveTable(
            [column("partition", "Partition"), column("size", "Size", number=True, sort_by="size_number")],
            "partition",
            empty="There is none yet.",
        )
        self._settings = ui.column().classes("w-full gap-3")
        ui.timer(0.0, self._load, once=True)
        ui.timer(_DISK_EVERY_S, self._look_at_disks)

    async def _load(self) -> None:
        with telling():
            found = await self._console.access.ask(lambda admin: admin.describe_cluster())
            with self._settings:
                for one in found.brokers:
                    ui.label(f"Settings of broker {one.id} ({one.host}:{one.port})").classes("text-lg font-semibold")
                    self._add_settings(one.id)
            self._show_facts(found)
        await self._look_at_disks()

    def _add_settings(self, broker_id: int) -> None:
        def alter(admin: Admin, values: Mapping[str, str], unset: Iterable[str]) -> None:
            admin.configs.alter_broker(broker_id, values, unset)

        SettingsTable(self._console, lambda admin: admin.configs.of_broker(broker_id), alter)

    def _show_facts(self, found: ClusterInfo) -> None:
        totals = self._console.sampler.totals
        self._cluster.text = found.cluster_id or "-"
        self._cluster.classes("text-base break-all")
        self._brokers.text = str(len(found.brokers))
        self._uptime.text = _duration(totals.get("logbrook_uptime_seconds"))
        self._memory.text = shown_size(_whole(totals.get("process_resident_memory_bytes")))
        self._connections.text = "-" if not totals else f"{totals.get('logbrook_connections', 0):,.0f}"

    async def _look_at_disks(self) -> None:
        if self._console.sampler.problem is not None:
            return
        with telling():
            directories = await self._console.access.ask(lambda admin: admin.log_directories())
            self._show_disks(directories)
            if self._console.sampler.cluster is not None:
                self._show_facts(self._console.sampler.cluster)

    def _show_disks(self, directories: list[LogDirectory]) -> None:
        self._disks.clear()
        with self._disks:
            for one in directories:
                with ui.card().classes("w-full gap-1"):
                    ui.label(f"Broker {one.broker_id}: {one.path}").classes("break-all")
                    told = f"{shown_size(one.size_bytes)} in {len(one.partitions)} partitions"
                    if one.total_bytes and one.usable_bytes is not None:
                        used = 1 - one.usable_bytes / one.total_bytes
                        color = "negative" if used > 0.9 else "primary"
                        ui.linear_progress(round(used, 3), show_value=False, color=color).props("rounded size=10px")
                        told += f"; the disk has {shown_size(one.usable_bytes)} free of {shown_size(one.total_bytes)}"
                    ui.label(told).classes("text-sm faint")
        sizes = [(str(name), size) for one in directories for name, size in one.partitions.items()]
        largest = sorted(sizes, key=lambda one: -one[1])[:_LARGEST]
        rows = [{"partition": name, "size": shown_size(size), "size_number": size} for name, size in largest]
        self._largest.show(rows)


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days:.0f} d {hours % 24:.0f} h"
    return f"{hours:.0f} h {minutes % 60:.0f} min" if hours else f"{minutes:.0f} min"
