"""Doors that break one rule of durability each.

A power-loss test that passes proves little until it has been seen to fail: run it on a door that forgets one fsync,
and it must find the loss. Wrap the recording door with these, not the other way round, so that the forgotten call is
missing from the journal.
"""

from collections.abc import Callable

from logbrook.ports import File, Files
from logbrook.testing.forwarding import ForwardingFile, ForwardingFiles


def any_path(path: str) -> bool:  # noqa: ARG001 - a predicate that does not look
    return True


class WithoutFsync(ForwardingFiles):
    """`fsync` does nothing for the files whose path matches; the path is the one the file was opened under."""

    def __init__(self, inner: Files, matching: Callable[[str], bool] = any_path) -> None:
        super().__init__(inner)
        self._matching = matching

    def _wrap(self, file: File) -> File:
        return _NeverSyncedFile(file) if self._matching(file.path) else file


class WithoutDirFsync(ForwardingFiles):
    """`fsync_dir` does nothing for the directories whose path matches."""

    def __init__(self, inner: Files, matching: Callable[[str], bool] = any_path) -> None:
        super().__init__(inner)
        self._matching = matching

    def fsync_dir(self, path: str) -> None:
        if not self._matching(path):
            super().fsync_dir(path)


class _NeverSyncedFile(ForwardingFile):
    def fsync(self) -> None:
        pass
