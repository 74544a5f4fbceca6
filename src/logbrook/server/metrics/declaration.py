"""Declarations of metrics: name, kind, help, labels, and the function that reads the values from a `Scrape`.

Names follow Prometheus' conventions: `logbrook_` first, the unit last, and `_total` at the end of counters.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import accumulate
from typing import TypeAlias

from logbrook.server.metrics.scrape import Scrape, label_text
from logbrook.storage.probe import LATENCY_BOUNDS_S, Histogram

Number: TypeAlias = int | float
# The values of a series' labels, in the order of the metric's labels.
LabelValues: TypeAlias = tuple[object, ...]


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `lines(scrape)` yields its samples in the text format, without the HELP and TYPE lines (`head`)."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    lines: Callable[[Scrape], Iterator[str]]

    @property
    def head(self) -> str:
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"


def latencies(
    name: str, help_: str, labels: Sequence[str], read: Callable[[Scrape], Iterable[tuple[LabelValues, Histogram]]]
) -> Metric:
    """A histogram with the buckets of `LATENCY_BOUNDS_S`."""

    def lines(scrape: Scrape) -> Iterator[str]:
        for values, histogram in read(scrape):
            # Another thread may be adding values: the count is derived from the buckets, so that they always agree.
            total, counts = histogram.sum, list(accumulate(histogram.counts))
            for bound, count in zip(_BOUNDS, counts, strict=True):
                yield f"{name}_bucket{label_text((*labels, 'le'), (*values, bound))} {count}\n"
            text = label_text(labels, values)
            yield f"{name}_sum{text} {total}\n{name}_count{text} {counts[-1]}\n"

    return Metric(name, MetricKind.HISTOGRAM, help_, tuple(labels), lines)


_BOUNDS = (*map(str, LATENCY_BOUNDS_S), "+Inf")


def _scalar(kind: MetricKind, name: str, help_: str, read: Callable[[Scrape], Number]) -> Metric:
    def lines(scrape: Scrape) -> Iterator[str]:
        yield f"{name} {read(scrape)}\n"

    return Metric(name, kind, help_, (), lines)


def _family(
    kind: MetricKind,
    name: str,
    help_: str,
    labels: Sequence[str],
    read: Callable[[Scrape], Iterable[tuple[LabelValues, Number]]],
) -> Metric:
    def lines(scrape: Scrape) -> Iterator[str]:
        for values, number in read(scrape):
            yield f"{name}{label_text(labels, values)} {number}\n"

    return Metric(name, kind, help_, tuple(labels), lines)


counter = partial(_scalar, MetricKind.COUNTER)
gauge = partial(_scalar, MetricKind.GAUGE)
counters = partial(_family, MetricKind.COUNTER)
gauges = partial(_family, MetricKind.GAUGE)
