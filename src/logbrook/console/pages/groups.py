"""The pages of all consumer groups and of one group: members, lag, offsets, reset, delete."""

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from logbrook.client.admin_results import GroupInfo, OffsetChange
from logbrook.client.offset_specs import AtTime, OffsetSpec
from logbrook.console.formatting import format_count, format_rate, parse_partitions, parse_position
from logbrook.console.pages.layout import (
    ConsoleContext,
    answer_of,
    confirmed,
    errors_shown,
    frame,
    group_link,
    heading,
    tile,
)
from logbrook.console.pages.widgets import LiveTable, TimeChart, TimeInput, column
from logbrook.console.sampling import INTERVAL_S

_PLACES = {"start": "the start", "end": "the end", "offset": "an offset", "time": "a time"}
# Not a valid name of a topic.
_ALL_TOPICS = ""
_CHANGES_SHOWN = 20


def add(console: ConsoleContext) -> None:
    @ui.page("/groups")
    def groups() -> None:
        with frame(console, "Groups", "/groups"):
            _GroupsPage(console)

    # A group's id may contain slashes.
    @ui.page("/groups/{name:path}")
    def group(name: str) -> None:
        with frame(console, name, "/groups"):
            _GroupPage(console, name)

    @ui.page("/group")
    def group_by_query(id: str = "") -> None:
        with frame(console, id, "/groups"):
            _GroupPage(console, id)


class _GroupsPage:
    def __init__(self, console: ConsoleContext) -> None:
        self._sampler = console.sampler
        self._table = LiveTable(
            [
                column("group", "Group"),
                column("state", "State"),
                column("members", "Members", number=True),
                column("topics", "Topics", wide=True),
                column("rate", "Messages / s", show=format_rate),
                column("lag", "Lag", show=format_count),
            ],
            "group",
            empty="There are no groups yet. A consumer's group appears here when it joins or commits an offset: "
            "logbrook consume TOPIC --group NAME",
            link_column="group",
        )
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _show(self) -> None:
        self._table.show(
            [
                {
                    "group": name,
                    "link": group_link(name),
                    "state": history.info.state,
                    "members": len(history.info.members),
                    "topics": ", ".join(sorted({row.partition.topic for row in history.info.partitions})),
                    "rate": history.rows_per_s,
                    "lag": history.info.lag,
                }
                for name, history in sorted(self._sampler.groups.items())
            ]
        )


class _GroupPage:
    def __init__(self, console: ConsoleContext, group_id: str) -> None:
        self._console = console
        self._id = group_id
        self._has_existed = False
        self._missing = ui.label("There is no such group. The page Groups lists all of them.")
        self._missing.visible = False
        with ui.column().classes("w-full gap-4") as self._all:
            self._add_content()
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _add_content(self) -> None:
        with ui.row().classes("w-full gap-3 items-stretch"):
            self._state = tile("State")
            self._lag = tile("Lag")
            self._rate = tile("Messages / s")
            self._count = tile("Members")
        self._chart = TimeChart("Lag", ("lag",))
        with ui.row().classes("w-full gap-3"):
            ui.button("Reset offsets", icon="restart_alt", on_click=self._reset).props("outline")
            ui.button("Delete group", icon="delete", on_click=self._delete, color="negative").props("outline")
        heading("Partitions")
        self._partitions = LiveTable(
            [
                column("partition", "Partition"),
                column("committed", "Committed", show=format_count),
                column("end", "Next offset", show=format_count),
                column("lag", "Lag", show=format_count),
                column("member", "Read by"),
            ],
            "partition",
            empty="The group has no committed offsets.",
        )
        heading("Members")
        self._members = LiveTable(
            [
                column("member", "Member", wide=True),
                column("client", "Client"),
                column("host", "Host"),
                column("partitions", "Partitions", wide=True),
            ],
            "member",
            empty="The group has no members at present.",
        )

    def _show(self) -> None:
        history = self._console.sampler.groups.get(self._id)
        self._missing.visible = history is None and self._console.sampler.has_sampled
        self._has_existed = self._has_existed or history is not None
        # The last known state of a group that is deleted while it is shown stays.
        self._all.visible = self._has_existed or not self._missing.visible
        if history is None:
            return
        info = history.info
        self._state.text = info.state
        self._lag.text = format_count(info.lag)
        self._rate.text = format_rate(history.rows_per_s)
        self._count.text = format_count(len(info.members))
        self._chart.show([[(sample.at_ms, sample.lag) for sample in history.samples]])
        self._partitions.show(_partition_rows(info))
        self._members.show(
            [
                {
                    "member": member.member_id,
                    "client": member.client_id,
                    "host": member.host,
                    "partitions": ", ".join(map(str, member.partitions)),
                }
                for member in info.members
            ]
        )

    async def _reset(self) -> None:
        history = self._console.sampler.groups.get(self._id)
        topics = sorted({row.partition.topic for row in history.info.partitions}) if history is not None else []
        chosen = await _ResetDialog(self._id, topics).choose()
        if chosen is None:
            return
        position, chosen_topics, partitions = chosen
        with errors_shown():
            access = self._console.access
            changes = await access.ask(
                lambda admin: admin.groups.plan_reset(self._id, position, chosen_topics, partitions)
            )
            if not changes:
                raise ValueError("the group has no committed offsets there, so nothing would change")
            lines = [_describe_change(change) for change in changes[:_CHANGES_SHOWN]]
            if len(changes) > _CHANGES_SHOWN:
                lines.append(f"and {len(changes) - _CHANGES_SHOWN} more")
            offsets = "1 offset" if len(changes) == 1 else f"{len(changes)} offsets"
            if not await confirmed(f"Reset {offsets} of {self._id}?", "\n".join(lines), "Reset"):
                return
            await access.ask(lambda admin: admin.groups.reset(self._id, changes))
            await self._console.sampler.sample()
            ui.notify(f"The offsets of {self._id} are reset.", type="positive", position="top")

    async def _delete(self) -> None:
        text = "Its committed offsets are deleted. Consumers that join it again start from auto.offset.reset."
        if not await confirmed(f"Delete group {self._id}?", text, "Delete"):
            return
        with errors_shown():
            await self._console.access.ask(lambda admin: admin.groups.delete([self._id]))
            await self._console.sampler.sample()
            ui.notify(f"Group {self._id} is deleted.", type="positive", position="top")
            ui.navigate.to("/groups")


class _ResetDialog:
    """Asks which offsets of a group to reset, and to which position."""

    def __init__(self, group_id: str, topics: Sequence[str]) -> None:
        with ui.dialog() as self._dialog, ui.card().classes("w-96 max-w-full"):
            heading(f"Reset the offsets of {group_id}")
            ui.label("The group must have no active members. The changes are shown before they are made.").classes(
                "text-sm"
            )
            options = {_ALL_TOPICS: "all topics of the group"} | {topic: topic for topic in topics}
            self._topic = ui.select(options, label="Topic", value=_ALL_TOPICS).classes("w-full")
            self._partitions = ui.input("Partitions", placeholder="all, or for example 0, 2-5").classes("w-full")
            self._partitions.props("stack-label")
            self._kind = ui.select(_PLACES, label="To", value="start").classes("w-full")
            self._offset = ui.input("Offset").classes("w-full")
            self._offset.bind_visibility_from(self._kind, "value", lambda value: value == "offset")
            self._time = TimeInput("Time")
            self._time.field.classes("w-full")
            self._time.field.bind_visibility_from(self._kind, "value", lambda value: value == "time")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: self._dialog.submit(None)).props("flat")
                ui.button("Show changes", on_click=self._submit)

    async def choose(self) -> tuple[OffsetSpec, Sequence[str], Sequence[int]] | None:
        """Return the position, the topics and the partitions (empty for all); None if the dialog is cancelled."""
        answer: tuple[OffsetSpec, Sequence[str], Sequence[int]] | None = await answer_of(self._dialog)
        return answer

    async def _submit(self) -> None:
        with errors_shown():
            topics = [] if self._topic.value == _ALL_TOPICS else [self._topic.value]
            partitions = parse_partitions(self._partitions.value or "")
            self._dialog.submit((await self._position(), topics, partitions))

    async def _position(self) -> OffsetSpec:
        if self._kind.value == "time":
            return AtTime(await self._time.timestamp_ms())
        return parse_position(self._kind.value, self._offset.value or "")


def _describe_change(change: OffsetChange) -> str:
    before = "no offset" if change.before is None else change.before
    return f"{change.partition}: {before} → {change.after}"


def _partition_rows(info: GroupInfo) -> list[dict[str, Any]]:
    return [
        {
            "partition": str(row.partition),
            "committed": row.committed_offset,
            "end": row.end_offset,
            "lag": row.lag,
            "member": "" if row.member is None else row.member.client_id,
        }
        for row in info.partitions
    ]
