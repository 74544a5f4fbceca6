"""The real disk behind the `Files` port."""

import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Sequence

from logbrook.ports.files import Advice, Bytes, Space

# The kernel takes at most IOV_MAX buffers in one call; 1024 on Linux.
_BUFFERS_PER_CALL_MAX = 1024

_FADVISE = {Advice.SEQUENTIAL: os.POSIX_FADV_SEQUENTIAL}


class OsFile:
    """A file descriptor and the path it was opened under."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def pwrite(self, data: Bytes, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], position + written)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> None:
        for first in range(0, len(buffers), _BUFFERS_PER_CALL_MAX):
            some = buffers[first : first + _BUFFERS_PER_CALL_MAX]
            expected = sum(map(len, some))
            if os.pwritev(self._fd, some, position) != expected:
                # A short write is rare (a signal, a nearly full disk): write it again whole, in one piece.
                self.pwrite(b"".join(some), position)
            position += expected

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length:
            return data
        parts = [data]
        while data:
            length -= len(data)
            position += len(data)
            data = os.pread(self._fd, length, position)
            parts.append(data)
        return b"".join(parts)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        if position < 0:
            # preadv takes -1 for "where the file is at".
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        filled = os.preadv(self._fd, [buffer], position)
        while 0 < filled < len(buffer) and (more := os.preadv(self._fd, [buffer[filled:]], position + filled)):
            filled += more
        return filled

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def reserve(self, length: int) -> None:
        os.posix_fallocate(self._fd, 0, length)

    def fsync(self) -> None:
        os.fdatasync(self._fd)

    def map_readonly(self, length: int) -> memoryview:
        if self._fd < 0:
            # mmap takes -1 for "no file", and would map zeros.
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        if length == 0:
            # mmap takes 0 for "the whole file", and refuses an empty one.
            return memoryview(b"")
        if sys.version_info >= (3, 13):
            mapped = mmap.mmap(self._fd, length, prot=mmap.PROT_READ, trackfd=False)
        else:
            mapped = mmap.mmap(self._fd, length, prot=mmap.PROT_READ)
        mapped.madvise(mmap.MADV_SEQUENTIAL)
        return memoryview(mapped)

    def advise(self, advice: Advice) -> None:
        os.posix_fadvise(self._fd, 0, 0, _FADVISE[advice])

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class UnsyncedFile(OsFile):
    """A file of which nothing needs to be left after a power loss."""

    __slots__ = ()

    def fsync(self) -> None:
        """The kernel writes it out when it likes."""


class OsLock:
    """An advisory lock that the kernel drops when the process dies, however it dies."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsFiles:
    """The directory tree below `root`, which is created if it is not there.

    Without `synced` nothing is ever synced: for data that goes when the process does.
    """

    def __init__(self, root: str | os.PathLike[str], *, synced: bool = True) -> None:
        self.root = os.path.abspath(root)
        self._synced = synced
        self._file = OsFile if synced else UnsyncedFile
        os.makedirs(self.root, exist_ok=True)

    def create(self, path: str) -> OsFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return self._file(path, os.open(self._full(path), flags, 0o644))

    def open(self, path: str) -> OsFile:
        return self._file(path, os.open(self._full(path), os.O_RDWR | os.O_CLOEXEC))

    def size(self, path: str) -> int:
        return os.stat(self._full(path)).st_size

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(self._full(path)))

    def make_dir(self, path: str) -> None:
        os.mkdir(self._full(path))

    def remove_dir(self, path: str) -> None:
        os.rmdir(self._full(path))

    def rename(self, source: str, target: str) -> None:
        os.replace(self._full(source), self._full(target))

    def unlink(self, path: str) -> None:
        os.unlink(self._full(path))

    def fsync_dir(self, path: str) -> None:
        if not self._synced:
            return
        fd = os.open(self._full(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self) -> Space:
        found = os.statvfs(self.root)
        # What is kept for the superuser is not ours.
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> OsLock:
        fd = os.open(self._full(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return OsLock(fd)

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root
