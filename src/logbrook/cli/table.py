"""`logbrook table`: optimize, vacuum and history of the tables that pipelines write.

They need no Spark session and no cluster. Exit codes: 2 for a missing table or an invalid option, 4 if another writer
was in the way, 5 if the libraries of the table formats are not installed.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from importlib import import_module
from time import monotonic
from typing import Annotated, Any

import typer

from logbrook.cli.connection import Json
from logbrook.cli.failures import INTERRUPTED, fail, refuse
from logbrook.cli.terminal import ParagraphCommand, plural, print_json, print_rows
from logbrook.model.text import size_text
from logbrook.model.version import install_command
from logbrook.spark.errors import EXIT_NO_SPARK, SparkError, exit_code_of

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

_MIB = 1 << 20
# Interval of progress lines when standard error is not a terminal.
_LOG_INTERVAL_S = 10.0
_EXIT_CODES = (
    "Exit codes: 2 if there is no such table or an option is invalid, 4 if another writer was in the way (try again), "
    "5 if a library of the table formats is not installed, 130 after Ctrl-C."
)
_COLUMNS = (
    "version",
    ("time", lambda row: datetime.fromtimestamp(row["time_ms"] / 1000, UTC).isoformat(" ", "seconds")[:19]),
    "operation",
    ("rows +", "rows_added"),
    ("rows -", "rows_removed"),
    ("files +", "files_added"),
    ("files -", "files_removed"),
    ("writer", "app_id"),
    ("batch", "batch_id"),
)

TableDirectory = Annotated[str, typer.Argument(metavar="DIR", help="Directory of the table.")]
TableOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="Option of the format logbrook_table; repeatable."),
]


@app.command(cls=ParagraphCommand, epilog=_EXIT_CODES)
def optimize(
    table: TableDirectory,
    file_mib: Annotated[int, typer.Option("--file-mib", min=1, help="Target file size in MiB.")] = 128,
    option: TableOption = None,
    as_json: Json = False,
) -> None:
    """Rewrite small files into larger ones. The rows do not change, and writers may continue meanwhile.

    The old files stay until `logbrook table vacuum --delete` removes them.

    JSON: {"files_removed", "files_added", "bytes_removed", "bytes_added", "rows"}.

    Example: logbrook table optimize tables/orders
    """
    with _maintenance() as maintenance, _progress("optimize") as on_progress:
        arguments = {"file_bytes": file_mib * _MIB, "options": _options(option), "on_progress": on_progress}
        result = maintenance.compact(table, **arguments)
    if as_json:
        print_json(asdict(result))
    elif not result.files_removed:
        typer.echo("there is nothing to optimize")
    else:
        sizes = f"{size_text(result.bytes_removed)} became {size_text(result.bytes_added)}"
        typer.echo(f"{plural(result.files_removed, 'file')} became {result.files_added}, {sizes}, {result.rows:,} rows")


@app.command(cls=ParagraphCommand, epilog=_EXIT_CODES)
def vacuum(
    table: TableDirectory,
    days: Annotated[float, typer.Option("--older-than-days", min=0.0, help="Keep files younger than this.")] = 7.0,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the files instead of listing them.")] = False,
    option: TableOption = None,
    as_json: Json = False,
) -> None:
    """List or delete files that no commit refers to: leftovers of crashed writers, and files replaced long ago.

    Queries of versions older than that no longer work afterwards. The age must exceed the duration of any write.

    JSON: {"files", "size_bytes", "deleted"}.

    Example: logbrook table vacuum tables/orders --delete
    """
    with _maintenance() as maintenance:
        result = maintenance.vacuum(table, timedelta(days=days), dry_run=not delete, options=_options(option))
    if as_json:
        print_json({**asdict(result), "files": list(result.files)})
        return
    for file in result.files:
        typer.echo(file)
    verb = "deleted" if result.deleted else "could be deleted; --delete does it"
    typer.echo(f"{plural(len(result.files), 'file')}, {result.size_bytes} bytes {verb}")


@app.command(cls=ParagraphCommand, epilog=_EXIT_CODES)
def history(
    table: TableDirectory,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Number of commits.")] = 20,
    option: TableOption = None,
    as_json: Json = False,
) -> None:
    """List the last commits of a table, newest first: operation, rows and files, and the batch of the writer.

    An upsert and an optimize count the rows of all files that they replace.

    JSON: a list of {"version", "time_ms", "operation", "app_id", "batch_id", "files_added", "files_removed",
    "rows_added", "rows_removed"}; unknown values, such as those of other programs, are null.

    Example: logbrook table history tables/orders -n 5
    """
    with _maintenance() as maintenance:
        commits = maintenance.history(table, limit, _options(option))
    print_rows([asdict(commit) for commit in commits], _COLUMNS, as_json=as_json)


@contextmanager
def _maintenance() -> Iterator[Any]:
    """Yield the module of the operations; errors are printed and end the command."""
    try:
        yield import_module("logbrook.spark.tables.maintenance")
    except ImportError as error:
        fail(f"{error.name or error} is not installed: {install_command('spark')}", EXIT_NO_SPARK)
    except SparkError as error:
        fail(str(error), exit_code_of(error))
    except KeyboardInterrupt:
        fail("stopped", INTERRUPTED)


def _options(given: list[str] | None) -> dict[str, str]:
    options = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            refuse("--option", f"{text!r} is not NAME=VALUE")
        options[name] = value
    return options


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that reports files on standard error: continuously on a terminal, else every 10 s."""
    is_terminal = sys.stderr.isatty()
    reported_s = begun_s = monotonic()

    def report(files: int, of: int) -> None:
        nonlocal reported_s
        now_s = monotonic()
        line = f"{name}: {files} of {of} files, {now_s - begun_s:.0f} s"
        if is_terminal:
            typer.echo(f"\r\x1b[2K{line}", nl=False, err=True)
        elif now_s - reported_s >= _LOG_INTERVAL_S:
            reported_s = now_s
            typer.echo(line, err=True)

    try:
        yield report
    finally:
        if is_terminal:
            typer.echo("\r\x1b[2K", nl=False, err=True)
