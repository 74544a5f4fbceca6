"""The shipped test kit.

    broker, broker_thread                 a real broker inside the test process (docs/TESTING.md), and its event loop
    broker_faults, broker_client          its faults by name; records, produce and groups for tests
    pytest_plugin, broker_report          the pytest fixtures, and brokers in the reports of failed tests
    memory_files, inodes                  the `Files` port in memory
    recording_files, journal              the same, recording every change and every promise of the workload
    disk, variants, crash_states          the disk states a power loss could leave after any prefix of a journal
    faults, kills, planted_bugs           `Files` wrappers that fail a call, kill the process, or skip an fsync
    clock, seeded_random                  the `Clock` and `Random` ports, deterministic
    crash/                                random workloads on the engine with power loss at every step (`make crash`)
    kill/, history/                       a loaded broker, SIGKILLed; the clients' history and its checker (`make kill`)
    replication/                          replication and elections in random schedules of a model (`make replication`)
    simulation/                           whole brokers in simulated time, with faults (`make simulate`)
    cluster, memory_metadata_store        several replicated brokers inside the test process, and their metadata store
    copy/, exactly_once/                  exactly-once copies by transactions (`make copy`) and by Spark

It may import every package below `cli`. Attributes are imported on first access: the pytest plugin is loaded by every
test run and needs none of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logbrook.testing.broker import Broker
    from logbrook.testing.broker_client import TopicRecord
    from logbrook.testing.cluster import Cluster
    from logbrook.testing.crash_states import ALL_VARIANTS, CrashState, materialise
    from logbrook.testing.faults import FaultyFiles
    from logbrook.testing.forwarding import ForwardingFile, ForwardingFiles
    from logbrook.testing.journal import Journal
    from logbrook.testing.memory_files import MemoryFiles
    from logbrook.testing.planted_bugs import WithoutDirFsync, WithoutFsync
    from logbrook.testing.recording_files import RecordingFiles
    from logbrook.testing.variants import SECTOR_BYTES, Variant

__all__ = [
    "ALL_VARIANTS",
    "SECTOR_BYTES",
    "Broker",
    "Cluster",
    "CrashState",
    "FaultyFiles",
    "ForwardingFile",
    "ForwardingFiles",
    "Journal",
    "MemoryFiles",
    "RecordingFiles",
    "TopicRecord",
    "Variant",
    "WithoutDirFsync",
    "WithoutFsync",
    "materialise",
]

_NAMES = {
    "broker": ("Broker",),
    "broker_client": ("TopicRecord",),
    "cluster": ("Cluster",),
    "crash_states": ("ALL_VARIANTS", "CrashState", "materialise"),
    "faults": ("FaultyFiles",),
    "forwarding": ("ForwardingFile", "ForwardingFiles"),
    "journal": ("Journal",),
    "memory_files": ("MemoryFiles",),
    "planted_bugs": ("WithoutDirFsync", "WithoutFsync"),
    "recording_files": ("RecordingFiles",),
    "variants": ("SECTOR_BYTES", "Variant"),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
