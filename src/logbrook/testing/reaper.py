"""A helper process that kills process groups and removes directories when the test process ends, however it ends.

Finalizers do not run in a process that is killed, and brokers in their own session survive it. The reaper process reads
commands from a pipe; at end of file it kills the watched process groups and all processes that use a watched directory,
unmounts the watched file systems and removes the watched directories. It is this file run as a script, and imports
nothing of Logbrook so that it starts immediately.
"""

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys

_EXIT_TIMEOUT_S = 10


class Reaper:
    """Handle of the reaper process. Leaving its context kills and removes everything still watched."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def __enter__(self) -> "Reaper":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def watch_group(self, pid: int) -> None:
        self._send("+group", str(pid))

    def forget_group(self, pid: int) -> None:
        # The reaper process may have been killed; clean-up must go on without it.
        with contextlib.suppress(BrokenPipeError):
            self._send("-group", str(pid))

    def watch_mount(self, path: str) -> None:
        """Unmount the file system at this path, in use or not, before directories are removed."""
        self._send("+mount", path)

    def watch_directory(self, path: str) -> None:
        self._send("+directory", path)

    def close(self) -> None:
        """Kill and remove what is watched, and wait for that."""
        assert self._process.stdin is not None, "opened with a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(_EXIT_TIMEOUT_S)

    def _send(self, command: str, argument: str) -> None:
        assert self._process.stdin is not None, "opened with a pipe"
        self._process.stdin.write(f"{command} {argument}\n".encode())
        self._process.stdin.flush()


def _main() -> None:
    """Read commands until end of file, then clean up."""
    watched: dict[str, set[str]] = {"group": set(), "mount": set(), "directory": set()}
    for line in sys.stdin:
        command, _, argument = line.rstrip("\n").partition(" ")
        targets = watched[command[1:]]
        if command[0] == "+":
            targets.add(argument)
        else:
            targets.discard(argument)
    for pid in watched["group"]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(pid), signal.SIGKILL)
    for path in watched["directory"]:
        _kill_processes_that_use(path)
    for path in watched["mount"]:
        subprocess.run(["umount", "--lazy", path], capture_output=True, check=False)
    for path in watched["directory"]:
        shutil.rmtree(path, ignore_errors=True)


def _kill_processes_that_use(directory: str) -> None:
    """Kill every process with this directory in its command line or with a file of it open, except the test process.

    One that was started just before the test process was killed is not watched yet. Until its exec it has the command
    line of the test process; its log file is open by then. Linux only.
    """
    for process in glob.glob("/proc/[0-9]*"):
        pid = int(process.rpartition("/")[2])
        with contextlib.suppress(OSError):
            if pid not in (os.getpid(), os.getppid()) and _uses(process, directory):
                os.kill(pid, signal.SIGKILL)


def _uses(process: str, directory: str) -> bool:
    with open(f"{process}/cmdline", "rb") as file:
        if directory.encode() in file.read():
            return True
    for link in glob.glob(f"{process}/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(f"{directory}/"):
                return True
    return False


if __name__ == "__main__":
    _main()
