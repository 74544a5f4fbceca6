"""A missing fsync is a loss that the crash states show; with the fsync they show none."""

from collections.abc import Callable

import pytest

from logbrook.ports import Files
from logbrook.testing import RecordingFiles, WithoutDirFsync, WithoutFsync
from logbrook.testing.crash_states import crash_states


def keep(files: Files, path: str, data: bytes) -> None:
    """Store bytes under a name atomically and durably."""
    file = files.create(f"{path}.tmp")
    file.pwrite(data, 0)
    file.fsync()
    file.close()
    files.rename(f"{path}.tmp", path)
    files.fsync_dir("")


def losses(plant: Callable[[RecordingFiles], Files]) -> list[str]:
    """Return the crash states in which promised bytes are missing."""
    recorder = RecordingFiles()
    files = plant(recorder)
    for name in ("a", "b", "a"):
        data = name.encode() * 2000
        keep(files, name, data)
        recorder.mark((name, data))
    lost: list[str] = []
    for state in crash_states(recorder.journal, seeds=range(5)):
        tree = state.files.snapshot()
        promised: dict[str, bytes] = dict(state.marks)  # type: ignore[arg-type]
        lost += [str(state) for name, data in promised.items() if tree.get(name) != data]
    return lost


def test_nothing_is_lost_when_everything_is_synced() -> None:
    assert losses(lambda files: files) == []


BUGS: dict[str, Callable[[RecordingFiles], Files]] = {
    "no fsync at all": WithoutFsync,
    "no fsync of one file": lambda files: WithoutFsync(files, lambda path: path == "b.tmp"),
    "no fsync of any directory": WithoutDirFsync,
    "no fsync of the root": lambda files: WithoutDirFsync(files, lambda path: path == ""),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_forgotten_sync_is_found(bug: str) -> None:
    assert losses(BUGS[bug])


def test_other_paths_are_synced_as_before() -> None:
    assert losses(lambda files: WithoutFsync(files, lambda path: path.endswith(".index"))) == []
    assert losses(lambda files: WithoutDirFsync(files, lambda path: path == "elsewhere")) == []
