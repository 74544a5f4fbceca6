"""A `Files` that forwards every call to another `Files`: the base class of wrappers that change one behaviour.

`FaultyFiles`, `KillableFiles` and the planted bugs derive from it. They wrap any `Files`, including each other.
"""

from collections.abc import Callable, Sequence

from logbrook.ports import Advice, Bytes, File, FileRegion, Files, Lock, Space

WRITE_CALLS = frozenset({"pwrite", "pwritev"})
SYNC_CALLS = frozenset({"fsync", "fsync_dir"})
NAME_CALLS = frozenset({"create", "make_dir", "remove_dir", "rename", "unlink", "lock"})
MUTATING_CALLS = WRITE_CALLS | SYNC_CALLS | NAME_CALLS | {"truncate", "reserve"}
CALLS = MUTATING_CALLS | {"open", "size", "list", "pread", "map_readonly"}


def _forward_always(call: str, path: str) -> None:
    pass


class ForwardingFile:
    """Forwards every call to an open file, after `before` (see `ForwardingFiles.before`)."""

    def __init__(self, inner: File, before: Callable[[str, str], None] = _forward_always) -> None:
        self.inner = inner
        self._before = before

    @property
    def path(self) -> str:
        return self.inner.path

    def pwrite(self, data: Bytes, position: int) -> None:
        self._before("pwrite", self.path)
        self.inner.pwrite(data, position)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> None:
        self._before("pwritev", self.path)
        self.inner.pwritev(buffers, position)

    def pread(self, length: int, position: int) -> bytes:
        self._before("pread", self.path)
        return self.inner.pread(length, position)

    def pread_cached_into(self, buffer: memoryview, position: int) -> int:
        self._before("pread", self.path)
        return self.inner.pread_cached_into(buffer, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        self._before("pread", self.path)
        return self.inner.pread_into(buffer, position)

    def region(self, position: int, length: int) -> FileRegion | None:  # noqa: ARG002 - the interface of files
        """Return None, so that all bytes are read through this file."""
        return None

    def load(self, position: int, length: int) -> int:
        self._before("pread", self.path)
        return self.inner.load(position, length)

    def read_ahead(self, position: int, length: int) -> None:
        self.inner.read_ahead(position, length)

    def size(self) -> int:
        self._before("size", self.path)
        return self.inner.size()

    def truncate(self, length: int) -> None:
        self._before("truncate", self.path)
        self.inner.truncate(length)

    def reserve(self, length: int) -> None:
        self._before("reserve", self.path)
        self.inner.reserve(length)

    def fsync(self) -> None:
        self._before("fsync", self.path)
        self.inner.fsync()

    def map_readonly(self, length: int) -> memoryview:
        self._before("map_readonly", self.path)
        return self.inner.map_readonly(length)

    def advise(self, advice: Advice) -> None:
        self.inner.advise(advice)

    def close(self) -> None:
        self.inner.close()


class ForwardingFiles:
    """Forwards every call to `inner`. Subclasses override `before`, or `_wrap` to wrap the files it opens."""

    def __init__(self, inner: Files) -> None:
        self.inner = inner

    def before(self, call: str, path: str) -> None:
        """Called before each call of `CALLS`, on a file too. It may raise, and the call is not forwarded.

        `pread_into` and `load` count as `pread`. The path of a rename is its source.
        """

    def create(self, path: str) -> File:
        self.before("create", path)
        return self._wrap(self.inner.create(path))

    def open(self, path: str) -> File:
        self.before("open", path)
        return self._wrap(self.inner.open(path))

    def size(self, path: str) -> int:
        self.before("size", path)
        return self.inner.size(path)

    def list(self, path: str) -> list[str]:
        self.before("list", path)
        return self.inner.list(path)

    def make_dir(self, path: str) -> None:
        self.before("make_dir", path)
        self.inner.make_dir(path)

    def remove_dir(self, path: str) -> None:
        self.before("remove_dir", path)
        self.inner.remove_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.before("rename", source)
        self.inner.rename(source, target)

    def unlink(self, path: str) -> None:
        self.before("unlink", path)
        self.inner.unlink(path)

    def fsync_dir(self, path: str) -> None:
        self.before("fsync_dir", path)
        self.inner.fsync_dir(path)

    def space(self) -> Space:
        return self.inner.space()

    def lock(self, path: str) -> Lock:
        self.before("lock", path)
        return self.inner.lock(path)

    def _wrap(self, file: File) -> File:
        return ForwardingFile(file, self.before)
