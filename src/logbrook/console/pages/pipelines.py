"""Pipelines, as the cluster sees them: groups that commit their progress without anybody joining them.

A pipeline on Spark is a process somewhere else, and tells the cluster nothing but the offsets up to which each of its
queries has come. From how these move follow its state, its rows per second and its lag.
"""

from urllib.parse import quote

from nicegui import ui

from logbrook.console.forms import shown_count, shown_rate
from logbrook.console.pages.charts import TimeChart
from logbrook.console.pages.layout import Console, frame
from logbrook.console.pages.tables import LiveTable, column
from logbrook.console.sampling import INTERVAL_S

_CHARTED = 4


def add(console: Console) -> None:
    @ui.page("/pipelines")
    def pipelines() -> None:
        with frame(console, "Pipelines", "/pipelines"):
            _Pipelines(console)


class _Pipelines:
    def __init__(self, console: Console) -> None:
        self._sampler = console.sampler
        ui.label(
            "Each query of a pipeline commits how far it is under a consumer group of its own, PIPELINE-SINK. Its "
            "state is seen from that: running while it goes ahead, standing still when it has something to read and "
            "does not."
        ).classes("text-sm faint")
        self._table = LiveTable(
            [
                column("query", "Query"),
                column("state", "State"),
                column("rate", "Rows / s", number=True, sort_by="rate_number"),
                column("lag", "Lag", number=True, sort_by="lag_number"),
                column("read", "Rows read", number=True),
                column("topics", "Reads", wide=True),
            ],
            "query",
            empty="No pipeline has committed anything yet: logbrook pipeline run starts one.",
            link_column="query",
        )
        self._charted: tuple[str, ...] = ()
        self._charts = ui.column().classes("w-full gap-4")
        self._chart: TimeChart | None = None
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _show(self) -> None:
        found = {name: one for name, one in sorted(self._sampler.groups.items()) if not one.has_joined}
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
                for name, one in found.items()
            ]
        )
        names = tuple(sorted(found, key=lambda name: -(found[name].info.lag or 0))[:_CHARTED])
        if set(names) != set(self._charted):
            self._charts.clear()
            self._charted, self._chart = names, None
            if names:
                with self._charts:
                    self._chart = TimeChart("Lag", names)
        if self._chart is not None:
            self._chart.show([[(one.at_ms, one.lag) for one in found[name].samples] for name in self._charted])
