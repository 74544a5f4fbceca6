"""The journal and the enumeration of its crash states: complete, without repetitions, deterministic."""

import contextlib
import threading
from collections.abc import Callable
from random import Random

import pytest

from logbrook.testing import ALL_VARIANTS, CrashState, MemoryFiles, RecordingFiles, Variant, materialise
from logbrook.testing.crash_states import crash_states
from logbrook.testing.journal import Mark

Tree = dict[str, bytes | None]


def durable_file(path: str, data: bytes) -> RecordingFiles:
    image = MemoryFiles()
    image.create(path).pwrite(data, 0)
    return RecordingFiles(image)


def after(files: RecordingFiles, variant: Variant, seed: int = 0) -> Tree:
    """Return the files after a crash at the end of the journal."""
    return materialise(files.journal, len(files.journal.ops), variant, seed).snapshot()


def busy_journal() -> RecordingFiles:
    """Return a journal with every kind of operation, and a promise after each round."""
    files = RecordingFiles()
    for n in range(6):
        files.make_dir(f"d{n}")
        file = files.create(f"d{n}/log")
        for position in range(0, 2000, 700):
            file.pwrite(bytes([n + 1]) * 700, position)
        if n % 2:
            file.fsync()
            files.fsync_dir(f"d{n}")
            files.fsync_dir("")
        files.create("state.tmp").pwrite(b"%d" % n, 0)
        files.rename("state.tmp", "state")
        if n == 4:
            files.unlink("d0/log")
            files.remove_dir("d0")
        files.mark(n)
    return files


def scramble(files: RecordingFiles, rng: Random) -> None:
    """Run a random operation on a tree with few names, so that they collide."""
    directory = rng.choice(["", "d/", "e/"])
    path, target = (directory + rng.choice("ab") for _ in range(2))
    calls: list[Callable[[], object]] = [
        lambda: files.make_dir(rng.choice("de")),
        lambda: files.remove_dir(rng.choice("de")),
        lambda: files.rename("d", "e"),
        lambda: files.create(path),
        lambda: files.unlink(path),
        lambda: files.rename(path, target),
        lambda: files.open(path).pwrite(rng.randbytes(rng.randint(1, 1500)), rng.randint(0, 2000)),
        lambda: files.open(path).truncate(rng.randint(0, 2000)),
        lambda: files.open(path).fsync(),
        lambda: files.fsync_dir(directory[:-1]),
    ]
    with contextlib.suppress(OSError):
        rng.choice(calls)()


@pytest.mark.parametrize("seed", range(20))
def test_the_state_with_all_writes_equals_the_visible_disk(seed: int) -> None:
    rng = Random(seed)
    files = RecordingFiles()
    seen: list[Tree] = []
    for _ in range(300):
        scramble(files, rng)
        seen += [files.snapshot()] * (len(files.journal.ops) - len(seen))
    kept = list(crash_states(files.journal, variants=[Variant.KEPT], duplicates=True))
    assert [state.files.snapshot() for state in kept[1:]] == seen


@pytest.mark.parametrize("seed", range(20))
def test_synced_bytes_are_the_same_in_every_crash_state(seed: int) -> None:
    rng = Random(seed)
    files = RecordingFiles()
    for _ in range(200):
        scramble(files, rng)
    tree = files.snapshot()
    files.fsync_dir("")
    for path, content in tree.items():
        if content is None:
            files.fsync_dir(path)
        else:
            files.open(path).fsync()
    assert all(after(files, variant, seed) == tree for variant in ALL_VARIANTS for seed in range(3))


def test_threads_are_recorded_in_the_order_they_acted() -> None:
    files = RecordingFiles()
    file = files.create("shared")

    def write(mine: bytes) -> None:
        for n in range(300):
            file.pwrite(mine * 4, n % 7)
            files.create(f"{mine.decode()}{n}").close()

    threads = [threading.Thread(target=write, args=(mine,)) for mine in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert after(files, Variant.KEPT) == files.snapshot()


def identity(state: CrashState) -> tuple[object, ...]:
    return str(state), state.files.snapshot(), state.marks


def test_the_same_prefix_variant_and_seed_give_the_same_disk() -> None:
    first = [identity(state) for state in crash_states(busy_journal().journal, seeds=range(3))]
    second = [identity(state) for state in crash_states(busy_journal().journal, seeds=range(3))]
    assert first == second


def test_materialise_gives_a_state_again() -> None:
    journal = busy_journal().journal
    for state in crash_states(journal, seeds=range(2)):
        again = materialise(journal, state.prefix, state.variant, state.seed)
        assert again.snapshot() == state.files.snapshot()
    with pytest.raises(ValueError, match="operations"):
        materialise(journal, len(journal.ops) + 1, Variant.LOST)


def test_states_cover_every_prefix_and_no_state_comes_twice() -> None:
    journal = busy_journal().journal
    everything = list(crash_states(journal, seeds=range(2), duplicates=True))
    assert len(everything) == (len(journal.ops) + 1) * (5 + 3 * 2)

    def key(state: CrashState) -> str:
        return repr((state.marks, state.files.snapshot()))

    unique = [key(state) for state in crash_states(journal, seeds=range(2))]
    assert len(unique) == len(set(unique))
    assert len(unique) < len(everything)
    assert set(unique) == {key(state) for state in everything}


def test_the_same_tree_after_another_promise_is_another_state() -> None:
    files = durable_file("a", b"")
    files.open("a").pwrite(b"abc", 0)
    files.mark("acknowledged")
    lost = [state for state in crash_states(files.journal) if state.files.snapshot() == {"a": b""}]
    assert [state.marks for state in lost] == [(), ("acknowledged",)]


def test_only_marks_before_the_crash_count() -> None:
    journal = busy_journal().journal
    for state in crash_states(journal):
        done = journal.ops[: state.prefix]
        assert list(state.marks) == [op.label for op in done if isinstance(op, Mark)]
    assert journal.marks() == [0, 1, 2, 3, 4, 5]


def test_prefixes_share_out_the_states() -> None:
    journal = busy_journal().journal
    end = len(journal.ops) + 1
    shares = [list(crash_states(journal, prefixes=range(n, end, 2), duplicates=True)) for n in (0, 1)]
    together = sorted(str(state) for share in shares for state in share)
    assert together == sorted(str(state) for state in crash_states(journal, duplicates=True))


def test_states_do_not_see_each_other() -> None:
    journal = busy_journal().journal
    expected = [state.files.snapshot() for state in crash_states(journal)]
    for state, tree in zip(crash_states(journal), expected, strict=True):
        assert state.files.snapshot() == tree
        for path in tree:
            if tree[path] is not None:
                state.files.open(path).pwrite(b"scribble", 0)


def test_a_crash_state_is_printed_with_its_position() -> None:
    files = RecordingFiles()
    file = files.create("a")
    file.pwrite(b"abc", 7)
    words = [str(state) for state in crash_states(files.journal, variants=[Variant.KEPT])]
    assert words == [
        "prefix=0 variant=KEPT seed=0 (after nothing)",
        "prefix=1 variant=KEPT seed=0 (after create a)",
        "prefix=2 variant=KEPT seed=0 (after write a [7, 10))",
    ]


def test_recovery_can_be_crashed_in_its_turn() -> None:
    files = durable_file("a", b"")
    files.open("a").pwrite(b"abc", 0)
    for state in crash_states(files.journal, seeds=range(3)):
        before = state.files.snapshot()
        recovery = RecordingFiles(state.files)
        recovery.open("a").truncate(0)
        trees = [inner.files.snapshot() for inner in crash_states(recovery.journal)]
        assert trees[0] == before
        assert {"a": b""} in trees
        assert state.files.snapshot() == before


@pytest.mark.parametrize("variant", ALL_VARIANTS)
def test_every_state_is_a_disk_to_work_on(variant: Variant) -> None:
    for state in crash_states(busy_journal().journal, variants=[variant]):
        state.files.make_dir("again")
        state.files.create("again/a").pwrite(b"abc", 0)
        assert state.files.list("again") == ["a"]


UNRECORDED: list[Callable[[RecordingFiles], object]] = [
    lambda files: files.open("a").pwrite(b"", 3),
    lambda files: files.rename("a", "a"),
    lambda files: files.open("a").pread(1, 0),
    lambda files: files.open("a").map_readonly(1),
    lambda files: files.list(""),
]


@pytest.mark.parametrize("call", UNRECORDED)
def test_calls_without_effect_are_not_recorded(call: Callable[[RecordingFiles], object]) -> None:
    files = durable_file("a", b"abc")
    call(files)
    assert files.journal.ops == []


def test_failed_calls_are_not_recorded() -> None:
    files = durable_file("a", b"abc")
    for call in (files.create, files.make_dir):
        with pytest.raises(FileExistsError):
            call("a")
    view = files.open("a").map_readonly(3)
    with pytest.raises(AssertionError, match="mapped file truncated"):
        files.open("a").truncate(0)
    view.release()
    assert files.journal.ops == []


def test_a_full_disk_records_the_bytes_that_fitted() -> None:
    files = RecordingFiles(capacity_bytes=2)
    file = files.create("a")
    with pytest.raises(OSError, match="No space left"):
        file.pwrite(b"abc", 0)
    assert after(files, Variant.KEPT) == {"a": b"ab"}


def test_a_rename_across_directories_is_not_modelled() -> None:
    files = durable_file("a", b"")
    files.make_dir("d")
    with pytest.raises(AssertionError, match="rename across directories"):
        files.rename("a", "d/a")
