"""A door that passes every call on to another door: the base of those that change one thing on the way.

`FaultyFiles` and the planted bugs derive from it. They wrap any `Files`, each other included.
"""

from collections.abc import Sequence

from logbrook.ports import Advice, Bytes, File, Files, Lock, Space


class ForwardingFile:
    """An open file of the inner door."""

    def __init__(self, inner: File) -> None:
        self.inner = inner

    @property
    def path(self) -> str:
        return self.inner.path

    def pwrite(self, data: Bytes, position: int) -> None:
        self.inner.pwrite(data, position)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> None:
        self.inner.pwritev(buffers, position)

    def pread(self, length: int, position: int) -> bytes:
        return self.inner.pread(length, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        return self.inner.pread_into(buffer, position)

    def size(self) -> int:
        return self.inner.size()

    def truncate(self, length: int) -> None:
        self.inner.truncate(length)

    def reserve(self, length: int) -> None:
        self.inner.reserve(length)

    def fsync(self) -> None:
        self.inner.fsync()

    def map_readonly(self, length: int) -> memoryview:
        return self.inner.map_readonly(length)

    def advise(self, advice: Advice) -> None:
        self.inner.advise(advice)

    def close(self) -> None:
        self.inner.close()


class ForwardingFiles:
    """The inner door, call for call. `_wrap` says what becomes of the files that it opens."""

    def __init__(self, inner: Files) -> None:
        self.inner = inner

    def create(self, path: str) -> File:
        return self._wrap(self.inner.create(path))

    def open(self, path: str) -> File:
        return self._wrap(self.inner.open(path))

    def size(self, path: str) -> int:
        return self.inner.size(path)

    def list(self, path: str) -> list[str]:
        return self.inner.list(path)

    def make_dir(self, path: str) -> None:
        self.inner.make_dir(path)

    def remove_dir(self, path: str) -> None:
        self.inner.remove_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.inner.rename(source, target)

    def unlink(self, path: str) -> None:
        self.inner.unlink(path)

    def fsync_dir(self, path: str) -> None:
        self.inner.fsync_dir(path)

    def space(self) -> Space:
        return self.inner.space()

    def lock(self, path: str) -> Lock:
        return self.inner.lock(path)

    def _wrap(self, file: File) -> File:
        return file
