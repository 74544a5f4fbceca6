"""The aborted transactions, in memory and in their file."""

from random import Random

import pytest

from logbrook.model.identifiers import Offset, ProducerId
from logbrook.storage.transaction_index import ENTRY_BYTES, AbortedTxn, TransactionIndex
from logbrook.testing import MemoryFiles
from tests.unit.storage.kit import content, flip, put

DIRECTORY = "orders-0"
PATH = f"{DIRECTORY}/aborted"
# Producer 1 from 0 to 5, then 2 from 3 to 9 while 3 is open, then 3 from 4 to 20, then 1 again.
HISTORY = (
    AbortedTxn(ProducerId(1), Offset(0), Offset(5), Offset(3)),
    AbortedTxn(ProducerId(2), Offset(3), Offset(9), Offset(4)),
    AbortedTxn(ProducerId(3), Offset(4), Offset(20), Offset(21)),
    AbortedTxn(ProducerId(1), Offset(30), Offset(31), Offset(32)),
)


@pytest.fixture
def disk(files: MemoryFiles) -> MemoryFiles:
    files.make_dir(DIRECTORY)
    return files


def aborted_of(*history: AbortedTxn) -> TransactionIndex:
    aborted = TransactionIndex()
    for transaction in history:
        aborted.add(transaction)
    return aborted


def written(disk: MemoryFiles, *history: AbortedTxn) -> TransactionIndex:
    aborted = aborted_of(*history)
    aborted.write(disk, DIRECTORY)
    return aborted


def loaded(disk: MemoryFiles, count: int, offset: int = 100, log_start_offset: int = 0) -> list[AbortedTxn] | None:
    index = TransactionIndex.load(disk, DIRECTORY, count, Offset(offset), Offset(log_start_offset))
    return None if index is None else index.overlapping(Offset(0), Offset(2**62))


def test_aborted_transactions_that_overlap_a_range_are_returned() -> None:
    aborted = aborted_of(*HISTORY)
    assert aborted.between(Offset(0), Offset(100)) == [(1, 0), (2, 3), (3, 4), (1, 30)]
    assert aborted.between(Offset(0), Offset(3)) == [(1, 0)]
    assert aborted.between(Offset(5), Offset(6)) == [(1, 0), (2, 3), (3, 4)]
    assert aborted.between(Offset(6), Offset(7)) == [(2, 3), (3, 4)]
    assert aborted.between(Offset(20), Offset(21)) == [(3, 4)]
    assert aborted.between(Offset(21), Offset(30)) == []
    assert aborted.between(Offset(31), Offset(32)) == [(1, 30)]
    assert TransactionIndex().between(Offset(0), Offset(100)) == []


def random_history(rng: Random) -> tuple[list[AbortedTxn], int]:
    """Return random transactions of four producers, in order, and the log end offset."""
    history: list[AbortedTxn] = []
    running: dict[int, int] = {}
    for offset in range(60):
        producer_id = rng.randrange(4)
        if producer_id not in running:
            running[producer_id] = offset
        elif rng.random() < 0.6:
            first_offset = running.pop(producer_id)
            if rng.random() < 0.7:
                history.append(
                    AbortedTxn(
                        ProducerId(producer_id),
                        Offset(first_offset),
                        Offset(offset),
                        Offset(min(running.values(), default=offset + 1)),
                    )
                )
    return history, 60


@pytest.mark.parametrize("seed", range(20))
def test_range_lookups_agree_with_a_linear_search(seed: int) -> None:
    history, end = random_history(Random(seed))
    aborted = aborted_of(*history)
    for start in range(end):
        for stop in range(start + 1, end + 1):
            expected = [
                (transaction.producer_id, transaction.first_offset)
                for transaction in history
                if transaction.last_offset >= start and transaction.first_offset < stop
            ]
            assert aborted.between(Offset(start), Offset(stop)) == expected


def test_entries_before_the_log_start_offset_are_removed() -> None:
    aborted = aborted_of(*HISTORY)
    aborted.drop_before(Offset(9))
    assert aborted.overlapping(Offset(0), Offset(100)) == list(HISTORY[1:])
    aborted.drop_before(Offset(10))
    assert aborted.overlapping(Offset(0), Offset(100)) == list(HISTORY[2:])


def test_the_file_brings_them_back(disk: MemoryFiles) -> None:
    assert written(disk, *HISTORY).count == 4
    assert loaded(disk, 4) == list(HISTORY)


def test_without_aborted_transactions_no_file_is_written(disk: MemoryFiles) -> None:
    written(disk)
    assert disk.list(DIRECTORY) == []
    assert loaded(disk, 0) == []


def test_the_file_only_grows(disk: MemoryFiles) -> None:
    aborted = written(disk, *HISTORY[:2])
    before = content(disk, PATH)
    for transaction in HISTORY[2:]:
        aborted.add(transaction)
    aborted.write(disk, DIRECTORY)
    assert content(disk, PATH)[: len(before)] == before
    assert len(content(disk, PATH)) == 4 * ENTRY_BYTES
    assert loaded(disk, 4) == list(HISTORY)


def test_entries_that_were_dropped_stay_in_the_file_and_are_counted(disk: MemoryFiles) -> None:
    aborted = written(disk, *HISTORY[:3])
    aborted.drop_before(Offset(9))
    aborted.add(HISTORY[3])
    aborted.write(disk, DIRECTORY)
    assert aborted.count == 4
    assert loaded(disk, 4, log_start_offset=9) == list(HISTORY[1:])


def test_entries_that_were_dropped_before_they_were_written_never_come_to_the_file(disk: MemoryFiles) -> None:
    aborted = written(disk, HISTORY[0])
    for transaction in HISTORY[1:]:
        aborted.add(transaction)
    aborted.drop_before(Offset(10))
    aborted.write(disk, DIRECTORY)
    assert aborted.count == 2
    assert loaded(disk, 2) == list(HISTORY[2:])


def test_entries_after_the_snapshot_are_ignored_and_overwritten(disk: MemoryFiles) -> None:
    written(disk, *HISTORY)
    index = TransactionIndex.load(disk, DIRECTORY, 2, Offset(10), Offset(0))
    assert index is not None
    assert index.overlapping(Offset(0), Offset(100)) == list(HISTORY[:2])
    later = AbortedTxn(ProducerId(7), Offset(11), Offset(12), Offset(13))
    index.add(later)
    index.write(disk, DIRECTORY)
    assert len(content(disk, PATH)) == 3 * ENTRY_BYTES
    assert loaded(disk, 3) == [*HISTORY[:2], later]


def test_fewer_entries_than_the_snapshot_counts_on_are_none(disk: MemoryFiles) -> None:
    assert loaded(disk, 1) is None
    written(disk, *HISTORY[:2])
    assert loaded(disk, 3) is None
    put(disk, PATH, content(disk, PATH)[:-1])
    assert loaded(disk, 2) is None


@pytest.mark.parametrize("position", range(2 * ENTRY_BYTES))
def test_a_flipped_byte_is_found(disk: MemoryFiles, position: int) -> None:
    written(disk, *HISTORY[:2])
    flip(disk, PATH, position)
    is_padding = position % ENTRY_BYTES >= ENTRY_BYTES - 4
    assert loaded(disk, 2) == (list(HISTORY[:2]) if is_padding else None)


def test_an_entry_in_the_place_of_another_is_found(disk: MemoryFiles) -> None:
    written(disk, *HISTORY[:2])
    data = content(disk, PATH)
    put(disk, PATH, data[ENTRY_BYTES:] + data[:ENTRY_BYTES])
    assert loaded(disk, 2) is None


def test_entries_that_do_not_match_the_snapshot_are_rejected(disk: MemoryFiles) -> None:
    """A file that was rewritten without dropped entries and then grew does not match an older snapshot."""
    written(disk, *HISTORY)
    assert loaded(disk, 3, offset=10) is None, "one of the three came after the snapshot"
    assert loaded(disk, 2, offset=21) is None, "a third one came before the snapshot"


def test_a_file_that_is_mostly_dead_is_written_anew(disk: MemoryFiles) -> None:
    written(disk, *HISTORY)
    index = TransactionIndex.load(disk, DIRECTORY, 4, Offset(100), Offset(21))
    assert index is not None
    index.write(disk, DIRECTORY)
    assert index.count == 1
    assert len(content(disk, PATH)) == ENTRY_BYTES
    assert loaded(disk, 1) == [HISTORY[3]]


def test_a_rewritten_file_without_entries_is_deleted(disk: MemoryFiles) -> None:
    aborted = written(disk, *HISTORY)
    aborted.drop_before(Offset(100))
    aborted.invalidate_file()
    aborted.write(disk, DIRECTORY)
    assert disk.list(DIRECTORY) == []
    assert aborted.count == 0
