"""`logbrook audit`: what is in topics, and whether it is sound."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from logbrook.cli.spark_job import From, Master, Servers, To, spark_job, topic_options

if TYPE_CHECKING:
    from logbrook.spark.jobs.audit import PartitionAudit

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
UNSOUND = 1


@app.command()
def audit(
    topics: Annotated[str, typer.Argument(metavar="TOPIC[,TOPIC...]", help="What to look at.")],
    servers: Servers = "127.0.0.1:9092",
    starting: From = None,
    ending: To = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out duplicates and keys.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON report instead of a table.")] = False,
    master: Master = None,
) -> None:
    """Look at every record: counts, gaps, duplicates, keys and checksums, for each partition.

    The exit code is 1 when a batch is damaged or an offset is there twice.
    """
    options = topic_options(servers, topics, starting, ending)
    with spark_job("audit", master, options) as spark:
        from logbrook.spark.jobs.audit import as_json as report  # noqa: PLC0415
        from logbrook.spark.jobs.audit import audit as run  # noqa: PLC0415

        audited = run(spark, options, quick=quick)
        if as_json:
            typer.echo(json.dumps(report(audited), indent=2))
        else:
            _print_table(audited)
    if not all(one.is_sound for one in audited):
        raise typer.Exit(UNSOUND)


def _print_table(audited: "list[PartitionAudit]") -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table()
    for name in ("partition", "offsets", "records", "bytes", "missing", "tombstones", "duplicates", "keys", "damaged"):
        table.add_column(name, justify="left" if name in ("partition", "offsets") else "right")
    for one in audited:
        found = one.found
        keys = "" if one.keys is None else f"{one.keys.distinct} ({one.keys.largest_share:.0%} {one.keys.top[0][0]})"
        table.add_row(
            str(one.partition),
            f"{found.range.start} to {found.range.end}",
            f"{found.records:,}",
            f"{found.bytes:,}",
            f"{found.missing_offsets:,}",
            f"{found.tombstones:,}",
            "" if one.duplicates is None else f"{one.duplicates:,}",
            keys,
            f"{found.damaged_batches:,}",
        )
    console = Console()
    console.print(table)
    for one in audited:
        if one.found.first_damage is not None:
            console.print(f"{one.partition}: {one.found.first_damage}", style="red")
