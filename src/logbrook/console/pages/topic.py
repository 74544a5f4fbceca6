"""One topic: its messages, its partitions, its settings, who reads it; and changing and deleting it."""

from typing import Any
from urllib.parse import quote

from nicegui import ui

from logbrook.client.admin import Admin
from logbrook.client.admin_results import TopicInfo
from logbrook.console.forms import shown_count, shown_size
from logbrook.console.pages.layout import Console, confirmed, frame, telling, tile
from logbrook.console.pages.messages import MessageBrowser
from logbrook.console.pages.settings import SettingsTable
from logbrook.console.pages.tables import LiveTable, column
from logbrook.console.sampling import INTERVAL_S


def add(console: Console) -> None:
    @ui.page("/topics/{name}")
    def topic(name: str) -> None:
        with frame(console, name, "/topics"):
            _Topic(console, name)


class _Topic:
    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        with ui.row().classes("w-full gap-3 items-stretch"):
            self._messages = tile("Messages")
            self._size = tile("On disk")
            self._count = tile("Partitions")
        self._missing = ui.label(f"There is no topic {name}.").classes("text-lg")
        self._missing.visible = False
        with ui.tabs().props("align=left dense no-caps inline-label").classes("w-full") as tabs:
            messages = ui.tab("Messages", icon="mail")
            partitions = ui.tab("Partitions", icon="view_week")
            settings = ui.tab("Settings", icon="tune")
            readers = ui.tab("Groups", icon="group")
        with ui.tab_panels(tabs, value=messages, animated=False).classes("w-full bg-transparent"):
            with ui.tab_panel(messages).classes("p-0"):
                MessageBrowser(console, name)
            with ui.tab_panel(partitions).classes("p-0 gap-4"):
                self._add_partitions()
            with ui.tab_panel(settings).classes("p-0"):
                SettingsTable(
                    console,
                    lambda admin: admin.configs.of_topic(name),
                    lambda admin, values, unset: admin.configs.alter_topic(name, values, unset),
                )
            with ui.tab_panel(readers).classes("p-0"):
                self._readers = LiveTable(
                    [
                        column("group", "Group"),
                        column("state", "State"),
                        column("lag", "Lag here", number=True),
                    ],
                    "group",
                    empty="No group has read this topic.",
                    link_column="group",
                )
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _add_partitions(self) -> None:
        self._partitions = LiveTable(
            [
                column("partition", "Partition", number=True),
                column("leader", "Leader", number=True),
                column("replicas", "Replicas"),
                column("start", "First offset", number=True),
                column("end", "Next offset", number=True),
                column("size", "Size", number=True),
            ],
            "partition",
            empty="Nothing is known of its partitions.",
        )
        with ui.row().classes("w-full gap-3"):
            ui.button("Add partitions", icon="add", on_click=self._grow).props("outline")
            ui.button("Delete topic", icon="delete", on_click=self._delete, color="negative").props("outline")

    def _show(self) -> None:
        found = next((one for one in self._console.sampler.topics if one.name == self._name), None)
        self._missing.visible = found is None and self._console.sampler.has_asked
        if found is None:
            return
        self._messages.text = shown_count(found.offsets)
        self._size.text = shown_size(found.size_bytes)
        self._count.text = shown_count(len(found.partitions))
        self._partitions.show(_partition_rows(found))
        self._readers.show(self._reader_rows())

    def _reader_rows(self) -> list[dict[str, Any]]:
        rows = []
        for name, history in sorted(self._console.sampler.groups.items()):
            here = [one for one in history.info.partitions if one.partition.topic == self._name]
            if here:
                lags = [one.lag for one in here if one.lag is not None]
                lag = shown_count(sum(lags) if lags else None)
                link = f"/group?id={quote(name, safe='')}"
                rows.append({"group": name, "link": link, "state": history.info.state, "lag": lag})
        return rows

    async def _grow(self) -> None:
        with ui.dialog() as dialog, ui.card().classes("w-80 max-w-full"):
            ui.label(f"Add partitions to {self._name}").classes("text-lg font-semibold break-all")
            ui.label("Keys may go to other partitions from then on. There is no way back.")
            count = ui.number("How many in all", min=1, precision=0).classes("w-full")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat")
                ui.button("Add", on_click=lambda: dialog.submit(count.value))
        wanted = await dialog
        dialog.delete()
        if wanted is None:
            return
        with telling():

            def grow(admin: Admin) -> None:
                admin.topics.set_partitions(self._name, int(wanted))

            await self._console.access.ask(grow)
            await self._console.sampler.sample()
            ui.notify(f"{self._name} has {int(wanted)} partitions.", type="positive", position="top")

    async def _delete(self) -> None:
        told = "All of its messages will be gone, and groups that read it stop. There is no way back."
        if not await confirmed(f"Delete topic {self._name}?", told, "Delete", typed=self._name):
            return
        with telling():
            await self._console.access.ask(lambda admin: admin.topics.delete([self._name]))
            await self._console.sampler.sample()
            ui.notify(f"Topic {self._name} is deleted.", type="positive", position="top")
            ui.navigate.to("/topics")


def _partition_rows(topic: TopicInfo) -> list[dict[str, Any]]:
    return [
        {
            "partition": one.partition,
            "leader": "none" if one.leader is None else one.leader,
            "replicas": ", ".join(map(str, one.replicas)),
            "start": shown_count(one.start_offset),
            "end": shown_count(one.end_offset),
            "size": shown_size(one.size_bytes),
        }
        for one in topic.partitions
    ]
