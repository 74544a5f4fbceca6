"""Lines over time."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

_COLORS = ("#0f9488", "#7c3aed", "#d97706", "#2563eb")
# A grey that can be read on white and on black, so that the charts need not know which it is.
_GREY = "#8a9499"


class TimeChart:
    """`names` are those of the lines, in order."""

    def __init__(self, title: str, names: Sequence[str], unit: str = "") -> None:
        self._shown: list[Any] | None = None
        with ui.card().classes("w-full p-3 gap-0"):
            ui.label(title).classes("text-sm font-semibold px-1")
            self._chart = ui.echart(_options(names, unit)).classes("w-full h-56")

    def show(self, lines: Sequence[Sequence[tuple[int, float | None]]]) -> None:
        """Points of ms since 1970 and a value, for each line."""
        data = [[list(point) for point in line] for line in lines]
        if data == self._shown:
            return
        self._shown = data
        for series, points in zip(self._chart.options["series"], data, strict=True):
            series["data"] = points
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
