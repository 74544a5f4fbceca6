"""Shipped test kit: the crashable file system, fault injection and the power-loss harness."""

from logbrook.testing.crash_states import ALL_VARIANTS, CrashState, crash_states, materialise
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
    "crash_states",
    "materialise",
]
