"""What it was measured on."""

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
    found = {}
    for name in _CLIENTS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def file_system(path: Path) -> str:
    """Of the mount that the path is below."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _device, mount, found, *_ = line.split()
        is_below = path.resolve().is_relative_to(mount)
        if is_below and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def memory_available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this kernel does not tell of MemAvailable")


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
