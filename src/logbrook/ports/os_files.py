"""`Files` on the operating system's file system."""

import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Sequence
from functools import cache

from logbrook.ports.files import Advice, Bytes, Space

# IOV_MAX on Linux: the most buffers of one writev call.
_BUFFERS_PER_CALL_MAX = 1024

# Linux only. Elsewhere a read with flags 0 waits for the disk.
_NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)
_NO_WAIT_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)

# Of `load`: more at once would delay other reads of the disk.
_PIECE_BYTES = 1 << 20

# Reads of cached bytes are preceded by a probe if they are at least as long.
_PROBED_BYTES_MIN = 64 * 1024

_FADVISE = {
    Advice.SEQUENTIAL: (os.POSIX_FADV_SEQUENTIAL,),
    # Units that were read before are dropped from the page cache.
    Advice.EXACT: (os.POSIX_FADV_DONTNEED, os.POSIX_FADV_RANDOM),
}


@cache
def _null_device() -> int:
    """Return a descriptor that is never closed."""
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


class _Descriptor:
    """Owns a file descriptor, which is closed when the file and all its regions are gone."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class OsRegion:
    """A range of an open file. It keeps the descriptor open."""

    __slots__ = ("_descriptor", "_length", "_position", "path")

    def __init__(self, path: str, descriptor: _Descriptor, position: int, length: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._position = position
        self._length = length

    def __len__(self) -> int:
        return self._length

    def is_cached(self) -> bool:
        last = bytearray(1)
        return not self._length or self.read_cached_into(memoryview(last), self._length - 1) == 1

    def read_into(self, buffer: memoryview, start: int) -> int:
        return _pread_into(self._descriptor.fd, buffer, self._position + start)

    def read_cached_into(self, buffer: memoryview, start: int) -> int:
        return _pread_cached_into(self._descriptor.fd, buffer, self._position + start)

    def load(self, start: int, length: int) -> int:
        return _load(self._descriptor.fd, self._position + start, length)


class OsFile:
    """An open file and the path it was opened under."""

    __slots__ = ("_descriptor", "_fd", "_is_random", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        # -1 once it is closed.
        self._fd = fd
        self._descriptor: _Descriptor | None = _Descriptor(fd)
        # True once the kernel was told not to read ahead.
        self._is_random = False

    def pwrite(self, data: Bytes, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], position + written)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> None:
        for first in range(0, len(buffers), _BUFFERS_PER_CALL_MAX):
            chunk = buffers[first : first + _BUFFERS_PER_CALL_MAX]
            expected = sum(map(len, chunk))
            if os.pwritev(self._fd, chunk, position) != expected:
                # Short writes are rare (a signal, a nearly full disk): write all of it again as one buffer.
                self.pwrite(b"".join(chunk), position)
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
            # preadv takes -1 for "at the file's cursor".
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        return _pread_into(self._fd, buffer, position)

    def pread_cached_into(self, buffer: memoryview, position: int) -> int:
        if not self._is_random:
            self._stop_read_ahead()
        return _pread_cached_into(self._fd, buffer, position)

    def region(self, position: int, length: int) -> OsRegion:
        self._stop_read_ahead()
        descriptor = self._descriptor
        if descriptor is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return OsRegion(self.path, descriptor, position, length)

    def _stop_read_ahead(self) -> None:
        """Tell the kernel not to read ahead before a read of cached bytes returns, which takes 3 ms for 8 MiB."""
        if not self._is_random:
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
            self._is_random = True

    def load(self, position: int, length: int) -> int:
        return _load(self._fd, position, length)

    def read_ahead(self, position: int, length: int) -> None:
        os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_WILLNEED)

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
            # mmap takes -1 for an anonymous mapping, which is zeros.
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        if length == 0:
            # mmap takes 0 for "the whole file", and fails for an empty one.
            return memoryview(b"")
        if sys.version_info >= (3, 13):
            mapped = mmap.mmap(self._fd, length, prot=mmap.PROT_READ, trackfd=False)
        else:
            mapped = mmap.mmap(self._fd, length, prot=mmap.PROT_READ)
        mapped.madvise(mmap.MADV_SEQUENTIAL)
        return memoryview(mapped)

    def advise(self, advice: Advice) -> None:
        for number in _FADVISE[advice]:
            os.posix_fadvise(self._fd, 0, 0, number)

    def close(self) -> None:
        """Close the file. Its descriptor is closed now, or when its last region is gone."""
        self._fd = -1
        self._descriptor = None


def _pread_into(fd: int, buffer: memoryview, position: int) -> int:
    filled = os.preadv(fd, [buffer], position)
    while 0 < filled < len(buffer) and (more := os.preadv(fd, [buffer[filled:]], position + filled)):
        filled += more
    return filled


def _pread_cached_into(fd: int, buffer: memoryview, position: int) -> int:
    try:
        if len(buffer) >= _PROBED_BYTES_MIN:
            # For bytes that are not cached, it allocates pages and begins to read them before it returns, which takes
            # 0.4 ms for 1 MiB. So the last byte is tried alone.
            os.preadv(fd, [bytearray(1)], position + len(buffer) - 1, _NO_WAIT)
        return os.preadv(fd, [buffer], position, _NO_WAIT)
    except BlockingIOError:
        return 0
    except OSError as error:
        if error.errno not in _NO_WAIT_UNSUPPORTED:
            raise
    return _pread_into(fd, buffer, position)


def _load(fd: int, position: int, length: int) -> int:
    start, end = position, position + length
    while position < end:
        # A piece is requested from the disk at once. Then `sendfile` to the null device waits for each page, and
        # reports errors, without a copy of the bytes and without the interpreter lock.
        piece_bytes = min(_PIECE_BYTES, end - position)
        os.posix_fadvise(fd, position, piece_bytes, os.POSIX_FADV_WILLNEED)
        loaded = os.sendfile(_null_device(), fd, position, piece_bytes)
        if not loaded:
            break
        position += loaded
    return position - start


class UnsyncedFile(OsFile):
    """A file whose content need not survive a power loss."""

    __slots__ = ()

    def fsync(self) -> None:
        """Do nothing: the kernel writes back dirty pages in its own time."""


class OsLock:
    """An advisory lock that the kernel releases when the process ends, in whatever way."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsFiles:
    """The directory tree below `root`, which is created if it does not exist.

    With `synced=False` all syncs are skipped: for data that is discarded when the process ends.
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
        status = os.statvfs(self.root)
        # f_bavail excludes blocks reserved for the superuser.
        return Space(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)

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
