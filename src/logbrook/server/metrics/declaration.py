"""What a metric is: its name, its help, its labels, and how its numbers are read.

Names follow Prometheus: `logbrook_` first, the unit last, `_total` after it for what only grows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import TypeAlias

from logbrook.server.metrics.scrape import Scrape, label_text
from logbrook.storage.probe import LATENCY_BOUNDS_S, Histogram

Number: TypeAlias = int | float
# What makes a series differ from others of its metric.
LabelValues: TypeAlias = tuple[object, ...]


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """`lines(scrape)` is its part of the page, without the head."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    lines: Callable[[Scrape], Iterator[str]]

    @property
    def head(self) -> str:
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"


def counter(name: str, help_: str, read: Callable[[Scrape], Number]) -> Metric:
    return _scalar(Kind.COUNTER, name, help_, read)


def gauge(name: str, help_: str, read: Callable[[Scrape], Number]) -> Metric:
    return _scalar(Kind.GAUGE, name, help_, read)


def counters(
    name: str, help_: str, labels: Sequence[str], read: Callable[[Scrape], Iterable[tuple[LabelValues, Number]]]
) -> Metric:
    return _family(Kind.COUNTER, name, help_, labels, read)


def gauges(
    name: str, help_: str, labels: Sequence[str], read: Callable[[Scrape], Iterable[tuple[LabelValues, Number]]]
) -> Metric:
    return _family(Kind.GAUGE, name, help_, labels, read)


def latencies(
    name: str, help_: str, labels: Sequence[str], read: Callable[[Scrape], Iterable[tuple[LabelValues, Histogram]]]
) -> Metric:
    """A histogram with the buckets of `LATENCY_BOUNDS_S`."""

    def lines(scrape: Scrape) -> Iterator[str]:
        for values, histogram in read(scrape):
            # Another thread may be adding: the count is that of the buckets, so that they always agree.
            total, counts = histogram.sum, list(accumulate(histogram.counts))
            for bound, count in zip(_BOUNDS, counts, strict=True):
                yield f"{name}_bucket{label_text((*labels, 'le'), (*values, bound))} {count}\n"
            text = label_text(labels, values)
            yield f"{name}_sum{text} {total}\n{name}_count{text} {counts[-1]}\n"

    return Metric(name, Kind.HISTOGRAM, help_, tuple(labels), lines)


_BOUNDS = (*map(str, LATENCY_BOUNDS_S), "+Inf")


def _scalar(kind: Kind, name: str, help_: str, read: Callable[[Scrape], Number]) -> Metric:
    def lines(scrape: Scrape) -> Iterator[str]:
        yield f"{name} {read(scrape)}\n"

    return Metric(name, kind, help_, (), lines)


def _family(
    kind: Kind,
    name: str,
    help_: str,
    labels: Sequence[str],
    read: Callable[[Scrape], Iterable[tuple[LabelValues, Number]]],
) -> Metric:
    def lines(scrape: Scrape) -> Iterator[str]:
        for values, number in read(scrape):
            yield f"{name}{label_text(labels, values)} {number}\n"

    return Metric(name, kind, help_, tuple(labels), lines)
