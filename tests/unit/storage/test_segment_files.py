"""Replacement of segments by one, which is complete before any old one is removed, and delayed deletion of files."""

from logbrook.model.identifiers import Offset
from logbrook.ports import Files
from logbrook.storage.paths import index_path, log_path, swap_path
from logbrook.storage.probe import StorageProbe
from logbrook.storage.segment_files import FileRemover, commit_swap, finish_swap
from logbrook.testing import MemoryFiles, RecordingFiles
from logbrook.testing.crash_states import crash_states
from tests.unit.storage.kit import OTHER, PARTITION, NewStore, content, numbered, put, stamped, values_of

DIRECTORY = PARTITION.directory
BASES = (0, 10, 20)
TEMPORARY = log_path(DIRECTORY, Offset(0)) + ".tmp"


def three_segments(files: MemoryFiles) -> MemoryFiles:
    """Three segments with their indexes, and the one that is to replace the first two."""
    files.make_dir(DIRECTORY)
    for base in BASES:
        put(files, log_path(DIRECTORY, Offset(base)), b"old %d" % base)
        put(files, index_path(DIRECTORY, Offset(base)), b"index of %d" % base)
    put(files, TEMPORARY, b"new")
    return files


def test_the_new_segment_replaces_the_old_ones(files: MemoryFiles) -> None:
    three_segments(files)
    commit_swap(files, DIRECTORY, TEMPORARY, Offset(0), Offset(20))
    assert content(files, swap_path(DIRECTORY, Offset(0), Offset(20))) == b"new"
    assert content(files, log_path(DIRECTORY, Offset(0))) == b"old 0"
    finish_swap(files, DIRECTORY, Offset(0), Offset(20), [10], files.unlink)
    assert content(files, log_path(DIRECTORY, Offset(0))) == b"new"
    assert files.list(DIRECTORY) == [
        "00000000000000000000.log",
        "00000000000000000020.index",
        "00000000000000000020.log",
    ]


def test_the_old_files_are_removed_by_the_given_function(files: MemoryFiles) -> None:
    three_segments(files)
    removed: list[str] = []

    def remove(path: str) -> None:
        removed.append(path)
        files.unlink(path)

    commit_swap(files, DIRECTORY, TEMPORARY, Offset(0), Offset(20))
    finish_swap(files, DIRECTORY, Offset(0), Offset(20), [10], remove)
    assert removed == [log_path(DIRECTORY, Offset(10)), index_path(DIRECTORY, Offset(10))]


def test_a_segment_without_an_index_can_be_replaced_too(files: MemoryFiles) -> None:
    three_segments(files)
    files.unlink(index_path(DIRECTORY, Offset(0)))
    files.unlink(index_path(DIRECTORY, Offset(10)))
    commit_swap(files, DIRECTORY, TEMPORARY, Offset(0), Offset(20))
    finish_swap(files, DIRECTORY, Offset(0), Offset(20), [10], files.unlink)
    assert content(files, log_path(DIRECTORY, Offset(0))) == b"new"


def test_after_a_power_loss_either_all_old_segments_exist_or_the_new_one() -> None:
    files = RecordingFiles(three_segments(MemoryFiles()))
    commit_swap(files, DIRECTORY, TEMPORARY, Offset(0), Offset(20))
    finish_swap(files, DIRECTORY, Offset(0), Offset(20), [10], files.unlink)
    files.mark("done")
    old_names = {f"{base:020d}.log" for base in BASES}
    for state in crash_states(files.journal, seeds=range(5)):
        names = set(state.files.list(DIRECTORY))
        is_replaced = content(state.files, log_path(DIRECTORY, Offset(0))) == b"new"
        is_committed = is_replaced or "00000000000000000000-00000000000000000020.swap" in names
        assert is_committed or old_names <= names, str(state)
        assert is_committed or not state.marks, str(state)
        assert "00000000000000000020.log" in names, str(state)


def test_an_index_is_never_kept_for_another_segment() -> None:
    files = RecordingFiles(three_segments(MemoryFiles()))
    commit_swap(files, DIRECTORY, TEMPORARY, Offset(0), Offset(20))
    finish_swap(files, DIRECTORY, Offset(0), Offset(20), [10], files.unlink)
    for state in crash_states(files.journal, seeds=range(5)):
        if content(state.files, log_path(DIRECTORY, Offset(0))) == b"new":
            assert "00000000000000000000.index" not in state.files.list(DIRECTORY), str(state)


def test_opening_the_directory_finishes_a_swap_that_a_crash_interrupted(new_store: NewStore) -> None:
    store = new_store(segment_bytes=1)
    store.write(*numbered(4))
    store.create(OTHER)
    store.close()
    kept = [b"%05d" % number for number in (1, 2, 3)]
    # Segments 0 and 1 were compacted into one without the record at offset 0.
    put(store.files, TEMPORARY, stamped(numbered(1, first=1), 1))
    commit_swap(store.files, DIRECTORY, TEMPORARY, Offset(0), Offset(2))
    again = store.killed()
    assert values_of(again.read(0)) == kept
    assert [segment.base_offset for segment in again.log.segments] == [0, 2, 3]
    assert not [name for name in again.files.list(DIRECTORY) if name.endswith(".swap")]
    assert values_of(again.killed().read(0)) == kept


def remover_with(*names: str, due_ms: int = 0) -> tuple[MemoryFiles, FileRemover]:
    files = MemoryFiles()
    remover = FileRemover(files, StorageProbe())
    for name in names:
        put(files, name, name.encode())
        remover.retire(name, due_ms)
    return files, remover


def graveyard(files: Files, *names: str) -> None:
    files.make_dir("orders-0.deleted")
    for name in names:
        put(files, f"orders-0.deleted/{name}", b"x")


def test_a_retired_file_has_its_last_name_at_once() -> None:
    files, remover = remover_with("a")
    assert files.list("") == ["a.deleted"]
    assert len(remover) == 1


def test_a_file_stays_until_its_time_has_come() -> None:
    files, remover = remover_with("a", due_ms=100)
    assert remover.step(99) == []
    assert files.list("") == ["a.deleted"]
    assert remover.step(100) == ["a.deleted"]
    assert files.list("") == []
    assert len(remover) == 0


def test_one_step_unlinks_no_more_than_it_may() -> None:
    files, remover = remover_with("a", "b", "c")
    assert remover.step(0, files_max=2) == ["a.deleted", "b.deleted"]
    assert remover.step(0, files_max=2) == ["c.deleted"]
    assert files.list("") == []


def test_a_deletion_that_is_not_due_does_not_delay_later_ones() -> None:
    files, remover = remover_with("later", due_ms=100)
    put(files, "now", b"x")
    remover.retire("now", 0)
    assert remover.step(0) == ["now.deleted"]
    assert files.list("") == ["later.deleted"]


def test_a_file_retired_twice_is_deleted_once() -> None:
    files, remover = remover_with("a", "a")
    assert remover.step(0) == ["a.deleted"]
    assert files.list("") == []


def test_a_new_file_of_a_retired_name_is_not_touched() -> None:
    files, remover = remover_with("a")
    put(files, "a", b"new")
    remover.step(0)
    assert content(files, "a") == b"new"


def test_a_directory_is_removed_with_its_contents() -> None:
    files, remover = remover_with()
    graveyard(files, "a", "b")
    remover.add_directory("orders-0.deleted", 0)
    assert remover.step(0) == ["orders-0.deleted/a", "orders-0.deleted/b"]
    assert files.list("") == []


def test_a_large_directory_is_removed_in_several_steps() -> None:
    files, remover = remover_with()
    graveyard(files, "a", "b", "c")
    remover.add_directory("orders-0.deleted", 0)
    steps = [remover.step(0, files_max=1) for _ in range(4)]
    assert [path for step in steps for path in step] == [f"orders-0.deleted/{name}" for name in "abc"]
    assert files.list("") == []


def test_an_empty_directory_is_removed_too() -> None:
    files, remover = remover_with()
    graveyard(files)
    remover.add_directory("orders-0.deleted", 0)
    assert remover.step(0) == []
    assert files.list("") == []


def test_the_files_that_went_are_counted() -> None:
    files = MemoryFiles()
    probe = StorageProbe()
    remover = FileRemover(files, probe)
    for name in "abc":
        put(files, name, b"x")
        remover.add(name, 0)
    remover.step(0)
    assert probe.files_unlinked == 3
