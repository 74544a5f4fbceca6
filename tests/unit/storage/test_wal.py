"""The shared write-ahead log: group commit, refusals before a write, and reuse of files."""

import errno
from contextlib import suppress
from itertools import count

import pytest

from logbrook.model.identifiers import Offset
from logbrook.ports import Files
from logbrook.storage.errors import DiskFullError, StorageOfflineError
from logbrook.storage.paths import WAL_DIRECTORY, log_path
from logbrook.storage.pending_append import CommittedOffset, PendingAppend
from logbrook.storage.probe import StorageProbe
from logbrook.storage.wal import Wal
from logbrook.storage.wal_format import read_wal
from logbrook.testing import FaultyFiles, MemoryFiles
from logbrook.testing.clock import FakeClock

FILE_BYTES = 4096
# A segment is synced when it gets this much in one commit. The segments exist in the tests of it only.
LARGE = 600
NAME = b"orders-0"
MARK = b"our mark"


class Bench:
    """A write-ahead log, and the callbacks it made."""

    def __init__(self, files: Files | None = None, next_number: int = 0) -> None:
        self.files = files or MemoryFiles()
        if WAL_DIRECTORY not in self.files.list(""):
            self.files.make_dir(WAL_DIRECTORY)
        self.probe = StorageProbe()
        self.failures: list[StorageOfflineError] = []
        self.wal = Wal(
            self.files,
            MARK,
            FILE_BYTES,
            next_number,
            0,
            FakeClock(),
            self.probe,
            self.failures.append,
            segment_sync_min_bytes=LARGE,
        )
        self.line = CommittedOffset(Offset(0))
        self._offsets = count()

    def append(self, data: bytes = b"data", directory: bytes = NAME, segment: int = 0) -> PendingAppend:
        offset = next(self._offsets)
        self.wal.reserve(directory, len(data))
        append = PendingAppend(self.line, Offset(offset), Offset(offset + 1), -1, False)
        self.wal.submit(append, directory, Offset(segment), offset * 100, memoryview(data))
        return append

    def stored(self, floor: int = 0) -> list[bytes]:
        """Return the data of all entries on disk from number `floor` on."""
        contents = read_wal(self.files, MARK, floor)
        assert contents.damage == []
        return [bytes(entry.data) for entry in contents.entries()]

    def names(self) -> list[str]:
        return self.files.list(WAL_DIRECTORY)


def test_nothing_is_done_before_the_commit() -> None:
    bench = Bench()
    append = bench.append()
    assert not append.done
    assert bench.line.offset == 0
    assert bench.stored() == []


def test_a_commit_syncs_all_submitted_bytes_and_returns_their_number() -> None:
    bench = Bench()
    appends = [bench.append(b"%d" % n) for n in range(3)]
    assert bench.wal.commit() == 3
    assert all(append.done and append.error is None for append in appends)
    assert bench.line.offset == 3
    assert bench.stored() == [b"0", b"1", b"2"]


def test_a_callback_that_raises_takes_no_other_append_with_it() -> None:
    """The other appends are durable and must complete."""
    bench = Bench()
    appends = [bench.append() for _ in range(3)]

    def fail(_append: PendingAppend) -> None:
        raise RuntimeError("the event loop is closed")

    appends[0].add_done_callback(fail)
    with suppress(RuntimeError):
        bench.wal.commit()
    assert all(append.done for append in appends)
    assert bench.line.offset == 3


def test_a_commit_is_one_block_and_one_sync_however_many_entries_wait() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync", "pwritev"})
    bench = Bench(files)
    for _ in range(5):
        bench.append()
    before = files.calls
    bench.wal.commit()
    assert [call.op for call in files.log[before:]] == ["pwritev", "fsync"]
    assert (bench.probe.wal_commits, bench.probe.wal_entries) == (1, 5)


def test_a_commit_with_nothing_to_do_touches_nothing() -> None:
    files = FaultyFiles(MemoryFiles())
    bench = Bench(files)
    before = files.calls
    assert bench.wal.commit() == 0
    assert files.calls == before


def test_a_waiting_append_completes_with_the_appends_before_it() -> None:
    bench = Bench()
    bench.append()
    waiting = PendingAppend(bench.line, Offset(0), Offset(1), -1, True)
    bench.wal.submit_duplicate(waiting)
    assert not waiting.done
    assert bench.wal.commit() == 2
    assert waiting.done


def test_an_append_that_waits_for_nothing_is_done_without_a_sync() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"})
    bench = Bench(files)
    waiting = PendingAppend(bench.line, Offset(0), Offset(1), -1, True)
    bench.wal.submit_duplicate(waiting)
    bench.wal.commit()
    assert waiting.done
    assert files.calls == 0


def test_appends_and_waits_call_the_pending_callback() -> None:
    bench = Bench()
    notifications: list[str] = []
    bench.wal.on_pending = lambda: notifications.append("pending")
    bench.append()
    bench.wal.submit_duplicate(PendingAppend(bench.line, Offset(0), Offset(1), -1, True))
    assert notifications == ["pending", "pending"]


def test_a_file_is_written_out_in_full_before_it_is_used() -> None:
    bench = Bench()
    bench.append()
    (name,) = bench.names()
    assert bench.files.size(f"{WAL_DIRECTORY}/{name}") == FILE_BYTES


def test_an_entry_larger_than_a_file_gets_a_file_of_its_size() -> None:
    bench = Bench()
    large = bytes(3 * FILE_BYTES)
    bench.append(large)
    bench.wal.commit()
    assert bench.stored() == [large]


def test_when_a_file_is_full_the_next_is_begun() -> None:
    bench = Bench()
    for number in range(20):
        bench.append(b"%d" % number)
    bench.wal.commit()
    assert len(bench.names()) == 3
    assert bench.stored() == [b"%d" % number for number in range(20)]


def test_the_files_of_entries_that_are_no_longer_needed_are_written_over() -> None:
    bench = Bench()
    for number in range(200):
        bench.append(b"%d" % number)
        bench.wal.commit()
        if number % 10 == 9:
            bench.wal.release(bench.wal.next_number)
    assert len(bench.names()) <= 4
    assert bench.stored(floor=195) == [b"%d" % number for number in range(195, 200)]


def test_old_blocks_of_a_reused_file_are_not_recovered() -> None:
    bench = Bench()
    for number in range(8):
        bench.append(b"old %d" % number)
        bench.wal.commit()
    bench.wal.release(8)
    bench.append(b"new")
    bench.wal.commit()
    assert len(bench.names()) == 1
    assert bench.stored(floor=8) == [b"new"]


def test_no_more_than_two_files_are_kept_for_later() -> None:
    bench = Bench()
    for _ in range(50):
        bench.append()
    bench.wal.commit()
    assert len(bench.names()) == 7
    bench.wal.release(bench.wal.next_number)
    assert len(bench.names()) == 2
    assert bench.wal.bytes_in_use == 0


def test_a_file_with_an_entry_that_is_still_needed_is_kept() -> None:
    bench = Bench()
    for number in range(20):
        bench.append(b"%d" % number)
        bench.wal.commit()
    bench.wal.release(19)
    assert bench.stored(floor=19) == [b"19"]


def test_a_file_with_an_entry_that_is_not_committed_is_kept() -> None:
    bench = Bench()
    append = bench.append(b"late")
    bench.wal.release(bench.wal.next_number)
    bench.wal.commit()
    assert append.done
    assert bench.stored() == [b"late"]


def test_the_bytes_in_use_grow_with_the_entries() -> None:
    bench = Bench()
    assert bench.wal.bytes_in_use == 0
    bench.append()
    bytes_of_first = bench.wal.bytes_in_use
    bench.append()
    assert bench.wal.bytes_in_use == 2 * bytes_of_first > 0


@pytest.mark.parametrize("commits_between", [True, False])
def test_an_entry_after_a_skipped_number_is_read_back_as_newer_than_it(commits_between: bool) -> None:
    bench = Bench()
    bench.append(b"before")
    if commits_between:
        bench.wal.commit()
    number = bench.wal.skip_number()
    bench.append(b"after")
    bench.wal.commit()
    numbers = {bytes(entry.data): entry.number for entry in read_wal(bench.files, MARK, 0).entries()}
    assert numbers[b"before"] < number <= numbers[b"after"]


def full_disk(room: int) -> Bench:
    bench = Bench(MemoryFiles())
    assert isinstance(bench.files, MemoryFiles)
    bench.files.capacity_bytes = bench.files.used_bytes() + room
    return bench


def test_without_room_for_a_file_an_append_is_refused_and_nothing_is_left_of_the_attempt() -> None:
    bench = full_disk(FILE_BYTES - 1)
    with pytest.raises(DiskFullError) as raised:
        bench.append()
    assert raised.value.size == FILE_BYTES
    assert bench.names() == []
    assert bench.failures == []


def test_appends_continue_after_space_is_freed() -> None:
    bench = full_disk(0)
    with pytest.raises(DiskFullError):
        bench.append(b"refused")
    assert isinstance(bench.files, MemoryFiles)
    bench.files.capacity_bytes = None
    bench.append(b"taken")
    bench.wal.commit()
    assert bench.stored() == [b"taken"]


def test_an_append_that_has_its_room_can_be_committed_on_a_full_disk() -> None:
    bench = Bench(MemoryFiles())
    append = bench.append()
    assert isinstance(bench.files, MemoryFiles)
    bench.files.capacity_bytes = 0
    bench.wal.commit()
    assert append.result() is append


@pytest.mark.parametrize("call", ["create", "reserve", "fsync_dir"])
def test_a_file_that_cannot_be_made_is_the_end_of_writing(call: str) -> None:
    files = FaultyFiles(MemoryFiles(), fail_at=1, only={call})
    bench = Bench(files)
    with pytest.raises(StorageOfflineError) as raised:
        bench.append()
    assert bench.failures == [raised.value]


@pytest.mark.parametrize(("call", "error"), [("pwritev", errno.ENOSPC), ("pwritev", errno.EIO), ("fsync", errno.EIO)])
def test_a_commit_that_fails_is_final(call: str, error: int) -> None:
    files = FaultyFiles(MemoryFiles(), error=error, only={call})
    bench = Bench(files)
    appends = [bench.append(), bench.append()]
    files.fail_at = files.calls + 1
    assert bench.wal.commit() == 2
    (failure,) = bench.failures
    assert failure.errno == error
    assert all(append.done and append.error is failure for append in appends)
    assert bench.line.offset == 0
    with pytest.raises(StorageOfflineError) as raised:
        bench.append()
    assert raised.value is failure


def test_after_a_failure_the_disk_is_left_alone_and_appends_get_the_first_error() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync", "pwritev"})
    bench = Bench(files)
    bench.append()
    files.fail_at = files.calls + 2
    bench.wal.commit()
    calls = files.calls
    late = PendingAppend(bench.line, Offset(0), Offset(1), -1, True)
    bench.wal.submit_duplicate(late)
    bench.wal.commit()
    assert late.error is bench.failures[0]
    assert files.calls == calls
    assert len(bench.failures) == 1


def test_a_later_failure_does_not_hide_the_first() -> None:
    bench = Bench()
    first = StorageOfflineError("sync", "a", OSError(errno.EIO, "x"))
    bench.wal.fail(first)
    bench.wal.fail(StorageOfflineError("sync", "b", OSError(errno.EIO, "y")))
    assert bench.failures == [first]


def test_a_closed_log_holds_no_file_open() -> None:
    files = MemoryFiles()
    bench = Bench(files)
    for _ in range(20):
        bench.append()
    bench.wal.commit()
    bench.wal.close()
    assert all(inode.handle_count == 0 for inode in files.root_directory.inodes())


def test_a_file_that_recovery_is_done_with_is_written_over() -> None:
    bench = Bench()
    bench.append(b"old")
    bench.wal.commit()
    bench.wal.close()
    (name,) = bench.names()
    again = Bench(bench.files, next_number=1)
    again.wal.adopt(f"{WAL_DIRECTORY}/{name}")
    again.append(b"new")
    again.wal.commit()
    assert again.names() == [name]
    assert again.stored(floor=1) == [b"new"]


def test_a_file_that_a_crash_left_without_its_room_is_not_written_over() -> None:
    bench = Bench()
    path = f"{WAL_DIRECTORY}/00000000000000000000.wal"
    bench.files.create(path).close()
    bench.wal.adopt(path)
    assert bench.names() == []


def test_a_spare_that_is_too_small_is_left_for_smaller_entries() -> None:
    bench = Bench()
    bench.append(b"old")
    bench.wal.commit()
    bench.wal.release(1)
    bench.append(bytes(2 * FILE_BYTES))
    bench.append(b"small")
    bench.wal.commit()
    assert len(bench.names()) == 2
    assert bench.stored(floor=1) == [bytes(2 * FILE_BYTES), b"small"]


def with_segments(*directories: bytes, on: Files | None = None) -> Bench:
    """Return a bench whose partitions have two segments each."""
    bench = Bench(on)
    for directory in directories:
        bench.files.make_dir(directory.decode())
        for base_offset in (0, 100):
            bench.files.create(log_path(directory.decode(), Offset(base_offset))).close()
    return bench


def test_a_segment_that_gets_much_data_is_synced_and_the_data_is_not_written_twice() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync", "fsync_dir", "pwritev"})
    bench = with_segments(NAME, on=files)
    first, second = bench.append(bytes(LARGE - 1)), bench.append(b"!")
    before = files.calls
    bench.wal.commit()
    segment = log_path(NAME.decode(), Offset(0))
    wal = f"{WAL_DIRECTORY}/{bench.names()[0]}"
    calls = [(call.op, call.path) for call in files.log[before:]]
    assert calls == [("fsync", segment), ("fsync_dir", NAME.decode()), ("pwritev", wal), ("fsync", wal)]
    assert first.done
    assert second.done
    entries = list(read_wal(bench.files, MARK, 0).entries())
    assert [(entry.number, entry.next_offset, len(entry.data)) for entry in entries] == [(0, 1, 0), (1, 2, 0)]
    assert bench.probe.wal_segment_syncs == 1


def test_the_data_of_other_segments_is_written_to_the_write_ahead_log() -> None:
    bench = with_segments(NAME, b"small-0")
    bench.append(b"small", b"small-0")
    bench.append(bytes(LARGE))
    bench.append(b"next segment", segment=100)
    bench.wal.commit()
    assert bench.stored() == [b"small", b"", b"next segment"]


@pytest.mark.parametrize("truncates", [False, True])
def test_the_name_of_a_segment_is_synced_once_and_again_after_a_truncation(truncates: bool) -> None:
    """A truncation may replace the segment by another of the same name."""
    files = FaultyFiles(MemoryFiles(), only={"fsync_dir"})
    bench = with_segments(NAME, on=files)
    bench.append(bytes(LARGE))
    bench.wal.commit()
    if truncates:
        bench.wal.skip_number()
    before = files.calls
    bench.append(bytes(LARGE))
    bench.wal.commit()
    assert files.calls - before == truncates


def test_the_data_of_a_segment_that_was_removed_is_written_to_the_write_ahead_log() -> None:
    bench = Bench()
    append = bench.append(bytes(LARGE))
    bench.wal.commit()
    assert append.result() is append
    assert bench.stored() == [bytes(LARGE)]


def test_without_a_free_descriptor_the_data_is_written_to_the_write_ahead_log() -> None:
    files = FaultyFiles(MemoryFiles(), error=errno.EMFILE, only={"open"})
    bench = with_segments(NAME, on=files)
    append = bench.append(bytes(LARGE))
    files.fail_at = files.calls + 1
    bench.wal.commit()
    assert append.result() is append
    assert bench.stored() == [bytes(LARGE)]


@pytest.mark.parametrize("call", ["fsync", "fsync_dir"])
def test_a_segment_that_cannot_be_synced_is_the_end_of_writing(call: str) -> None:
    files = FaultyFiles(MemoryFiles(), only={call})
    bench = with_segments(NAME, on=files)
    append = bench.append(bytes(LARGE))
    files.fail_at = files.calls + 1
    bench.wal.commit()
    assert append.error is bench.failures[0]
    assert bench.stored() == []
