"""Replacing segments by one: the new one is complete before any of the old ones goes."""

from logbrook.storage.paths import index_path, log_path, swap_path
from logbrook.storage.swap import commit_swap, finish_swap
from logbrook.testing import MemoryFiles, RecordingFiles
from logbrook.testing.crash_states import crash_states
from tests.unit.storage.kit import OTHER, PARTITION, NewStore, content, numbered, put, stamped, values_of

DIRECTORY = PARTITION.directory
BASES = (0, 10, 20)
TEMPORARY = log_path(DIRECTORY, 0) + ".tmp"


def three_segments(files: MemoryFiles) -> MemoryFiles:
    """Three segments with their indexes, and the one that is to replace the first two."""
    files.make_dir(DIRECTORY)
    for base in BASES:
        put(files, log_path(DIRECTORY, base), b"old %d" % base)
        put(files, index_path(DIRECTORY, base), b"index of %d" % base)
    put(files, TEMPORARY, b"new")
    return files


def test_the_new_segment_takes_the_place_of_the_old_ones(files: MemoryFiles) -> None:
    three_segments(files)
    commit_swap(files, DIRECTORY, TEMPORARY, 0, 20)
    assert content(files, swap_path(DIRECTORY, 0, 20)) == b"new"
    assert content(files, log_path(DIRECTORY, 0)) == b"old 0"
    finish_swap(files, DIRECTORY, 0, 20, [10], files.unlink)
    assert content(files, log_path(DIRECTORY, 0)) == b"new"
    assert files.list(DIRECTORY) == [
        "00000000000000000000.log",
        "00000000000000000020.index",
        "00000000000000000020.log",
    ]


def test_the_old_files_go_the_way_they_are_told_to(files: MemoryFiles) -> None:
    three_segments(files)
    removed: list[str] = []

    def remove(path: str) -> None:
        removed.append(path)
        files.unlink(path)

    commit_swap(files, DIRECTORY, TEMPORARY, 0, 20)
    finish_swap(files, DIRECTORY, 0, 20, [10], remove)
    assert removed == [log_path(DIRECTORY, 10), index_path(DIRECTORY, 10)]


def test_a_segment_without_an_index_can_be_replaced_too(files: MemoryFiles) -> None:
    three_segments(files)
    files.unlink(index_path(DIRECTORY, 0))
    files.unlink(index_path(DIRECTORY, 10))
    commit_swap(files, DIRECTORY, TEMPORARY, 0, 20)
    finish_swap(files, DIRECTORY, 0, 20, [10], files.unlink)
    assert content(files, log_path(DIRECTORY, 0)) == b"new"


def test_after_a_power_loss_either_all_old_segments_are_there_or_the_new_one_is() -> None:
    files = RecordingFiles(three_segments(MemoryFiles()))
    commit_swap(files, DIRECTORY, TEMPORARY, 0, 20)
    finish_swap(files, DIRECTORY, 0, 20, [10], files.unlink)
    files.mark("done")
    old_names = {f"{base:020d}.log" for base in BASES}
    for state in crash_states(files.journal, seeds=range(5)):
        names = set(state.files.list(DIRECTORY))
        is_replaced = content(state.files, log_path(DIRECTORY, 0)) == b"new"
        is_committed = is_replaced or "00000000000000000000-00000000000000000020.swap" in names
        assert is_committed or old_names <= names, str(state)
        assert is_committed or not state.marks, str(state)
        assert "00000000000000000020.log" in names, str(state)


def test_an_index_never_lies_beside_a_segment_that_it_was_not_made_for() -> None:
    files = RecordingFiles(three_segments(MemoryFiles()))
    commit_swap(files, DIRECTORY, TEMPORARY, 0, 20)
    finish_swap(files, DIRECTORY, 0, 20, [10], files.unlink)
    for state in crash_states(files.journal, seeds=range(5)):
        if content(state.files, log_path(DIRECTORY, 0)) == b"new":
            assert "00000000000000000000.index" not in state.files.list(DIRECTORY), str(state)


def test_opening_the_directory_finishes_a_swap_that_a_crash_interrupted(new_store: NewStore) -> None:
    store = new_store(segment_bytes=1)
    store.write(*numbered(4))
    store.create(OTHER)
    store.close()
    kept = [b"%05d" % number for number in (1, 2, 3)]
    # Segments 0 and 1 were compacted into one without the record at offset 0.
    put(store.files, TEMPORARY, stamped(numbered(1, first=1), 1))
    commit_swap(store.files, DIRECTORY, TEMPORARY, 0, 2)
    again = store.killed()
    assert values_of(again.read(0)) == kept
    assert [segment.base_offset for segment in again.log.segments] == [0, 2, 3]
    assert not [name for name in again.files.list(DIRECTORY) if name.endswith(".swap")]
    assert values_of(again.killed().read(0)) == kept
