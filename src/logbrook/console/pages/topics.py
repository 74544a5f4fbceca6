"""All topics, and making one."""

from nicegui import ui

from logbrook.client.admin import Admin
from logbrook.client.admin_topics import CLUSTER_DEFAULT
from logbrook.console.forms import settings_in, shown_count, shown_rate, shown_size
from logbrook.console.pages.layout import Console, frame, telling
from logbrook.console.pages.tables import LiveTable, column
from logbrook.console.sampling import INTERVAL_S


def add(console: Console) -> None:
    @ui.page("/topics")
    def topics() -> None:
        with frame(console, "Topics", "/topics"):
            _Topics(console)


class _Topics:
    def __init__(self, console: Console) -> None:
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
                column("messages", "Messages", number=True, sort_by="messages_number"),
                column("rate", "Messages / s", number=True, sort_by="rate_number"),
                column("size", "Size", number=True, sort_by="size_number"),
                column("replicas", "Replicas", number=True),
            ],
            "name",
            empty="There is no topic here.",
            link_column="name",
        )
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _show(self) -> None:
        sampler = self._console.sampler
        text = (self._filter.value or "").lower()
        self._table.show(
            [
                {
                    "name": one.name,
                    "link": f"/topics/{one.name}",
                    "partitions": len(one.partitions),
                    "messages": shown_count(one.offsets),
                    "messages_number": one.offsets,
                    "rate": shown_rate(sampler.rates.get(one.name)),
                    "rate_number": sampler.rates.get(one.name),
                    "size": shown_size(one.size_bytes),
                    "size_number": one.size_bytes,
                    "replicas": one.replication_factor,
                }
                for one in sampler.topics
                if text in one.name.lower() and (self._with_internal.value or not one.is_internal)
            ]
        )


class CreateDialog:
    """Asks for a topic and makes it; then goes there."""

    def __init__(self, console: Console) -> None:
        self._console = console
        with ui.dialog() as self._dialog, ui.card().classes("w-[28rem] max-w-full"):
            ui.label("Create topic").classes("text-lg font-semibold")
            self._name = ui.input("Name").classes("w-full").props("autofocus")
            self._partitions = ui.number("Partitions", min=1, precision=0, placeholder="the cluster's default")
            self._partitions.classes("w-full")
            self._policy = ui.select(
                {"": "the cluster's default", "delete": "delete", "compact": "compact", "compact,delete": "both"},
                label="When messages are old (cleanup.policy)",
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
        with telling():
            name = (self._name.value or "").strip()
            if not name:
                raise ValueError("a topic needs a name")
            count = int(self._partitions.value) if self._partitions.value else CLUSTER_DEFAULT
            settings = settings_in(self._settings.value or "")
            if self._policy.value:
                settings["cleanup.policy"] = self._policy.value

            def create(admin: Admin) -> None:
                admin.topics.create(name, count, settings=settings)

            await self._console.access.ask(create)
            self._dialog.close()
            ui.notify(f"Topic {name} is made.", type="positive", position="top")
            await self._console.sampler.sample()
            ui.navigate.to(f"/topics/{name}")
