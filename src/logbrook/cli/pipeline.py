"""`logbrook pipeline`: run a pipeline on Spark, see how those are that run anywhere, or write an example of one.

Spark is imported when a pipeline is run, by name: this package does without the libraries that it brings along.
"""

from importlib import import_module
from importlib.util import find_spec
from time import time
from typing import Annotated, Any

import typer

from logbrook.cli.connection import Bootstrap, Json, administered
from logbrook.cli.failures import fail, refuse
from logbrook.cli.output import print_json, print_table
from logbrook.cli.paragraphs import ParagraphCommand
from logbrook.cli.pipeline_rows import columns, document_of, row_of
from logbrook.pipelines.reading import Seen, read_on
from logbrook.pipelines.report import REPORTS_TOPIC
from logbrook.pipelines.reports_topic import write_report
from logbrook.spark.exit_codes import NO_SPARK

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Run topics through SQL into topics and tables (on Spark).",
)

Reports = Annotated[str, typer.Option("--reports", metavar="TOPIC", help="Where pipelines say how they are.")]


@app.command()
def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A pipeline: orders.toml or orders.py.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and print the plan; nothing is written.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Take what is there, then end.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Begin there instead, such as -1h or earliest; refused once there is progress.",
        ),
    ] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option("--bootstrap-servers", metavar="HOST:PORT", help="Instead of the file's.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="DIR", help="Where progress is kept, instead of the file's.")
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Spark's master, instead of the file's or local[*].")
    ] = None,
    reports: Annotated[
        str | None,
        typer.Option("--reports", metavar="TOPIC", help="The topic that is told how it is, instead of the file's."),
    ] = None,
    no_reports: Annotated[bool, typer.Option("--no-reports", help="Tell no topic how it is.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show all that Spark says.")] = False,
) -> None:
    """Run a pipeline until it is told to stop.

    A TOML file names sources, views in SQL, and sinks;
    `logbrook pipeline init` writes an example.
    A Python file has a function pipeline(spark) that returns
    one or more DataStreamWriters, not yet started.

    SIGINT or SIGTERM ends it after the batches in flight, a second one at once.

    Exit codes:
      0  it is done, or was told to stop
      2  the file or an option is wrong
      3  the cluster cannot be asked, or a topic is missing
      4  a query failed
      5  Spark is not installed, or does not start
      130, 143  it was told to stop twice
    """
    if no_reports and reports is not None:
        refuse("--reports / --no-reports", "one of them")
    command = _of_spark("logbrook.spark.pipeline.command")
    request = command.Request(
        file=file,
        dry_run=dry_run,
        once=once,
        start=start,
        bootstrap_servers=bootstrap_servers,
        checkpoint=checkpoint,
        master=master,
        reports="" if no_reports else reports,
        verbose=verbose,
    )
    raise typer.Exit(command.run(request))


@app.command("list", cls=ParagraphCommand)
def show_all(as_json: Json = False, reports: Reports = REPORTS_TOPIC, bootstrap: Bootstrap = None) -> None:
    """Show the pipelines that have run, and how they are.

    One that has said nothing for half a minute, and not that it has ended, is lost: it was killed, or cannot reach the
    cluster.

    JSON: a list of {"pipeline", "state", "since_ms", "said_ms", "interval_ms", "rows_per_s", "lag", "batch_s", "error",
    "host", "pid", "version", "sinks", "sources"}, with a list of {"name", "rows", "rows_per_s", "batch_id", "batch_s",
    "batch_at_ms"} and a list of {"topic", "lag"}; what is not known is null.
    """
    with administered(bootstrap) as admin:
        found = read_on(admin.client, reports, Seen()).latest
        now_ms = round(time() * 1000)
        if as_json:
            print_json([document_of(one, now_ms) for one in found])
            return
        print_table(columns(), [row_of(one, now_ms) for one in found])
        if not found:
            typer.echo("no pipeline has run yet; `logbrook pipeline run FILE` starts one", err=True)


@app.command()
def forget(
    name: Annotated[str, typer.Argument(metavar="PIPELINE", help="Its name.")],
    reports: Reports = REPORTS_TOPIC,
    bootstrap: Bootstrap = None,
) -> None:
    """Take a pipeline that runs no more out of the list. Its progress and what it has written stay."""
    with administered(bootstrap) as admin:
        if name not in read_on(admin.client, reports, Seen()).reports:
            fail(f"there is no pipeline {name}; `logbrook pipeline list` shows what there is")
        write_report(admin.client, reports, name, None)
        typer.echo(f"forgot {name}")


@app.command()
def init(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Where the files go; it is created.")],
    declarative: Annotated[
        bool, typer.Option("--declarative", help="A project for Spark's own spark-pipelines instead.")
    ] = False,
) -> None:
    """Write an example of a pipeline that works as it is. No file is overwritten."""
    projects = import_module("logbrook.spark.pipeline.projects")
    try:
        written = projects.write_project(directory, declarative=declarative)
    except projects.ProjectError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    for path in written:
        typer.echo(path)


def _of_spark(module: str) -> Any:
    if find_spec("pyspark") is None:
        typer.echo("error: pipelines run on Spark, which is not here: pip install 'logbrook[spark]'", err=True)
        raise typer.Exit(NO_SPARK)
    return import_module(module)
