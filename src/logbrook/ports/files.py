"""The one door to the disk.

Everything durable goes through `Files`, so that one recorder sees every write and one fake can lose, tear or refuse
any of them. The rules that its users live by:

- Paths are relative to the root the door was opened on, with `/` between the parts.
- There is no cursor: every read and write names its position, so handles can be shared.
- A write is all or an OSError; what reached the file before the error is undefined.
- Nothing is durable before `fsync` of the file; no name is durable before `fsync_dir` of its directory.
- A file that is mapped is never truncated: reading past the end of a mapping is SIGBUS, which no one can catch.
- A failed `fsync` is final. The kernel may have marked the pages clean, so a second call proves nothing.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

# What can be written: a run of bytes that knows its length.
Bytes: TypeAlias = bytes | bytearray | memoryview


class Advice(Enum):
    """How a file is about to be used. A hint: it changes speed, never results."""

    SEQUENTIAL = "sequential"


class Space(NamedTuple):
    """What the disk has in all, and what of it we may still write."""

    total_bytes: int
    usable_bytes: int


class File(Protocol):
    """One open file."""

    @property
    def path(self) -> str: ...

    def pwrite(self, data: Bytes, position: int) -> None:
        """Write all of `data` at `position`, extending the file as needed."""
        ...

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> None:
        """Write the buffers one after the other, starting at `position`."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only where the file ends."""
        ...

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """The same into memory that is there already; how many bytes there were."""
        ...

    def size(self) -> int: ...

    def truncate(self, length: int) -> None: ...

    def reserve(self, length: int) -> None:
        """Take the room for `length` bytes, so that writing them cannot fail for want of it. What is past the end of
        the file until now reads as zeros."""
        ...

    def fsync(self) -> None:
        """Make the file's bytes and length durable (fdatasync)."""
        ...

    def map_readonly(self, length: int) -> memoryview:
        """The first `length` bytes, mapped. `length` must not pass the end of the file. The pages stay mapped until
        the view and every slice of it are released, whatever becomes of the file's name or of this handle."""
        ...

    def advise(self, advice: Advice) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """A directory tree."""

    def create(self, path: str) -> File:
        """A new, empty file. FileExistsError if the name is taken."""
        ...

    def open(self, path: str) -> File:
        """An existing file, for reading and writing. FileNotFoundError if there is none."""
        ...

    def size(self, path: str) -> int:
        """The length of the file with this name, without opening it. FileNotFoundError if there is none."""
        ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted. `""` is the root."""
        ...

    def make_dir(self, path: str) -> None:
        """A new directory. FileExistsError if the name is taken."""
        ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, replacing a file of that name atomically."""
        ...

    def unlink(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def space(self) -> Space:
        """Of the disk that the root is on."""
        ...

    def lock(self, path: str) -> Lock:
        """Take the file's exclusive lock, creating it if needed. BlockingIOError if another process holds it."""
        ...
