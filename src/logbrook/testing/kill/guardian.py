"""A process that cleans up after a harness that cannot do so itself any more.

Finalizers do not run in a process that is killed, and brokers in a session of their own do not notice. The guardian
holds the other end of a pipe: when that ends, however it does, it kills the process groups that it was told of and
removes the directories. It is this file, run as a script: it imports nothing of ours, so that it starts at once.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys

_END_TIMEOUT_S = 10


class Guardian:
    """`watch` what must not be left behind; `forget` what is gone. A context: at its end what is left goes."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def __enter__(self) -> "Guardian":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def watch_group(self, pid: int) -> None:
        self._tell("+group", str(pid))

    def forget_group(self, pid: int) -> None:
        # Whoever cleans up goes on with it, though somebody may have killed the guardian: then it forgot everything.
        with contextlib.suppress(BrokenPipeError):
            self._tell("-group", str(pid))

    def watch_directory(self, path: str) -> None:
        self._tell("+directory", path)

    def close(self) -> None:
        """What is watched is killed and removed when this returns."""
        assert self._process.stdin is not None, "it was opened with a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(_END_TIMEOUT_S)

    def _tell(self, word: str, what: str) -> None:
        assert self._process.stdin is not None, "it was opened with a pipe"
        self._process.stdin.write(f"{word} {what}\n".encode())
        self._process.stdin.flush()


def _guard() -> None:
    """Read until the pipe ends, then clean up."""
    watched: dict[str, set[str]] = {"group": set(), "directory": set()}
    for line in sys.stdin:
        word, _, what = line.rstrip("\n").partition(" ")
        kind = watched[word[1:]]
        if word[0] == "+":
            kind.add(what)
        else:
            kind.discard(what)
    for pid in watched["group"]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(pid), signal.SIGKILL)
    for path in watched["directory"]:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    _guard()
