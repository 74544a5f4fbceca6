"""`logbrook archive`: topics into a table."""

from typing import Annotated

import typer

from logbrook.cli.spark_job import From, Master, Servers, To, spark_job, topic_options

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def archive(
    topics: Annotated[str, typer.Argument(metavar="TOPIC[,TOPIC...]", help="What to archive.")],
    table: Annotated[str, typer.Argument(metavar="DIR", help="The table's directory; it is made if it is not there.")],
    servers: Servers = "127.0.0.1:9092",
    starting: From = None,
    ending: To = None,
    table_format: Annotated[
        str, typer.Option("--format", help="delta, iceberg or parquet, for a table that is made.")
    ] = "delta",
    partition_by: Annotated[str | None, typer.Option("--partition-by", help="Columns, with commas.")] = None,
    master: Master = None,
) -> None:
    """Copy the records of topics into a table, each once.

    Run again it goes on where the table ends, so it may be run every night, and may be killed at any time.
    """
    options = topic_options(servers, topics, starting, ending) | {"includeHeaders": "true"}
    with spark_job("archive", master, options) as spark:
        from logbrook.spark.jobs.archive import archive as run  # noqa: PLC0415

        table_options = {"table.format": table_format} | ({"partition.by": partition_by} if partition_by else {})
        archived = run(spark, options, table, table_options)
        for one in archived.ranges:
            typer.echo(f"{one.partition}: offsets {one.start} to {one.end - 1}")
        typer.echo(f"{archived.offsets} offsets of {len(archived.ranges)} partitions are new in {table}")
