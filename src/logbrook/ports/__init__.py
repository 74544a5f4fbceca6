"""Interfaces to the outside: files, clock, randomness and the metadata store of a cluster.

Code that needs one takes it as an argument, so that tests and simulations can pass their own (`logbrook.testing` has an
in-memory disk, a recording one, a faulty one and a fake clock).

- `files`: the `Files` and `File` protocols and the rules of durability; `os_files.OsFiles` implements them.
- `system`: the `Clock` and `Random` protocols with `SystemClock` and `SystemRandom`.
- `buffer_pool`: reusable buffers for large reads and requests.
- `metadata_store`: the `MetadataStore` protocol, which keeps the metadata of a cluster, and its transactions.

The package imports only the standard library and `model`.
"""

from logbrook.ports.files import Advice, Bytes, File, FileRegion, Files, Lock, Space
from logbrook.ports.os_files import OsFiles
from logbrook.ports.system import Clock, Random, SystemClock, SystemRandom

__all__ = [
    "Advice",
    "Bytes",
    "Clock",
    "File",
    "FileRegion",
    "Files",
    "Lock",
    "OsFiles",
    "Random",
    "Space",
    "SystemClock",
    "SystemRandom",
]
