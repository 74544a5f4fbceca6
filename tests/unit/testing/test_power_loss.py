"""The rules of power loss, one test each."""

import pytest

from logbrook.testing import ALL_VARIANTS, SECTOR_BYTES, MemoryFiles, RecordingFiles, Variant, materialise
from logbrook.testing.crash_states import crash_states

SEEDS = range(40)
Tree = dict[str, bytes | None]


def trees(files: RecordingFiles, variant: Variant, seeds: range = SEEDS) -> list[Tree]:
    """Return the distinct states that a power loss at the end of the journal may leave."""
    distinct: list[Tree] = []
    for seed in seeds if variant.is_seeded else (0,):
        tree = materialise(files.journal, len(files.journal.ops), variant, seed).snapshot()
        if tree not in distinct:
            distinct.append(tree)
    return distinct


def outcomes(files: RecordingFiles, seeds: range = SEEDS) -> list[Tree]:
    return [tree for variant in Variant for tree in trees(files, variant, seeds)]


def durable_file(path: str, data: bytes) -> RecordingFiles:
    image = MemoryFiles()
    image.create(path).pwrite(data, 0)
    return RecordingFiles(image)


def test_an_fsynced_file_with_an_fsynced_name_survives_everything() -> None:
    files = RecordingFiles()
    file = files.create("a")
    file.pwrite(b"abc", 0)
    file.fsync()
    files.fsync_dir("")
    assert all(tree == {"a": b"abc"} for tree in outcomes(files))


def test_a_file_not_fsynced_may_lose_its_bytes() -> None:
    files = RecordingFiles()
    file = files.create("a")
    files.fsync_dir("")
    file.pwrite(b"abc", 0)
    assert trees(files, Variant.LOST) == [{"a": b""}]
    assert trees(files, Variant.NAMES_ONLY) == [{"a": b""}]
    assert trees(files, Variant.SIZES_ONLY) == [{"a": b"\0\0\0"}]
    assert trees(files, Variant.KEPT) == trees(files, Variant.DATA_ONLY) == [{"a": b"abc"}]


def test_a_name_not_synced_may_vanish() -> None:
    files = RecordingFiles()
    files.create("a")
    assert trees(files, Variant.LOST) == trees(files, Variant.DATA_ONLY) == [{}]
    assert trees(files, Variant.KEPT) == trees(files, Variant.NAMES_ONLY) == [{"a": b""}]
    for variant in (Variant.TORN, Variant.PREFIX, Variant.REORDERED):
        assert sorted(map(len, trees(files, variant))) == [0, 1]


def test_fsync_of_a_file_does_not_keep_its_name() -> None:
    files = RecordingFiles()
    file = files.create("a")
    file.pwrite(b"abc", 0)
    file.fsync()
    assert trees(files, Variant.LOST) == [{}]
    assert trees(files, Variant.NAMES_ONLY) == [{"a": b"abc"}]


def test_a_directory_not_synced_by_its_parent_takes_its_synced_files_with_it() -> None:
    files = RecordingFiles()
    files.make_dir("d")
    file = files.create("d/a")
    file.pwrite(b"abc", 0)
    file.fsync()
    files.fsync_dir("d")
    assert trees(files, Variant.LOST) == [{}]
    files.fsync_dir("")
    assert all(tree == {"d": None, "d/a": b"abc"} for tree in outcomes(files))


def test_fsync_makes_only_earlier_writes_durable() -> None:
    files = durable_file("a", b"")
    file = files.open("a")
    file.pwrite(b"abc", 0)
    file.fsync()
    file.pwrite(b"def", 3)
    assert trees(files, Variant.LOST) == [{"a": b"abc"}]
    for tree in outcomes(files):
        content = tree["a"]
        assert content is not None
        assert content.startswith(b"abc")


def test_fsync_through_any_handle_covers_the_file_under_any_name() -> None:
    files = durable_file("a", b"")
    files.open("a").pwrite(b"abc", 0)
    files.rename("a", "b")
    files.open("b").fsync()
    files.fsync_dir("")
    assert all(tree == {"b": b"abc"} for tree in outcomes(files))


def test_durable_bytes_never_change() -> None:
    files = durable_file("a", b"A" * 1000)
    file = files.open("a")
    for n in range(10):
        file.pwrite(b"B" * 300, 1000 + 300 * n)
    file.pwrite(b"C" * 100, 500)
    for tree in outcomes(files):
        content = tree["a"]
        assert content is not None
        assert content[:500] + content[600:1000] == b"A" * 900
        assert content[500:600] in (b"A" * 100, b"C" * 100, b"A" * 12 + b"C" * 88, b"C" * 12 + b"A" * 88)


def test_torn_writes_keep_or_lose_whole_sectors() -> None:
    files = durable_file("a", b"A" * 2000)
    files.open("a").pwrite(b"B" * 1800, 100)
    states = trees(files, Variant.TORN, range(200))
    kept_sectors: set[str] = set()
    for tree in states:
        content = tree["a"]
        assert content is not None
        sectors = [content[at : at + SECTOR_BYTES] for at in range(0, 2000, SECTOR_BYTES)]
        assert sectors[0] in (b"A" * 512, b"A" * 100 + b"B" * 412)
        assert all(sector in (b"A" * 512, b"B" * 512) for sector in sectors[1:3])
        assert sectors[3] in (b"A" * 464, b"B" * 364 + b"A" * 100)
        kept_sectors.add("".join("1" if b"B" in sector else "0" for sector in sectors))
    assert len(kept_sectors) == len(states) == 16


def test_torn_extensions_read_as_zeros_where_nothing_was_kept() -> None:
    files = durable_file("a", b"A" * 10)
    files.open("a").pwrite(b"B" * 1200, 10)
    lengths: set[int] = set()
    for tree in trees(files, Variant.TORN, range(200)):
        content = tree["a"]
        assert content is not None
        assert content[:10] == b"A" * 10
        assert set(content[10:]) <= {0, ord("B")}
        lengths.add(len(content))
    assert {10, 1210} < lengths
    assert all(10 <= length <= 1210 for length in lengths)


def test_a_pending_cut_may_be_lost_or_kept() -> None:
    files = durable_file("a", b"abc")
    files.open("a").truncate(1)
    assert trees(files, Variant.LOST) == [{"a": b"abc"}]
    assert trees(files, Variant.KEPT) == trees(files, Variant.SIZES_ONLY) == [{"a": b"a"}]
    assert len(trees(files, Variant.TORN)) == 2


def test_a_rename_is_kept_or_lost_whole() -> None:
    image = MemoryFiles()
    image.create("a").pwrite(b"old", 0)
    image.create("a.tmp").pwrite(b"new", 0)
    files = RecordingFiles(image)
    files.rename("a.tmp", "a")
    before: Tree = {"a": b"old", "a.tmp": b"new"}
    after: Tree = {"a": b"new"}
    states = outcomes(files)
    assert before in states
    assert after in states
    assert all(tree in (before, after) for tree in states)


def test_a_rename_of_an_unsynced_file_may_replace_good_bytes_by_none() -> None:
    files = durable_file("a", b"old")
    file = files.create("a.tmp")
    file.pwrite(b"new", 0)
    files.rename("a.tmp", "a")
    assert {"a": b""} in outcomes(files)


def test_an_unlink_not_synced_may_reappear() -> None:
    files = durable_file("a", b"abc")
    files.unlink("a")
    assert trees(files, Variant.LOST) == [{"a": b"abc"}]
    files.fsync_dir("")
    assert all(tree == {} for tree in outcomes(files))


def test_a_removed_directory_may_reappear_without_its_files() -> None:
    image = MemoryFiles()
    image.make_dir("d")
    image.create("d/a")
    files = RecordingFiles(image)
    files.unlink("d/a")
    files.remove_dir("d")
    states = outcomes(files)
    assert {} in states
    assert {"d": None} in states
    assert {"d": None, "d/a": b""} in states


def test_a_renamed_directory_keeps_the_pending_names_inside_it() -> None:
    image = MemoryFiles()
    image.make_dir("d")
    files = RecordingFiles(image)
    files.rename("d", "e")
    files.create("e/a")
    files.fsync_dir("e")
    assert trees(files, Variant.LOST) == [{"d": None, "d/a": b""}]
    assert trees(files, Variant.KEPT) == [{"e": None, "e/a": b""}]


def test_a_name_used_again_is_another_file() -> None:
    files = durable_file("a", b"old")
    files.unlink("a")
    files.create("a").pwrite(b"new", 0)
    states = outcomes(files)
    for expected in ({"a": b"old"}, {"a": b"new"}, {"a": b""}, {}):
        assert expected in states


def test_prefix_keeps_operations_in_their_order() -> None:
    files = RecordingFiles()
    for n in range(5):
        files.create(f"{n}").pwrite(b"x", 0)
    states = trees(files, Variant.PREFIX, range(200))
    expected: list[Tree] = [{f"{n}": b"x" for n in range(done)} for done in range(6)]
    expected += [{**{f"{n}": b"x" for n in range(done)}, f"{done}": b""} for done in range(5)]
    assert all(tree in expected for tree in states)
    assert len(states) == len(expected)


def test_prefix_keeps_the_names_and_bytes_of_all_files_up_to_one_point() -> None:
    image = MemoryFiles()
    image.create("a")
    image.create("b")
    files = RecordingFiles(image)
    for n in range(3):
        files.open("a").pwrite(b"x", n)
        files.open("b").pwrite(b"x", n)
    lengths = [(len(tree["a"] or b""), len(tree["b"] or b"")) for tree in trees(files, Variant.PREFIX, range(200))]
    assert sorted(lengths) == [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)]


def test_torn_keeps_the_first_few_names_of_a_directory() -> None:
    files = RecordingFiles()
    for n in range(4):
        files.create(f"{n}")
    assert sorted("".join(tree) for tree in trees(files, Variant.TORN, range(100))) == ["", "0", "01", "012", "0123"]


def test_reordered_may_keep_any_of_the_names_and_writes() -> None:
    files = durable_file("a", bytes(3))
    file = files.open("a")
    for n in range(3):
        file.pwrite(b"x", n)
    files.create("b")
    files.create("c")
    assert len(trees(files, Variant.REORDERED, range(500))) == 2**5


def test_forgotten_writes_are_never_durable() -> None:
    files = durable_file("a", b"old")
    file = files.open("a")
    file.pwrite(b"lost", 0)
    file.forget_unsynced()
    assert file.pread(4, 0) == b"lost"
    file.fsync()
    assert all(tree == {"a": b"old"} for tree in outcomes(files))
    file.pwrite(b"X", 5)
    file.fsync()
    assert all(tree == {"a": b"old\0\0X"} for tree in outcomes(files))


@pytest.mark.parametrize("variant", ALL_VARIANTS)
def test_nothing_pending_means_one_outcome(variant: Variant) -> None:
    files = durable_file("a", b"abc")
    assert trees(files, variant) == [{"a": b"abc"}]
    assert len(list(crash_states(files.journal, seeds=range(5)))) == 1
