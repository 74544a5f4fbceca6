"""The n-th call fails, and nothing else changes."""

import errno

import pytest

from logbrook.ports import Files
from logbrook.testing import FaultyFiles, MemoryFiles, RecordingFiles, Variant, materialise
from logbrook.testing.forwarding import CALLS, MUTATING_CALLS, SYNC_CALLS, WRITE_CALLS


def workload(files: Files) -> None:
    """Make every counted call at least once."""
    files.lock("lock").release()
    files.make_dir("d")
    file = files.create("d/a")
    file.pwrite(b"abcd", 0)
    file.pwritev([b"ef", b"gh"], 4)
    file.truncate(6)
    file.reserve(6)
    file.fsync()
    file.close()
    files.fsync_dir("d")
    files.rename("d/a", "d/b")
    file = files.open("d/b")
    file.pread(file.size(), 0)
    file.map_readonly(6)
    file.close()
    files.size("d/b")
    files.list("d")
    files.unlink("d/b")
    files.remove_dir("d")


def test_without_a_fault_every_call_is_counted_and_passed_on() -> None:
    inner = RecordingFiles()
    files = FaultyFiles(inner)
    workload(files)
    assert {call.op for call in files.log} == CALLS
    assert [call.n for call in files.log] == list(range(1, files.calls + 1))
    assert files.log[1] == (2, "make_dir", "d")
    assert files.refused == []
    plain = RecordingFiles()
    workload(plain)
    assert inner.journal == plain.journal


def test_every_call_fails_in_its_turn() -> None:
    counted = FaultyFiles(MemoryFiles())
    workload(counted)
    for n in range(1, counted.calls + 1):
        files = FaultyFiles(MemoryFiles(), fail_at=n)
        with pytest.raises(OSError, match=f"injected at call {n}, {counted.log[n - 1].op}") as raised:
            workload(files)
        assert raised.value.errno == errno.EIO
        assert raised.value.filename == counted.log[n - 1].path
        assert files.log == counted.log[:n]
        assert files.refused == [counted.log[n - 1]]


def test_a_refused_call_leaves_the_disk_alone() -> None:
    counted = FaultyFiles(MemoryFiles())
    workload(counted)
    for n in range(1, counted.calls + 1):
        inner = RecordingFiles()
        with pytest.raises(OSError, match="injected"):
            workload(FaultyFiles(inner, n))
        plain = RecordingFiles()
        workload(plain)
        done = len(inner.journal.ops)
        assert inner.journal.ops == plain.journal.ops[:done]


def test_only_the_calls_of_a_kind_count() -> None:
    files = FaultyFiles(MemoryFiles(), fail_at=2, only=SYNC_CALLS)
    with pytest.raises(OSError, match="injected at call 2, fsync_dir"):
        workload(files)
    assert [call.op for call in files.log] == ["fsync", "fsync_dir"]


def test_only_the_calls_on_some_paths_count() -> None:
    files = FaultyFiles(MemoryFiles(), fail_at=1, matching=lambda path: path.endswith("/b"))
    with pytest.raises(OSError, match="injected at call 1, open"):
        workload(files)


def test_a_fault_passes_unless_it_is_sticky() -> None:
    for sticky, failures in ((False, 1), (True, 3)):
        files = FaultyFiles(MemoryFiles(), fail_at=2, only=WRITE_CALLS, sticky=sticky)
        file = files.create("a")
        failed = 0
        for n in range(4):
            try:
                file.pwrite(b"x", n)
            except OSError:
                failed += 1
        assert failed == failures == len(files.refused)


def test_a_sticky_fault_can_be_mended() -> None:
    files = FaultyFiles(MemoryFiles(), fail_at=1, error=errno.ENOSPC, only=WRITE_CALLS, sticky=True)
    file = files.create("a")
    with pytest.raises(OSError, match="No space left") as raised:
        file.pwrite(b"abc", 0)
    assert raised.value.errno == errno.ENOSPC
    files.fail_at = None
    file.pwrite(b"abc", 0)
    assert file.pread(3, 0) == b"abc"


def test_the_error_has_the_class_of_its_number() -> None:
    files = FaultyFiles(MemoryFiles(), fail_at=1, error=errno.EACCES)
    with pytest.raises(PermissionError):
        files.create("a")


def test_a_partial_write_leaves_its_first_half() -> None:
    inner = MemoryFiles()
    files = FaultyFiles(inner, fail_at=1, only=WRITE_CALLS, sticky=True, partial_writes=True)
    with pytest.raises(OSError, match="injected"):
        files.create("a").pwrite(b"abcdef", 1)
    with pytest.raises(OSError, match="injected"):
        files.create("b").pwritev([b"ab", b"cd", b"ef"], 0)
    assert inner.snapshot() == {"a": b"\0abc", "b": b"abc"}


def test_a_failed_fsync_may_drop_unsynced_bytes() -> None:
    for forget, expected in ((True, b""), (False, b"abc")):
        inner = RecordingFiles()
        files = FaultyFiles(inner, fail_at=1, only={"fsync"}, forget_unsynced=forget)
        file = files.create("a")
        files.fsync_dir("")
        file.pwrite(b"abc", 0)
        with pytest.raises(OSError, match="injected"):
            file.fsync()
        file.fsync()
        assert file.pread(3, 0) == b"abc"
        disk = materialise(inner.journal, len(inner.journal.ops), Variant.KEPT)
        assert disk.snapshot() == {"a": expected}


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no such calls: \['write'\]"):
        FaultyFiles(MemoryFiles(), only={"write", "fsync"})
    with pytest.raises(ValueError, match="RecordingFiles"):
        FaultyFiles(MemoryFiles(), forget_unsynced=True)


def test_reads_are_not_among_the_mutating_calls() -> None:
    reads = {"open", "size", "list", "pread", "map_readonly"}
    assert reads == CALLS - MUTATING_CALLS
