"""The harness finds the bugs it is there to find: each is planted, searched for within bounds, and found.

The same search on the engine as it is finds nothing, so it is the bug that was found and not the harness's own mistake.
Bugs that lose a sync are planted in the door that the recorded workload uses; recovery then runs on what that left.
Bugs of the engine are planted in the engine itself, so that recovery has them too. An index that is not checked does
harm only where it is wrong, which no power loss makes it: there the files are damaged by hand.
"""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

import pytest

from logbrook.ports import Files
from logbrook.records.batch import HEADER_BYTES, MAGIC_V2, BatchHeader, read_header
from logbrook.records.errors import CorruptBatchError, UnsupportedMagicError
from logbrook.storage import aborted, compaction, scan, sealed_json
from logbrook.storage.aborted import AbortedTransactions
from logbrook.storage.compacted_transactions import CompactedTransactions
from logbrook.storage.disk_errors import sync_directory, sync_file
from logbrook.storage.index import ENTRY_BYTES, Column, Index, IndexEntry
from logbrook.storage.index import HEADER_BYTES as HEADER_BYTES_OF_INDEX
from logbrook.storage.paths import swap_path
from logbrook.storage.segment import Segment
from logbrook.testing import RecordingFiles, WithoutDirFsync, WithoutFsync
from logbrook.testing.crash import KINDS, BrokenPromiseError, Campaign, Failure, Kind, check_directory
from tests.crash.kit import closed_past, content, opened, paths, put

SEEDS_MAX = 20
STATES_PER_SEED = 80


class Search(NamedTuple):
    """What was looked at until the first failure, or until the bound."""

    seeds: list[int]
    states: int
    failure: Failure | None


def kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def search(campaign: Campaign, seed_first: int = 0) -> Search:
    seeds: list[int] = []
    states = 0
    for seed in range(seed_first, seed_first + SEEDS_MAX):
        seeds.append(seed)
        tally = campaign.check_seed(seed)
        states += tally.states
        if tally.failures:
            return Search(seeds, states, tally.failures[0])
    return Search(seeds, states, None)


def campaign_of(name: str, door_of: Callable[[RecordingFiles], Files] = lambda files: files) -> Campaign:
    return Campaign(STATES_PER_SEED, (kind(name),), door_of, second_cut_share=0)


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
    name, door_of = LOST_SYNCS[sync]
    found = search(campaign_of(name, door_of))
    assert found.failure is not None, f"not found in {found.states} states"
    assert_nothing_is_wrong(name, found.seeds)


def test_a_failure_is_found_again_by_its_place() -> None:
    name, door_of = LOST_SYNCS["of the write-ahead log at a commit"]
    campaign = campaign_of(name, door_of)
    failure = search(campaign).failure
    assert failure is not None
    assert campaign.replay(failure.place) == failure.error
    assert campaign_of(name).replay(failure.place) is None


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
    file = sealed_json.create_anew(files, path + ".tmp")
    file.pwrite(data, 0)
    files.rename(path + ".tmp", path)
    sync_directory(files, path.rpartition("/")[0])
    sync_file(file)
    file.close()


def remove_and_then_swap(files: Files, directory: str, temporary: str, base_offset: int, end_offset: int) -> None:
    """The old segment goes before the name that says what replaces it is durable."""
    files.rename(temporary, swap_path(directory, base_offset, end_offset))


def take_all_for_committed(transactions: CompactedTransactions, header: BatchHeader) -> bool:
    del transactions, header
    return False


def believe_all_entries(
    files: Files, directory: str, count: int, snapshot_offset: int, log_start_offset: int
) -> AbortedTransactions:
    """As many as there are, whatever the snapshot counts on."""
    del count, snapshot_offset
    data = aborted._read(files, f"{directory}/aborted")
    found = AbortedTransactions()
    for number in range(len(data) // aborted.ENTRY_BYTES):
        entry = aborted._decode(data, number)
        if entry is not None and entry.last_offset >= log_start_offset:
            found.add(entry)
    found.renew()
    return found


# The kind of workload, the seed to begin with, so that the search is short, and what is planted where.
ENGINE_BUGS: dict[str, tuple[str, int, object, str, object]] = {
    "a checksum that is not looked at": ("interval", 0, scan, "check_batch", check_all_but_the_checksum),
    "a small file that is renamed before it is synced": (
        "truncation",
        0,
        sealed_json,
        "replace_file",
        rename_and_then_sync,
    ),
    "a compacted segment whose name is not synced before the old ones go": (
        "compaction",
        20,
        compaction,
        "commit_swap",
        remove_and_then_swap,
    ),
    "a compaction that takes aborted records for committed ones": (
        "compaction of transactions",
        2,
        CompactedTransactions,
        "is_aborted",
        take_all_for_committed,
    ),
    "aborted transactions that the snapshot does not count on": (
        "compaction of transactions",
        1,
        AbortedTransactions,
        "load",
        believe_all_entries,
    ),
}


@pytest.mark.parametrize("bug", ENGINE_BUGS)
def test_a_bug_of_the_engine_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, seed_first, owner, attribute, planted = ENGINE_BUGS[bug]
    with monkeypatch.context() as patched:
        patched.setattr(owner, attribute, planted)
        found = search(campaign_of(name), seed_first)
    assert found.failure is not None, f"not found in {found.states} states"
    assert_nothing_is_wrong(name, found.seeds)


def damaged_times(base_offset: int, entries: bytes) -> bytes:
    """Every time is forgotten, and no checksum is renewed."""
    del base_offset
    forgotten = (-1).to_bytes(8, "little", signed=True)
    return b"".join(forgotten + entries[at + 8 : at + ENTRY_BYTES] for at in range(0, len(entries), ENTRY_BYTES))


def stale_positions(base_offset: int, entries: bytes) -> bytes:
    """Checksums are good, but all entries except the last point at the batch of the next one."""
    index = Index(base_offset, bytearray(entries))
    found = [index.entry(number) for number in range(len(index))]
    stale = Index(base_offset, bytearray())
    for entry, following in zip(found, [*found[1:], *found[-1:]], strict=True):
        stale.add(entry.offset, following.position, entry.max_timestamp_before)
    return bytes(stale.entries)


def believe_entry(index: Index, number: int) -> IndexEntry:
    time, offset, position = INDEX_ENTRY.unpack_from(index.entries, number * ENTRY_BYTES)
    return IndexEntry(index.base_offset + offset, position, time)


def believe_floor(segment: Segment, column: Column, limit: int) -> IndexEntry:
    return segment._index().floor(column, limit)


INDEX_ENTRY = Struct("<qII")
INDEX_BUGS: dict[str, tuple[type, str, object, Callable[[int, bytes], bytes]]] = {
    "entries are believed without their checksum": (Index, "entry", believe_entry, damaged_times),
    "places are believed without a look at the batch": (Segment, "_checked_floor", believe_floor, stale_positions),
}


def wrong_answers(damage: Callable[[int, bytes], bytes]) -> list[str]:
    """The indexes that, once damaged, make the engine answer wrong; one after the other."""
    past = closed_past(seed=1)
    found: list[str] = []
    for path in paths(past.files, ".index"):
        files = past.copy()
        data = content(files, path)
        base_offset = int(path.rpartition("/")[2].removesuffix(".index"))
        put(files, path, data[:HEADER_BYTES_OF_INDEX] + damage(base_offset, data[HEADER_BYTES_OF_INDEX:]))
        directory = opened(files)
        try:
            check_directory(directory, past.promises)
        except BrokenPromiseError:
            found.append(path)
        finally:
            directory.abandon()
    return found


@pytest.mark.parametrize("bug", INDEX_BUGS)
def test_an_index_that_is_trusted_blindly_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, planted, damage = INDEX_BUGS[bug]
    with monkeypatch.context() as patched:
        patched.setattr(owner, attribute, planted)
        assert wrong_answers(damage)
    assert wrong_answers(damage) == []
