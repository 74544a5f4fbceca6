"""The worker process: takes commands on its standard input and answers on its standard output, until the input ends.

A command is a line of JSON, `{"begin": {...}}` or `{"clean": {...}}`, written by `server/compaction_worker.py`. An
answer is a sequence of frames, each with a byte for its kind and a length of four bytes:

    P   progress: the worker is alive, no payload
    D   bytes to keep
    R   the result, JSON; the last frame
    E   the reason of a failure, JSON; the last frame, and the worker exits

The process has a low priority, and the kernel kills it when the broker ends.
"""

import json
import os
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from logbrook.compactor.cleaner import CompiledCleaner
from logbrook.model.identifiers import Offset, ProducerId
from logbrook.ports import Bytes
from logbrook.ports.os_files import OsFile
from logbrook.ports.parent_process import end_with_parent
from logbrook.records.columns.cleaning import DigestMap
from logbrook.records.errors import RecordsError
from logbrook.storage.cleaner import CleaningJob, SegmentSpan
from logbrook.storage.transaction_index import AbortedTxn

_FRAME = struct.Struct(">cI")
# A tenth of the share of a normal process where all cores are busy. The lowest priority would starve for minutes.
_NICENESS = 10


class Worker:
    """Serves the commands of one broker."""

    def __init__(self, commands: BinaryIO, answers: BinaryIO) -> None:
        self._commands = commands
        self._answers = answers
        self._cleaner: CompiledCleaner | None = None

    def run(self) -> int:
        """Return the exit code."""
        for line in self._commands:
            command: dict[str, Any] = json.loads(line)
            try:
                result = self._begin(**command["begin"]) if "begin" in command else self._clean(**command["clean"])
            except (OSError, RecordsError, MemoryError) as error:
                self._send(b"E", json.dumps({"reason": f"{type(error).__name__}: {error}"}).encode())
                return 1
            self._send(b"R", json.dumps(result).encode())
        return 0

    def _begin(self, root: str, digest_key: str, job: dict[str, Any]) -> dict[str, Any]:
        # Release the map of the last pass first.
        self._cleaner = None
        decoded = decode_job(job)
        key_map = DigestMap.within(decoded.map_bytes_max, bytes.fromhex(digest_key))
        self._cleaner = CompiledCleaner(decoded, opener(root), key_map, lambda: self._send(b"P", b""))
        return {"end_offset": self._cleaner.build_map()}

    def _clean(self, paths: list[str], keeps_markers: bool) -> dict[str, Any]:
        assert self._cleaner is not None, "clean without begin"
        if keeps_markers:
            self._cleaner.keep_markers()
        is_same = self._cleaner.clean(paths, lambda kept: self._send(b"D", kept))
        return {"is_same": is_same, "emptied": sorted(self._cleaner.emptied)}

    def _send(self, kind: bytes, payload: Bytes) -> None:
        self._answers.write(_FRAME.pack(kind, len(payload)))
        self._answers.write(payload)
        if kind != b"D":
            self._answers.flush()


def opener(root: str) -> Callable[[str], OsFile]:
    """Return a function that opens files below `root` for reading only."""
    return lambda path: OsFile(path, os.open(f"{root}/{path}", os.O_RDONLY | os.O_CLOEXEC))


def decode_job(fields: dict[str, Any]) -> CleaningJob:
    job = CleaningJob(**fields)
    return job._replace(
        spans=[SegmentSpan(path, size, Offset(end_offset)) for path, size, end_offset in job.spans],
        aborted=[
            AbortedTxn(ProducerId(producer_id), Offset(first), Offset(last), Offset(stable))
            for producer_id, first, last, stable in job.aborted
        ],
    )


def main() -> int:
    end_with_parent(int(sys.argv[1]))
    os.nice(_NICENESS)
    return Worker(sys.stdin.buffer, sys.stdout.buffer).run()


if __name__ == "__main__":
    sys.exit(main())
