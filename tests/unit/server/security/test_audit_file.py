"""The audit file and its thread."""

import os
import stat
from pathlib import Path
from threading import Event

import pytest

from logbrook.server.security import audit_file
from logbrook.server.security.audit_file import AuditFile


def test_lines_are_appended_in_order_for_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for numbers in (range(500), range(500, 1000)):
        file = AuditFile(str(path))
        file.start()
        for number in numbers:
            file.write(b"%d\n" % number)
        file.stop()
    assert path.read_bytes() == b"".join(b"%d\n" % number for number in range(1000))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert file.dropped == 0


def test_a_moved_file_is_opened_again(tmp_path: Path) -> None:
    path, moved = tmp_path / "audit.log", tmp_path / "audit.log.1"
    file = AuditFile(str(path))
    file.start()
    file.write(b"before\n")
    path.rename(moved)
    file.reopen()
    file.write(b"after\n")
    file.stop()
    assert moved.read_bytes() + path.read_bytes() == b"before\nafter\n"
    assert b"after\n" in path.read_bytes()


def test_a_full_queue_drops_lines_and_counts_them(tmp_path: Path) -> None:
    file = AuditFile(str(tmp_path / "audit.log"))
    for _ in range(10_003):
        file.write(b"x\n")
    assert file.dropped == 3


def test_a_path_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        AuditFile(str(tmp_path / "missing" / "audit.log")).start()


def test_a_write_that_was_cut_off_is_followed_by_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full in the middle of a line, and has space again later."""
    path = tmp_path / "audit.log"
    real_write, calls, has_written = os.write, iter(range(100)), Event()

    def write(descriptor: int, data: bytes) -> int:
        match next(calls):
            case 0:
                return real_write(descriptor, bytes(data)[:3])
            case 1:
                raise OSError(28, "No space left on device")
        written = real_write(descriptor, data)
        has_written.set()
        return written

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(audit_file, "_RETRY_S", 0.01)
    file = AuditFile(str(path))
    file.start()
    file.write(b"first\n")
    assert has_written.wait(10)
    file.stop()
    assert path.read_bytes() == b"fir\nfirst\n"
