"""Notes of outages: files by which the processes of a Spark application tell the driver what they are waiting for.

Each process that retries keeps one note per cluster, in the directory of `application_files`, and replaces it with each
failed try. A note expires if no other failure follows it, because the cluster has answered or the process has ended.
The next failure is expected within twice the time of the last one, plus a margin: tries take as long as their time
limit if a broker accepts connections and does not answer.

Executors on other machines have directories of their own. The driver's processes, which plan every micro-batch, meet
the same outage.
"""

import json
import os
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

from logbrook.spark.application_files import worker_directory

_PREFIX = ".logbrook-outage-"
_DRAFT = ".draft"
EXPIRY_MARGIN_MS = 3_000


class OutageNote(NamedTuple):
    """A cluster that does not answer a process. Times are in ms since the epoch: its first and its last failure."""

    servers: str
    error: str
    since_ms: int
    failed_ms: int
    expires_ms: int

    @classmethod
    def of_failures(cls, servers: str, error: str, since_ms: int, previous_ms: int, failed_ms: int) -> "OutageNote":
        """Return the note of a failure at `failed_ms`, after one at `previous_ms`."""
        expires_ms = failed_ms + 2 * (failed_ms - previous_ms) + EXPIRY_MARGIN_MS
        return cls(servers, error, since_ms, failed_ms, expires_ms)


def write_note(note: OutageNote) -> None:
    """Replace this process's note for the cluster. Does nothing outside of Spark's worker processes."""
    directory = worker_directory()
    if directory is None:
        return
    name = f"{_PREFIX}{sha256(note.servers.encode()).hexdigest()[:16]}-{os.getpid()}"
    path = os.path.join(directory, name)
    # A note is only displayed: if it cannot be written, the query goes on.
    with suppress(OSError):
        with open(f"{path}{_DRAFT}", "w", encoding="utf-8") as file:
            json.dump(note, file)
        os.replace(f"{path}{_DRAFT}", path)


def read_notes(directory: str, now_ms: int) -> list[OutageNote]:
    """Return the notes that have not expired."""
    notes = []
    with suppress(OSError):
        for name in os.listdir(directory):
            if name.startswith(_PREFIX) and not name.endswith(_DRAFT):
                with suppress(OSError, ValueError, TypeError), open(os.path.join(directory, name), "rb") as file:
                    notes.append(OutageNote(*json.load(file)))
    return [note for note in notes if note.expires_ms > now_ms]
