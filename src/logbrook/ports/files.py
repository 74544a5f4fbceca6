"""The file system interface. All durable data goes through `Files`, so that tests can record, lose or fail any write.

The rules for implementations and users:

- Paths are relative to the root directory, with `/` as separator.
- There is no cursor: every read and write has an explicit position, so handles can be shared.
- A write is complete or raises OSError; after an error, which bytes reached the file is undefined.
- Bytes are durable after `fsync` of the file; a name is durable after `fsync_dir` of its directory.
- A mapped file is never truncated: reading a mapping past the end of the file is a SIGBUS, which kills the process.
- A failed `fsync` is final. The kernel may have marked the pages clean, so a successful retry proves nothing.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

# Buffers that can be written.
Bytes: TypeAlias = bytes | bytearray | memoryview


class Advice(Enum):
    """Expected access pattern: a hint that affects speed, not results."""

    SEQUENTIAL = "sequential"
    # Pages are read one by one, no further than asked for. Around a bad sector the kernel reads large units, and a unit
    # with an unreadable page is unreadable as a whole.
    EXACT = "exact"


class Space(NamedTuple):
    """Size of the file system, and bytes available to this process."""

    total_bytes: int
    usable_bytes: int


class FileRegion(Protocol):
    """A range of a file, to be read later.

    It stays readable when its file is closed or unlinked. If the file is truncated, its end is missing.
    """

    @property
    def path(self) -> str: ...

    def __len__(self) -> int: ...

    def is_cached(self) -> bool:
        """True if its end is in the page cache, or if the file system cannot tell."""

    def read_into(self, buffer: memoryview, start: int) -> int:
        """Read from `start` on, as `File.pread_into` does."""

    def read_cached_into(self, buffer: memoryview, start: int) -> int:
        """Read from `start` on, as `File.pread_cached_into` does."""

    def load(self, start: int, length: int) -> int:
        """Load from `start` on, as `File.load` does."""


class File(Protocol):
    """An open file."""

    @property
    def path(self) -> str: ...

    def pwrite(self, data: Bytes, position: int) -> None:
        """Write all of `data` at `position`, extending the file as needed."""

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> None:
        """Write the buffers consecutively from `position` on."""

    def pread(self, length: int, position: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Read into `buffer` and return the number of bytes read; fewer than its size only at the end of the file."""

    def pread_cached_into(self, buffer: memoryview, position: int) -> int:
        """Read into `buffer` only what is in the page cache, without waiting for the disk; return the bytes read.

        On a file system that cannot tell, it reads as `pread_into` does.
        """

    def region(self, position: int, length: int) -> FileRegion | None:
        """Return a range of the file, to be read later; None if its bytes have to be read now."""

    def load(self, position: int, length: int) -> int:
        """Read into the page cache, and wait for the disk; return the number of bytes, fewer than `length` only at the
        end of the file."""

    def read_ahead(self, position: int, length: int) -> None:
        """Begin to read into the page cache without waiting: a hint that affects speed, not results."""

    def size(self) -> int: ...

    def truncate(self, length: int) -> None: ...

    def reserve(self, length: int) -> None:
        """Allocate disk space for `length` bytes, so that writing them cannot fail with ENOSPC. Extends the file with
        zeros."""

    def fsync(self) -> None:
        """Make the file's bytes and length durable (fdatasync)."""

    def map_readonly(self, length: int) -> memoryview:
        """Map the first `length` bytes, which must exist. The pages stay mapped until the view and all its slices are
        released, even if the file is unlinked or this handle closed."""

    def advise(self, advice: Advice) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """A directory tree."""

    def create(self, path: str) -> File:
        """Create an empty file. Raises FileExistsError if the name exists."""

    def open(self, path: str) -> File:
        """Open an existing file for reading and writing. Raises FileNotFoundError."""

    def size(self, path: str) -> int:
        """Return the size of a file without opening it. Raises FileNotFoundError."""

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory; `""` is the root."""

    def make_dir(self, path: str) -> None:
        """Create a directory. Raises FileExistsError if the name exists."""

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, atomically replacing an existing file."""

    def unlink(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    def space(self) -> Space:
        """Return the size and free space of the root's file system."""

    def lock(self, path: str) -> Lock:
        """Acquire an exclusive lock on the file, creating it if needed.

        Raises BlockingIOError if it is held elsewhere.
        """
