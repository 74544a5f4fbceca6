"""`logbrook bench`: load on a cluster, and how it takes it."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from logbrook.cli.bench_load import Load
from logbrook.cli.bench_report import live_display, outcome_form, print_outcome
from logbrook.cli.bench_run import Outcome, Run
from logbrook.cli.choices import Acks, Compression
from logbrook.cli.connection import Bootstrap, Json, administered, bootstrap_servers, topic_names
from logbrook.cli.failures import INTERRUPTED, fail, refuse, sentence_of
from logbrook.cli.output import plural, print_json
from logbrook.cli.paragraphs import ParagraphCommand
from logbrook.client.admin import Admin
from logbrook.client.client import EARLIEST, LATEST
from logbrook.model import LogbrookError, TopicPartition
from logbrook.records.batch import Codec

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_DURATION_S = 10.0
_BATCH_BYTES = 64 << 10
# With a rate, a producer sends at least so many batches a second, so that none waits long to be full.
_BATCHES_PER_S = 50
_TIMEOUT_S = 30.0


@app.command(cls=ParagraphCommand)
def bench(
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", help="Else one is made, and removed again.", autocompletion=topic_names),
    ] = None,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="Of a topic that is made.")] = 1,
    producers: Annotated[int, typer.Option("--producers", min=0, help="Processes; 0 only reads what is there.")] = 1,
    consumers: Annotated[int, typer.Option("--consumers", min=0, help="Processes.")] = 1,
    size: Annotated[int, typer.Option("--size", "-s", min=0, metavar="BYTES", help="Of a record's value.")] = 100,
    rate: Annotated[
        float | None, typer.Option("--rate", "-r", min=0.1, metavar="N", help="Records a second; else full speed.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="So many records.")] = None,
    duration: Annotated[
        float | None,
        typer.Option("--duration", min=0.1, metavar="SECONDS", help="For so long; 10 if there is no count."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, metavar="N", help="Records in a batch; about 64 KiB otherwise.")
    ] = None,
    compression: Annotated[Compression, typer.Option("--compression", "-z", help="Of batches.")] = Compression.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="Who has to have a record before it counts.")] = Acks.ALL,
    in_flight: Annotated[int, typer.Option("--in-flight", min=1, help="Requests of a producer under way.")] = 5,
    keep: Annotated[bool, typer.Option("--keep", help="Do not remove the topic that was made.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Produce and consume as fast as it goes, or at a rate, and tell how fast it was and how long it took.

    Sizes are those of batches as they are sent. With a rate, latency counts from when a record was due, so that nothing
    is hidden by a broker that stalls. Ctrl-C ends it with the numbers so far.

    JSON: {"topic", "interrupted", "failure", "produce", "consume"}, where the last two are null or {"records", "bytes",
    "seconds", "records_per_s", "bytes_per_s", "latency_ms"}; latency_ms is null or {"p50", "p90", "p99", "p99.9",
    "max", "histogram"}, with a list of {"up_to_ms", "records"}.

    Examples: logbrook bench; logbrook bench --rate 10000 --size 1000 --duration 30 -z zstd
    """
    if not producers and not consumers:
        refuse("--producers", "without producers and consumers there is nothing to do")
    if not producers and topic is None:
        refuse("--topic", "say what to read, since nothing is to be written")
    if count is not None and count < producers:
        refuse("--count", f"it is less than the number of producers, {producers}")
    if count is None and duration is None and producers:
        duration = _DURATION_S
    with administered(bootstrap) as admin, _topic(admin, topic, partitions, keep, not producers) as name:
        load = Load(
            servers=bootstrap_servers(bootstrap, os.environ),
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
        outcome = _run(admin, load, producers, consumers, duration, not as_json)
        if as_json:
            print_json({"topic": name} | outcome_form(outcome))
        else:
            print_outcome(outcome)
    if outcome.failure:
        fail(outcome.failure)
    if outcome.is_interrupted:
        raise typer.Exit(INTERRUPTED)


def _run(admin: Admin, load: Load, producers: int, consumers: int, duration_s: float | None, is_shown: bool) -> Outcome:
    there = [TopicPartition(load.topic, one) for one in admin.client.partitions(load.topic)]
    ends = admin.cluster.list_offsets(dict.fromkeys(there, LATEST))
    starts = ends if producers else admin.cluster.list_offsets(dict.fromkeys(there, EARLIEST))
    offsets = {one.partition: offset for one, offset in starts.items()}
    to_read = sum(ends.values()) - sum(starts.values())
    run = Run(load, offsets, producers, consumers, duration_s, to_read)
    run.start()
    limits = [] if load.count is None else [plural(load.count, "record")]
    limits += [] if duration_s is None else [f"{duration_s:g} s"]
    with live_display(is_shown and sys.stdout.isatty(), " or ".join(limits) or plural(to_read, "record")) as show:
        return run.run(show)


@contextmanager
def _topic(admin: Admin, given: str | None, partitions: int, keep: bool, is_read_only: bool) -> Iterator[str]:
    """The topic to use. One that was not there is made, and goes again unless it is to be kept."""
    if given is not None and (is_read_only or given in admin.topics.names()):
        # If it is not there, the first question about it says so.
        yield given
        return
    name = given or f"logbrook-bench-{secrets.token_hex(4)}"
    admin.topics.create(name, partitions)
    try:
        yield name
    finally:
        if keep:
            typer.echo(f"topic {name} is kept; `logbrook topic delete {name}` removes it", err=True)
        else:
            _remove(admin, name)


def _remove(admin: Admin, topic: str) -> None:
    """The numbers, and what has ended them, matter more than that the topic is still there."""
    try:
        admin.topics.delete([topic])
    except LogbrookError as error:
        typer.echo(f"topic {topic} could not be removed: {sentence_of(error)}", err=True)


def _batch_records(size: int, rate: float | None, producers: int) -> int:
    fit = max(1, _BATCH_BYTES // max(1, size))
    return fit if rate is None else max(1, min(fit, round(rate / producers / _BATCHES_PER_S)))
