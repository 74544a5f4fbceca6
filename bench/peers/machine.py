"""Facts about the machine: processor, memory, file system, client versions; and the version of the tree."""

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.peers.results import Stamp
from logbrook.model.version import VERSION

_ROOT = Path(__file__).parents[2]
_CLIENTS = ("confluent-kafka", "redis", "hiredis", "nats-py")
_GIB = 1 << 30


def machine(data: Path) -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _cpu(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory / _GIB:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": file_system(data),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def stamp() -> Stamp:
    """Return the version of what is measured: that of the package, and the last commit that changed `src`."""
    commit = _git("log", "-1", "--format=%h", "--", "src")
    is_changed = bool(commit and _git("status", "--porcelain", "--", "src"))
    version = f"{VERSION} ({commit}{'+changes' if is_changed else ''})" if commit else VERSION
    return Stamp(version, time.strftime("%Y-%m-%d", time.gmtime()), is_changed)


def _git(*arguments: str) -> str:
    """Return what git prints, nothing without git or a repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def client_versions() -> dict[str, str]:
    versions = {}
    for name in _CLIENTS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def file_system(path: Path) -> str:
    """Return the file system type of the mount that contains the path."""
    longest_mount, longest_kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _device, mount, kind, *_ = line.split()
        is_below = path.resolve().is_relative_to(mount)
        if is_below and len(mount) >= len(longest_mount):
            longest_mount, longest_kind = mount, kind
    return longest_kind


def memory_available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable on this kernel")


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
