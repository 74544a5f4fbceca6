"""The doors to the world: the disk and the clock. Everything else in Logbrook is a function of what comes through."""

from logbrook.ports.clock import Clock, SystemClock
from logbrook.ports.files import Advice, Bytes, File, Files, Lock
from logbrook.ports.os_files import OsFiles

__all__ = ["Advice", "Bytes", "Clock", "File", "Files", "Lock", "OsFiles", "SystemClock"]
