"""The crash harness finds each planted bug within a bounded search.

The same search without the bug finds nothing, so the failure is not one of the harness. Bugs that skip a sync are
planted in the files of the recorded workload; recovery runs without them. Bugs of the engine are planted in the engine
itself, so that recovery has them too. Missing index checks matter only for damaged indexes, which no power loss causes:
there the files are damaged by hand.
"""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

import pytest

from logbrook.model.identifiers import Offset
from logbrook.ports import File, Files
from logbrook.records.batch import HEADER_BYTES, MAGIC_V2, BatchHeader, read_header
from logbrook.records.errors import CorruptBatchError, UnsupportedMagicError
from logbrook.storage import checkpoint, compaction, durable_files, partition_files, segment, transaction_index, wal
from logbrook.storage.checkpoint import CheckpointRun
from logbrook.storage.compaction_state import CleanedTransactions
from logbrook.storage.durable_files import sync_directory, sync_file
from logbrook.storage.index import ENTRY_BYTES, Index, IndexColumn, IndexEntry
from logbrook.storage.index import HEADER_BYTES as HEADER_BYTES_OF_INDEX
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.partition_files import Checkpoint
from logbrook.storage.paths import WAL_DIRECTORY, swap_path
from logbrook.storage.segment import Segment, Window
from logbrook.storage.transaction_index import TransactionIndex
from logbrook.storage.wal import Wal
from logbrook.testing import RecordingFiles, WithoutDirFsync, WithoutFsync
from logbrook.testing.crash import KINDS, BrokenPromiseError, CrashCampaign, Failure, WorkloadKind, check_directory
from tests.crash.kit import closed_past, content, opened, paths, put

SEEDS_MAX = 20
STATES_PER_SEED = 80


class Search(NamedTuple):
    """The seeds and the number of states examined until the first failure or until the bound."""

    seeds: list[int]
    states: int
    failure: Failure | None


def kind(name: str) -> WorkloadKind:
    return next(kind for kind in KINDS if kind.name == name)


def search(campaign: CrashCampaign, seed_first: int = 0) -> Search:
    seeds: list[int] = []
    states = 0
    for seed in range(seed_first, seed_first + SEEDS_MAX):
        seeds.append(seed)
        tally = campaign.check_seed(seed)
        states += tally.states
        if tally.failures:
            return Search(seeds, states, tally.failures[0])
    return Search(seeds, states, None)


def campaign_of(name: str, wrap_files: Callable[[RecordingFiles], Files] = lambda files: files) -> CrashCampaign:
    return CrashCampaign(STATES_PER_SEED, (kind(name),), wrap_files, second_cut_share=0)


def assert_nothing_is_wrong(name: str, seeds: list[int]) -> None:
    for seed in seeds:
        tally = campaign_of(name).check_seed(seed)
        assert tally.failures == []


LOST_SYNCS: dict[str, tuple[str, Callable[[RecordingFiles], Files]]] = {
    "of the write-ahead log at a commit": ("appends", lambda files: WithoutFsync(files, lambda p: p.endswith(".wal"))),
    "of a segment at a checkpoint": ("checkpoints", lambda files: WithoutFsync(files, lambda p: p.endswith(".log"))),
    "of a new state": ("truncation", lambda files: WithoutFsync(files, lambda p: "/state" in p)),
    "of a new checkpoint": ("checkpoints", lambda files: WithoutFsync(files, lambda p: p == "checkpoint.tmp")),
    "of a compacted segment": ("compaction", lambda files: WithoutFsync(files, lambda p: p.endswith(".cleaned.tmp"))),
    "of the write-ahead log's directory": ("appends", lambda files: WithoutDirFsync(files, lambda p: p == "wal")),
    "of a partition's directory": ("appends", lambda files: WithoutDirFsync(files, lambda p: p.endswith("-0"))),
    "of the data directory": ("appends", lambda files: WithoutDirFsync(files, lambda p: p == "")),
}


@pytest.mark.parametrize("sync", LOST_SYNCS)
def test_a_lost_sync_is_found(sync: str) -> None:
    name, wrap_files = LOST_SYNCS[sync]
    result = search(campaign_of(name, wrap_files))
    assert result.failure is not None, f"not found in {result.states} states"
    assert_nothing_is_wrong(name, result.seeds)


def test_a_failure_is_found_again_by_its_place() -> None:
    name, wrap_files = LOST_SYNCS["of the write-ahead log at a commit"]
    campaign = campaign_of(name, wrap_files)
    failure = search(campaign).failure
    assert failure is not None
    assert campaign.replay(failure.state) == failure.error
    assert campaign_of(name).replay(failure.state) is None


def check_all_but_the_checksum(buffer: memoryview, position: int, end: int) -> BatchHeader:
    if end - position < HEADER_BYTES:
        raise CorruptBatchError("no header")
    header = read_header(buffer, position)
    if header.magic != MAGIC_V2:
        raise UnsupportedMagicError(header.magic)
    if not HEADER_BYTES <= header.size <= end - position:
        raise CorruptBatchError("no whole batch")
    return header


def rename_and_then_sync(files: Files, path: str, data: bytes | bytearray) -> None:
    file = durable_files.create_or_replace(files, path + ".tmp")
    file.pwrite(data, 0)
    files.rename(path + ".tmp", path)
    sync_directory(files, path.rpartition("/")[0])
    sync_file(file)
    file.close()


def remove_and_then_swap(files: Files, directory: str, temporary: str, base_offset: int, end_offset: int) -> None:
    """Remove the old segments before the rename of the new one is durable."""
    files.rename(temporary, swap_path(directory, Offset(base_offset), Offset(end_offset)))


def take_all_for_committed(transactions: CleanedTransactions, header: BatchHeader) -> bool:
    del transactions, header
    return False


def believe_all_entries(
    files: Files, directory: str, count: int, snapshot_offset: int, log_start_offset: int
) -> TransactionIndex:
    """Read all entries of the file, regardless of the count in the snapshot."""
    del count, snapshot_offset
    data = durable_files.read_file(files, f"{directory}/aborted") or b""
    index = TransactionIndex()
    for number in range(len(data) // transaction_index.ENTRY_BYTES):
        entry = transaction_index._decode(data, number)
        if entry is not None and entry.last_offset >= log_start_offset:
            index.add(entry)
    index.invalidate_file()
    return index


release_before = Wal.release
begin_checkpoint_before = LogDirectory.begin_checkpoint


def release_everything_committed(wal: Wal, number: int) -> None:
    """Release also entries appended while the checkpoint ran, whose segments it has not synced."""
    del number
    release_before(wal, wal.next_number)


def release_at_the_beginning(directory: LogDirectory, *, clean: bool = False) -> CheckpointRun:
    """Release before the segments are synced."""
    run = begin_checkpoint_before(directory, clean=clean)
    directory.environment.durability.release(run.number)
    return run


def release_after_the_sync(run: CheckpointRun) -> None:
    """Release before the checkpoint is written."""
    points = {partition.directory: point for partition, point in run._points}
    for sync in run._syncs:
        sync.run(run._files)
        points[sync.log.partition.directory] = sync.point
    for sync in run._syncs[:1]:
        sync.log.environment.durability.release(run.number)
    partition_files.write_checkpoint(run._files, Checkpoint(run.number, points, run._mark, run._clean))
    run._has_run = True


def vouch_for_everything_appended(files: Files, written: Checkpoint) -> None:
    """Let the checkpoint cover all entries, also those appended while it ran."""
    partition_files.write_checkpoint(files, written._replace(number=written.number + 2))


def sync_no_segment(file: File) -> None:
    if not file.path.endswith(".log"):
        sync_file(file)


def sync_no_partition(files: Files, path: str) -> None:
    if path == WAL_DIRECTORY:
        sync_directory(files, path)


# The kind of workload, a first seed that makes the search short, and the bug to plant.
ENGINE_BUGS: dict[str, tuple[str, int, object, str, object]] = {
    "a checksum that is not looked at": ("interval", 7, segment, "check_batch", check_all_but_the_checksum),
    "a small file that is renamed before it is synced": (
        "truncation",
        0,
        durable_files,
        "replace_file",
        rename_and_then_sync,
    ),
    "a compacted segment whose name is not synced before the old ones go": (
        "compaction",
        6,
        compaction,
        "commit_swap",
        remove_and_then_swap,
    ),
    "a compaction that takes aborted records for committed ones": (
        "compaction of transactions",
        50,
        CleanedTransactions,
        "is_aborted",
        take_all_for_committed,
    ),
    "aborted transactions that the snapshot does not count on": (
        "compaction of transactions",
        1,
        TransactionIndex,
        "load",
        believe_all_entries,
    ),
    "a write-ahead log that is released past its checkpoint": (
        "checkpoints",
        0,
        Wal,
        "release",
        release_everything_committed,
    ),
    "a write-ahead log that is released before its checkpoint": (
        "checkpoints",
        0,
        LogDirectory,
        "begin_checkpoint",
        release_at_the_beginning,
    ),
    "a write-ahead log that is released before its checkpoint is durable": (
        "checkpoints",
        21,
        CheckpointRun,
        "run",
        release_after_the_sync,
    ),
    "a commit that does not sync the segments of entries without data": (
        "appends",
        0,
        wal,
        "sync_file",
        sync_no_segment,
    ),
    "a commit that does not sync the names of such segments": (
        "checkpoints",
        0,
        wal,
        "sync_directory",
        sync_no_partition,
    ),
    "a checkpoint that covers more of the write-ahead log than it has synced": (
        "checkpoints",
        0,
        checkpoint,
        "write_checkpoint",
        vouch_for_everything_appended,
    ),
}


@pytest.mark.parametrize("bug", ENGINE_BUGS)
def test_a_bug_of_the_engine_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, seed_first, owner, attribute, planted = ENGINE_BUGS[bug]
    with monkeypatch.context() as patched:
        patched.setattr(owner, attribute, planted)
        result = search(campaign_of(name), seed_first)
    assert result.failure is not None, f"not found in {result.states} states"
    assert_nothing_is_wrong(name, result.seeds)


def damaged_times(base_offset: int, entries: bytes) -> bytes:
    """Clear every timestamp without updating the checksums."""
    del base_offset
    forgotten = (-1).to_bytes(8, "little", signed=True)
    return b"".join(forgotten + entries[at + 8 : at + ENTRY_BYTES] for at in range(0, len(entries), ENTRY_BYTES))


def stale_positions(base_offset: int, entries: bytes) -> bytes:
    """Let all entries except the last point at the batch of the next one, with valid checksums."""
    index = Index(Offset(base_offset), bytearray(entries))
    all_entries = [index.entry(number) for number in range(len(index))]
    stale = Index(Offset(base_offset), bytearray())
    for entry, following in zip(all_entries, [*all_entries[1:], *all_entries[-1:]], strict=True):
        stale.add(entry.offset, following.position, entry.max_timestamp_before)
    return bytes(stale.entries)


def believe_entry(index: Index, number: int) -> IndexEntry:
    time, offset, position = INDEX_ENTRY.unpack_from(index.entries, number * ENTRY_BYTES)
    return IndexEntry(index.base_offset + offset, position, time)


def believe_floor(searched: Segment, column: IndexColumn, limit: int) -> tuple[IndexEntry, Window]:
    return searched._index().floor(column, limit), Window(memoryview(b""), 0)


INDEX_ENTRY = Struct("<qII")
INDEX_BUGS: dict[str, tuple[type, str, object, Callable[[int, bytes], bytes]]] = {
    "entries are believed without their checksum": (Index, "entry", believe_entry, damaged_times),
    "places are believed without a look at the batch": (Segment, "_checked_floor", believe_floor, stale_positions),
}


def wrong_answers(damage: Callable[[int, bytes], bytes]) -> list[str]:
    """Return the indexes that, once damaged, lead to wrong results; one after the other."""
    past = closed_past(seed=1)
    damaged_paths: list[str] = []
    for path in paths(past.files, ".index"):
        files = past.copy()
        data = content(files, path)
        base_offset = int(path.rpartition("/")[2].removesuffix(".index"))
        put(files, path, data[:HEADER_BYTES_OF_INDEX] + damage(base_offset, data[HEADER_BYTES_OF_INDEX:]))
        directory = opened(files)
        try:
            check_directory(directory, past.promises)
        except BrokenPromiseError:
            damaged_paths.append(path)
        finally:
            directory.abandon()
    return damaged_paths


@pytest.mark.parametrize("bug", INDEX_BUGS)
def test_an_index_that_is_trusted_blindly_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, planted, damage = INDEX_BUGS[bug]
    with monkeypatch.context() as patched:
        patched.setattr(owner, attribute, planted)
        assert wrong_answers(damage)
    assert wrong_answers(damage) == []
