"""Shipped test kit: the in-process broker, the crashable file system, fault injection, the harnesses.

Names are looked up when they are asked for: the pytest plugin is imported by every test run, and needs none of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logbrook.testing.broker import Broker
    from logbrook.testing.crash_states import ALL_VARIANTS, CrashState, materialise
    from logbrook.testing.faults import Call, FaultyFiles
    from logbrook.testing.forwarding import ForwardingFile, ForwardingFiles
    from logbrook.testing.journal import Journal
    from logbrook.testing.memory_files import MemoryFile, MemoryFiles
    from logbrook.testing.planted_bugs import WithoutDirFsync, WithoutFsync
    from logbrook.testing.recording_files import RecordingFile, RecordingFiles
    from logbrook.testing.variants import SECTOR_BYTES, Variant

__all__ = [
    "ALL_VARIANTS",
    "SECTOR_BYTES",
    "Broker",
    "Call",
    "CrashState",
    "FaultyFiles",
    "ForwardingFile",
    "ForwardingFiles",
    "Journal",
    "MemoryFile",
    "MemoryFiles",
    "RecordingFile",
    "RecordingFiles",
    "Variant",
    "WithoutDirFsync",
    "WithoutFsync",
    "materialise",
]

_MODULES = {
    "ALL_VARIANTS": "crash_states",
    "SECTOR_BYTES": "variants",
    "Broker": "broker",
    "Call": "faults",
    "CrashState": "crash_states",
    "FaultyFiles": "faults",
    "ForwardingFile": "forwarding",
    "ForwardingFiles": "forwarding",
    "Journal": "journal",
    "MemoryFile": "memory_files",
    "MemoryFiles": "memory_files",
    "RecordingFile": "recording_files",
    "RecordingFiles": "recording_files",
    "Variant": "variants",
    "WithoutDirFsync": "planted_bugs",
    "WithoutFsync": "planted_bugs",
    "materialise": "crash_states",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
