"""The transactions that were aborted, in memory and in their file."""

from random import Random

import pytest

from logbrook.storage.aborted import ENTRY_BYTES, Aborted, AbortedTransactions
from logbrook.testing import MemoryFiles
from tests.unit.storage.kit import content, flip, put

DIRECTORY = "orders-0"
PATH = f"{DIRECTORY}/aborted"
# Producer 1 from 0 to 5, then 2 from 3 to 9 while 3 is open, then 3 from 4 to 20, then 1 again.
HISTORY = (Aborted(1, 0, 5, 3), Aborted(2, 3, 9, 4), Aborted(3, 4, 20, 21), Aborted(1, 30, 31, 32))


@pytest.fixture
def disk(files: MemoryFiles) -> MemoryFiles:
    files.make_dir(DIRECTORY)
    return files


def aborted_of(*history: Aborted) -> AbortedTransactions:
    aborted = AbortedTransactions()
    for one in history:
        aborted.add(one)
    return aborted


def written(disk: MemoryFiles, *history: Aborted) -> AbortedTransactions:
    aborted = aborted_of(*history)
    aborted.write(disk, DIRECTORY)
    return aborted


def loaded(disk: MemoryFiles, count: int, offset: int = 100, log_start_offset: int = 0) -> list[Aborted] | None:
    found = AbortedTransactions.load(disk, DIRECTORY, count, offset, log_start_offset)
    return None if found is None else found.overlapping(0, 2**62)


def test_a_reader_is_told_of_those_that_reach_into_its_range() -> None:
    aborted = aborted_of(*HISTORY)
    assert aborted.between(0, 100) == [(1, 0), (2, 3), (3, 4), (1, 30)]
    assert aborted.between(0, 3) == [(1, 0)]
    assert aborted.between(5, 6) == [(1, 0), (2, 3), (3, 4)]
    assert aborted.between(6, 7) == [(2, 3), (3, 4)]
    assert aborted.between(20, 21) == [(3, 4)]
    assert aborted.between(21, 30) == []
    assert aborted.between(31, 32) == [(1, 30)]
    assert AbortedTransactions().between(0, 100) == []


def random_history(rng: Random) -> tuple[list[Aborted], int]:
    """Transactions of four producers, as they come, and where the log ends."""
    history: list[Aborted] = []
    running: dict[int, int] = {}
    for offset in range(60):
        producer_id = rng.randrange(4)
        if producer_id not in running:
            running[producer_id] = offset
        elif rng.random() < 0.6:
            first_offset = running.pop(producer_id)
            if rng.random() < 0.7:
                history.append(Aborted(producer_id, first_offset, offset, min(running.values(), default=offset + 1)))
    return history, 60


@pytest.mark.parametrize("seed", range(20))
def test_every_range_has_what_a_look_at_all_of_them_finds(seed: int) -> None:
    history, end = random_history(Random(seed))
    aborted = aborted_of(*history)
    for start in range(end):
        for stop in range(start + 1, end + 1):
            expected = [
                (one.producer_id, one.first_offset)
                for one in history
                if one.last_offset >= start and one.first_offset < stop
            ]
            assert aborted.between(start, stop) == expected


def test_what_lies_before_the_start_of_the_log_is_forgotten() -> None:
    aborted = aborted_of(*HISTORY)
    aborted.drop_before(9)
    assert aborted.overlapping(0, 100) == list(HISTORY[1:])
    aborted.drop_before(10)
    assert aborted.overlapping(0, 100) == list(HISTORY[2:])


def test_the_file_brings_them_back(disk: MemoryFiles) -> None:
    assert written(disk, *HISTORY).count == 4
    assert loaded(disk, 4) == list(HISTORY)


def test_where_nothing_was_aborted_there_is_no_file(disk: MemoryFiles) -> None:
    written(disk)
    assert disk.list(DIRECTORY) == []
    assert loaded(disk, 0) == []


def test_the_file_only_grows(disk: MemoryFiles) -> None:
    aborted = written(disk, *HISTORY[:2])
    before = content(disk, PATH)
    for one in HISTORY[2:]:
        aborted.add(one)
    aborted.write(disk, DIRECTORY)
    assert content(disk, PATH)[: len(before)] == before
    assert len(content(disk, PATH)) == 4 * ENTRY_BYTES
    assert loaded(disk, 4) == list(HISTORY)


def test_entries_that_were_dropped_stay_in_the_file_and_are_counted(disk: MemoryFiles) -> None:
    aborted = written(disk, *HISTORY[:3])
    aborted.drop_before(9)
    aborted.add(HISTORY[3])
    aborted.write(disk, DIRECTORY)
    assert aborted.count == 4
    assert loaded(disk, 4, log_start_offset=9) == list(HISTORY[1:])


def test_entries_that_were_dropped_before_they_were_written_never_come_to_the_file(disk: MemoryFiles) -> None:
    aborted = written(disk, HISTORY[0])
    for one in HISTORY[1:]:
        aborted.add(one)
    aborted.drop_before(10)
    aborted.write(disk, DIRECTORY)
    assert aborted.count == 2
    assert loaded(disk, 2) == list(HISTORY[2:])


def test_what_a_snapshot_does_not_count_on_is_not_read_and_is_written_over(disk: MemoryFiles) -> None:
    written(disk, *HISTORY)
    found = AbortedTransactions.load(disk, DIRECTORY, 2, 10, 0)
    assert found is not None
    assert found.overlapping(0, 100) == list(HISTORY[:2])
    other = Aborted(7, 11, 12, 13)
    found.add(other)
    found.write(disk, DIRECTORY)
    assert len(content(disk, PATH)) == 3 * ENTRY_BYTES
    assert loaded(disk, 3) == [*HISTORY[:2], other]


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


def test_entries_of_another_time_than_the_snapshots_are_not_believed(disk: MemoryFiles) -> None:
    """A file that was written anew, without what is dead, and then grew, is not the one that an older snapshot has."""
    written(disk, *HISTORY)
    assert loaded(disk, 3, offset=10) is None, "one of the three came after the snapshot"
    assert loaded(disk, 2, offset=21) is None, "a third one came before the snapshot"


def test_a_file_that_is_mostly_dead_is_written_anew(disk: MemoryFiles) -> None:
    written(disk, *HISTORY)
    found = AbortedTransactions.load(disk, DIRECTORY, 4, 100, 21)
    assert found is not None
    found.write(disk, DIRECTORY)
    assert found.count == 1
    assert len(content(disk, PATH)) == ENTRY_BYTES
    assert loaded(disk, 1) == [HISTORY[3]]


def test_a_file_that_has_to_be_written_anew_with_nothing_in_it_goes(disk: MemoryFiles) -> None:
    aborted = written(disk, *HISTORY)
    aborted.drop_before(100)
    aborted.renew()
    aborted.write(disk, DIRECTORY)
    assert disk.list(DIRECTORY) == []
    assert aborted.count == 0
