"""The doors to the world: the disk, the clock and chance. The rest of Logbrook is a function of what comes through."""

from logbrook.ports.clock import Clock, SystemClock
from logbrook.ports.files import Advice, Bytes, File, Files, Lock, Space
from logbrook.ports.os_files import OsFiles
from logbrook.ports.random import Random, SystemRandom

__all__ = [
    "Advice",
    "Bytes",
    "Clock",
    "File",
    "Files",
    "Lock",
    "OsFiles",
    "Random",
    "Space",
    "SystemClock",
    "SystemRandom",
]
