"""`logbrook replay`: records of a topic or a table into a topic."""

from typing import Annotated

import typer

from logbrook.cli.spark_job import From, Master, Servers, To, spark_job, topic_options

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def replay(
    target: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to; it must be there.")],
    topic: Annotated[str | None, typer.Option("--topic", help="The topic whose records are replayed.")] = None,
    table: Annotated[str | None, typer.Option("--table", metavar="DIR", help="The table that has them.")] = None,
    servers: Servers = "127.0.0.1:9092",
    target_servers: Annotated[
        str | None, typer.Option("--to-servers", metavar="HOST:PORT", help="The target's cluster, if it is another.")
    ] = None,
    starting: From = None,
    ending: To = None,
    pace: Annotated[
        float | None, typer.Option("--pace", min=0.001, help="1 as fast as they once came, 10 ten times as fast.")
    ] = None,
    keep_partitions: Annotated[bool, typer.Option(help="Write each to the partition it was in.")] = False,
    keep_timestamps: Annotated[bool, typer.Option(help="Keep their timestamps instead of now.")] = False,
    master: Master = None,
) -> None:
    """Write the records of a topic or of a table to a topic, at full speed unless a pace is given."""
    if (topic is None) == (table is None):
        raise typer.BadParameter("one of --topic and --table says what is replayed")
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
        written = run(
            rows,
            {"kafka.bootstrap.servers": target_servers or servers, "topic": target},
            pace=pace,
            keep_partitions=keep_partitions,
            keep_timestamps=keep_timestamps,
        )
        typer.echo(f"{written} records written to {target}")
