"""The message browser of a topic: position, search over the whole topic, pages, live tail.

A search reads the topic in steps of half a second on a thread, so it holds up neither the event loop nor other calls,
and shows its matches and its progress after each. The state of the browser is the query of its address.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nicegui import ui

from logbrook.client import BrokerError
from logbrook.client.admin import Admin
from logbrook.client.offset_specs import AtTime, Latest, OffsetSpec
from logbrook.console.api_models import MessageOut
from logbrook.console.filters import compile_filter
from logbrook.console.formatting import format_count, format_size, parse_position, parse_timestamp_ms
from logbrook.console.message_query import POSITIONS, MessageQuery
from logbrook.console.messages import (
    MessagePage,
    PageRequest,
    TopicMessage,
    first_page,
    log_bounds_of,
    newest_messages,
    next_page,
)
from logbrook.console.pages.layout import ConsoleContext, errors_shown, show_error
from logbrook.console.pages.message_view import (
    CARD_SLOT,
    ROW_SLOT,
    FormSelect,
    MessageDialog,
    message_row,
    row_id,
)
from logbrook.console.pages.produce import ProduceDialog
from logbrook.console.pages.widgets import LOCAL_TIME, LiveTable, TimeInput, column

_TAIL_EVERY_S = 1.0
_TAIL_KEPT = 200
_ROWS = 500
_SEARCH_STEP_S = 0.5
# A search pauses after so many matches.
_MATCHES = 200
_OUTLINED = "outline dense no-caps padding='4px 12px'"
_READING = "Reading …"
_NOTHING_READ = "Nothing was read."
_NO_MATCH = "No message matches. Clear the search and the filter to see all messages."


class MessageBrowser:
    """The tab with the messages of a topic."""

    def __init__(self, console: ConsoleContext, topic: str, query: MessageQuery) -> None:
        self._console = console
        self._topic = topic
        self._messages: list[TopicMessage] = []
        self._following: Mapping[int, int] = {}
        self._backwards = True
        self._tail: Mapping[int, int] | None = None
        self._skipped = 0
        self._is_following = False
        # The message that the address names; it is opened when it is shown first.
        self._linked = query.message
        # The message that was opened last stays marked, so that its row is easy to find again.
        self._marked = query.message
        self._chosen_ms = ""
        # Each read has a number. A read that is no longer the latest ends.
        self._reads = 0
        self._scanned = 0
        self._add_controls(query)
        with ui.row().classes("w-full items-center gap-3 py-2 min-h-10"):
            self._status = ui.label(_READING).classes("text-sm faint").props("id=status role=status")
            self._progress = ui.linear_progress(0, show_value=False).props("rounded size=8px").classes("w-40")
            self._progress.props('aria-label="Progress of the search"')
            self._stop = ui.button("Stop", icon="stop", on_click=self._stop_search).props("outline dense no-caps")
        self._show_progress(None)
        self._table = LiveTable(
            [
                column("time", "Time", script=LOCAL_TIME),
                column("partition", "Partition", number=True),
                column("offset", "Offset", number=True),
                column("key", "Key", short=True),
                column("value", "Value", wide=True),
                column("size", "Size", show=format_size),
            ],
            "id",
            empty=_READING,
            rows_per_page=_ROWS,
        )
        self._table.table.props(':grid="window.innerWidth < 600"').add_slot("item", CARD_SLOT)
        self._table.table.add_slot("body", ROW_SLOT)
        self._table.table.classes("mono").on("open", lambda event: self._open(event.args))
        self._more = ui.button("More", icon="expand_more", on_click=self._next).props("outline").classes("mt-3")
        ui.timer(0.0, self._read_linked, once=True)
        self._timer = ui.timer(_TAIL_EVERY_S, self._follow, active=False)

    @property
    def _no_message(self) -> str:
        return f"There is no message here. Write one with Produce above, or with logbrook produce {self._topic}"

    @property
    def address(self) -> str:
        """The address of the page in its present state."""
        return self._query.address(self._topic)

    def _add_controls(self, query: MessageQuery) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            self._kind = ui.select(POSITIONS, value=query.kind, label="From", on_change=self._on_position_chosen)
            self._kind.props("dense outlined").classes("w-32")
            self._offset = ui.input("Offset", value=query.at if query.kind == "offset" else "")
            self._offset.props("dense outlined").classes("w-40").on("keydown.enter", self._read)
            self._time = TimeInput("Time", _timestamp_of(query))
            self._time.field.props("dense outlined").classes("w-60").on("keydown.enter", self._read)
            self._partition = ui.input("Partition", placeholder="all", value=query.partition)
            self._partition.props("dense outlined").classes("w-28").on("keydown.enter", self._read)
            self._form = FormSelect(self._console, query.form, lambda: self._messages, self._on_form_chosen)
            self._live = ui.switch("Live", on_change=self._set_live)
            ui.space()
            produce = ProduceDialog(self._console, self._topic, self._read_produced)
            with ui.row().classes("gap-3 no-wrap"):
                ui.button("Produce", icon="send", on_click=produce.open).props(_OUTLINED)
                ui.button("Download", icon="download", on_click=self._download).props(_OUTLINED)
        with ui.row().classes("w-full items-center gap-3 pt-2"):
            self._search = ui.input("Search in key, value and headers", value=query.search)
            self._search.props("dense outlined clearable").classes("grow min-w-[14rem]")
            self._search.on("keydown.enter", self._read)
            self._filter = ui.input("Filter", placeholder='value.country == "DE"', value=query.filter)
            self._filter.props("dense outlined clearable stack-label").classes("grow min-w-[14rem]")
            self._filter.on("keydown.enter", self._read)
            ui.button("Read", icon="search", on_click=self._read)
        self._on_position_chosen()

    def _on_position_chosen(self) -> None:
        self._offset.visible = self._kind.value == "offset"
        self._time.field.visible = self._kind.value == "time"

    def _on_form_chosen(self) -> None:
        self._show()
        ui.navigate.history.replace(self.address)

    async def _read_linked(self) -> None:
        """Read what the address names. A link to one message stays the address."""
        with errors_shown():
            await self._read_from(await self._position())
        if not self._reads:
            # The address is not valid.
            self._end(_NOTHING_READ, self._reads, empty=_NOTHING_READ)

    async def _read(self) -> None:
        """Read the first page from the chosen position; a search reads on."""
        with errors_shown():
            position = await self._position()
            self._linked = self._marked = None
            ui.navigate.history.replace(self.address)
            await self._read_from(position)

    async def _read_from(self, position: OffsetSpec) -> None:
        partition, request = self._chosen_partition(), self._request()
        self._live.value = False
        self._messages, self._following, self._scanned = [], {}, 0
        self._backwards = isinstance(position, Latest)
        await self._load(lambda admin: first_page(admin, self._topic, partition, position, request), request)

    async def _read_produced(self) -> None:
        """Show a message that was produced here; the live view shows it by itself."""
        if self._tail is None:
            await self._read()

    async def _next(self) -> None:
        with errors_shown():
            request = self._request()
            await self._load(self._continuation(request), request)

    def _continuation(self, request: PageRequest) -> Callable[[Admin], MessagePage]:
        following, backwards = self._following, self._backwards
        return lambda admin: next_page(admin, self._topic, following, backwards, request)

    async def _load(self, request_page: Callable[[Admin], MessagePage], request: PageRequest) -> None:
        """Add a page and, while a search has found less than it may, the pages after it."""
        number = self._begin()
        matches = 0
        with errors_shown():
            while True:
                page: MessagePage = await self._console.access.ask(request_page)
                if number != self._reads or self._table.table.is_deleted:
                    return
                self._messages = [*self._messages, *page.messages][-_ROWS:]
                self._following = page.following
                self._scanned += page.scanned
                matches += len(page.messages)
                await self._form.load_schemas()
                if not request.is_search or not page.following or matches >= _MATCHES:
                    self._end(self._describe(page, request), number)
                    self._open_linked()
                    return
                if number == self._reads:
                    self._show_progress(page)
                    self._show()
                request_page = self._continuation(request)
        status = self._interrupted("Interrupted") if self._messages else _NOTHING_READ
        self._end(status, number, empty=_NOTHING_READ)

    def _begin(self) -> int:
        self._reads += 1
        self._status.text = _READING
        self._table.set_empty(_READING)
        return self._reads

    def _end(self, status: str, number: int, *, empty: str | None = None) -> None:
        """Show the result of read `number`. `empty` is the text of the table if it has no rows."""
        if number == self._reads:
            self._show_progress(None)
            self._status.text = status
            has_conditions = bool(self._query.search or self._query.filter)
            self._table.set_empty(empty or (_NO_MATCH if has_conditions else self._no_message))
            self._show()

    def _stop_search(self) -> None:
        self._reads += 1
        self._end(self._interrupted("Stopped"), self._reads)

    def _interrupted(self, reason: str) -> str:
        shown, scanned = format_count(len(self._messages)), format_count(self._scanned)
        rest = f"; {self._more_label} continues" if self._following else ""
        return f"{reason}: {shown} shown; {scanned} searched{rest}"

    def _show_progress(self, page: MessagePage | None) -> None:
        """Show how far a search is; hide the progress if there is none."""
        self._progress.visible = self._stop.visible = page is not None
        if page is not None:
            share = self._scanned / max(1, self._scanned + page.remaining)
            self._progress.value = round(share, 3)
            self._status.text = (
                f"{format_count(len(self._messages))} shown; {format_count(self._scanned)} searched ({share:.0%})"
            )

    def _describe(self, page: MessagePage, request: PageRequest) -> str:
        text = f"{format_count(len(self._messages))} shown"
        if request.is_search:
            text += f"; {format_count(self._scanned)} searched"
        if page.following and (page.was_cut or request.is_search):
            return f"{text}; {self._more_label} continues"
        if self._linked is not None and not self._is_linked_shown():
            return f"{text}; message {self._linked[0]}-{self._linked[1]} is not in the topic, the next ones are shown"
        return text + ("; these are all" if not page.following and self._messages else "")

    @property
    def _query(self) -> MessageQuery:
        return MessageQuery(
            kind=self._kind.value,
            at=(self._chosen_ms if self._kind.value == "time" else self._offset.value or "").strip(),
            partition=(self._partition.value or "").strip(),
            search=(self._search.value or "").strip(),
            filter=(self._filter.value or "").strip(),
            form=self._form.form,
        )

    async def _position(self) -> OffsetSpec:
        if self._kind.value == "time":
            timestamp_ms = await self._time.timestamp_ms()
            self._chosen_ms = str(timestamp_ms)
            return AtTime(timestamp_ms)
        return parse_position(self._kind.value, self._offset.value or "")

    def _chosen_partition(self) -> int | None:
        text = self._query.partition
        if not text:
            return None
        if not (text.isascii() and text.isdecimal()):
            raise ValueError(f"{text!r} is not a partition: write a number from 0 on")
        return int(text)

    def _request(self) -> PageRequest:
        """Return the size and the conditions of a page. Raises InvalidFilterError."""
        query = self._query
        if not query.search and not query.filter:
            return PageRequest()
        where = compile_filter(query.filter, self._form.decode_fields) if query.filter else None
        return PageRequest(_MATCHES, query.search, where=where, pause_s=_SEARCH_STEP_S)

    async def _set_live(self) -> None:
        self._tail, self._skipped = None, 0
        if self._live.value:
            with errors_shown():
                partition = self._chosen_partition()
                bounds = await self._console.access.ask(lambda admin: log_bounds_of(admin, self._topic, partition))
                self._tail = {partition.partition: offset for partition, offset in bounds.ends.items()}
                self._messages, self._following, self._linked = [], {}, None
                self._end("Waiting for messages …", self._begin())
        self._timer.active = self._tail is not None
        if self._live.value and self._tail is None:
            self._live.value = False

    async def _follow(self) -> None:
        """Add messages that arrived since the last call, newest first; the oldest are skipped if there are too many."""
        # While the cluster does not respond, the frame of the page already says so.
        if self._tail is None or self._is_following or self._console.sampler.problem is not None:
            return
        self._is_following = True
        try:
            with errors_shown():
                tail, request = self._tail, replace(self._request(), count=_TAIL_KEPT)
                has_all = self._chosen_partition() is None
                try:
                    newest = await self._console.access.ask(
                        lambda admin: newest_messages(admin, self._topic, tail, request, with_added=has_all)
                    )
                except BrokerError:
                    # Report a deleted topic once; an unavailable broker is retried.
                    self._live.value = False
                    raise
                if self._tail is tail:
                    self._tail = newest.tail
                    self._skipped += newest.skipped
                    if newest.messages or newest.skipped:
                        self._messages = [*newest.messages, *self._messages][:_TAIL_KEPT]
                        await self._form.load_schemas()
                        self._show_tail_status()
                        self._show()
        finally:
            self._is_following = False

    def _show_tail_status(self) -> None:
        self._status.text = f"Live: the last {len(self._messages)}"
        if self._skipped:
            self._status.text += f"; {format_count(self._skipped)} skipped to keep up"

    @property
    def _more_label(self) -> str:
        return "Older" if self._backwards else "More"

    def _show(self) -> None:
        form, decode_schema = self._form.form, self._form.decode_schema
        self._table.show(
            [
                message_row(message, form, decode_schema, is_marked=(message.partition, message.offset) == self._marked)
                for message in self._messages
            ]
        )
        self._more.visible = bool(self._following) and self._tail is None
        self._more.text = self._more_label

    def _is_linked_shown(self) -> bool:
        return any((message.partition, message.offset) == self._linked for message in self._messages)

    def _open_linked(self) -> None:
        if self._linked is not None and self._is_linked_shown():
            self._open(f"{self._linked[0]}-{self._linked[1]}")
        self._linked = None

    def _open(self, opened_id: str) -> None:
        selected = next((message for message in self._messages if row_id(message) == opened_id), None)
        if selected is None:
            return
        self._marked = (selected.partition, selected.offset)
        self._show()
        address = self.address
        MessageDialog(
            self._console, self._topic, selected, self._form.form, lambda: ui.navigate.history.replace(address)
        )

    def _download(self) -> None:
        """Download the messages shown, one JSON object per line in the format of the API."""
        if not self._messages:
            show_error("no message is shown that could be downloaded")
            return
        ui.download.content(_json_lines(self._messages), f"{self._topic}.jsonl", "application/jsonl")


def _timestamp_of(query: MessageQuery) -> int | None:
    if query.kind != "time":
        return None
    try:
        return parse_timestamp_ms(query.at)
    except ValueError:
        return None


def _json_lines(messages: Sequence[TopicMessage]) -> str:
    lines = [json.dumps(MessageOut.of(message, False).model_dump(), ensure_ascii=False) for message in messages]
    return "\n".join(lines) + "\n"
