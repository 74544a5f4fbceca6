"""The `Files` port in memory.

It behaves as the real file system does (one contract test runs against both) with three differences for tests:

- Truncating a file that is mapped raises AssertionError, where a real disk would kill the process with SIGBUS.
- `capacity_bytes` bounds the bytes of all files. A write that does not fit writes what fits and raises ENOSPC, as a
  nearly full disk does. The bound may be changed at any time. An unlinked file counts until its last handle is
  closed; a mapping of it does not count.
- `fsync` and `fsync_dir` only check their arguments. `RecordingFiles` tracks what is durable.

Thread-safe for single calls on one file at distinct positions; there is no other locking.
"""

import errno
import os
from collections.abc import Sequence

from logbrook.ports import Advice, Bytes, Space
from logbrook.testing.inodes import MemoryDirectory, MemoryInode, Node

# Reported total when no capacity is set.
_UNBOUNDED_BYTES = 1 << 50


class MemoryFile:
    """An open file: an inode and the path it was opened under."""

    __slots__ = ("_files", "_inode", "path")

    def __init__(self, files: "MemoryFiles", path: str, inode: MemoryInode) -> None:
        self.path = path
        self._files = files
        self._inode: MemoryInode | None = inode
        inode.handle_count += 1

    def pwrite(self, data: Bytes, position: int) -> None:
        inode = self._opened()
        if position < 0:
            raise _error(errno.EINVAL, self.path)
        payload = bytes(data)
        growth = position + len(payload) - len(inode)
        if growth > 0 and payload and growth > (room := self._files.room_bytes(growth)):
            fitting = payload[: max(0, len(inode) + room - position)]
            self._write(inode, fitting, position)
            raise _error(errno.ENOSPC, self.path)
        self._write(inode, payload, position)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> None:
        self.pwrite(b"".join(buffers), position)

    def pread(self, length: int, position: int) -> bytes:
        inode = self._opened()
        if position < 0 or length < 0:
            raise _error(errno.EINVAL, self.path)
        return inode.read(length, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pread_cached_into(self, buffer: memoryview, position: int) -> int:
        return self.pread_into(buffer, position)

    def region(self, position: int, length: int) -> None:
        """Return None: there is no descriptor to send from."""
        assert position >= 0
        assert length >= 0
        self._opened()

    def load(self, position: int, length: int) -> int:
        return len(self.pread(length, position))

    def read_ahead(self, position: int, length: int) -> None:
        assert position >= 0
        assert length >= 0
        self._opened()

    def size(self) -> int:
        return len(self._opened())

    def truncate(self, length: int) -> None:
        inode = self._opened()
        if length < 0:
            raise _error(errno.EINVAL, self.path)
        growth = length - len(inode)
        if growth > 0 and growth > self._files.room_bytes(growth):
            raise _error(errno.ENOSPC, self.path)
        self._truncate(inode, length)

    def reserve(self, length: int) -> None:
        if length <= 0:
            raise _error(errno.EINVAL, self.path)
        if length > len(self._opened()):
            self.truncate(length)

    def fsync(self) -> None:
        self._opened()

    def map_readonly(self, length: int) -> memoryview:
        return self._opened().map_readonly(length)

    def advise(self, advice: Advice) -> None:
        assert isinstance(advice, Advice)
        self._opened()

    def close(self) -> None:
        inode, self._inode = self._inode, None
        if inode is not None:
            inode.handle_count -= 1

    def _opened(self) -> MemoryInode:
        if self._inode is None:
            raise _error(errno.EBADF, self.path)
        return self._inode

    # The two places where bytes change, so that a recorder sees exactly what reached the file.

    def _write(self, inode: MemoryInode, data: bytes, position: int) -> None:
        inode.write(data, position)

    def _truncate(self, inode: MemoryInode, length: int) -> None:
        inode.truncate(length, self.path)


class MemoryLock:
    """An exclusive lock on an inode. A crash drops it: it is not part of any image."""

    def __init__(self, inode: MemoryInode) -> None:
        self._inode: MemoryInode | None = inode
        inode.locked = True

    def release(self) -> None:
        inode, self._inode = self._inode, None
        if inode is not None:
            inode.locked = False


class MemoryFiles:
    """A directory tree in memory. Given an `image`, it starts with a copy of that tree, sharing its unwritten bytes."""

    def __init__(self, image: "MemoryFiles | None" = None, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.root_directory: MemoryDirectory = MemoryDirectory() if image is None else image.root_directory.copy()
        self._unlinked: list[MemoryInode] = []

    @classmethod
    def of(cls, root_directory: MemoryDirectory) -> "MemoryFiles":
        """Return a `MemoryFiles` that owns the given tree."""
        files = cls()
        files.root_directory = root_directory
        return files

    def create(self, path: str) -> MemoryFile:
        directory, name = self._place(path)
        if name in directory.entries:
            raise _error(errno.EEXIST, path)
        inode = MemoryInode()
        directory.entries[name] = inode
        return self._handle(path, inode)

    def open(self, path: str) -> MemoryFile:
        return self._handle(path, self._inode(path))

    def size(self, path: str) -> int:
        return len(self._inode(path))

    def make_dir(self, path: str) -> None:
        directory, name = self._place(path)
        if name in directory.entries:
            raise _error(errno.EEXIST, path)
        directory.entries[name] = MemoryDirectory()

    def remove_dir(self, path: str) -> None:
        directory, name = self._place(path)
        if self._directory(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        del directory.entries[name]

    def rename(self, source: str, target: str) -> None:
        source_directory, source_name = self._place(source)
        node = self._node(source)
        target_directory, target_name = self._place(target)
        replaced = target_directory.entries.get(target_name)
        if replaced is node:
            return
        if target.startswith(f"{source}/"):
            raise _error(errno.EINVAL, source)
        if replaced is not None:
            _check_replaceable(replaced, node, target)
            self._drop(replaced)
        del source_directory.entries[source_name]
        target_directory.entries[target_name] = node

    def unlink(self, path: str) -> None:
        directory, name = self._place(path)
        self._drop(self._inode(path))
        del directory.entries[name]

    def fsync_dir(self, path: str) -> None:
        self._directory(path)

    def space(self) -> Space:
        total = _UNBOUNDED_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return Space(total, max(0, total - self.used_bytes()))

    def lock(self, path: str) -> MemoryLock:
        directory, name = self._place(path)
        if name not in directory.entries:
            self.create(path).close()
        inode = self._inode(path)
        if inode.locked:
            raise _error(errno.EWOULDBLOCK, path)
        return MemoryLock(inode)

    def list(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def used_bytes(self) -> int:
        """The bytes of every file that has a name or an open handle."""
        self._unlinked = [inode for inode in self._unlinked if inode.handle_count]
        return sum(map(len, self.root_directory.inodes())) + sum(map(len, self._unlinked))

    def room_bytes(self, wanted_bytes: int) -> int:
        """Return the part of `wanted_bytes` that fits into the capacity; all of it without a capacity."""
        if self.capacity_bytes is None:
            return wanted_bytes
        return min(wanted_bytes, max(0, self.capacity_bytes - self.used_bytes()))

    def snapshot(self) -> dict[str, bytes | None]:
        """The whole tree: the bytes of each file, and None for each directory."""
        return _snapshot(self.root_directory, "")

    def _handle(self, path: str, inode: MemoryInode) -> MemoryFile:
        return MemoryFile(self, path, inode)

    def _node(self, path: str) -> Node:
        node: Node = self.root_directory
        if not path:
            return node
        for name in path.split("/"):
            if isinstance(node, MemoryInode):
                raise _error(errno.ENOTDIR, path)
            entry = node.entries.get(name)
            if entry is None:
                raise _error(errno.ENOENT, path)
            node = entry
        return node

    def _inode(self, path: str) -> MemoryInode:
        node = self._node(path)
        if isinstance(node, MemoryDirectory):
            raise _error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> MemoryDirectory:
        node = self._node(path)
        if isinstance(node, MemoryInode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _place(self, path: str) -> tuple[MemoryDirectory, str]:
        """The directory that holds, or would hold, the last part of a path."""
        parent, _, name = path.rpartition("/")
        assert name not in ("", ".", ".."), f"not a path below the root: {path!r}"
        return self._directory(parent), name

    def _drop(self, node: Node) -> None:
        if isinstance(node, MemoryInode) and node.handle_count:
            self._unlinked.append(node)


def _check_replaceable(replaced: Node, node: Node, path: str) -> None:
    """Check the rule of rename(2): a file replaces a file, a directory replaces an empty directory."""
    if isinstance(replaced, MemoryInode):
        if isinstance(node, MemoryDirectory):
            raise _error(errno.ENOTDIR, path)
    elif isinstance(node, MemoryInode):
        raise _error(errno.EISDIR, path)
    elif replaced.entries:
        raise _error(errno.ENOTEMPTY, path)


def _snapshot(directory: MemoryDirectory, prefix: str) -> dict[str, bytes | None]:
    snapshot: dict[str, bytes | None] = {}
    for name, node in sorted(directory.entries.items()):
        if isinstance(node, MemoryInode):
            snapshot[prefix + name] = node.content()
        else:
            snapshot[prefix + name] = None
            snapshot |= _snapshot(node, f"{prefix}{name}/")
    return snapshot


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
