"""`logbrook table`: looking after the tables that pipelines write."""

from datetime import timedelta
from typing import Annotated, Any

import typer

from logbrook.spark.exit_codes import NO_SPARK, WRONG

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Look after the tables that pipelines write: compact, vacuum.",
)

Directory = Annotated[str, typer.Argument(metavar="DIR", help="The table's directory.")]
_MIB = 1 << 20


@app.command()
def compact(
    table: Directory,
    file_mib: Annotated[int, typer.Option("--file-mib", min=1, help="How large files should be.")] = 128,
) -> None:
    """Rewrite small files into larger ones. The rows stay as they are; writers may go on meanwhile."""
    done = _run("compact", table, file_bytes=file_mib * _MIB)
    if not done.files_removed:
        typer.echo("there was nothing to compact")
        return
    typer.echo(f"{done.files_removed} files became {done.files_added}, {done.rows} rows")
    typer.echo("the old files stay until `logbrook table vacuum` finds that nobody needs them")


@app.command()
def vacuum(
    table: Directory,
    days: Annotated[float, typer.Option("--older-than-days", min=0.0, help="Leave alone what is younger.")] = 7.0,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the files instead of naming them.")] = False,
) -> None:
    """Name, or delete, the files that no commit needs: what crashed writers left, and what was replaced long ago."""
    done = _run("vacuum", table, older_than=timedelta(days=days), dry_run=not delete)
    for file in done.files:
        typer.echo(file)
    verb = "deleted" if done.deleted else "could be deleted; --delete does it"
    typer.echo(f"{len(done.files)} files, {done.size_bytes} bytes {verb}")


def _run(what: str, table: str, **arguments: Any) -> Any:
    try:
        from logbrook.spark.errors import SparkError  # noqa: PLC0415
        from logbrook.spark.tables import maintenance  # noqa: PLC0415
    except ImportError as error:
        typer.echo(f"error: {error.name or error} is not installed: pip install 'logbrook[spark]'", err=True)
        raise typer.Exit(NO_SPARK) from None
    try:
        return getattr(maintenance, what)(table, **arguments)
    except SparkError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(WRONG) from None
