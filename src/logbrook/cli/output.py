"""Standard output: errors of writing to it, and text that is safe to show on a terminal.

A closed pipe (`| head`) ends a command quietly; a full device is an error in one sentence. This module imports little,
because every command does, `--version` too.
"""

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Errors of write() that the device or file behind standard output causes.
_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
# C0 without tab and line feed, DEL, and C1, which begin the escape sequences of terminals.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@contextmanager
def output_failures_reported() -> Iterator[None]:
    """Run a command and flush its output. Raises SystemExit if the output cannot be written."""
    if sys.stdout is None:
        # Closed by the parent (`>&-`).
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, it is open for the rest of the process
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        raise SystemExit(0) from None
    except OSError as error:
        if error.errno not in _WRITE_ERRORS or error.filename is not None:
            raise
        discard_output()
        sys.stderr.write(f"error: standard output cannot be written: {error.strerror}\n")
        raise SystemExit(1) from None


def discard_output() -> None:
    """Discard buffered output: it would be written at exit and raise again, outside of any handler."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def escape_controls(text: str, escape: str = "\\x{:02x}") -> str:
    """Escape control characters, except tabs and line ends: on a terminal they could move the cursor or worse."""
    return _CONTROLS.sub(lambda match: escape.format(ord(match[0])), text)


def escape_bytes(data: bytes) -> bytes:
    """Escape control characters and bytes that are not UTF-8."""
    return escape_controls(data.decode("utf-8", "backslashreplace")).encode()
