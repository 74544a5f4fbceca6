"""Truncation of a log: truncated records never reappear."""

from contextlib import suppress
from pathlib import Path

import pytest

from logbrook.config import CleanupPolicy
from logbrook.model.identifiers import Offset
from logbrook.ports import Files, OsFiles
from logbrook.storage.compaction import compact
from logbrook.storage.errors import DiskFullError, OffsetOutOfRangeError, StorageError, StorageOfflineError
from logbrook.storage.retention import apply_retention
from logbrook.storage.truncation import truncate
from logbrook.testing import FaultyFiles, MemoryFiles, RecordingFiles, Variant
from logbrook.testing.crash_states import crash_states
from tests.unit.storage.kit import (
    BATCH_BYTES,
    NOW_MS,
    PARTITION,
    NewStore,
    Store,
    batch,
    numbered,
    offsets_of,
)

COUNT = 11
SMALL = {"segment_bytes": 4 * BATCH_BYTES, "index_interval_bytes": 0}


def filled(new_store: NewStore, files: Files | None = None, **settings: object) -> Store:
    """Segments with the offsets 0-3, 4-7 and 8-10, the last one active."""
    store = new_store(files, **(SMALL | settings))
    store.write(*numbered(COUNT))
    assert [segment.base_offset for segment in store.log.segments] == [0, 4, 8]
    return store


def expected(end: int) -> list[bytes]:
    return [b"%05d" % number for number in range(end)]


BOTH = pytest.mark.parametrize("durability", ["fsync", "interval"])
EVERYWHERE = pytest.mark.parametrize("end", range(COUNT + 1))


@BOTH
@EVERYWHERE
def test_nothing_from_the_offset_on_is_left(new_store: NewStore, durability: str, end: int) -> None:
    store = filled(new_store, durability=durability)
    assert truncate(store.log, Offset(end)) == end
    assert store.log.log_end_offset == store.log.high_watermark == end
    assert store.values() == expected(end)
    store.log.validate()


@BOTH
@EVERYWHERE
def test_the_log_continues_from_there(new_store: NewStore, durability: str, end: int) -> None:
    store = filled(new_store, durability=durability)
    truncate(store.log, Offset(end))
    appends = [store.append(batch(b"new %d" % n)) for n in range(6)]
    store.directory.commit()
    assert [append.result().base_offset for append in appends] == list(range(end, end + 6))
    assert store.values() == [*expected(end), *[b"new %d" % n for n in range(6)]]
    assert store.killed().values() == store.values()
    assert store.reopened().values()[: end + 1] == [*expected(end), b"new 0"]


@BOTH
@EVERYWHERE
def test_truncated_records_do_not_reappear_after_a_kill(new_store: NewStore, durability: str, end: int) -> None:
    store = filled(new_store, durability=durability)
    truncate(store.log, Offset(end))
    again = store.killed()
    assert again.values() == expected(end)
    assert again.directory.report.quarantined == []
    assert again.killed().values() == expected(end)


@BOTH
@pytest.mark.parametrize("end", [0, 2, 4, 6, 8, 10])
def test_a_power_loss_finds_all_of_the_log_or_the_cut_one_and_after_the_promise_the_cut_one(
    new_store: NewStore, open_store: NewStore, durability: str, end: int
) -> None:
    files = RecordingFiles()
    store = filled(new_store, files, durability=durability)
    store.directory.checkpoint()
    start = len(files.journal.ops)
    truncate(store.log, Offset(end))
    files.mark("cut")
    for state in crash_states(files.journal, seeds=range(2), prefixes=range(start, len(files.journal.ops) + 1)):
        again = open_store(state.files, **store.settings)
        assert again.directory.report.quarantined == [], str(state)
        lengths = {end} if state.marks else {end, COUNT}
        assert len(again.values()) in lengths, str(state)
        assert again.values() == expected(again.log.log_end_offset), str(state)


@BOTH
@pytest.mark.parametrize("end", [2, 4, 10])
def test_records_written_after_a_truncation_survive_a_power_loss(
    new_store: NewStore, durability: str, end: int
) -> None:
    files = RecordingFiles()
    store = filled(new_store, files, durability=durability)
    truncate(store.log, Offset(end))
    store.write(*[batch(b"new %d" % n) for n in range(3)])
    if durability == "interval":
        store.directory.checkpoint()
    for variant in (Variant.LOST, Variant.KEPT, Variant.NAMES_ONLY):
        assert store.without_power(variant).values() == [*expected(end), b"new 0", b"new 1", b"new 2"]


def test_the_batch_that_contains_the_offset_is_removed_whole(new_store: NewStore) -> None:
    store = new_store()
    store.write(batch(b"a", b"b", b"c"), batch(b"d", b"e", b"f"))
    assert truncate(store.log, Offset(4)) == 3
    assert store.values() == [b"a", b"b", b"c"]
    assert truncate(store.log, Offset(2)) == 0
    assert store.values() == []


@pytest.mark.parametrize("offset", [COUNT, COUNT + 1, 10**9])
def test_a_truncation_after_the_log_end_changes_nothing(new_store: NewStore, files: MemoryFiles, offset: int) -> None:
    store = filled(new_store)
    before = files.snapshot()
    assert truncate(store.log, Offset(offset)) == COUNT
    assert files.snapshot() == before


def test_the_start_of_the_log_cannot_be_cut(new_store: NewStore) -> None:
    store = filled(new_store)
    store.log.delete_before(Offset(5))
    with pytest.raises(OffsetOutOfRangeError) as raised:
        truncate(store.log, Offset(4))
    assert (raised.value.offset, raised.value.log_start_offset) == (4, 5)
    assert truncate(store.log, Offset(5)) == 5
    assert store.values() == []
    assert store.killed().log.log_start_offset == 5


def test_the_end_is_never_cut_below_the_start(new_store: NewStore) -> None:
    store = new_store()
    store.write(batch(b"a", b"b", b"c"))
    store.log.delete_before(Offset(1))
    assert truncate(store.log, Offset(2)) == store.log.log_end_offset >= 1
    append = store.write(batch(b"next"))
    assert append.base_offset >= 1
    assert store.values() == [b"next"]
    assert store.killed().values() == [b"next"]


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_reader_of_a_closed_segment_keeps_the_bytes_it_has(
    new_store: NewStore, tmp_path: Path, on_disk: bool
) -> None:
    """A file that is being read is never truncated: MemoryFiles raises where a mapped file would cause SIGBUS."""
    store = filled(new_store, OsFiles(tmp_path) if on_disk else MemoryFiles())
    held = store.read(0)
    before = [bytes(part.data) for part in held]
    truncate(store.log, Offset(2))
    store.write(*[batch(b"other") for _ in range(10)])
    store.directory.remove_files(NOW_MS)
    assert [bytes(part.data) for part in held] == before
    store.log.validate()
    store.close()


def test_a_reader_of_the_active_segment_keeps_the_bytes_it_has(new_store: NewStore) -> None:
    store = filled(new_store)
    held = store.read(8)
    truncate(store.log, Offset(9))
    store.write(batch(b"other"))
    assert offsets_of(held) == [8, 9, 10]


def test_readers_see_nothing_of_the_old_bytes_at_the_offsets_that_are_used_again(new_store: NewStore) -> None:
    store = filled(new_store)
    store.read(0)
    truncate(store.log, Offset(2))
    store.write(*[batch(b"other") for _ in range(9)])
    assert store.values() == [*expected(2), *[b"other"] * 9]
    assert offsets_of(store.read(3)) == list(range(3, COUNT))


def test_leader_epochs_past_the_cut_are_removed(new_store: NewStore) -> None:
    store = new_store()
    for epoch in (0, 0, 2, 2, 5):
        store.append(batch(), leader_epoch=epoch)
    store.directory.commit()
    truncate(store.log, Offset(3))
    assert store.log.epochs.starts == [(0, 0), (2, 2)]
    assert store.killed().log.epochs.starts == [(0, 0), (2, 2)]
    truncate(store.log, Offset(2))
    assert store.log.epochs.starts == [(0, 0)]
    assert store.killed().log.epochs.starts == [(0, 0)]


def test_producers_are_as_if_the_cut_batches_had_never_been(new_store: NewStore) -> None:
    store = new_store()
    for sequence in range(7):
        store.write(batch(producer=(5, 0, sequence)))
    store.directory.checkpoint()
    truncate(store.log, Offset(3))
    for state in (store, store.killed()):
        assert state.write(batch(producer=(5, 0, 2))).duplicate
        fresh = state.write(batch(producer=(5, 0, 3)))
        assert (fresh.duplicate, fresh.base_offset) == (False, 3)


def test_producers_are_known_after_a_kill_though_retention_took_their_batches(new_store: NewStore) -> None:
    store = new_store(segment_bytes=1, retention_bytes=0)
    store.write(batch(producer=(5, 0, 0)), batch(producer=(5, 0, 1)), batch(producer=(5, 0, 2)))
    store.directory.checkpoint()
    truncate(store.log, Offset(2))
    store.log.roll()
    assert apply_retention(store.log, NOW_MS).log_start_offset == 2
    assert store.killed().log.producers.to_json() == store.log.producers.to_json()


def test_acknowledgements_of_truncated_appends_have_no_effect(new_store: NewStore) -> None:
    store = new_store()
    store.write(*numbered(2))
    late = [store.append(data) for data in numbered(3)]
    truncate(store.log, Offset(2))
    store.directory.commit()
    assert all(append.done for append in late)
    assert store.log.high_watermark == 2
    assert store.values() == expected(2)


def test_acknowledged_records_below_a_truncation_can_be_read(new_store: NewStore) -> None:
    store = new_store()
    early = store.append(batch(b"kept"))
    store.append(batch(b"cut"))
    truncate(store.log, Offset(1))
    store.directory.commit()
    assert early.result().next_offset == 1
    assert store.log.high_watermark == 1
    assert store.values() == [b"kept"]


def test_a_checkpoint_that_was_under_way_does_not_bring_it_back(new_store: NewStore) -> None:
    store = filled(new_store)
    run = store.directory.begin_checkpoint()
    truncate(store.log, Offset(2))
    run.run()
    store.directory.finish_checkpoint(run)
    assert store.log.recovery_point.offset == 2
    assert store.killed().values() == expected(2)
    store.write(batch(b"new"))
    assert store.killed().values() == [*expected(2), b"new"]


def test_the_segment_that_is_reopened_is_closed_by_age_like_any_other(new_store: NewStore) -> None:
    day_ms = 86_400_000
    store = filled(new_store, segment_ms=day_ms)
    truncate(store.log, Offset(2))
    store.append(batch(), now_ms=NOW_MS + day_ms - 1)
    assert len(store.log.segments) == 1
    store.append(batch(), now_ms=NOW_MS + day_ms)
    assert len(store.log.segments) == 2


def test_a_segment_that_was_emptied_counts_its_age_from_the_next_append(new_store: NewStore) -> None:
    day_ms = 86_400_000
    store = new_store(segment_ms=day_ms)
    store.write(*numbered(2))
    truncate(store.log, Offset(0))
    store.append(batch(), now_ms=NOW_MS + day_ms)
    store.append(batch(), now_ms=NOW_MS + day_ms + 1)
    assert len(store.log.segments) == 1


def compacted(new_store: NewStore, files: MemoryFiles | None = None) -> Store:
    """Of the offsets 0-3 and 4-7 compaction has kept only 3 and 7; 8 is in the active segment."""
    batches = [batch(b"%05d" % n, key=b"%d" % (n == 3)) for n in range(9)]
    store = new_store(files, cleanup_policy={CleanupPolicy.COMPACT}, segment_bytes=4 * len(batches[0]))
    store.write(*batches)
    store.directory.checkpoint()
    assert compact(store.log, NOW_MS, force=True) is not None
    assert offsets_of(store.read(0)) == [3, 7, 8]
    return store


@pytest.mark.parametrize("offset", range(1, 9))
def test_a_truncation_inside_a_gap_removes_all_records_from_the_offset_on(new_store: NewStore, offset: int) -> None:
    store = compacted(new_store)
    end = truncate(store.log, Offset(offset))
    assert end == store.log.log_end_offset <= offset
    assert offsets_of(store.read(0)) == [kept for kept in (3, 7, 8) if kept < offset]
    again = store.killed()
    assert again.log.log_end_offset == end
    assert again.directory.report.quarantined == []


def test_a_kill_in_the_middle_of_a_cut_through_gaps_is_recovered_from(
    new_store: NewStore, open_store: NewStore
) -> None:
    files = RecordingFiles()
    store = compacted(new_store, files)
    start = len(files.journal.ops)
    truncate(store.log, Offset(7))
    prefixes = range(start, len(files.journal.ops) + 1)
    for state in crash_states(files.journal, variants=[Variant.KEPT], prefixes=prefixes):
        again = open_store(state.files, **store.settings)
        assert again.directory.report.quarantined == [], str(state)
        assert offsets_of(again.read(0)) in ([3, 7, 8], [3]), str(state)


def test_how_far_the_log_is_compacted_is_cut_too(new_store: NewStore) -> None:
    store = compacted(new_store)
    assert store.log.state.cleaned_offset > 3
    truncate(store.log, Offset(3))
    assert store.log.state.cleaned_offset <= 3


@pytest.mark.parametrize("end", [2, 9])
def test_on_a_full_disk_a_cut_is_refused_and_can_be_tried_again(
    new_store: NewStore, files: MemoryFiles, end: int
) -> None:
    store = filled(new_store)
    store.directory.checkpoint()
    files.capacity_bytes = 0
    with pytest.raises(DiskFullError):
        truncate(store.log, Offset(end))
    assert store.values() == expected(COUNT)
    files.capacity_bytes = None
    assert truncate(store.log, Offset(end)) == end
    assert store.values() == expected(end)


def test_a_refused_truncation_is_not_executed_after_the_next_append(new_store: NewStore) -> None:
    """The intent may be saved before the disk is full. Records acknowledged after that must survive a kill."""
    for room in range(0, 3000, 100):
        files = MemoryFiles()
        store = new_store(files, segment_bytes=40 * BATCH_BYTES)
        store.write(*numbered(60))
        store.directory.checkpoint()
        files.capacity_bytes = files.used_bytes() + room
        with suppress(DiskFullError):
            truncate(store.log, Offset(30))
        files.capacity_bytes = None
        before = store.values()
        store.write(batch(b"acknowledged"))
        assert store.killed().values() == [*before, b"acknowledged"], room


def test_a_directory_that_is_offline_cuts_nothing(new_store: NewStore) -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, sticky=True)
    store = new_store(files)
    store.write(*numbered(3))
    files.fail_at = files.calls + 1
    store.append(batch())
    store.directory.commit()
    with pytest.raises(StorageOfflineError):
        truncate(store.log, Offset(1))
    assert store.values() == expected(3)


def cut_with_a_fault(n: int | None) -> int:
    """Truncate a log while the n-th call fails, and open it again. Returns the number of calls."""
    files = FaultyFiles(MemoryFiles(), partial_writes=True)
    store = Store(files, dict(SMALL), [])
    store.create()
    store.write(*numbered(COUNT))
    begin = files.calls
    files.fail_at = n and begin + n
    refusal: StorageError | None = None
    try:
        truncate(store.log, Offset(2))
    except StorageError as error:
        refusal = error
    calls = files.calls - begin
    files.fail_at = None
    assert store.directory.environment.health.failure is (refusal if isinstance(refusal, StorageOfflineError) else None)
    assert isinstance(files.inner, MemoryFiles)
    again = Store(MemoryFiles(files.inner), store.settings, [])
    assert again.directory.report.quarantined == [], n
    assert again.values() in (expected(2), expected(COUNT)), n
    return calls


def test_a_truncation_that_fails_at_any_call_leaves_the_whole_log_or_the_truncated_one() -> None:
    for n in range(1, cut_with_a_fault(None) + 1):
        cut_with_a_fault(n)


def test_a_partition_can_be_cut_again_and_again(new_store: NewStore) -> None:
    store = filled(new_store)
    for end in (10, 8, 7, 3, 3, 1):
        truncate(store.log, Offset(end))
        store = store.killed()
        assert store.values() == expected(end)
    assert store.log.partition == PARTITION
