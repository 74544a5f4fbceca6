"""Facts about the machine: processor, memory, file system, client versions."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

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
