"""The pipelines page: all reporting pipelines, one of them over time, and groups of pipelines without reports.

A pipeline that does not report is still visible by its consumer groups, which commit offsets but have never had
members. Their state, rate and lag are derived from their offsets.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from nicegui import ui

from logbrook.console.formatting import format_count, format_rate
from logbrook.console.pages.layout import ConsoleContext, frame, group_link, heading, topic_link
from logbrook.console.pages.widgets import LOCAL_SECOND, LiveTable, TimeChart, column
from logbrook.console.sampling import INTERVAL_S, GroupHistory, now_ms
from logbrook.pipelines.report import PipelineReport, RunState

_CHARTED_MS = 30 * 60 * 1000
_COLORS = {
    RunState.STARTING: "blue-grey-8",
    RunState.RUNNING: "positive",
    RunState.WAITING: "blue-grey-8",
    RunState.STOPPED: "blue-grey-8",
    RunState.FAILED: "negative",
    RunState.LOST: "deep-orange-9",
}
_STATE = """<q-td :props="props"><q-badge :color="props.row.color">{{ props.value }}</q-badge></q-td>"""


def add(console: ConsoleContext) -> None:
    @ui.page("/pipelines")
    def pipelines(name: str = "") -> None:
        with frame(console, "Pipelines", "/pipelines"):
            _PipelinesPage(console, name)


class _PipelinesPage:
    """`name` is the pipeline to show in detail; by default the first running one."""

    def __init__(self, console: ConsoleContext, name: str) -> None:
        self._pipelines = console.sampler.pipelines
        self._sampler = console.sampler
        self._name = name
        self._problem = ui.label().classes("text-negative")
        self._table = LiveTable(
            [
                column("name", "Pipeline"),
                column("state", "State"),
                column("rate", "Rows / s", show=format_rate),
                column("lag", "Lag", show=format_count),
                column("batch", "Last batch", show=_format_duration),
                column("since", "Since", script=LOCAL_SECOND),
                column("where", "Host"),
                column("error", "Last error", wide=True),
            ],
            "name",
            empty="No pipeline has reported yet: logbrook pipeline run FILE starts one, and logbrook pipeline init "
            "DIR writes an example.",
            link_column="name",
        )
        self._table.table.add_slot("body-cell-state", _STATE)
        self._chosen = _PipelineDetails()
        self._silent = _UnreportedGroups()
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _show(self) -> None:
        latest, now = self._pipelines.latest, now_ms()
        self._problem.text = self._pipelines.problem or ""
        self._problem.visible = self._pipelines.problem is not None
        self._table.show([_row(report, now) for report in latest])
        running = [report.pipeline for report in latest if report.state_at(now) is RunState.RUNNING]
        names = [report.pipeline for report in latest]
        chosen = self._name if self._name in names else next(iter(running + names), "")
        self._chosen.show(self._pipelines.history(chosen))
        reporting = self._pipelines.queries
        groups = sorted(self._sampler.groups.items())
        self._silent.show({name: group for name, group in groups if not group.has_joined and name not in reporting})


class _PipelineDetails:
    """Charts of one pipeline, and its queries."""

    def __init__(self) -> None:
        with ui.column().classes("w-full gap-4") as self._all:
            self._title = heading("").props("id=chosen")
            # On a phone, the table's error column is far to the right.
            self._error = ui.label().classes("text-negative break-words")
            with ui.grid().classes("w-full gap-4 grid-cols-1 md:grid-cols-2"):
                self._rate = TimeChart("Rows per second", ("rows / s",))
                self._lag = TimeChart("Lag", ("lag",))
            with ui.grid().classes("w-full gap-4 grid-cols-1 md:grid-cols-3"):
                self._sinks = LiveTable(
                    [
                        column("name", "Query"),
                        column("rate", "Rows / s", show=format_rate),
                        column("rows", "Rows", show=format_count),
                        column("batch", "Last batch", show=_format_duration),
                        column("at", "At", script=LOCAL_SECOND),
                        column("restarts", "Restarts", show=format_count),
                    ],
                    "name",
                    empty="It has started no query yet.",
                    link_column="name",
                )
                self._sinks.table.classes("md:col-span-2")
                self._sources = LiveTable(
                    [column("topic", "Reads"), column("lag", "Lag", show=format_count)],
                    "topic",
                    empty="It has read nothing yet.",
                    link_column="topic",
                )

    def show(self, reports: Sequence[PipelineReport]) -> None:
        self._all.visible = bool(reports)
        if not reports:
            return
        last = reports[-1]
        self._title.text = last.pipeline
        self._error.text = last.error or ""
        self._error.visible = last.error is not None
        recent = [report for report in reports if last.said_ms - report.said_ms <= _CHARTED_MS]
        self._rate.show([[(report.said_ms, report.rows_per_s) for report in recent]])
        self._lag.show([[(report.said_ms, report.lag) for report in recent]])
        self._sinks.show(
            [
                {
                    "name": sink.name,
                    "link": group_link(sink.name),
                    "rate": sink.rows_per_s,
                    "rows": sink.rows,
                    "batch": sink.batch_s,
                    "at": sink.batch_at_ms,
                    "restarts": sink.restarts,
                }
                for sink in last.sinks
            ]
        )
        self._sources.show(
            [
                {
                    "topic": source.topic,
                    "link": topic_link(source.topic),
                    "lag": source.lag,
                }
                for source in last.sources
            ]
        )


class _UnreportedGroups:
    """Table of groups without members and reports; hidden if there are none."""

    def __init__(self) -> None:
        with ui.column().classes("w-full gap-4") as self._all:
            heading("Groups without reports")
            ui.label(
                "Groups that commit offsets but have never had members, as queries on Spark do. Their state is "
                "derived from their offsets: running while they advance, standing still if they do not although "
                "there are records to read."
            ).classes("text-sm faint")
            self._table = LiveTable(
                [
                    column("query", "Group"),
                    column("state", "State"),
                    column("rate", "Rows / s", show=format_rate),
                    column("lag", "Lag", show=format_count),
                    column("read", "Rows read", show=format_count),
                    column("topics", "Reads", wide=True),
                ],
                "query",
                empty="There are no such groups.",
                link_column="query",
            )

    def show(self, groups: dict[str, GroupHistory]) -> None:
        self._all.visible = bool(groups)
        self._table.show(
            [
                {
                    "query": name,
                    "link": group_link(name),
                    "state": history.state,
                    "rate": history.rows_per_s,
                    "lag": history.info.lag,
                    "read": history.samples[-1].committed,
                    "topics": ", ".join(sorted({row.partition.topic for row in history.info.partitions})),
                }
                for name, history in groups.items()
            ]
        )


def _row(report: PipelineReport, now: int) -> dict[str, Any]:
    state = report.state_at(now)
    is_over = state not in (RunState.STARTING, RunState.RUNNING, RunState.WAITING)
    return {
        "name": report.pipeline,
        "link": f"/pipelines?name={quote(report.pipeline, safe='')}",
        "state": str(state),
        "color": _COLORS[state],
        "rate": None if is_over else report.rows_per_s,
        "lag": report.lag,
        "batch": report.batch_s,
        "since": report.since_ms,
        "where": f"{report.host}:{report.pid}",
        "error": report.error or "",
    }


def _format_duration(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f} s"
