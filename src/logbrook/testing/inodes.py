"""The nodes of the in-memory file system: inodes that hold bytes and directories that hold names.

The rules:

- A name is not a file. Renaming or unlinking changes a directory; open handles and mapped views hold the inode.
- Bytes are shared until they are written. An inode starts on an immutable `bytes` that many trees may share, and
  takes a `bytearray` of its own at the first write or mapping.
- A mapping behaves like a real one: it shows later writes to its range, outlives the name and the handle, and does not
  grow with the file. Truncating a file while a mapping of it exists is SIGBUS on a real disk, so here it is an
  AssertionError.

A `bytearray` refuses to be resized while a view of it is alive, or any slice of the view: this is how
existing mappings are detected. Growth is legal for a mapped file, so an inode that must grow moves to a longer buffer
and keeps writing to the old one too, for as long as a view of it exists.
"""

from collections.abc import Sequence
from typing import Self


class MemoryInode:
    """The bytes of one file."""

    __slots__ = ("_data", "_outgrown", "handle_count", "locked", "number")

    def __init__(self, data: bytes = b"", number: int = 0) -> None:
        self._data: bytes | bytearray = data
        self._outgrown: Sequence[bytearray] = ()
        self.handle_count = 0
        self.locked = False
        self.number = number

    def __len__(self) -> int:
        return len(self._data)

    def read(self, length: int, position: int) -> bytes:
        return bytes(self._data[position : position + length])

    def content(self) -> bytes:
        """All the bytes; the very same object for as long as nothing was written."""
        return bytes(self._data)

    def write(self, data: bytes, position: int) -> None:
        if not data:
            return
        own = self._own_data()
        end = position + len(data)
        if end > len(own):
            own = self._grow(end)
        own[position:end] = data
        for buffer in self._still_mapped():
            seen = data[: max(0, len(buffer) - position)]
            buffer[position : position + len(seen)] = seen

    def truncate(self, length: int, path: str) -> None:
        size = len(self._data)
        if length > size:
            self._grow(length)
        elif length < size:
            try:
                if self._still_mapped():
                    raise BufferError
                del self._own_data()[length:]
            except BufferError:
                raise AssertionError(f"mapped file truncated: {path} from {size} to {length} bytes") from None

    def map_readonly(self, length: int) -> memoryview:
        if not 0 <= length <= len(self._data):
            raise ValueError(f"cannot map {length} bytes of a file of {len(self._data)}")
        return memoryview(self._own_data()).toreadonly()[:length]

    def _own_data(self) -> bytearray:
        if isinstance(self._data, bytes):
            self._data = bytearray(self._data)
        return self._data

    def _grow(self, length: int) -> bytearray:
        own = self._own_data()
        zeros = bytes(length - len(own))
        try:
            own.extend(zeros)
        except BufferError:
            self._outgrown = [*self._outgrown, own]
            own = self._data = own + zeros
        return own

    def _still_mapped(self) -> Sequence[bytearray]:
        """The outgrown buffers of this file that still have views."""
        if self._outgrown:
            self._outgrown = [buffer for buffer in self._outgrown if _is_exported(buffer)]
        return self._outgrown


class MemoryDirectory:
    """The names in one directory."""

    __slots__ = ("entries", "number")

    def __init__(self, entries: "dict[str, MemoryInode | MemoryDirectory] | None" = None, number: int = 0) -> None:
        self.entries: dict[str, MemoryInode | MemoryDirectory] = {} if entries is None else entries
        self.number = number

    def copy(self) -> Self:
        """An independent tree with the same names and bytes, without the handles, mappings and locks."""
        return type(self)(
            {
                name: MemoryInode(node.content()) if isinstance(node, MemoryInode) else node.copy()
                for name, node in self.entries.items()
            }
        )

    def inodes(self) -> list[MemoryInode]:
        """The files in this directory and below it."""
        inodes: list[MemoryInode] = []
        for node in self.entries.values():
            if isinstance(node, MemoryInode):
                inodes.append(node)
            else:
                inodes += node.inodes()
        return inodes


Node = MemoryInode | MemoryDirectory


def _is_exported(buffer: bytearray) -> bool:
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False
