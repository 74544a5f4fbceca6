"""A system under test, its variants, and its server process.

Systems are compared by the durability that an acknowledgement promises, not by the names of their settings. There are
two levels: the message is synced to disk, or anything weaker.
"""

import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CPUCLOCK_SCHED = 2
_STOP_S_MAX = 60.0


class UnavailableError(Exception):
    """The system or its client is not installed; the message says how to install it."""


class Promise(StrEnum):
    DISK = "disk"
    LESS = "less"


TITLES = {
    Promise.DISK: "acknowledged after the sync to disk",
    Promise.LESS: "acknowledged before the sync to disk",
}


@dataclass(frozen=True)
class Variant:
    """A configuration of a system: its settings, and their meaning for an acknowledged message."""

    promise: Promise
    settings: str
    meaning: str
    is_default: bool = False
    survives_kill: bool = True
    topic_settings: Mapping[str, str] = field(default_factory=dict)


class Server(ABC):
    """One server process with its data in its own directory, on a free port."""

    address: str

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @abstractmethod
    def launch(self) -> None:
        """Start the process without waiting until it answers. It may be launched again after it has ended."""

    @abstractmethod
    def stop(self) -> None:
        """Stop with SIGTERM and wait; kill after a timeout."""

    @abstractmethod
    def kill(self) -> None:
        """Send SIGKILL and wait; no effect if it does not run."""

    def __enter__(self) -> Self:
        self.launch()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Its data is deleted, so a clean shutdown is not needed.
        self.kill()

    def cpu_s(self) -> float:
        """Return user and system time so far, including that of its child processes."""
        return sum(process_cpu_s(pid) for pid in processes_of(self.pid))

    def written_bytes(self) -> int:
        """Return the bytes that the process has caused to be written to the disk, once everything is synced."""
        fields = dict(line.split(": ") for line in Path(f"/proc/{self.pid}/io").read_text().splitlines())
        return int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])

    def rss_mib(self) -> float:
        return self._status_mib("VmRSS")

    def anonymous_mib(self) -> float:
        """Return the memory without mapped files."""
        return self._status_mib("RssAnon")

    def peak_rss_mib(self) -> float:
        return self._status_mib("VmHWM")

    def pss_mib(self) -> float:
        """Return the memory with a share of what is mapped by other processes, too."""
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("/proc/PID/smaps_rollup has no Pss on this kernel")

    def _status_mib(self, name: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"/proc/PID/status has no {name} on this kernel")


class CommandServer(Server):
    """A server started by one command."""

    def __init__(self, command: list[str], directory: Path, address: str) -> None:
        self.address = address
        self._command = command
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def launch(self) -> None:
        with (self._directory / "server.log").open("ab") as log:
            # In its own process group, so that Ctrl-C reaches only the harness, which then stops its servers.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=_environment(),
                process_group=0,
            )

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(with_signal)
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class System(ABC):
    name: str
    # The name of its load (see `load_named`), and the number of load processes needed to reach the server's limit.
    load: str
    load_processes: int = 1
    codecs: tuple[str, ...] = ("none",)
    has_rebalances: bool = False
    has_transactions: bool = False

    @abstractmethod
    def version(self) -> str:
        """Raises UnavailableError if the system or its client is not installed."""

    @abstractmethod
    def variants(self) -> dict[Promise, Variant]:
        """Return a variant for each promise that the system can make."""

    @abstractmethod
    def server(self, variant: Variant, directory: Path) -> Server:
        """Return a server that is not launched yet, with an empty directory."""

    def default(self) -> Variant:
        return next(variant for variant in self.variants().values() if variant.is_default)


def process_cpu_s(pid: int) -> float:
    """Return the CPU time of a process, and of children that it has waited for.

    Its own time is from its CPU clock in nanoseconds; `/proc` has only hundredths of a second.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children_s = sum(map(int, fields[13:15])) / _TICKS_PER_S
    return time.clock_gettime(_cpu_clock(pid)) + children_s


def processes_of(pid: int) -> list[int]:
    """Return a process and its living descendants."""
    processes = [pid]
    for parent in processes:
        for task in Path(f"/proc/{parent}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                processes += [int(child) for child in (task / "children").read_text().split()]
    return processes


def _cpu_clock(pid: int) -> int:
    """Return the id of a process's CPU clock, as clock_getcpuclockid(3) does, which Python lacks."""
    return (~pid << 3) | _CPUCLOCK_SCHED


def _environment() -> dict[str, str]:
    """Return the environment with bytecode caching on, as users have it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"
