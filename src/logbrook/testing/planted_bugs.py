"""`Files` wrappers that break one durability rule each.

They prove that a power-loss test can fail: run on a wrapper that skips an fsync, it must find the loss. Wrap the
`RecordingFiles` with these, not the other way round, so that the skipped call is missing from the journal.
"""

from collections.abc import Callable

from logbrook.ports import File, Files
from logbrook.testing.forwarding import ForwardingFile, ForwardingFiles


def any_path(path: str) -> bool:  # noqa: ARG001 - a predicate that matches every path
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
