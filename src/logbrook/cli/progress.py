"""How far reading an input is, on a terminal that somebody looks at."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
