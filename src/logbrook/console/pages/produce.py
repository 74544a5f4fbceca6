"""The dialog that writes one message."""

from collections.abc import Awaitable, Callable
from time import time

from nicegui import ui

from logbrook.console.formatting import parse_settings
from logbrook.console.messages import write
from logbrook.console.pages.layout import ConsoleContext, errors_shown, heading
from logbrook.records.record import Record


class ProduceDialog:
    """Dialog that writes one message and then calls `after`."""

    def __init__(self, console: ConsoleContext, topic: str, after: Callable[[], Awaitable[None]]) -> None:
        self._console = console
        self._topic = topic
        self._after = after
        with ui.dialog() as self._dialog, ui.card().classes("w-[32rem] max-w-full"):
            heading(f"Produce to {topic}")
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
        with errors_shown():
            key = self._bytes("key", self._key.value) if self._key.value else None
            value = None if self._is_null.value else self._bytes("value", self._value.value or "")
            headers = tuple((name, text.encode()) for name, text in parse_settings(self._headers.value or "").items())
            partition = None if self._partition.value is None else int(self._partition.value)
            record = Record(key, value, headers, round(time() * 1000))
            (written,) = await self._console.access.ask(lambda admin: write(admin, self._topic, [(record, partition)]))
            self._dialog.close()
            text = f"Written to partition {written.partition} at offset {written.offset}."
            ui.notify(text, type="positive", position="top")
            await self._after()

    def _bytes(self, name: str, text: str) -> bytes:
        if not self._as_hex.value:
            return text.encode()
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise ValueError(f"the {name} is not hex: write pairs of digits from 0 to f") from None
