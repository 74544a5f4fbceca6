"""The first page: how much goes through, how long it takes, and where."""

from nicegui import ui

from logbrook.console.forms import shown_count, shown_rate, shown_size
from logbrook.console.pages.charts import TimeChart
from logbrook.console.pages.layout import Console, frame, tile
from logbrook.console.pages.tables import LiveTable, column
from logbrook.console.sampling import INTERVAL_S

_BUSIEST = 10


def add(console: Console) -> None:
    @ui.page("/")
    def overview() -> None:
        with frame(console, "Overview", "/"):
            _Overview(console)


class _Overview:
    def __init__(self, console: Console) -> None:
        self._sampler = console.sampler
        with ui.row().classes("w-full gap-3 items-stretch"):
            self._messages = tile("Messages in / s")
            self._bytes_in = tile("Bytes in / s")
            self._bytes_out = tile("Bytes out / s")
            self._stored = tile("Messages stored")
            self._size = tile("On disk")
            self._lag = tile("Lag of all groups")
        with ui.grid().classes("w-full gap-4 grid-cols-1 md:grid-cols-2"):
            self._throughput = TimeChart("Messages per second", ("in", "out"))
            self._latency = TimeChart("Latency of produce requests", ("p50", "p99", "sync p99"), "ms")
        self._hint = ui.label(
            "Latencies and bytes come from the metrics port of a Logbrook broker, which does not answer: name it with "
            "logbrook console --metrics HOST:PORT."
        ).classes("text-sm faint")
        ui.label("Busiest topics").classes("text-lg font-semibold")
        self._busiest = LiveTable(
            [
                column("name", "Topic"),
                column("rate", "Messages / s", number=True, sort_by="rate_number"),
                column("messages", "Messages", number=True, sort_by="messages_number"),
                column("size", "Size", number=True, sort_by="size_number"),
            ],
            "name",
            empty="There is no topic yet. Make one on the page Topics.",
            link_column="name",
        )
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _show(self) -> None:
        sampler = self._sampler
        topics = [one for one in sampler.topics if not one.is_internal]
        if sampler.samples:
            last = sampler.samples[-1]
            is_current = sampler.problem is None
            self._messages.text = shown_rate(last.messages_in_s if is_current else None)
            self._bytes_in.text = shown_size(_whole(last.bytes_in_s if is_current else None))
            self._bytes_out.text = shown_size(_whole(last.bytes_out_s if is_current else None))
            self._stored.text = shown_count(sum(one.offsets or 0 for one in topics))
            self._size.text = shown_size(sum(one.size_bytes or 0 for one in sampler.topics))
            self._lag.text = shown_count(sum(one.info.lag or 0 for one in sampler.groups.values()))
            self._hint.visible = is_current and not sampler.totals
        samples = list(sampler.samples)
        self._throughput.show(
            [[(one.at_ms, one.messages_in_s) for one in samples], [(one.at_ms, one.messages_out_s) for one in samples]]
        )
        self._latency.show(
            [
                [(one.at_ms, one.produce_p50_ms) for one in samples],
                [(one.at_ms, one.produce_p99_ms) for one in samples],
                [(one.at_ms, one.sync_p99_ms) for one in samples],
            ]
        )
        busiest = sorted(topics, key=lambda one: (-sampler.rates.get(one.name, 0.0), one.name))[:_BUSIEST]
        self._busiest.show(
            [
                {
                    "name": one.name,
                    "link": f"/topics/{one.name}",
                    "rate": shown_rate(sampler.rates.get(one.name)),
                    "rate_number": sampler.rates.get(one.name, 0.0),
                    "messages": shown_count(one.offsets),
                    "messages_number": one.offsets,
                    "size": shown_size(one.size_bytes),
                    "size_number": one.size_bytes,
                }
                for one in busiest
            ]
        )


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
