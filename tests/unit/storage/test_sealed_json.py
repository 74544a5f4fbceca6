"""Small files that are replaced whole."""

import errno

import pytest

from logbrook.ports import Files
from logbrook.storage.errors import CorruptFileError, StorageOfflineError
from logbrook.storage.sealed_json import create_anew, read_sealed, replace_file, write_sealed
from logbrook.testing import FaultyFiles, MemoryFiles, RecordingFiles
from logbrook.testing.crash_states import crash_states
from logbrook.testing.faults import SYNC_CALLS
from tests.unit.storage.kit import content, put

CONTENT = {"b": [1, 2, None], "a": {"text": "naïve"}, "c": 2**63}


def test_what_was_written_is_read_back() -> None:
    files = MemoryFiles()
    write_sealed(files, "state", CONTENT)
    assert read_sealed(files, "state") == CONTENT


def test_a_missing_file_has_no_content() -> None:
    assert read_sealed(MemoryFiles(), "state") is None


def test_equal_content_is_equal_bytes() -> None:
    files = MemoryFiles()
    write_sealed(files, "one", {"x": 1, "y": 2})
    write_sealed(files, "two", {"y": 2, "x": 1})
    assert content(files, "one") == content(files, "two")


def test_every_changed_byte_is_noticed() -> None:
    files = MemoryFiles()
    write_sealed(files, "state", CONTENT)
    good = content(files, "state")
    for position in range(len(good)):
        put(files, "state", good[:position] + bytes([good[position] ^ 0x01]) + good[position + 1 :])
        with pytest.raises(CorruptFileError, match="state is corrupt") as raised:
            read_sealed(files, "state")
        assert raised.value.file == "state"


def test_every_cut_is_noticed() -> None:
    files = MemoryFiles()
    write_sealed(files, "state", CONTENT)
    good = content(files, "state")
    for length in range(len(good)):
        put(files, "state", good[:length])
        with pytest.raises(CorruptFileError):
            read_sealed(files, "state")


def test_a_power_loss_leaves_the_old_or_the_new_never_a_mixture() -> None:
    before = MemoryFiles()
    before.make_dir("d")
    write_sealed(before, "d/state", "old")
    files = RecordingFiles(before)
    write_sealed(files, "d/state", "new")
    files.mark("promised")
    tried = 0
    for state in crash_states(files.journal, seeds=range(4)):
        expected = {"new"} if state.marks else {"old", "new"}
        assert read_sealed(state.files, "d/state") in expected, str(state)
        tried += 1
    assert tried > 5


def test_what_a_crash_left_of_an_earlier_attempt_is_in_nobodys_way() -> None:
    files = MemoryFiles()
    put(files, "state.tmp", b"half of something")
    write_sealed(files, "state", "new")
    assert read_sealed(files, "state") == "new"
    assert files.list("") == ["state"]


def test_a_failed_write_leaves_the_old_file() -> None:
    inner = MemoryFiles()
    write_sealed(inner, "state", "old")
    files = FaultyFiles(inner, fail_at=1, error=errno.ENOSPC, only={"pwrite"}, partial_writes=True)
    with pytest.raises(OSError, match="No space left"):
        write_sealed(files, "state", "new")
    assert read_sealed(files, "state") == "old"


@pytest.mark.parametrize("n", [1, 2])
def test_a_failed_sync_is_the_end_of_writing(n: int) -> None:
    files = FaultyFiles(MemoryFiles(), fail_at=n, only=SYNC_CALLS)
    with pytest.raises(StorageOfflineError) as raised:
        write_sealed(files, "state", "new")
    assert raised.value.errno == errno.EIO


def test_replacing_gives_a_file_exactly_these_bytes() -> None:
    files = MemoryFiles()
    replace_file(files, "a", b"long content")
    replace_file(files, "a", bytearray(b"short"))
    assert content(files, "a") == b"short"


def test_creating_anew_empties_what_was_there() -> None:
    files: Files = MemoryFiles()
    put(files, "a", b"old")
    file = create_anew(files, "a")
    assert file.size() == 0
    file.close()
