"""One message: its row in the table, and the dialog that shows it whole, with its link."""

import json
from collections.abc import Callable
from typing import Any

from nicegui import ui

from logbrook.console.decoding import (
    FORMS,
    SCHEMA_FORM,
    SHOWN_BYTES_MAX,
    Decode,
    format_bytes,
    missing_package,
    preview,
    value_decoder,
)
from logbrook.console.filters import decode_json
from logbrook.console.formatting import format_size
from logbrook.console.message_query import MessageQuery
from logbrook.console.messages import TopicMessage
from logbrook.console.pages.layout import ConsoleContext, heading, show_error
from logbrook.console.pages.widgets import local_time

_KEY_LENGTH = 60
_HEADER_LENGTH = 2_000

# A row is focusable, and opens with Enter too. On a phone, each message is a card: the columns would not fit.
ROW_SLOT = """<q-tr :props="props" tabindex="0" :class="{marked: props.row.marked}" class="cursor-pointer"
@click="() => $parent.$emit('open', props.row.id)" @keydown.enter="() => $parent.$emit('open', props.row.id)">
<q-td v-for="col in props.cols" :key="col.name" :props="props" :title="col.value">{{ col.value }}</q-td></q-tr>"""
CARD_SLOT = """<div class="col-12 q-py-xs"><q-card class="q-pa-sm" tabindex="0"
@click="() => $parent.$emit('open', props.row.id)" @keydown.enter="() => $parent.$emit('open', props.row.id)">
<div class="faint">{{ props.cols[0].value }} · partition {{ props.row.partition }} · offset {{ props.row.offset }}</div>
<div class="text-weight-bold" style="overflow-wrap: anywhere">{{ props.row.key }}</div>
<div style="overflow-wrap: anywhere">{{ props.row.value }}</div></q-card></div>"""


def row_id(message: TopicMessage) -> str:
    return f"{message.partition}-{message.offset}"


def message_row(message: TopicMessage, form: str, decode_schema: Decode | None, *, is_marked: bool) -> dict[str, Any]:
    """Return the row of a message in the table."""
    return {
        "id": row_id(message),
        "time": message.timestamp_ms,
        "partition": message.partition,
        "offset": message.offset,
        "key": preview(message.key, form, _KEY_LENGTH, decode_schema),
        "value": preview(message.value, form, decode_schema=decode_schema),
        "size": message.size,
        "marked": is_marked,
    }


class FormSelect:
    """The choice of a format of keys and values. `on_change` is called after the schemas of `messages()` are loaded."""

    def __init__(
        self,
        console: ConsoleContext,
        form: str,
        messages: Callable[[], list[TopicMessage]],
        on_change: Callable[[], None],
    ) -> None:
        self._schemas = console.schemas
        self._messages = messages
        self._on_change = on_change
        self._select = ui.select(FORMS, value=form, label="Show as", on_change=self._change)
        self._select.props("dense outlined options-dense").classes("w-40")

    @property
    def form(self) -> str:
        return str(self._select.value)

    @property
    def decode_schema(self) -> Decode | None:
        return None if self._schemas is None else self._schemas.decode

    @property
    def decode_fields(self) -> Decode:
        """The function that decodes values for filters. It may block, so it runs on a thread."""
        decode_schema = None if self._schemas is None else self._schemas.fetch_and_decode
        return value_decoder(self.form, decode_schema) or decode_json

    async def load_schemas(self) -> None:
        """Fetch the schemas that the messages need to be shown in the chosen format."""
        if self.form == SCHEMA_FORM and self._schemas is not None:
            await self._schemas.load([part for message in self._messages() for part in (message.key, message.value)])

    async def _change(self) -> None:
        package = missing_package(self.form)
        if package is not None:
            show_error(f"{FORMS[self.form]} needs a package that is not installed: pip install {package}")
        if self.form == SCHEMA_FORM and self._schemas is None:
            show_error("the console has no schema registry: start it with --schema-registry URL")
        await self.load_schemas()
        self._on_change()


class MessageDialog:
    """Shows a message whole. While it is open, the address of the page is the link of the message."""

    def __init__(
        self, console: ConsoleContext, topic: str, message: TopicMessage, form: str, on_close: Callable[[], None]
    ) -> None:
        self._topic = topic
        self._message = message
        with ui.dialog(value=True) as dialog, ui.card().classes("w-[46rem] max-w-full gap-2"):
            with ui.row().classes("w-full items-center no-wrap"):
                heading(f"Partition {message.partition}, offset {message.offset}").classes("grow")
                ui.button(icon="close", on_click=dialog.close).props('flat round dense aria-label="Close"')
            with ui.row().classes("text-sm faint gap-1"):
                local_time(message.timestamp_ms)
                ui.label(f"· {format_size(message.size)}")
            self._form = FormSelect(console, form, lambda: [message], self._show)
            self._key, self._value = _part("Key", "message-key"), _part("Value", "message-value")
            self._show()
            if message.value is not None and len(message.value) > SHOWN_BYTES_MAX:
                ui.label(f"Only the first {format_size(SHOWN_BYTES_MAX)} are shown.").classes("text-sm faint")
            self._add_headers()
            self._add_buttons()
        ui.timer(0.0, self._start, once=True)

        def close() -> None:
            on_close()
            dialog.delete()

        dialog.on("hide", close)

    async def _start(self) -> None:
        ui.navigate.history.replace(self._link)
        await self._form.load_schemas()
        self._show()

    @property
    def _link(self) -> str:
        place = (self._message.partition, self._message.offset)
        return MessageQuery(message=place, form=self._form.form).address(self._topic)

    def _show(self) -> None:
        form, decode_schema = self._form.form, self._form.decode_schema
        self._key.text = format_bytes(self._message.key, form, decode_schema)
        self._value.text = format_bytes(self._message.value, form, decode_schema)

    def _add_headers(self) -> None:
        if self._message.headers:
            ui.label("Headers").classes("text-sm font-semibold")
            for name, data in self._message.headers:
                ui.label(f"{name}: {preview(data, 'text', _HEADER_LENGTH)}").classes("mono break-all")

    def _add_buttons(self) -> None:
        content = self._message.value or b""
        name = f"{self._topic}-{row_id(self._message)}.bin"
        with ui.row().classes("w-full gap-2"):
            _copy_button("Copy value", "document.getElementById('message-value').innerText")
            _copy_button("Copy key", "document.getElementById('message-key').innerText")
            _copy_button("Copy link", f"location.origin + {json.dumps(self._link)}")
            ui.button("Download the value", icon="download", on_click=lambda: ui.download.content(content, name)).props(
                "flat dense no-caps"
            )


def _copy_button(label: str, script: str) -> None:
    def tell() -> None:
        ui.notify("Copied.", type="positive", position="top", timeout=1_500)

    icon = "link" if label == "Copy link" else "content_copy"
    button = ui.button(label, icon=icon).props("flat dense no-caps")
    button.on("click", tell, args=[], js_handler=f"async () => {{ await logbrookCopy({script}); emit() }}")


def _part(title: str, element_id: str) -> ui.label:
    ui.label(title).classes("text-sm font-semibold")
    shown = ui.label().classes("mono w-full whitespace-pre-wrap break-all rounded p-2 max-h-80 overflow-auto")
    return shown.style("background: #8881").props(f"id={element_id} tabindex=0")
