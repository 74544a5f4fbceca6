"""The numbers of a benchmark: while it runs, at its end, and as JSON."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer

from logbrook.cli.bench_latency import draw_histogram
from logbrook.cli.bench_run import Outcome, Side
from logbrook.cli.output import print_table, title

if TYPE_CHECKING:
    from rich.table import Table

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_MIB = 1 << 20
# Two tables: one with all of it would not fit into 80 columns.
_THROUGHPUT = ("throughput", "records", "seconds", "records/s", "MiB/s")
_LATENCY = ("latency in ms", *_QUANTILES, "max")
_REDRAWS_PER_S = 4


def outcome_form(outcome: Outcome) -> dict[str, Any]:
    """For JSON."""
    return {
        "interrupted": outcome.is_interrupted,
        "failure": outcome.failure,
        "produce": _side_form(outcome.produced),
        "consume": _side_form(outcome.consumed),
    }


def print_outcome(outcome: Outcome) -> None:
    """The final table, and how latencies are spread."""
    sides = [("produced", outcome.produced), ("consumed", outcome.consumed)]
    print_table(_THROUGHPUT, [(name, *_throughput(side)) for name, side in sides if side.first_s is not None])
    timed = [(name, *_quantiles(side)) for name, side in sides if side.latencies.total]
    if timed:
        typer.echo()
        print_table(_LATENCY, timed)
    names = {"produced": "Latency from send to answer", "consumed": "Latency from send to consumer"}
    for name, side in sides:
        if side.latencies.total:
            title(names[name])
            for line in draw_histogram(side.latencies.histogram()):
                typer.echo(line)


@contextmanager
def live_display(is_wanted: bool, limit: str) -> Iterator[Callable[[Outcome], None]]:
    """A function to be given the numbers so far, which shows them in place. Nothing is shown unless it is wanted."""
    if not is_wanted:
        yield lambda _: None
        return
    # It takes its time to import, and a script has no use for it.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    rates = _Rates()
    console = Console(highlight=False)
    with Live(console=console, refresh_per_second=_REDRAWS_PER_S, transient=True) as live:
        yield lambda outcome: live.update(_live_table(outcome, rates, limit))


class _Rates:
    """How fast it is now: over the last second or so."""

    def __init__(self) -> None:
        self.started_s = monotonic()
        self._past: list[tuple[float, int, int, int, int]] = []

    def now(self, outcome: Outcome) -> tuple[tuple[float, float], tuple[float, float]]:
        """Records and bytes a second, produced and consumed."""
        now_s, produced, consumed = monotonic(), outcome.produced, outcome.consumed
        self._past.append((now_s, produced.records, produced.bytes, consumed.records, consumed.bytes))
        while len(self._past) > 2 and now_s - self._past[1][0] >= 1.0:
            del self._past[0]
        first, last = self._past[0], self._past[-1]
        span_s = last[0] - first[0]
        numbers = [(b - a) / span_s if span_s else 0.0 for a, b in zip(first[1:], last[1:], strict=True)]
        return (numbers[0], numbers[1]), (numbers[2], numbers[3])


def _live_table(outcome: Outcome, rates: _Rates, limit: str) -> "Table":
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    elapsed_s = monotonic() - rates.started_s
    caption = f"{elapsed_s:.0f} s, until {limit}; Ctrl-C ends it with the numbers so far"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, caption=caption, caption_justify="left")
    for name in ("", "records", "records/s", "MiB/s", "p50 ms", "p99 ms", "max ms"):
        table.add_column(name.upper(), justify="left" if not name else "right")
    now = rates.now(outcome)
    for name, side, (records_per_s, bytes_per_s) in zip(
        ("produced", "consumed"), (outcome.produced, outcome.consumed), now, strict=True
    ):
        if side.first_s is None:
            continue
        quantiles = [_shown_ms(side.latencies.quantile_ms(share)) for share in (0.5, 0.99, 1.0)]
        table.add_row(name, f"{side.records:,}", f"{records_per_s:,.0f}", f"{bytes_per_s / _MIB:,.1f}", *quantiles)
    return table


class _Figure(int):
    """A number with the text that shows it; tables put numbers on the right."""

    text: str

    @classmethod
    def of(cls, text: str) -> "_Figure":
        figure = cls()
        figure.text = text
        return figure

    def __str__(self) -> str:
        return self.text


def _throughput(side: Side) -> list[_Figure]:
    texts = (
        f"{side.records:,}",
        f"{side.seconds:.2f}",
        f"{side.records_per_s:,.0f}",
        f"{side.bytes_per_s / _MIB:,.1f}",
    )
    return [_Figure.of(text) for text in texts]


def _quantiles(side: Side) -> list[_Figure]:
    shares = (*_QUANTILES.values(), 1.0)
    return [_Figure.of(_shown_ms(side.latencies.quantile_ms(share))) for share in shares]


def _side_form(side: Side) -> dict[str, Any] | None:
    """None where nobody was to do it."""
    if side.first_s is None:
        return None
    latencies: dict[str, Any] | None = None
    if side.latencies.total:
        latencies = {name: side.latencies.quantile_ms(share) for name, share in _QUANTILES.items()}
        latencies["max"] = side.latencies.max_us / 1000
        latencies["histogram"] = [{"up_to_ms": edge, "records": count} for edge, count in side.latencies.histogram()]
    return {
        "records": side.records,
        "bytes": side.bytes,
        "seconds": round(side.seconds, 3),
        "records_per_s": round(side.records_per_s, 1),
        "bytes_per_s": round(side.bytes_per_s, 1),
        "latency_ms": latencies,
    }


def _shown_ms(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:,.2f}"
