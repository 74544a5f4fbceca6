"""Widgets that several pages use: live tables, time charts, times, and the table of settings."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nicegui import ui

from logbrook.client.admin import Admin
from logbrook.client.admin_results import Setting
from logbrook.console.formatting import format_time
from logbrook.console.pages.layout import BROWSER_S, ConsoleContext, answer_of, errors_shown

# Long values are cut off by the style of the tables; the title shows them whole.
_CELL = """<q-td :props="props" :title="props.value">{{ props.value }}</q-td>"""
_LINK = """<q-td :props="props" :title="props.value"><a v-if="props.row.link" :href="props.row.link">
{{ props.value }}</a><span v-else>{{ props.value }}</span></q-td>"""


Show = Callable[[Any], str]
# Scripts that format a timestamp (ms since 1970) in the browser's time zone.
LOCAL_TIME = "ms => logbrookTime(ms)"
LOCAL_SECOND = "ms => logbrookTime(ms, true)"


def column(
    name: str,
    label: str,
    *,
    number: bool = False,
    wide: bool = False,
    short: bool = False,
    show: Show | None = None,
    script: str | None = None,
) -> Any:
    """Describe a column. `show` formats its numbers, by which it is sorted; `script` does so in the browser.

    Values of a `wide` column have several lines, and those of a `short` one are cut off earlier than others.
    """
    definition: dict[str, Any] = {"name": name, "label": label, "field": name, "sortable": True}
    definition["align"] = "right" if number or show else "left"
    if wide or short:
        definition["classes"] = "wide" if wide else "short"
    if script is not None:
        definition[":format"] = script
    if show is not None:
        definition["show"] = show
        definition[":sort"] = f"(a, b, rowA, rowB) => (rowA.{name}_number ?? -1) - (rowB.{name}_number ?? -1)"
    return definition


class LiveTable:
    """A table that is updated in place. Values of `link_column` link to the field `link` of the row."""

    def __init__(
        self,
        columns: Sequence[Any],
        row_key: str,
        *,
        empty: str,
        link_column: str | None = None,
        rows_per_page: int = 25,
    ) -> None:
        # Not a part of the table's own definition of a column.
        self._show = {column["name"]: column.pop("show") for column in columns if "show" in column}
        self.table = ui.table(
            columns=list(columns), rows=[], row_key=row_key, pagination={"rowsPerPage": rows_per_page}
        ).classes("w-full")
        self.table.props('dense :hide-pagination="true"')
        self.set_empty(empty)
        self.table.add_slot("body-cell", _CELL)
        if link_column is not None:
            self.table.add_slot(f"body-cell-{link_column}", _LINK)

    def set_empty(self, text: str) -> None:
        """Set the text of a table without rows: say why it is empty and what to do."""
        if self.table.props.get("no-data-label") != text:
            self.table.props["no-data-label"] = text

    def show(self, rows: list[dict[str, Any]]) -> None:
        """Replace the rows; nothing is sent to the browser if they are the same."""
        for name, show in self._show.items():
            rows = [row | {name: show(row[name]), f"{name}_number": row[name]} for row in rows]
        if rows != self.table.rows:
            self.table.rows = rows
            many = len(rows) > self.table.pagination.get("rowsPerPage", 0) if self.table.pagination else False
            self.table.props(f':hide-pagination="{"false" if many else "true"}"')


_COLORS = ("#0f9488", "#7c3aed", "#d97706", "#2563eb")
# Time shown before and after the point of a chart with a single point.
_SINGLE_POINT_MS = 30_000
# A grey that is readable in light and dark mode.
_GREY = "#7a858b"


class TimeChart:
    """A line chart over time; `names` are the names of its lines."""

    def __init__(self, title: str, names: Sequence[str], unit: str = "") -> None:
        self._shown: list[Any] | None = None
        with ui.card().classes("w-full p-3 gap-0"):
            ui.label(title).classes("text-sm font-semibold px-1")
            self._chart = ui.echart(_options(names, unit)).classes("w-full h-56")

    def show(self, lines: Sequence[Sequence[tuple[int, float | None]]]) -> None:
        """Set the points of each line: (ms since 1970, value)."""
        # The tooltip shows values as they are.
        data = [[[at_ms, None if value is None else round(value, 2)] for at_ms, value in line] for line in lines]
        if data == self._shown:
            return
        self._shown = data
        for series, points in zip(self._chart.options["series"], data, strict=True):
            series["data"] = points
            # A line needs two points; a single one is drawn as a dot.
            series["showSymbol"] = sum(value is not None for _, value in points) == 1
        axis = self._chart.options["xAxis"]
        axis["min"] = axis["max"] = None
        times_ms = {at_ms for line in lines for at_ms, _ in line}
        if len(times_ms) == 1:
            # The axis of a single time would extend over days.
            (at_ms,) = times_ms
            axis["min"], axis["max"] = at_ms - _SINGLE_POINT_MS, at_ms + _SINGLE_POINT_MS
        self._chart.update()


def _options(names: Sequence[str], unit: str) -> dict[str, Any]:
    axis: Mapping[str, Any] = {
        "axisLabel": {"color": _GREY, "hideOverlap": True},
        "axisLine": {"lineStyle": {"color": _GREY}},
    }
    series = [
        {
            "name": name,
            "type": "line",
            "showSymbol": False,
            "data": [],
            "lineStyle": {"width": 2},
            **({"areaStyle": {"opacity": 0.12}} if n == 0 else {}),
        }
        for n, name in enumerate(names)
    ]
    return {
        "animation": False,
        "color": list(_COLORS),
        "grid": {"left": 12, "right": 16, "top": 36, "bottom": 8, "containLabel": True},
        "legend": {"top": 4, "right": 8, "icon": "roundRect", "itemHeight": 3, "textStyle": {"color": _GREY}},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {"type": "time", **axis, "splitLine": {"show": False}},
        "yAxis": {
            "type": "value",
            "min": 0,
            **axis,
            "axisLabel": {"color": _GREY, "formatter": "{value}" + (f" {unit}" if unit else "")},
            "splitLine": {"lineStyle": {"color": "#88888833"}},
        },
        "series": series,
    }


class TimeInput:
    """A field for a date and a time of day in the browser's time zone, with the browser's own picker."""

    def __init__(self, label: str, timestamp_ms: int | None = None) -> None:
        self.field = ui.input(label).props("type=datetime-local step=1 stack-label")
        self._initial_ms = timestamp_ms
        if timestamp_ms is not None:
            ui.timer(0.0, self._fill, once=True)

    async def timestamp_ms(self) -> int:
        """Return the chosen time. Raises ValueError if there is none."""
        if self._initial_ms is not None and not self.field.value:
            return self._initial_ms
        script = f"new Date({json.dumps(self.field.value or '')}).getTime()"
        chosen = await ui.run_javascript(script, timeout=BROWSER_S)
        if not isinstance(chosen, int | float):
            raise ValueError("choose a date and a time of day")
        return round(chosen)

    async def _fill(self) -> None:
        script = f"logbrookTime({self._initial_ms}, true).replace(' ', 'T')"
        self.field.value = await ui.run_javascript(script, timeout=BROWSER_S)
        self._initial_ms = None


def local_time(timestamp_ms: int) -> ui.element:
    """Add a text with a time in the browser's time zone; its title is the time in UTC."""
    text = ui.element("span")
    text.props[":innerText"] = f"logbrookTime({timestamp_ms})"
    text.props["title"] = f"{format_time(timestamp_ms)} UTC"
    return text


Alter = Callable[[Admin, Mapping[str, str], Iterable[str]], None]


class SettingsTable:
    """Settings of a topic or broker with an edit button for those that may change.

    `read` returns the settings; `alter` sets and unsets values.
    """

    def __init__(self, console: ConsoleContext, read: Callable[[Admin], list[Setting]], alter: Alter) -> None:
        self._console = console
        self._read = read
        self._alter = alter
        self._settings: dict[str, Setting] = {}
        with ui.row().classes("w-full items-center gap-3 pb-3"):
            self._filter = ui.input(placeholder="Filter", on_change=self._show).props("dense outlined clearable")
            self._only_own = ui.switch("Only changed settings", on_change=self._show)
        columns = [column("name", "Setting"), column("value", "Value", wide=True), column("source", "From")]
        columns += [{"name": "edit", "label": "", "field": "edit"}]
        columns += [column("documentation", "Description", wide=True)]
        self._table = LiveTable(columns, "name", empty="There is no setting to show.", rows_per_page=100)
        self._table.table.add_slot(
            "body-cell-edit",
            """<q-td :props="props"><q-btn v-if="props.row.edit" flat round dense size="sm" icon="edit"
            :aria-label="'Change ' + props.row.name" @click="() => $parent.$emit('edit', props.row.name)" /></q-td>""",
        )
        self._table.table.on("edit", lambda event: self._edit(event.args))
        ui.timer(0.0, self._load, once=True)

    async def _load(self) -> None:
        with errors_shown():
            settings = await self._console.access.ask(self._read)
            self._settings = {setting.name: setting for setting in settings}
            self._show()

    def _show(self) -> None:
        text = (self._filter.value or "").lower()
        self._table.show(
            [
                _row(setting)
                for setting in self._settings.values()
                if text in setting.name.lower() and not (self._only_own.value and setting.is_default)
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
                ui.label(f"Default: {setting.default}").classes("text-sm faint")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat")
                ui.button("Use the default", on_click=lambda: dialog.submit(("", [name]))).props("flat")
                ui.button("Set", on_click=lambda: dialog.submit((value.value or "", [])))
        answer = await answer_of(dialog)
        if answer is None:
            return
        text, unset = answer
        with errors_shown():
            await self._console.access.ask(lambda admin: self._alter(admin, {} if unset else {name: text}, unset))
            ui.notify(f"{name} is changed.", type="positive", position="top")
            await self._load()


def _row(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "value": "(hidden)" if setting.is_sensitive else "" if setting.value is None else setting.value,
        "source": setting.source.name.replace("_", " ").lower(),
        "edit": not setting.is_read_only,
        "documentation": setting.documentation or "",
    }
