"""One message in full, and a form to write one."""

from collections.abc import Awaitable, Callable
from time import time

from nicegui import ui

from logbrook.client.admin import Admin
from logbrook.console.forms import SHOWN_BYTES_MAX, preview, settings_in, shown_bytes, shown_size, shown_time
from logbrook.console.messages import Message
from logbrook.console.pages.layout import Console, telling
from logbrook.console.producing import Written, write
from logbrook.records.record import Record

_HEADER_LENGTH = 2_000
_FORMS = {"json": "JSON", "text": "Text", "hex": "Hex"}


def show_message(topic: str, message: Message, form: str) -> None:
    """Open a dialog about it."""
    with ui.dialog(value=True) as dialog, ui.card().classes("w-[46rem] max-w-full gap-2"):
        with ui.row().classes("w-full items-center no-wrap"):
            ui.label(f"Partition {message.partition}, offset {message.offset}").classes("text-lg font-semibold grow")
            ui.button(icon="close", on_click=dialog.close).props('flat round dense aria-label="Close"')
        ui.label(f"{shown_time(message.timestamp_ms)} UTC · {shown_size(message.size)}").classes("text-sm faint")
        chosen = ui.toggle(_FORMS, value=form).props("no-caps dense")
        key, value = _part("Key"), _part("Value")

        def show() -> None:
            key.text = shown_bytes(message.key, chosen.value)
            value.text = shown_bytes(message.value, chosen.value)

        chosen.on_value_change(show)
        show()
        if message.value is not None and len(message.value) > SHOWN_BYTES_MAX:
            ui.label(f"Only the first {shown_size(SHOWN_BYTES_MAX)} are shown.").classes("text-sm faint")
        if message.headers:
            ui.label("Headers").classes("text-sm font-semibold")
            for name, data in message.headers:
                ui.label(f"{name}: {preview(data, 'text', _HEADER_LENGTH)}").classes("mono break-all")
        name = f"{topic}-{message.partition}-{message.offset}.bin"
        content = message.value or b""
        ui.button("Download the value", icon="download", on_click=lambda: ui.download.content(content, name)).props(
            "flat dense no-caps"
        )
    dialog.on("hide", dialog.delete)


def _part(title: str) -> ui.label:
    ui.label(title).classes("text-sm font-semibold")
    shown = ui.label().classes("mono w-full whitespace-pre-wrap break-all rounded p-2 max-h-80 overflow-auto")
    return shown.style("background: #8881")


class ProduceDialog:
    """Writes one message, and then calls `after`."""

    def __init__(self, console: Console, topic: str, after: Callable[[], Awaitable[None]]) -> None:
        self._console = console
        self._topic = topic
        self._after = after
        with ui.dialog() as self._dialog, ui.card().classes("w-[32rem] max-w-full"):
            ui.label(f"Produce to {topic}").classes("text-lg font-semibold break-all")
            with ui.row().classes("w-full gap-3"):
                self._key = ui.input("Key", placeholder="none").classes("grow mono")
                self._partition = ui.number("Partition", min=0, precision=0, placeholder="by key").classes("w-28")
            self._value = ui.textarea("Value").classes("w-full mono").props("autogrow input-style='min-height: 8rem'")
            self._headers = ui.textarea("Headers", placeholder="name=value").classes("w-full mono").props("autogrow")
            with ui.row().classes("w-full items-center gap-3"):
                self._as_hex = ui.switch("Key and value are hex")
                self._is_null = ui.switch("No value (tombstone)")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=self._dialog.close).props("flat")
                ui.button("Send", icon="send", on_click=self._send)

    def open(self) -> None:
        self._dialog.open()

    async def _send(self) -> None:
        with telling():
            key = self._bytes("key", self._key.value) if self._key.value else None
            value = None if self._is_null.value else self._bytes("value", self._value.value or "")
            headers = tuple((name, text.encode()) for name, text in settings_in(self._headers.value or "").items())
            partition = None if self._partition.value is None else int(self._partition.value)
            record = Record(key, value, headers, round(time() * 1000))

            def produce(admin: Admin) -> Written:
                return write(admin, self._topic, [(record, partition)])[0]

            written = await self._console.access.ask(produce)
            self._dialog.close()
            told = f"Written to partition {written.partition} at offset {written.offset}."
            ui.notify(told, type="positive", position="top")
            await self._after()

    def _bytes(self, name: str, text: str) -> bytes:
        if not self._as_hex.value:
            return text.encode()
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise ValueError(f"the {name} is no hex: write pairs of digits from 0 to f") from None
