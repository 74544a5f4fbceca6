"""Processes that tests start."""

import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import Any

SECONDS_MAX = 240


@contextmanager
def running(
    command: Sequence[str], seconds_max: float = SECONDS_MAX, **options: Any
) -> Iterator["subprocess.Popen[str]"]:
    """Run a command with text streams for the duration of the block, at whose end it is killed if it still runs.

    `Popen` as a context manager would wait without limit for a command that the failed test did not stop. After
    `seconds_max` the command is killed, so that a read from its pipes ends too.
    """
    with subprocess.Popen(command, text=True, **options) as process:
        watchdog = Timer(seconds_max, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def is_readable(descriptor: int, timeout_s: float) -> bool:
    """Wait for data or the end of it. Unlike `select`, `poll` knows descriptors from 1,024 on."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
