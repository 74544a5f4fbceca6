"""`logbrook pipeline`: run a pipeline on Spark, list the status of all pipelines, start new ones.

`logbrook.spark` is imported by name when a pipeline runs: the CLI must work without Spark's libraries.
"""

import os
import stat
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import time
from typing import Annotated, Any

import typer

import logbrook.spark
from logbrook.cli.client_options import spark_options
from logbrook.cli.connection import Bootstrap, Json, connected_admin
from logbrook.cli.failures import WRONG_USAGE, fail, refuse, report_failures
from logbrook.cli.terminal import ClientCommand, ParagraphCommand, print_json, print_table
from logbrook.client.partition_requests import PartitionRequests
from logbrook.model.version import install_command
from logbrook.pipelines.report import REPORTS_TOPIC, PipelineReport
from logbrook.pipelines.report_reader import ReportHistory, read_new_reports
from logbrook.pipelines.reporter import write_report
from logbrook.spark.errors import EXIT_NO_SPARK, SparkError, exit_code_of

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

# Placeholder in templates for the URI of a directory in the project.
_STORAGE = "@STORAGE@"
_TEMPLATES = Path(logbrook.spark.__file__).parent / "pipeline" / "templates"
_COLUMNS = ("pipeline", "state", "rows/s", "lag", "batch time", "restarts", "since", "host", "error")

Reports = Annotated[
    str, typer.Option("--reports", metavar="TOPIC", help="Topic to which pipelines write their status.")
]


@app.command(cls=ClientCommand)
def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Pipeline file, such as orders.toml or orders.py.")],
    once: Annotated[bool, typer.Option("--once", help="Process the records available now, then exit.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Start position, such as -1h or earliest; refused once the pipeline has a checkpoint.",
        ),
    ] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option("--bootstrap-servers", metavar="HOST:PORT", help="Brokers, instead of the file's.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="DIR", help="Checkpoint directory, instead of the file's.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Spark's master, instead of the file's; default: local[*]."),
    ] = None,
    reports: Annotated[
        str | None,
        typer.Option("--reports", metavar="TOPIC", help="Topic for status reports, instead of the file's."),
    ] = None,
    no_reports: Annotated[bool, typer.Option("--no-reports", help="Do not write status reports.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show Spark's log.")] = False,
) -> None:
    """Run a pipeline until SIGTERM or Ctrl-C.

    A TOML file defines sources, views in SQL, and sinks;
    `logbrook pipeline init` writes an example.
    A Python file has a function pipeline(spark) that returns
    one or more DataStreamWriters, not yet started.

    The first SIGINT or SIGTERM ends it after the batches in flight,
    the second at once.

    Exit codes:
      0  done, or stopped by a signal
      2  the file or an option is invalid
      3  the cluster or the schema registry does not respond, or a topic is missing
      4  a query failed
      5  Spark is not installed, or does not start
      130, 143  stopped by a second signal
    """
    if no_reports and reports is not None:
        refuse("--reports / --no-reports", "they cannot be combined")
    command = _import_spark("logbrook.spark.pipeline.command")
    request = command.RunRequest(
        file=file,
        once=once,
        start=start,
        bootstrap_servers=bootstrap_servers,
        checkpoint=checkpoint,
        master=master,
        reports="" if no_reports else reports,
        verbose=verbose,
        client=_client_options(),
    )
    raise typer.Exit(command.run(request))


@app.command(cls=ClientCommand)
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Pipeline file, such as orders.toml or orders.py.")],
    bootstrap_servers: Annotated[
        str | None, typer.Option("--bootstrap-servers", metavar="HOST:PORT", help="Brokers, instead of the file's.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Also print Spark's plan of each query.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show Spark's log.")] = False,
) -> None:
    """Check a pipeline and print its sources, views and sinks with their columns, without running it.

    It reports every problem of the file, the topics and the SQL, with exit codes as for `logbrook pipeline run`.
    """
    command = _import_spark("logbrook.spark.pipeline.command")
    request = command.RunRequest(
        file=file,
        checks_only=True,
        explain=explain,
        bootstrap_servers=bootstrap_servers,
        verbose=verbose,
        client=_client_options(),
    )
    raise typer.Exit(command.run(request))


@app.command("list", cls=ParagraphCommand)
def show_all(as_json: Json = False, reports: Reports = REPORTS_TOPIC, bootstrap: Bootstrap = None) -> None:
    """List pipelines with their state, throughput and lag.

    A running pipeline that has not reported for half a minute is shown as lost: it was killed, or cannot reach the
    cluster.

    JSON: a list of {"pipeline", "state", "since_ms", "said_ms", "interval_ms", "rows_per_s", "lag", "batch_s",
    "restarts", "error", "host", "pid", "version", "sinks", "sources"}, with a list of {"name", "rows", "rows_per_s",
    "batch_id", "batch_s", "batch_at_ms", "restarts"} and a list of {"topic", "lag"}; unknown values are null.
    """
    with connected_admin(bootstrap) as admin:
        latest = read_new_reports(admin.client, reports, ReportHistory()).latest
        now_ms = round(time() * 1000)
        if as_json:
            print_json([report.status_at(now_ms) for report in latest])
            return
        print_table(_COLUMNS, [_report_row(report, now_ms) for report in latest])
        if not latest:
            typer.echo("no pipeline has run yet; `logbrook pipeline run FILE` starts one", err=True)


@app.command(cls=ClientCommand)
def forget(
    name: Annotated[str, typer.Argument(metavar="PIPELINE", help="Name of the pipeline.")],
    reports: Reports = REPORTS_TOPIC,
    bootstrap: Bootstrap = None,
) -> None:
    """Remove a stopped pipeline from the list. Its checkpoint and its output are kept."""
    with connected_admin(bootstrap) as admin:
        if name not in read_new_reports(admin.client, reports, ReportHistory()).reports:
            fail(f"there is no pipeline {name}; `logbrook pipeline list` shows the pipelines")
        write_report(admin.client, reports, name, None)
        typer.echo(f"forgot {name}")


@app.command(cls=ClientCommand)
def init(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Directory for the files; created if missing.")],
    declarative: Annotated[
        bool, typer.Option("--declarative", help="Write a project for Spark's own spark-pipelines instead.")
    ] = False,
) -> None:
    """Write an example pipeline that runs as it is. Existing files are not overwritten."""
    for path in write_project(directory, declarative=declarative):
        typer.echo(path)


@app.command("import-checkpoint", cls=ParagraphCommand)
def import_checkpoint(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM",
            help="Checkpoint that Spark's Kafka source wrote; a path or a URI such as s3://bucket/path.",
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="Directory for the new checkpoint; created.")],
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Convert a checkpoint of Spark's Kafka source, so that format("logbrook") continues from it.

    Stop the query first. FROM is not changed. The new checkpoint has the query's id, batches and state; a batch that
    was not completed is repeated with the same offsets. The cluster must be the one that the query has read.

    JSON: {"batch_id", "is_committed", "startingOffsets", "offsets"}, with a list of {"topic", "partition", "offset"};
    startingOffsets is null unless the first batch has to be repeated.
    """
    module = _import_spark("logbrook.spark.checkpoint_import")
    with connected_admin(bootstrap) as admin:
        try:
            imported = module.import_checkpoint(source, target, PartitionRequests(admin.client))
        except SparkError as error:
            fail(str(error), exit_code_of(error))
    _print_imported(imported, as_json)


def _print_imported(imported: Any, as_json: bool) -> None:
    rows = [(partition.topic, partition.partition, offset) for partition, offset in sorted(imported.offsets.items())]
    if as_json:
        offsets = [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows]
        first = imported.starting_option
        facts = {"batch_id": imported.batch_id, "is_committed": imported.is_committed}
        print_json({**facts, "startingOffsets": first, "offsets": offsets})
        return
    print_table(("topic", "partition", "end offset"), rows)
    if imported.is_committed:
        typer.echo(f"batch {imported.batch_id} is complete; the query continues after these offsets", err=True)
        return
    typer.echo(f"batch {imported.batch_id} is not complete; the query repeats it up to these offsets", err=True)
    if imported.starting_option is not None:
        typer.echo(f"it is the first: start the query with startingOffsets = {imported.starting_option}", err=True)


def write_project(directory: str, *, declarative: bool = False) -> list[str]:
    """Write the files and return their paths; end the command, before anything is written, if one exists."""
    templates = _TEMPLATES / ("declarative" if declarative else "toml")
    sources = sorted(path for path in templates.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    targets = {path: os.path.join(directory, path.relative_to(templates)) for path in sources}
    existing = [target for target in targets.values() if os.path.lexists(target)]
    if existing:
        fail(f"{', '.join(existing)} already exists; nothing was written", WRONG_USAGE)
    storage = Path(os.path.abspath(directory), "storage").as_uri()
    try:
        for path, target in targets.items():
            os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
            with open(target, "x", encoding="utf-8") as file:
                file.write(path.read_text("utf-8").replace(_STORAGE, storage))
            if path.suffix == ".sh":
                os.chmod(target, os.stat(target).st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError as error:
        fail(f"{directory} cannot be written: {error.strerror or error}", WRONG_USAGE)
    return list(targets.values())


def _client_options() -> dict[str, str]:
    with report_failures():
        return spark_options()


def _import_spark(module: str) -> Any:
    if find_spec("pyspark") is None:
        fail(f"pipelines need Spark, which is not installed: {install_command('spark')}", EXIT_NO_SPARK)
    return import_module(module)


def _report_row(report: PipelineReport, now_ms: int) -> tuple[object, ...]:
    since = datetime.fromtimestamp(report.since_ms / 1000, UTC).astimezone()
    return (
        report.pipeline,
        str(report.state_at(now_ms)),
        round(report.rows_per_s),
        report.lag,
        None if report.batch_s is None else f"{report.batch_s:.1f} s",
        report.restarts,
        since.strftime("%Y-%m-%d %H:%M:%S"),
        f"{report.host}:{report.pid}",
        (report.error or "").partition("\n")[0],
    )
