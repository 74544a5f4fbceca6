"""Pipelines: those that say how they are, one of them over time, and the traces of those that do not.

A pipeline that does not report is seen by its consumer groups all the same: groups that commit without anybody joining
them. From how their offsets move follow a state, rows per second and lag.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from nicegui import ui

from logbrook.console.forms import shown_count, shown_rate, shown_time
from logbrook.console.pages.charts import TimeChart
from logbrook.console.pages.layout import Console, frame
from logbrook.console.pages.tables import LiveTable, column
from logbrook.console.pipelines import now_ms
from logbrook.console.sampling import INTERVAL_S, GroupHistory
from logbrook.pipelines.report import Report, RunState

_CHARTED_MS = 30 * 60 * 1000
_COLORS = {
    RunState.STARTING: "blue-grey",
    RunState.RUNNING: "positive",
    RunState.STOPPED: "blue-grey",
    RunState.FAILED: "negative",
    RunState.LOST: "deep-orange-9",
}
_STATE = """<q-td :props="props"><q-badge :color="props.row.color">{{ props.value }}</q-badge></q-td>"""


def add(console: Console) -> None:
    @ui.page("/pipelines")
    def pipelines(name: str = "") -> None:
        with frame(console, "Pipelines", "/pipelines"):
            _Pipelines(console, name)


class _Pipelines:
    """`name` is the pipeline that was chosen; without one it is the first that runs."""

    def __init__(self, console: Console, name: str) -> None:
        self._pipelines = console.sampler.pipelines
        self._sampler = console.sampler
        self._name = name
        self._problem = ui.label().classes("text-negative")
        self._table = LiveTable(
            [
                column("name", "Pipeline"),
                column("state", "State"),
                column("rate", "Rows / s", number=True, sort_by="rate_number"),
                column("lag", "Lag", number=True, sort_by="lag_number"),
                column("batch", "Last batch", number=True, sort_by="batch_number"),
                column("since", "Since (UTC)"),
                column("where", "Host"),
                column("error", "Last error", wide=True),
            ],
            "name",
            empty="No pipeline has reported yet: logbrook pipeline run FILE starts one, and logbrook pipeline init "
            "DIR writes an example.",
            link_column="name",
        )
        self._table.table.add_slot("body-cell-state", _STATE)
        self._chosen = _Chosen()
        self._silent = _Silent()
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _show(self) -> None:
        found, now = self._pipelines.latest, now_ms()
        self._problem.text = self._pipelines.problem or ""
        self._problem.visible = self._pipelines.problem is not None
        self._table.show([_row(one, now) for one in found])
        running = [one.pipeline for one in found if one.state_at(now) is RunState.RUNNING]
        names = [one.pipeline for one in found]
        chosen = self._name if self._name in names else next(iter(running + names), "")
        self._chosen.show(self._pipelines.history(chosen))
        reporting = self._pipelines.queries
        groups = sorted(self._sampler.groups.items())
        self._silent.show({name: one for name, one in groups if not one.has_joined and name not in reporting})


class _Chosen:
    """One pipeline over time, and its queries."""

    def __init__(self) -> None:
        with ui.column().classes("w-full gap-4") as self._all:
            self._title = ui.label().classes("text-lg font-semibold break-all").props("id=chosen")
            # In the table a phone has it far to the right.
            self._error = ui.label().classes("text-negative break-words")
            with ui.grid().classes("w-full gap-4 grid-cols-1 md:grid-cols-2"):
                self._rate = TimeChart("Rows per second", ("rows / s",))
                self._lag = TimeChart("Lag", ("lag",))
            with ui.grid().classes("w-full gap-4 grid-cols-1 md:grid-cols-3"):
                self._sinks = LiveTable(
                    [
                        column("name", "Query"),
                        column("rate", "Rows / s", number=True, sort_by="rate_number"),
                        column("rows", "Rows", number=True, sort_by="rows_number"),
                        column("batch", "Last batch", number=True),
                        column("at", "At (UTC)"),
                    ],
                    "name",
                    empty="It has started no query yet.",
                    link_column="name",
                )
                self._sinks.table.classes("md:col-span-2")
                self._sources = LiveTable(
                    [column("topic", "Reads"), column("lag", "Lag", number=True, sort_by="lag_number")],
                    "topic",
                    empty="It has read nothing yet.",
                    link_column="topic",
                )

    def show(self, reports: Sequence[Report]) -> None:
        self._all.visible = bool(reports)
        if not reports:
            return
        last = reports[-1]
        self._title.text = last.pipeline
        self._error.text = last.error or ""
        self._error.visible = last.error is not None
        recent = [one for one in reports if last.said_ms - one.said_ms <= _CHARTED_MS]
        self._rate.show([[(one.said_ms, one.rows_per_s) for one in recent]])
        self._lag.show([[(one.said_ms, one.lag) for one in recent]])
        self._sinks.show(
            [
                {
                    "name": one.name,
                    "link": f"/group?id={quote(one.name, safe='')}",
                    "rate": shown_rate(one.rows_per_s),
                    "rate_number": one.rows_per_s,
                    "rows": shown_count(one.rows),
                    "rows_number": one.rows,
                    "batch": _shown_duration(one.batch_s),
                    "at": "-" if one.batch_at_ms is None else _shown_second(one.batch_at_ms),
                }
                for one in last.sinks
            ]
        )
        self._sources.show(
            [
                {
                    "topic": one.topic,
                    "link": f"/topics/{quote(one.topic, safe='')}",
                    "lag": shown_count(one.lag),
                    "lag_number": one.lag,
                }
                for one in last.sources
            ]
        )


class _Silent:
    """Groups whose pipelines do not report, if there are any."""

    def __init__(self) -> None:
        with ui.column().classes("w-full gap-4") as self._all:
            ui.label("Groups without reports").classes("text-lg font-semibold")
            ui.label(
                "Groups that commit offsets and that nobody has ever joined, as queries on Spark do. Their state is "
                "seen from their offsets: running while they move, standing still when they do not though there is "
                "something to read."
            ).classes("text-sm faint")
            self._table = LiveTable(
                [
                    column("query", "Group"),
                    column("state", "State"),
                    column("rate", "Rows / s", number=True, sort_by="rate_number"),
                    column("lag", "Lag", number=True, sort_by="lag_number"),
                    column("read", "Rows read", number=True),
                    column("topics", "Reads", wide=True),
                ],
                "query",
                empty="There is none.",
                link_column="query",
            )

    def show(self, groups: dict[str, GroupHistory]) -> None:
        self._all.visible = bool(groups)
        self._table.show(
            [
                {
                    "query": name,
                    "link": f"/group?id={quote(name, safe='')}",
                    "state": one.state,
                    "rate": shown_rate(one.rows_per_s),
                    "rate_number": one.rows_per_s,
                    "lag": shown_count(one.info.lag),
                    "lag_number": one.info.lag,
                    "read": shown_count(one.samples[-1].committed),
                    "topics": ", ".join(sorted({each.partition.topic for each in one.info.partitions})),
                }
                for name, one in groups.items()
            ]
        )


def _row(report: Report, now: int) -> dict[str, Any]:
    state = report.state_at(now)
    is_over = state not in (RunState.STARTING, RunState.RUNNING)
    return {
        "name": report.pipeline,
        "link": f"/pipelines?name={quote(report.pipeline, safe='')}",
        "state": str(state),
        "color": _COLORS[state],
        "rate": "-" if is_over else shown_rate(report.rows_per_s),
        "rate_number": None if is_over else report.rows_per_s,
        "lag": shown_count(report.lag),
        "lag_number": report.lag,
        "batch": _shown_duration(report.batch_s),
        "batch_number": report.batch_s,
        "since": _shown_second(report.since_ms),
        "where": f"{report.host}:{report.pid}",
        "error": report.error or "",
    }


def _shown_duration(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f} s"


def _shown_second(timestamp_ms: int) -> str:
    return shown_time(timestamp_ms).partition(".")[0]
