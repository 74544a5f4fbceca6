"""A limit on the speed at which processes read from their disk, for benchmarks of slow disks.

It is a control group of its own, with the blkio controller (cgroup v1) or the io controller (cgroup v2), for which it
needs root.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple


class LimitUnavailableError(Exception):
    """This machine cannot limit the speed of a disk; the message says why."""


class _Controller(NamedTuple):
    """The directory of a controller's root group, its file for limits, and the format of a limit and of none."""

    root: Path
    file: str
    limit: str
    no_limit: str


class ReadLimit:
    """A control group whose processes read from the disk of `path`, at a limited speed within `at`.

    Raises LimitUnavailableError. Close it when its processes have ended.
    """

    def __init__(self, path: Path) -> None:
        self._device = _disk_of(path)
        self._controller = _controller()
        self._group = self._controller.root / f"logbrook-bench-{os.getpid()}"
        try:
            self._group.mkdir()
            self._write("", self._controller.no_limit)
        except OSError as error:
            self.close()
            raise LimitUnavailableError(f"{error} (a limit needs root and a disk of its own)") from error

    def add(self, pid: int) -> None:
        (self._group / "cgroup.procs").write_text(str(pid))

    @contextmanager
    def at(self, bytes_per_s: int) -> Iterator[None]:
        self._write(str(bytes_per_s), self._controller.limit)
        try:
            yield
        finally:
            self._write("", self._controller.no_limit)

    def close(self) -> None:
        with suppress(OSError):
            self._group.rmdir()

    def _write(self, value: str, form: str) -> None:
        (self._group / self._controller.file).write_text(f"{self._device} {form}{value}")


def _controller() -> _Controller:
    """Raises LimitUnavailableError."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount_point, kind, options, *_ = line.split()
        root = Path(mount_point)
        if kind == "cgroup" and "blkio" in options.split(","):
            if (root / "blkio.throttle.read_bps_device").exists():
                return _Controller(root, "blkio.throttle.read_bps_device", "", "0")
        elif kind == "cgroup2" and "io" in (root / "cgroup.controllers").read_text().split():
            with suppress(OSError):
                (root / "cgroup.subtree_control").write_text("+io")
            return _Controller(root, "io.max", "rbps=", "rbps=max")
    raise LimitUnavailableError("there is no control group with the controller blkio or io")


def _disk_of(path: Path) -> str:
    """Return "major:minor" of the disk that holds `path`. Raises LimitUnavailableError."""
    number = os.stat(path).st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        raise LimitUnavailableError(f"{path} is not on a disk")
    device = device.resolve()
    # Limits apply to disks, not to their partitions.
    disk = device.parent if (device / "partition").exists() else device
    return (disk / "dev").read_text().strip()
