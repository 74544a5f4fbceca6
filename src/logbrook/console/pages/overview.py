"""The overview page: throughput, latency, and the busiest topics."""

from nicegui import ui

from logbrook.console.formatting import format_count, format_rate, format_size
from logbrook.console.pages.layout import ConsoleContext, frame, heading, tile, topic_link
from logbrook.console.pages.widgets import LiveTable, TimeChart, column
from logbrook.console.sampling import INTERVAL_S, busiest_topics
from logbrook.monitoring.sampling import TopicRates

_BUSIEST = 10


def add(console: ConsoleContext) -> None:
    @ui.page("/")
    def overview() -> None:
        with frame(console, "Overview", "/"):
            _OverviewPage(console)


class _OverviewPage:
    def __init__(self, console: ConsoleContext) -> None:
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
            "Latencies and bytes need the metrics of a Logbrook broker, which do not respond: start with "
            "logbrook console --metrics HOST:PORT."
        ).classes("text-sm faint")
        heading("Busiest topics")
        self._busiest = LiveTable(
            [
                column("name", "Topic"),
                column("rate", "Messages in / s", show=format_rate),
                column("bytes_in", "Bytes in / s", show=format_size),
                column("bytes_out", "Bytes out / s", show=format_size),
                column("messages", "Messages", show=format_count),
                column("size", "Size", show=format_size),
            ],
            "name",
            empty="There is no topic yet. Create one on the page Topics, or with logbrook topic create NAME",
            link_column="name",
        )
        self._show()
        ui.timer(INTERVAL_S / 2, self._show)

    def _show(self) -> None:
        sampler = self._sampler
        topics = [topic for topic in sampler.topics if not topic.is_internal]
        if sampler.samples:
            last = sampler.samples[-1]
            is_current = sampler.problem is None
            self._messages.text = format_rate(last.messages_in_s if is_current else None)
            self._bytes_in.text = format_size(last.bytes_in_s if is_current else None)
            self._bytes_out.text = format_size(last.bytes_out_s if is_current else None)
            self._stored.text = format_count(sum(topic.offsets or 0 for topic in topics))
            self._size.text = format_size(sum(topic.size_bytes or 0 for topic in sampler.topics))
            self._lag.text = format_count(sum(group.info.lag or 0 for group in sampler.groups.values()))
            self._hint.visible = is_current and not sampler.gauges
        samples = list(sampler.samples)
        self._throughput.show(
            [
                [(sample.at_ms, sample.messages_in_s) for sample in samples],
                [(sample.at_ms, sample.messages_out_s) for sample in samples],
            ]
        )
        self._latency.show(
            [
                [(sample.at_ms, sample.produce_p50_ms) for sample in samples],
                [(sample.at_ms, sample.produce_p99_ms) for sample in samples],
                [(sample.at_ms, sample.sync_p99_ms) for sample in samples],
            ]
        )
        rows = []
        for topic in busiest_topics(topics, sampler.traffic)[:_BUSIEST]:
            rates = sampler.topic_rates.get(topic.name, TopicRates())
            rows.append(
                {
                    "name": topic.name,
                    "link": topic_link(topic.name),
                    "rate": rates.in_records,
                    "bytes_in": rates.in_bytes,
                    "bytes_out": rates.out_bytes,
                    "messages": topic.offsets,
                    "size": topic.size_bytes,
                }
            )
        self._busiest.show(rows)
