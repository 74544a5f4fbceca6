"""Commands that run on Spark: `logbrook archive`, `replay` and `audit`.

Exit codes: 2 for invalid options, 3 if the cluster does not respond or lacks a topic, 4 if the job fails, 5 without a
working Spark. Spark is imported when a job runs, never to show help or another command.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logbrook.cli.client_options import spark_options
from logbrook.cli.connection import with_ports
from logbrook.cli.failures import INTERRUPTED, fail, report_failures
from logbrook.cli.terminal import ClientCommand
from logbrook.model.version import install_command
from logbrook.spark.errors import EXIT_FAILED, EXIT_NO_SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logbrook.spark.jobs.audit import PartitionAudit

archive_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
replay_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
audit_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

UNSOUND = 1
_POLL_S = 0.5
# Interval of progress lines when standard error is not a terminal.
_LOG_INTERVAL_S = 10.0

Servers = Annotated[
    str, typer.Option("--bootstrap-servers", "-b", metavar="HOST[:PORT]", help="Brokers of the cluster.")
]
Master = Annotated[str | None, typer.Option("--master", help="Spark's master URL; default: local[*].")]
From = Annotated[
    str | None, typer.Option("--from", help="Start of the range: earliest, -1h, a time in ms, or offsets as JSON.")
]
To = Annotated[
    str | None, typer.Option("--to", help="End of the range: latest, -1h, a time in ms, or offsets as JSON.")
]


@archive_app.command(cls=ClientCommand)
def archive(
    topics: Annotated[str, typer.Argument(metavar="TOPIC[,TOPIC...]", help="Topics to archive.")],
    table: Annotated[str, typer.Argument(metavar="DIR", help="Directory of the table; created if missing.")],
    servers: Servers = "127.0.0.1:9092",
    starting: From = None,
    ending: To = None,
    table_format: Annotated[
        str, typer.Option("--format", help="Format of a new table: delta, iceberg or parquet.")
    ] = "delta",
    partition_by: Annotated[
        str | None, typer.Option("--partition-by", help="Partition columns of a new table, separated by commas.")
    ] = None,
    master: Master = None,
) -> None:
    """Copy the records of topics into a table, exactly once.

    The next run continues after the last archived offset, so it can run every night and be killed at any time.

    Example: logbrook archive orders,payments /data/archive
    """
    options = topic_options(servers, topics, starting, ending) | {"includeHeaders": "true"}
    with spark_job("archive", master, options) as spark:
        from logbrook.spark.jobs.archive import archive as run  # noqa: PLC0415

        table_options = {"table.format": table_format} | ({"partition.by": partition_by} if partition_by else {})
        result = run(spark, options, table, table_options)
        for offsets in result.ranges:
            typer.echo(f"{offsets.partition}: offsets {offsets.start} to {offsets.end - 1}")
        typer.echo(f"{result.offsets} offsets of {len(result.ranges)} partitions are new in {table}")


@replay_app.command(cls=ClientCommand)
def replay(
    target: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to write to; it must exist.")],
    topic: Annotated[str | None, typer.Option("--topic", help="Topic to replay.")] = None,
    table: Annotated[str | None, typer.Option("--table", metavar="DIR", help="Table to replay.")] = None,
    servers: Servers = "127.0.0.1:9092",
    target_servers: Annotated[
        str | None,
        typer.Option("--to-servers", metavar="HOST[:PORT]", help="Cluster of the target, if it is another one."),
    ] = None,
    starting: From = None,
    ending: To = None,
    pace: Annotated[
        float | None,
        typer.Option("--pace", min=0.001, help="1 replays at the original speed, 10 ten times as fast."),
    ] = None,
    keep_partitions: Annotated[bool, typer.Option(help="Write each record to its original partition.")] = False,
    keep_timestamps: Annotated[bool, typer.Option(help="Keep the original timestamps.")] = False,
    master: Master = None,
) -> None:
    """Write the records of a topic or a table to a topic, at full speed unless a pace is given.

    Example: logbrook replay orders-test --topic orders --from -1h --pace 10
    """
    if (topic is None) == (table is None):
        raise typer.BadParameter("give either --topic or --table as the source of the records")
    options = None
    if topic is not None:
        options = topic_options(servers, topic, starting, ending) | {"includeHeaders": "true"}
    with spark_job("replay", master, options) as spark:
        from logbrook.spark.jobs.replay import replay as run  # noqa: PLC0415
        from logbrook.spark.tables.union import history  # noqa: PLC0415

        if table is not None:
            rows = history(spark, table)
        else:
            rows = spark.read.format("logbrook").options(**(options or {})).load()
        count = run(
            rows,
            {"kafka.bootstrap.servers": with_ports(target_servers or servers), "topic": target} | spark_options(),
            pace=pace,
            keep_partitions=keep_partitions,
            keep_timestamps=keep_timestamps,
        )
        typer.echo(f"{count} records written to {target}")


@audit_app.command(cls=ClientCommand)
def audit(
    topics: Annotated[str, typer.Argument(metavar="TOPIC[,TOPIC...]", help="Topics to check.")],
    servers: Servers = "127.0.0.1:9092",
    starting: From = None,
    ending: To = None,
    quick: Annotated[bool, typer.Option("--quick", help="Skip duplicates and key statistics.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON report instead of a table.")] = False,
    master: Master = None,
) -> None:
    """Check every record of topics: counts, gaps, duplicates, keys, checksums; one row per partition.

    The exit code is 1 if a batch is damaged or an offset occurs twice.

    Example: logbrook audit orders --from -1h
    """
    options = topic_options(servers, topics, starting, ending)
    with spark_job("audit", master, options) as spark:
        from logbrook.spark.jobs.audit import audit as run  # noqa: PLC0415
        from logbrook.spark.jobs.audit import audit_report  # noqa: PLC0415

        audits = run(spark, options, quick=quick)
        if as_json:
            typer.echo(json.dumps(audit_report(audits), indent=2))
        else:
            _print_audits(audits)
    if not all(partition_audit.is_sound for partition_audit in audits):
        raise typer.Exit(UNSOUND)


@contextmanager
def spark_job(name: str, master: str | None, reading: Mapping[str, str] | None = None) -> Iterator["SparkSession"]:
    """Yield a Spark session for a job and stop it afterwards. Errors are printed and end the command.

    `reading`, the options of a batch read, are checked against the cluster first: starting Spark takes seconds, and a
    typo should be reported at once.
    """
    try:
        from logbrook.spark import session  # noqa: PLC0415
        from logbrook.spark.errors import (  # noqa: PLC0415
            JvmEndedError,
            SparkError,
            exit_code_of,
            find_logbrook_error,
            summarize_error,
        )
        from logbrook.spark.jvm import jvm_exit_code, py4j_silenced, stop_spark  # noqa: PLC0415
        from logbrook.spark.planner import Planner  # noqa: PLC0415
        from logbrook.spark.read_options import read_options  # noqa: PLC0415
    except ImportError as error:
        fail(
            f"this command needs Spark, and {error.name or error} is not installed: {install_command('spark')}",
            EXIT_NO_SPARK,
        )
    try:
        if reading is not None:
            with closing(Planner(read_options(reading, is_batch=True))) as planner:
                planner.topics()
        spark = session(f"logbrook {name}", master=master)
    except SparkError as error:
        fail(str(error), exit_code_of(error))
    try:
        with py4j_silenced(), _progress(spark, name):
            yield spark
    except SparkError as error:
        fail(str(error), exit_code_of(error))
    except KeyboardInterrupt:
        spark.sparkContext.cancelAllJobs()
        fail("stopped", INTERRUPTED)
    except Exception as error:
        if (exit_code := jvm_exit_code()) is not None:
            fail(str(JvmEndedError(exit_code)), EXIT_FAILED)
        # Spark's errors have no common base class; errors of `logbrook.spark` arrive wrapped in them.
        if find_logbrook_error(str(error)) is None and not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        fail(summarize_error(error), EXIT_FAILED)
    finally:
        stop_spark(spark)


def topic_options(servers: str, topics: str, starting: str | None, ending: str | None) -> dict[str, str]:
    """Return the options of a batch read of the topics."""
    with report_failures():
        options = {"kafka.bootstrap.servers": with_ports(servers), "subscribe": topics} | spark_options()
    for edge, text in (("starting", starting), ("ending", ending)):
        if text is not None:
            is_time = text.isdecimal()
            options[f"{edge}Timestamp" if is_time else f"{edge}Offsets"] = text
    return options


def _print_audits(audits: "list[PartitionAudit]") -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table()
    for name in ("partition", "offsets", "records", "bytes", "missing", "tombstones", "duplicates", "keys", "damaged"):
        table.add_column(name, justify="left" if name in ("partition", "offsets") else "right")
    for row in audits:
        counts = row.counts
        keys = "" if row.keys is None else f"{row.keys.distinct} ({row.keys.largest_share:.0%} {row.keys.top[0][0]})"
        table.add_row(
            str(row.partition),
            f"{counts.range.start} to {counts.range.end}",
            f"{counts.records:,}",
            f"{counts.bytes:,}",
            f"{counts.missing_offsets:,}",
            f"{counts.tombstones:,}",
            "" if row.duplicates is None else f"{row.duplicates:,}",
            keys,
            f"{counts.damaged_batches:,}",
        )
    console = Console()
    console.print(table)
    for row in audits:
        if row.counts.first_damage is not None:
            console.print(f"{row.partition}: {row.counts.first_damage}", style="red")


@contextmanager
def _progress(spark: Any, name: str) -> Iterator[None]:
    """Report finished tasks on standard error: continuously on a terminal, else every 10 s."""
    is_done = Event()
    thread = Thread(target=_report_progress, args=(spark.sparkContext.statusTracker(), name, is_done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def _report_progress(tracker: Any, name: str, is_done: Event) -> None:
    from py4j.protocol import Py4JError  # noqa: PLC0415

    is_terminal = sys.stderr.isatty()
    elapsed_s = 0.0
    while not is_done.wait(_POLL_S):
        elapsed_s += _POLL_S
        try:
            stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
        except (Py4JError, OSError):
            # The JVM has ended; the command reports it.
            break
        tasks = sum(stage.numTasks for stage in stages)
        completed = sum(stage.numCompletedTasks for stage in stages)
        line = f"{name}: {completed} of {tasks} tasks, {elapsed_s:.0f} s" if tasks else f"{name}: {elapsed_s:.0f} s"
        if is_terminal:
            typer.echo(f"\r\x1b[2K{line}", nl=False, err=True)
        elif elapsed_s % _LOG_INTERVAL_S < _POLL_S:
            typer.echo(line, err=True)
    if is_terminal:
        typer.echo("\r\x1b[2K", nl=False, err=True)
