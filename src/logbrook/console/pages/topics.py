"""The pages of all topics and of one topic: messages, partitions, settings, groups; create, grow, delete."""

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from nicegui import ui

from logbrook.client.admin_results import TopicDescription
from logbrook.client.admin_topics import CLUSTER_DEFAULT
from logbrook.console.formatting import format_count, format_rate, format_size, parse_settings
from logbrook.console.message_query import MessageQuery
from logbrook.console.pages.layout import (
    ConsoleContext,
    answer_of,
    confirmed,
    errors_shown,
    frame,
    group_link,
    heading,
    tile,
    topic_link,
)
from logbrook.console.pages.messages import MessageBrowser
from logbrook.console.pages.widgets import LiveTable, SettingsTable, column
from logbrook.console.sampling import INTERVAL_S

_NO_TOPIC = "There is no topic yet. Create one here, or with logbrook topic create NAME"
_NO_MATCH = "No topic has this text in its name. Internal topics are shown with the switch above."

_TABS = {"messages": "mail", "partitions": "view_week", "settings": "tune", "groups": "group"}


def add(console: ConsoleContext) -> None:
    @ui.page("/topics")
    def topics() -> None:
        with frame(console, "Topics", "/topics"):
            _TopicsPage(console)

    @ui.page("/topics/{name}")
    def topic(request: Request, name: str) -> None:
        with frame(console, name, "/topics"):
            _TopicPage(console, name, request.query_params)


class _TopicsPage:
    def __init__(self, console: ConsoleContext) -> None:
        self._console = console
        with ui.row().classes("w-full items-center gap-3"):
            ui.button("Create topic", icon="add", on_click=lambda: CreateDialog(console).open())
            self._filter = ui.input(placeholder="Filter by name", on_change=self._show).props(
                "dense outlined clearable"
            )
            self._with_internal = ui.switch("Internal topics", on_change=self._show)
        self._table = LiveTable(
            [
                column("name", "Topic"),
                column("partitions", "Partitions", number=True),
                column("messages", "Messages", show=format_count),
                column("rate", "Messages / s", show=format_rate),
                column("size", "Size", show=format_size),
                column("replicas", "Replicas", number=True),
            ],
            "name",
            empty=_NO_TOPIC,
            link_column="name",
        )
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _show(self) -> None:
        sampler = self._console.sampler
        pattern = (self._filter.value or "").lower()
        self._table.set_empty(_NO_MATCH if pattern else _NO_TOPIC)
        self._table.show(
            [
                {
                    "name": topic.name,
                    "link": topic_link(topic.name),
                    "partitions": len(topic.partitions),
                    "messages": topic.offsets,
                    "rate": sampler.rates.get(topic.name),
                    "size": topic.size_bytes,
                    "replicas": topic.replication_factor,
                }
                for topic in sampler.topics
                if pattern in topic.name.lower() and (self._with_internal.value or not topic.is_internal)
            ]
        )


class CreateDialog:
    """Dialog that creates a topic and opens its page."""

    def __init__(self, console: ConsoleContext) -> None:
        self._console = console
        with ui.dialog() as self._dialog, ui.card().classes("w-[28rem] max-w-full"):
            heading("Create topic")
            self._name = ui.input("Name").classes("w-full").props("autofocus")
            self._partitions = ui.number("Partitions", min=1, precision=0, placeholder="the cluster's default")
            self._partitions.classes("w-full")
            self._policy = ui.select(
                {"": "the cluster's default", "delete": "delete", "compact": "compact", "compact,delete": "both"},
                label="Cleanup of old messages (cleanup.policy)",
                value="",
            ).classes("w-full")
            self._settings = ui.textarea("Other settings", placeholder="retention.ms=86400000").classes("w-full mono")
            self._settings.props("autogrow")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=self._dialog.close).props("flat")
                ui.button("Create", on_click=self._create)

    def open(self) -> None:
        self._dialog.open()

    async def _create(self) -> None:
        with errors_shown():
            name = (self._name.value or "").strip()
            if not name:
                raise ValueError("a topic needs a name")
            count = int(self._partitions.value) if self._partitions.value else CLUSTER_DEFAULT
            settings = parse_settings(self._settings.value or "")
            if self._policy.value:
                settings["cleanup.policy"] = self._policy.value
            await self._console.access.ask(lambda admin: admin.topics.create(name, count, settings=settings))
            self._dialog.close()
            ui.notify(f"Topic {name} is created.", type="positive", position="top")
            await self._console.sampler.sample()
            ui.navigate.to(topic_link(name))


class _TopicPage:
    """`parameters` are those of the address: `tab`, and the state of the message browser."""

    def __init__(self, console: ConsoleContext, name: str, parameters: Mapping[str, str]) -> None:
        self._console = console
        self._name = name
        self._parameters = parameters
        self._is_built = False
        self._missing = ui.label(f"There is no topic {name}. The page Topics lists all of them.").classes("break-all")
        self._missing.visible = False
        self._content = ui.column().classes("w-full gap-4")
        self._show()
        if not self._is_built:
            ui.timer(0.0, self._look_up, once=True)
        ui.timer(INTERVAL_S / 2, self._show)

    async def _look_up(self) -> None:
        """Show a topic that is newer than the last sample without delay."""
        await self._console.sampler.sample()
        self._show()

    def _add_content(self) -> None:
        name = self._name
        with ui.row().classes("w-full gap-3 items-stretch"):
            self._messages = tile("Messages")
            self._size = tile("On disk")
            self._count = tile("Partitions")
        with ui.tabs().props("align=left dense no-caps inline-label").classes("w-full") as tabs:
            for tab, icon in _TABS.items():
                ui.tab(tab, label=tab.capitalize(), icon=icon)
        chosen = self._parameters.get("tab", "")
        chosen = chosen if chosen in _TABS else "messages"
        with ui.tab_panels(tabs, value=chosen, animated=False).classes("w-full bg-transparent"):
            with ui.tab_panel("messages").classes("p-0"):
                self._browser = MessageBrowser(self._console, name, MessageQuery.of(self._parameters))
            with ui.tab_panel("partitions").classes("p-0 gap-4"):
                self._add_partitions()
            with ui.tab_panel("settings").classes("p-0"):
                SettingsTable(
                    self._console,
                    lambda admin: admin.configs.of_topic(name),
                    lambda admin, values, unset: admin.configs.alter_topic(name, values, unset),
                )
            with ui.tab_panel("groups").classes("p-0"):
                self._group_table = LiveTable(
                    [
                        column("group", "Group"),
                        column("state", "State"),
                        column("lag", "Lag here", show=format_count),
                    ],
                    "group",
                    empty=f"No group has read this topic: logbrook consume {name} --group NAME reads it with one.",
                    link_column="group",
                )
        # After the initial choice, which is not to change the address.
        tabs.on_value_change(self._on_tab_chosen)
        self._tabs = tabs

    def _on_tab_chosen(self) -> None:
        tab = self._tabs.value
        address = self._browser.address if tab == "messages" else f"{topic_link(self._name)}?tab={tab}"
        ui.navigate.history.replace(address)

    def _add_partitions(self) -> None:
        self._partitions = LiveTable(
            [
                column("partition", "Partition"),
                column("leader", "Leader"),
                column("replicas", "Replicas"),
                column("start", "First offset", show=format_count),
                column("end", "Next offset", show=format_count),
                column("size", "Size", show=format_size),
            ],
            "partition",
            empty="No partitions are known.",
        )
        with ui.row().classes("w-full gap-3"):
            ui.button("Add partitions", icon="add", on_click=self._grow).props("outline")
            ui.button("Delete topic", icon="delete", on_click=self._delete, color="negative").props("outline")

    def _show(self) -> None:
        topic = next((topic for topic in self._console.sampler.topics if topic.name == self._name), None)
        self._missing.visible = topic is None and self._console.sampler.has_sampled
        # The messages of a topic that is deleted while it is shown stay.
        if topic is None:
            return
        if not self._is_built:
            self._is_built = True
            with self._content:
                self._add_content()
        self._messages.text = format_count(topic.offsets)
        self._size.text = format_size(topic.size_bytes)
        self._count.text = format_count(len(topic.partitions))
        self._partitions.show(_partition_rows(topic))
        self._group_table.show(self._group_rows())

    def _group_rows(self) -> list[dict[str, Any]]:
        rows = []
        for name, history in sorted(self._console.sampler.groups.items()):
            here = [row for row in history.info.partitions if row.partition.topic == self._name]
            if here:
                lags = [row.lag for row in here if row.lag is not None]
                lag = sum(lags) if lags else None
                rows.append({"group": name, "link": group_link(name), "state": history.info.state, "lag": lag})
        return rows

    async def _grow(self) -> None:
        with ui.dialog() as dialog, ui.card().classes("w-80 max-w-full"):
            heading(f"Add partitions to {self._name}")
            ui.label("Keys may map to other partitions from then on. Partitions cannot be removed.")
            count = ui.number("Partitions in all", min=1, precision=0).classes("w-full")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat")
                ui.button("Add", on_click=lambda: dialog.submit(count.value))
        partition_count = await answer_of(dialog)
        if partition_count is None:
            return
        with errors_shown():
            await self._console.access.ask(lambda admin: admin.topics.set_partitions(self._name, int(partition_count)))
            await self._console.sampler.sample()
            ui.notify(f"{self._name} has {int(partition_count)} partitions.", type="positive", position="top")

    async def _delete(self) -> None:
        text = "All its messages are deleted. This cannot be undone."
        if not await confirmed(f"Delete topic {self._name}?", text, "Delete", typed=self._name):
            return
        with errors_shown():
            await self._console.access.ask(lambda admin: admin.topics.delete([self._name]))
            await self._console.sampler.sample()
            ui.notify(f"Topic {self._name} is deleted.", type="positive", position="top")
            ui.navigate.to("/topics")


def _partition_rows(topic: TopicDescription) -> list[dict[str, Any]]:
    return [
        {
            "partition": partition.partition,
            "leader": "none" if partition.leader is None else partition.leader,
            "replicas": ", ".join(map(str, partition.replicas)),
            "start": partition.start_offset,
            "end": partition.end_offset,
            "size": partition.size_bytes,
        }
        for partition in topic.partitions
    ]
