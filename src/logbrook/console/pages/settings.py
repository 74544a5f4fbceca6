"""The settings of a topic or of a broker: what they are, where they are from, and changing one."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nicegui import ui

from logbrook.client.admin import Admin
from logbrook.client.admin_results import Setting
from logbrook.console.pages.layout import Console, telling
from logbrook.console.pages.tables import LiveTable, column

Alter = Callable[[Admin, Mapping[str, str], Iterable[str]], None]


class SettingsTable:
    """`read` asks for them and `alter` sets and unsets some. Those that may not change have no pencil."""

    def __init__(self, console: Console, read: Callable[[Admin], list[Setting]], alter: Alter) -> None:
        self._console = console
        self._read = read
        self._alter = alter
        self._settings: dict[str, Setting] = {}
        with ui.row().classes("w-full items-center gap-3 pb-3"):
            self._filter = ui.input(placeholder="Filter", on_change=self._show).props("dense outlined clearable")
            self._only_own = ui.switch("Only what was set", on_change=self._show)
        columns = [column("name", "Setting"), column("value", "Value", wide=True), column("source", "From")]
        columns += [{"name": "edit", "label": "", "field": "edit"}]
        columns += [column("documentation", "What it does", wide=True)]
        self._table = LiveTable(columns, "name", empty="There is no setting to show.", rows_per_page=100)
        self._table.table.add_slot(
            "body-cell-edit",
            """<q-td :props="props"><q-btn v-if="props.row.edit" flat round dense size="sm" icon="edit"
            :aria-label="'Change ' + props.row.name" @click="() => $parent.$emit('edit', props.row.name)" /></q-td>""",
        )
        self._table.table.on("edit", lambda event: self._edit(event.args))
        ui.timer(0.0, self._load, once=True)

    async def _load(self) -> None:
        with telling():
            found = await self._console.access.ask(self._read)
            self._settings = {one.name: one for one in found}
            self._show()

    def _show(self) -> None:
        text = (self._filter.value or "").lower()
        self._table.show(
            [
                _row(one)
                for one in self._settings.values()
                if text in one.name.lower() and not (self._only_own.value and one.is_default)
            ]
        )

    async def _edit(self, name: str) -> None:
        setting = self._settings[name]
        with ui.dialog() as dialog, ui.card().classes("w-[28rem] max-w-full"):
            ui.label(name).classes("text-lg font-semibold break-all")
            if setting.documentation:
                ui.label(setting.documentation).classes("text-sm faint")
            value = ui.input("Value", value=setting.value or "").classes("w-full mono").props("autofocus")
            if setting.default is not None:
                ui.label(f"Unless it is set: {setting.default}").classes("text-sm faint")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat")
                ui.button("Use the default", on_click=lambda: dialog.submit(("", [name]))).props("flat")
                ui.button("Set", on_click=lambda: dialog.submit((value.value or "", [])))
        answer = await dialog
        dialog.delete()
        if answer is None:
            return
        text, unset = answer
        with telling():

            def alter(admin: Admin) -> None:
                self._alter(admin, {} if unset else {name: text}, unset)

            await self._console.access.ask(alter)
            ui.notify(f"{name} is changed.", type="positive", position="top")
            await self._load()


def _row(one: Setting) -> dict[str, Any]:
    return {
        "name": one.name,
        "value": "(hidden)" if one.is_sensitive else "" if one.value is None else one.value,
        "source": one.source.name.replace("_", " ").lower(),
        "edit": not one.is_read_only,
        "documentation": one.documentation or "",
    }
