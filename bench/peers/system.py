"""What the harness needs to know of a system, and of a server of it that runs.

Systems are compared by what they promise when they acknowledge a message, not by the names of their settings. Two
promises are kept apart: that the message is on the disk, and anything less.
"""

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CPUCLOCK_SCHED = 2
_STOP_S_MAX = 60.0


class UnavailableError(Exception):
    """The system cannot be measured here; the message says what to do about it."""


class Promise(StrEnum):
    DISK = "disk"
    LESS = "less"


TITLES = {
    Promise.DISK: "acknowledged when it is on the disk",
    Promise.LESS: "acknowledged before it is on the disk",
}


@dataclass(frozen=True)
class Variant:
    """A way to run a system: what is set for it, and what that means for an acknowledged message."""

    promise: Promise
    settings: str
    meaning: str
    is_default: bool = False
    survives_kill: bool = True
    topic_settings: Mapping[str, str] = field(default_factory=dict)


class Server(ABC):
    """One process of a system that keeps everything below `directory`, on a port that was free."""

    address: str

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @abstractmethod
    def launch(self) -> None:
        """Returns as soon as there is a process; it need not answer yet. It may be launched again after its end."""

    @abstractmethod
    def stop(self) -> None:
        """In good order."""

    @abstractmethod
    def kill(self) -> None:
        """With SIGKILL; one that does not run is left alone."""

    def __enter__(self) -> Self:
        self.launch()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # What it has is thrown away, so there is no need for good order.
        self.kill()

    def cpu_s(self) -> float:
        """User and system time so far, with the children that it has waited for.

        Of the process itself by its clock, which counts nanoseconds where `/proc` has hundredths of a second.
        """
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        of_children_s = sum(map(int, fields[13:15])) / _TICKS_PER_S
        return time.clock_gettime(_cpu_clock(self.pid)) + of_children_s

    def rss_mib(self) -> float:
        return self._status_mib("VmRSS")

    def peak_rss_mib(self) -> float:
        return self._status_mib("VmHWM")

    def _status_mib(self, name: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"this kernel does not tell of {name}")


class CommandServer(Server):
    """A server that is one command."""

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
            # A group of its own: Ctrl-C is for the harness, which then ends its servers.
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
    # Which client it is loaded with, see `worker.py`, and how many processes of it may be needed to find its limit.
    load: str
    load_processes: int = 1
    codecs: tuple[str, ...] = ("none",)
    has_rebalances: bool = False
    has_transactions: bool = False

    @abstractmethod
    def version(self) -> str:
        """Raises UnavailableError if it, or its client, is not here."""

    @abstractmethod
    def variants(self) -> dict[Promise, Variant]:
        """One for each promise that it can make."""

    @abstractmethod
    def server(self, variant: Variant, directory: Path) -> Server:
        """One that was not launched yet, in an empty directory."""

    def default(self) -> Variant:
        return next(variant for variant in self.variants().values() if variant.is_default)


def _cpu_clock(pid: int) -> int:
    """As clock_getcpuclockid(3) makes it, which Python does not have."""
    return (~pid << 3) | _CPUCLOCK_SCHED


def _environment() -> dict[str, str]:
    """As a user's is: an interpreter may keep its bytecode."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
