"""The messages of a topic: where to begin, what to look for, page after page, or as they come."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from logbrook.client import BrokerError
from logbrook.client.admin import Admin
from logbrook.client.positions import End
from logbrook.console.api_models import MessageOut
from logbrook.console.forms import position_of, preview, shown_count, shown_size, shown_time
from logbrook.console.messages import Message, Page, Wanted, first_page, next_page, positions_of
from logbrook.console.pages.layout import Console, complain, telling
from logbrook.console.pages.message_dialogs import ProduceDialog, show_message
from logbrook.console.pages.tables import LiveTable, column

_PLACES = {"end": "Newest", "start": "Start", "offset": "Offset", "time": "Time"}
_FORMS = {"json": "JSON", "text": "Text", "hex": "Hex"}
_CARD = """<div class="col-12 q-py-xs"><q-card class="q-pa-sm" @click="() => $parent.$emit('open', props.row.id)">
<div class="faint">{{ props.row.time }} · partition {{ props.row.partition }} · offset {{ props.row.offset }}</div>
<div class="text-weight-bold" style="overflow-wrap: anywhere">{{ props.row.key }}</div>
<div style="overflow-wrap: anywhere">{{ props.row.value }}</div></q-card></div>"""
_TAIL_EVERY_S = 1.0
_TAIL_KEPT = 200
_ROWS = 500


class MessageBrowser:
    def __init__(self, console: Console, topic: str) -> None:
        self._console = console
        self._topic = topic
        self._messages: list[Message] = []
        self._following: Mapping[int, int] = {}
        self._backwards = True
        self._tail: dict[int, int] | None = None
        self._is_busy = False
        self._add_controls()
        self._told = ui.label("Reading …").classes("text-sm faint py-2").props("id=told")
        self._table = LiveTable(
            [
                column("time", "Time (UTC)"),
                column("partition", "Partition", number=True),
                column("offset", "Offset", number=True),
                column("key", "Key"),
                column("value", "Value", wide=True),
                column("size", "Size", number=True),
            ],
            "id",
            empty="There is no message here.",
            rows_per_page=_ROWS,
        )
        # On a phone each message is a card, because its columns would not fit.
        self._table.table.props(':grid="window.innerWidth < 600"').add_slot("item", _CARD)
        self._table.table.on("open", lambda event: self._open(event.args))
        self._table.table.classes("cursor-pointer mono").on("rowClick", lambda event: self._open(event.args[1]["id"]))
        self._more = ui.button("More", icon="expand_more", on_click=self._next).props("outline").classes("mt-3")
        ui.timer(0.0, self._read, once=True)
        self._timer = ui.timer(_TAIL_EVERY_S, self._follow, active=False)

    def _add_controls(self) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            self._kind = ui.select(_PLACES, value="end", label="From", on_change=self._place_chosen)
            self._kind.props("dense outlined").classes("w-32")
            self._at = ui.input("Offset").props("dense outlined").classes("w-56").on("keydown.enter", self._read)
            self._at.visible = False
            self._partition = ui.input("Partition", placeholder="all").props("dense outlined").classes("w-28")
            self._partition.on("keydown.enter", self._read)
            self._search = ui.input("Search in key, value and headers").props("dense outlined clearable")
            self._search.classes("grow min-w-[14rem]").on("keydown.enter", self._read)
            ui.button("Read", icon="search", on_click=self._read)
        with ui.row().classes("w-full items-center gap-3 pt-2"):
            self._form = ui.toggle(_FORMS, value="json", on_change=self._show).props("no-caps dense")
            self._live = ui.switch("Live", on_change=self._set_live)
            ui.space()
            produce = ProduceDialog(self._console, self._topic, self._read)
            ui.button("Produce", icon="send", on_click=produce.open).props("outline dense no-caps padding='4px 12px'")
            ui.button("Download", icon="download", on_click=self._download).props(
                "outline dense no-caps padding='4px 12px'"
            )

    def _place_chosen(self) -> None:
        self._at.visible = self._kind.value in ("offset", "time")
        self._at.props(f'label="{"Offset" if self._kind.value == "offset" else "2026-01-31T12:00 (UTC)"}"')

    async def _read(self) -> None:
        """From the chosen place."""
        self._messages, self._following = [], {}
        with telling():
            place = position_of(self._kind.value, self._at.value or "")
            self._backwards = isinstance(place, End)
            partition, wanted = self._chosen_partition(), self._wanted()
            await self._take(lambda admin: first_page(admin, self._topic, partition, place, wanted))

    async def _next(self) -> None:
        following, backwards, wanted = self._following, self._backwards, self._wanted()
        await self._take(lambda admin: next_page(admin, self._topic, following, backwards, wanted))

    async def _take(self, question: Callable[[Admin], Page]) -> None:
        if self._is_busy:
            return
        self._is_busy = True
        self._told.text = "Reading …"
        try:
            with telling():
                page: Page = await self._console.access.ask(question)
                self._messages = [*self._messages, *page.messages][-_ROWS:]
                self._following = page.following
                self._say(page)
                return
            self._told.text = "Nothing was read."
        finally:
            self._is_busy = False
            self._show()

    def _say(self, page: Page) -> None:
        told = f"{shown_count(len(self._messages))} shown"
        if self._wanted().text:
            told += f"; {shown_count(page.scanned)} searched"
        if page.was_cut:
            told += "; there was no time for all: More goes on from here"
        elif not page.following:
            told += "; that is all there is" if self._messages else ""
        self._told.text = told

    def _chosen_partition(self) -> int | None:
        text = (self._partition.value or "").strip()
        if not text:
            return None
        if not (text.isascii() and text.isdecimal()):
            raise ValueError(f"{text!r} is no partition: it is a number from 0 on")
        return int(text)

    def _wanted(self) -> Wanted:
        return Wanted(text=(self._search.value or "").strip())

    async def _set_live(self) -> None:
        self._tail = None
        if self._live.value:
            with telling():
                partition = self._chosen_partition()
                positions = await self._console.access.ask(lambda admin: positions_of(admin, self._topic, partition))
                self._tail = {one.partition: offset for one, offset in positions.ends.items()}
                self._messages, self._following = [], {}
                self._told.text = "Waiting for messages …"
                self._show()
        self._timer.active = self._tail is not None
        if self._live.value and self._tail is None:
            self._live.value = False

    async def _follow(self) -> None:
        """What has come since, newest first."""
        # While nobody answers there is nothing new, and the page says so already.
        if self._tail is None or self._is_busy or self._console.sampler.problem is not None:
            return
        self._is_busy = True
        try:
            with telling():
                tail, wanted = self._tail, Wanted(count=_TAIL_KEPT, text=self._wanted().text)
                try:
                    page, ends = await self._console.access.ask(lambda admin: _since(admin, self._topic, tail, wanted))
                except BrokerError:
                    # Once is enough to say that the topic is gone; a broker that is away is waited for.
                    self._live.value = False
                    raise
                if self._tail is tail:
                    self._tail = {one: page.following.get(one, max(ends[one], tail[one])) for one in tail}
                    if page.messages:
                        self._messages = [*reversed(page.messages), *self._messages][:_TAIL_KEPT]
                        self._told.text = f"Live: the last {len(self._messages)}"
                        self._show()
        finally:
            self._is_busy = False

    def _show(self) -> None:
        form = self._form.value
        self._table.show([_row(one, form) for one in self._messages])
        self._more.visible = bool(self._following) and self._tail is None
        self._more.text = "Older" if self._backwards else "More"

    def _open(self, row_id: str) -> None:
        found = next((one for one in self._messages if _id(one) == row_id), None)
        if found is not None:
            show_message(self._topic, found, self._form.value)

    def _download(self) -> None:
        """What is shown, a JSON object in each line, as the API has it."""
        if not self._messages:
            complain("there is nothing to download: no message is shown")
            return
        ui.download.content(_json_lines(self._messages), f"{self._topic}.jsonl", "application/jsonl")


def _since(admin: Admin, topic: str, tail: Mapping[int, int], wanted: Wanted) -> tuple[Page, dict[int, int]]:
    positions = positions_of(admin, topic)
    ends = {one.partition: offset for one, offset in positions.ends.items()}
    ends = {one: ends.get(one, offset) for one, offset in tail.items()}
    moved = {one: offset for one, offset in tail.items() if ends[one] > offset}
    return (next_page(admin, topic, moved, False, wanted) if moved else Page((), {}, 0)), ends


def _id(message: Message) -> str:
    return f"{message.partition}-{message.offset}"


def _row(message: Message, form: str) -> dict[str, Any]:
    return {
        "id": _id(message),
        "time": shown_time(message.timestamp_ms),
        "partition": message.partition,
        "offset": message.offset,
        "key": preview(message.key, form, 60),
        "value": preview(message.value, form),
        "size": shown_size(message.size),
    }


def _json_lines(messages: Sequence[Message]) -> str:
    lines = [json.dumps(MessageOut.of(one, False).model_dump(), ensure_ascii=False) for one in messages]
    return "\n".join(lines) + "\n"
