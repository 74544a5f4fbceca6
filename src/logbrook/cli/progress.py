"""How far reading is, on a terminal that somebody looks at."""

import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def reading_progress(descriptor: int) -> Iterator[Callable[[int], None]]:
    """A function to be told how many bytes were read. Shows a bar on standard error, if that is a terminal and the
    input has a size; an input that is typed or piped has none."""
    found = os.fstat(descriptor)
    if not sys.stderr.isatty() or not stat.S_ISREG(found.st_mode):
        yield lambda _: None
        return
    # It takes its time to import, and a script has no use for it.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (TextColumn("writing"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=found.st_size)
        yield lambda count: progress.advance(task, count)


@contextmanager
def verifying_progress() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function to be told what a broker tells while it verifies a partition: where it is, how far, and how far it
    is to go. Shows a bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn("verifying {task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def tell(told: Mapping[str, Any]) -> None:
            name = f"{told['topic']}-{told['partition']}"
            progress.update(task, description=name, completed=told["bytes"], total=told["bytes_total"])

        yield tell
