"""`logbrook bench`: measure throughput and latency of a cluster, shown live, as tables, or as JSON."""

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logbrook.cli.arguments import Acks, Compression
from logbrook.cli.bench_load import BenchLoad, draw_histogram
from logbrook.cli.bench_run import BenchResult, BenchRun, SideResult
from logbrook.cli.client_options import client_security
from logbrook.cli.connection import Bootstrap, Json, bootstrap_servers, connected_admin, topic_names
from logbrook.cli.failures import describe_error, fail, interrupts_blocked, refuse, termination_as_interrupt
from logbrook.cli.terminal import ParagraphCommand, plural, print_json, print_table, print_title
from logbrook.client.admin import Admin
from logbrook.client.client import EARLIEST, LATEST
from logbrook.model import LogbrookError, TopicPartition
from logbrook.records.batch import Codec

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_DURATION_S = 10.0
_BATCH_BYTES = 64 << 10
# With a rate, a producer sends at least this many batches per second: records must not wait for a batch to fill.
_BATCHES_PER_S = 50
_TIMEOUT_S = 30.0
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_MIB = 1 << 20
# Two tables, because one would not fit into 80 columns.
_THROUGHPUT_COLUMNS = ("throughput", "records", "seconds", "records/s", "MiB/s")
_LATENCY_COLUMNS = ("latency in ms", *_QUANTILES, "max")
_REDRAWS_PER_S = 4


@app.command(cls=ParagraphCommand)
def bench(
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", help="Topic to use; default: a temporary one.", autocompletion=topic_names),
    ] = None,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="Partitions of a new topic.")] = 1,
    producers: Annotated[
        int, typer.Option("--producers", min=0, help="Producer processes; 0 reads the existing records of --topic.")
    ] = 1,
    consumers: Annotated[int, typer.Option("--consumers", min=0, help="Consumer processes.")] = 1,
    size: Annotated[int, typer.Option("--size", "-s", min=0, metavar="BYTES", help="Size of a record's value.")] = 100,
    rate: Annotated[
        float | None,
        typer.Option("--rate", "-r", min=0.1, metavar="N", help="Records per second in all; default: full speed."),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after this many records.")] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration", min=0.1, metavar="SECONDS", help="Stop after this time; default: 10 s if no --count."
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, metavar="N", help="Records per batch; default: about 64 KiB.")
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="Codec of the batches.")
    ] = Compression.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="Replicas that must acknowledge a batch.")] = Acks.ALL,
    in_flight: Annotated[int, typer.Option("--in-flight", min=1, help="Unanswered requests per producer.")] = 5,
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete the temporary topic.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Measure throughput and latency of producing and consuming.

    Sizes are those of batches as they are sent. With a rate, latency counts from the time a record was due, so that a
    stalling broker is charged for every delayed record. Ctrl-C or SIGTERM ends the run, prints the results so far and
    deletes the temporary topic (exit code 130 or 143). The worker processes end with the command, even if it is killed.

    JSON: {"topic", "interrupted", "failure", "produce", "consume"}, where the last two are null or {"records", "bytes",
    "seconds", "records_per_s", "bytes_per_s", "latency_ms"}; latency_ms is null or {"p50", "p90", "p99", "p99.9",
    "max", "histogram"}, with a list of {"up_to_ms", "records"}.

    Examples: logbrook bench; logbrook bench --rate 10000 --size 1000 --duration 30 -z zstd
    """
    _check_options(topic, producers, consumers, count)
    if count is None and duration is None and producers:
        duration = _DURATION_S
    with (
        termination_as_interrupt(),
        connected_admin(bootstrap) as admin,
        _bench_topic(admin, topic, partitions, keep, not producers) as name,
    ):
        load = BenchLoad(
            servers=bootstrap_servers(bootstrap, os.environ),
            security=client_security(),
            topic=name,
            record_bytes=size,
            batch_records=batch or _batch_records(size, rate, max(1, producers)),
            codec=Codec[compression.name],
            acks=acks.number,
            in_flight=in_flight,
            timeout_s=_TIMEOUT_S,
            rate=rate,
            count=count,
        )
        result = _run(admin, load, producers, consumers, duration, not as_json)
        _print_result(result, name, as_json)
    _exit_after(result)


def _check_options(topic: str | None, producers: int, consumers: int, count: int | None) -> None:
    if not producers and not consumers:
        refuse("--producers", "without producers and consumers there is nothing to measure")
    if not producers and topic is None:
        refuse("--topic", "name the topic to read: without producers nothing is written")
    if count is not None and count < producers:
        refuse("--count", f"it is less than the number of producers, {producers}")


def _run(
    admin: Admin, load: BenchLoad, producers: int, consumers: int, duration_s: float | None, is_shown: bool
) -> BenchResult:
    partitions = [TopicPartition(load.topic, number) for number in admin.client.partitions(load.topic)]
    ends = admin.cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    starts = ends if producers else admin.cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    offsets = {partition.partition: offset for partition, offset in starts.items()}
    existing_records = sum(ends.values()) - sum(starts.values())
    run = BenchRun(load, offsets, producers, consumers, duration_s, existing_records)
    run.start()
    limits = [] if load.count is None else [plural(load.count, "record")]
    limits += [] if duration_s is None else [f"{duration_s:g} s"]
    limit = " or ".join(limits) or plural(existing_records, "record")
    with _live_display(is_shown and sys.stdout.isatty(), limit) as show:
        return run.run(show)


@contextmanager
def _bench_topic(admin: Admin, option: str | None, partitions: int, keep: bool, is_read_only: bool) -> Iterator[str]:
    """Yield the name of the topic; create it if it does not exist, and delete a created one afterwards."""
    if option is not None and (is_read_only or option in admin.topics.names()):
        yield option
        return
    name = option or f"logbrook-bench-{secrets.token_hex(4)}"
    is_created = False
    try:
        # An interrupt during the request would leave the topic behind.
        with interrupts_blocked():
            admin.topics.create(name, partitions)
            is_created = True
        yield name
    finally:
        if is_created and keep:
            typer.echo(f"topic {name} is kept; `logbrook topic delete {name}` deletes it", err=True)
        elif is_created:
            _delete(admin, name)


def _delete(admin: Admin, topic: str) -> None:
    """Delete the topic; a failure is only reported, so that it does not hide the results."""
    try:
        admin.topics.delete([topic])
    except LogbrookError as error:
        typer.echo(f"topic {topic} could not be deleted: {describe_error(error)}", err=True)


def _batch_records(size: int, rate: float | None, producers: int) -> int:
    fitting = max(1, _BATCH_BYTES // max(1, size))
    return fitting if rate is None else max(1, min(fitting, round(rate / producers / _BATCHES_PER_S)))


def _result_json(result: BenchResult) -> dict[str, Any]:
    return {
        "interrupted": result.interrupt_code is not None,
        "failure": result.failure,
        "produce": _side_json(result.produced),
        "consume": _side_json(result.consumed),
    }


def _side_json(side: SideResult) -> dict[str, Any] | None:
    """Return None for a side without workers."""
    if side.first_s is None:
        return None
    latencies: dict[str, Any] | None = None
    if side.latencies.total:
        latencies = {name: side.latencies.quantile_ms(share) for name, share in _QUANTILES.items()}
        latencies["max"] = side.latencies.max_us / 1000
        latencies["histogram"] = [{"up_to_ms": edge, "records": count} for edge, count in side.latencies.rows()]
    return {
        "records": side.records,
        "bytes": side.bytes,
        "seconds": round(side.seconds, 3),
        "records_per_s": round(side.records_per_s, 1),
        "bytes_per_s": round(side.bytes_per_s, 1),
        "latency_ms": latencies,
    }


def _print_result(result: BenchResult, topic: str, as_json: bool) -> None:
    """Print throughput, latency quantiles and histograms."""
    if as_json:
        print_json({"topic": topic} | _result_json(result))
        return
    sides = [("produced", result.produced), ("consumed", result.consumed)]
    print_table(_THROUGHPUT_COLUMNS, [(name, *_throughput(side)) for name, side in sides if side.first_s is not None])
    latency_rows = [(name, *_quantiles(side)) for name, side in sides if side.latencies.total]
    if latency_rows:
        typer.echo()
        print_table(_LATENCY_COLUMNS, latency_rows)
    titles = {"produced": "Latency from send to answer", "consumed": "Latency from send to consumer"}
    for name, side in sides:
        if side.latencies.total:
            print_title(titles[name])
            for line in draw_histogram(side.latencies.rows()):
                typer.echo(line)


def _exit_after(result: BenchResult) -> None:
    """End the command with an error if the run failed or was interrupted."""
    if result.failure:
        fail(result.failure)
    if result.interrupt_code is not None:
        raise typer.Exit(result.interrupt_code)


class _Figure(int):
    """A number with its own text; tables right-align integers."""

    text: str

    @classmethod
    def of(cls, text: str) -> "_Figure":
        figure = cls()
        figure.text = text
        return figure

    def __str__(self) -> str:
        return self.text


def _throughput(side: SideResult) -> list[_Figure]:
    texts = (
        f"{side.records:,}",
        f"{side.seconds:.2f}",
        f"{side.records_per_s:,.0f}",
        f"{side.bytes_per_s / _MIB:,.1f}",
    )
    return [_Figure.of(text) for text in texts]


def _quantiles(side: SideResult) -> list[_Figure]:
    shares = (*_QUANTILES.values(), 1.0)
    return [_Figure.of(_ms_text(side.latencies.quantile_ms(share))) for share in shares]


def _ms_text(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:,.2f}"


@contextmanager
def _live_display(is_shown: bool, limit: str) -> Iterator[Callable[[BenchResult], None]]:
    """Yield a function that shows the results so far in place, or does nothing unless `is_shown`."""
    if not is_shown:
        yield lambda _: None
        return
    # Rich is slow to import, and scripts do not need it.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    rates = _RecentRates()
    console = Console(highlight=False)
    with Live(console=console, refresh_per_second=_REDRAWS_PER_S, transient=True) as live:
        yield lambda result: live.update(_live_table(result, rates, limit))


class _RecentRates:
    """Rates over about the last second."""

    def __init__(self) -> None:
        self.started_s = monotonic()
        self._samples: list[tuple[float, int, int, int, int]] = []

    def add(self, result: BenchResult) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return records and bytes per second, of producers and of consumers."""
        now_s, produced, consumed = monotonic(), result.produced, result.consumed
        self._samples.append((now_s, produced.records, produced.bytes, consumed.records, consumed.bytes))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= 1.0:
            del self._samples[0]
        first, last = self._samples[0], self._samples[-1]
        span_s = last[0] - first[0]
        rates = [(b - a) / span_s if span_s else 0.0 for a, b in zip(first[1:], last[1:], strict=True)]
        return (rates[0], rates[1]), (rates[2], rates[3])


def _live_table(result: BenchResult, rates: _RecentRates, limit: str) -> "Table":
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    elapsed_s = monotonic() - rates.started_s
    caption = f"{elapsed_s:.0f} s, until {limit}; Ctrl-C ends it with the results so far"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, caption=caption, caption_justify="left")
    for name in ("", "records", "records/s", "MiB/s", "p50 ms", "p99 ms", "max ms"):
        table.add_column(name.upper(), justify="left" if not name else "right")
    recent = rates.add(result)
    for name, side, (records_per_s, bytes_per_s) in zip(
        ("produced", "consumed"), (result.produced, result.consumed), recent, strict=True
    ):
        if side.first_s is None:
            continue
        quantiles = [_ms_text(side.latencies.quantile_ms(share)) for share in (0.5, 0.99, 1.0)]
        table.add_row(name, f"{side.records:,}", f"{records_per_s:,.0f}", f"{bytes_per_s / _MIB:,.1f}", *quantiles)
    return table
