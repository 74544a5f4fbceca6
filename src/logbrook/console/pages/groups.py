"""Consumer groups: all of them, and one with its members, its lag and its offsets."""

from typing import Any
from urllib.parse import quote

from nicegui import ui

from logbrook.client.admin import Admin
from logbrook.client.admin_results import GroupInfo
from logbrook.console.forms import position_of, shown_count, shown_rate
from logbrook.console.pages.charts import TimeChart
from logbrook.console.pages.layout import Console, confirmed, frame, telling, tile
from logbrook.console.pages.tables import LiveTable, column
from logbrook.console.sampling import INTERVAL_S

_PLACES = {"start": "the start", "end": "the end", "offset": "an offset", "time": "a time"}


def add(console: Console) -> None:
    @ui.page("/groups")
    def groups() -> None:
        with frame(console, "Groups", "/groups"):
            _Groups(console)

    @ui.page("/group")
    def group(id: str = "") -> None:
        with frame(console, id, "/groups"):
            _Group(console, id)


class _Groups:
    def __init__(self, console: Console) -> None:
        self._sampler = console.sampler
        self._table = LiveTable(
            [
                column("group", "Group"),
                column("state", "State"),
                column("members", "Members", number=True),
                column("topics", "Topics", wide=True),
                column("rate", "Rows / s", number=True),
                column("lag", "Lag", number=True, sort_by="lag_number"),
            ],
            "group",
            empty="No group has committed anything yet.",
            link_column="group",
        )
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _show(self) -> None:
        self._table.show(
            [
                {
                    "group": name,
                    "link": f"/group?id={quote(name, safe='')}",
                    "state": one.info.state,
                    "members": len(one.info.members),
                    "topics": ", ".join(sorted({each.partition.topic for each in one.info.partitions})),
                    "rate": shown_rate(one.rows_per_s),
                    "lag": shown_count(one.info.lag),
                    "lag_number": one.info.lag,
                }
                for name, one in sorted(self._sampler.groups.items())
            ]
        )


class _Group:
    def __init__(self, console: Console, group_id: str) -> None:
        self._console = console
        self._id = group_id
        self._missing = ui.label("There is no such group.").classes("text-lg")
        self._missing.visible = False
        with ui.row().classes("w-full gap-3 items-stretch"):
            self._state = tile("State")
            self._lag = tile("Lag")
            self._rate = tile("Rows / s")
            self._count = tile("Members")
        self._chart = TimeChart("Lag", ("lag",))
        with ui.row().classes("w-full gap-3"):
            ui.button("Reset offsets", icon="restart_alt", on_click=self._reset).props("outline")
            ui.button("Delete group", icon="delete", on_click=self._delete, color="negative").props("outline")
        ui.label("Partitions").classes("text-lg font-semibold")
        self._partitions = LiveTable(
            [
                column("partition", "Partition"),
                column("committed", "Committed", number=True),
                column("end", "Next offset", number=True),
                column("lag", "Lag", number=True, sort_by="lag_number"),
                column("member", "Read by"),
            ],
            "partition",
            empty="It has committed nothing.",
        )
        ui.label("Members").classes("text-lg font-semibold")
        self._members = LiveTable(
            [
                column("member", "Member", wide=True),
                column("client", "Client"),
                column("host", "Host"),
                column("partitions", "Partitions", wide=True),
            ],
            "member",
            empty="Nobody is in it just now.",
        )
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _show(self) -> None:
        history = self._console.sampler.groups.get(self._id)
        self._missing.visible = history is None and self._console.sampler.has_asked
        if history is None:
            return
        info = history.info
        self._state.text = info.state
        self._lag.text = shown_count(info.lag)
        self._rate.text = shown_rate(history.rows_per_s)
        self._count.text = shown_count(len(info.members))
        self._chart.show([[(one.at_ms, one.lag) for one in history.samples]])
        self._partitions.show(_partition_rows(info))
        self._members.show(
            [
                {
                    "member": one.member_id,
                    "client": one.client_id,
                    "host": one.host,
                    "partitions": ", ".join(map(str, one.partitions)),
                }
                for one in info.members
            ]
        )

    async def _reset(self) -> None:
        with ui.dialog() as dialog, ui.card().classes("w-96 max-w-full"):
            ui.label(f"Reset the offsets of {self._id}").classes("text-lg font-semibold break-all")
            ui.label("The group must not have members. You will see what changes before it is done.").classes("text-sm")
            kind = ui.select(_PLACES, label="To", value="start").classes("w-full")
            at = ui.input("Offset, or time as 2026-01-31T12:00 (UTC)").classes("w-full")
            at.bind_visibility_from(kind, "value", lambda value: value in ("offset", "time"))
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat")
                ui.button("Show what changes", on_click=lambda: dialog.submit((kind.value, at.value or "")))
        answer = await dialog
        dialog.delete()
        if answer is None:
            return
        with telling():
            place = position_of(*answer)
            access = self._console.access
            changes = await access.ask(lambda admin: admin.groups.plan_reset(self._id, place))
            told = "; ".join(f"{one.partition}: {one.before} → {one.after}" for one in changes[:20])
            told += f"; and {len(changes) - 20} more" if len(changes) > 20 else ""
            if not await confirmed(f"Reset {len(changes)} offsets of {self._id}?", told or "Nothing changes.", "Reset"):
                return

            def reset(admin: Admin) -> None:
                admin.groups.reset(self._id, changes)

            await access.ask(reset)
            await self._console.sampler.sample()
            ui.notify(f"The offsets of {self._id} are reset.", type="positive", position="top")

    async def _delete(self) -> None:
        told = "It forgets how far it has read. Whoever joins it again begins anew."
        if not await confirmed(f"Delete group {self._id}?", told, "Delete"):
            return
        with telling():
            await self._console.access.ask(lambda admin: admin.groups.delete([self._id]))
            await self._console.sampler.sample()
            ui.notify(f"Group {self._id} is deleted.", type="positive", position="top")
            ui.navigate.to("/groups")


def _partition_rows(info: GroupInfo) -> list[dict[str, Any]]:
    return [
        {
            "partition": str(one.partition),
            "committed": shown_count(one.committed_offset),
            "end": shown_count(one.end_offset),
            "lag": shown_count(one.lag),
            "lag_number": one.lag,
            "member": "" if one.member is None else one.member.client_id,
        }
        for one in info.partitions
    ]
