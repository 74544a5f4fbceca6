"""Reading the write-ahead log after a crash: all that is whole, in order, and a word about what is missing."""

from collections.abc import Sequence

from logbrook.storage.paths import WAL_DIRECTORY, wal_path
from logbrook.storage.wal_format import BLOCK_ALIGNMENT, WalEntry, align, encode_block
from logbrook.storage.wal_reader import WalContents
from logbrook.storage.wal_reader import read_wal as read_marked
from logbrook.testing import MemoryFiles
from tests.unit.storage.kit import flip, put

FILE_BYTES = 8192
MARK = b"our mark"


def block(
    first_number: int, count: int = 1, previous_end: int | None = None, data: bytes = b"", mark: bytes = MARK
) -> bytes:
    """A block of `count` entries; the data of each is its number unless it is given."""
    entries = [
        WalEntry(number, b"orders-0", 0, 100 * number, number + 1, memoryview(data or b"%d" % number))
        for number in range(first_number, first_number + count)
    ]
    buffers, _ = encode_block(mark, first_number if previous_end is None else previous_end, entries)
    return b"".join(buffers)


def wal_of(*files: Sequence[bytes]) -> MemoryFiles:
    """A log of these files, each with these blocks, aligned and padded with zeros."""
    disk = MemoryFiles()
    disk.make_dir(WAL_DIRECTORY)
    for number, blocks in enumerate(files):
        data = bytearray()
        for one in blocks:
            data += one + bytes(align(len(one)) - len(one))
        put(disk, wal_path(number), data.ljust(FILE_BYTES, b"\0"))
    return disk


def read_wal(files: MemoryFiles, floor: int) -> WalContents:
    return read_marked(files, MARK, floor)


def numbers_of(contents: WalContents) -> list[int]:
    return [entry.number for entry in contents.entries()]


def test_an_empty_log_starts_at_its_floor() -> None:
    contents = read_wal(wal_of(), floor=17)
    assert (numbers_of(contents), contents.next_number, contents.next_file) == ([], 17, 0)
    assert contents.damage == []


def test_entries_come_in_the_order_of_their_numbers_whatever_file_they_are_in() -> None:
    contents = read_wal(wal_of([block(4), block(5, 2)], [], [block(0, 3), block(3)]), floor=0)
    assert numbers_of(contents) == list(range(7))
    assert [bytes(entry.data) for entry in contents.entries()] == [b"%d" % number for number in range(7)]
    assert contents.next_number == 7
    assert contents.next_file == 3
    assert contents.paths == [wal_path(0), wal_path(1), wal_path(2)]
    assert contents.damage == []


def test_other_files_in_the_directory_are_left_alone() -> None:
    disk = wal_of([block(0)])
    put(disk, f"{WAL_DIRECTORY}/notes.txt", b"x")
    put(disk, wal_path(9) + ".damaged", block(1))
    contents = read_wal(disk, floor=0)
    assert (numbers_of(contents), contents.paths) == ([0], [wal_path(0)])


def test_entries_below_the_floor_are_not_needed() -> None:
    contents = read_wal(wal_of([block(0, 3), block(3, 2), block(5)]), floor=3)
    assert numbers_of(contents) == [3, 4, 5]
    assert contents.damage == []


def test_a_block_that_begins_below_the_floor_and_ends_past_it_counts() -> None:
    contents = read_wal(wal_of([block(0, 3), block(3, 4)]), floor=5)
    assert {5, 6} <= set(numbers_of(contents))
    assert contents.next_number == 7


def test_the_log_ends_at_the_first_block_that_is_not_whole() -> None:
    torn = block(3)
    contents = read_wal(wal_of([block(0, 3), torn[:-1] + b"?"]), floor=0)
    assert numbers_of(contents) == [0, 1, 2]
    assert contents.next_number == 3
    assert contents.damage == []


def test_skipped_numbers_are_not_missing() -> None:
    contents = read_wal(wal_of([block(0, 2), block(4, previous_end=2)]), floor=0)
    assert numbers_of(contents) == [0, 1, 4]
    assert contents.damage == []


def test_what_an_earlier_use_of_a_file_left_is_not_read() -> None:
    contents = read_wal(wal_of([block(10), block(3), block(4)]), floor=10)
    assert numbers_of(contents) == [10]
    assert contents.next_number == 11
    assert contents.damage == []


def test_old_blocks_before_the_floor_are_no_damage_however_torn() -> None:
    contents = read_wal(wal_of([block(3)[:-1], block(4), block(5)]), floor=10)
    assert (numbers_of(contents), contents.damage) == ([], [])


def test_a_bad_block_with_good_ones_behind_it_is_damage() -> None:
    disk = wal_of([block(0), block(1), block(2)])
    flip(disk, wal_path(0), BLOCK_ALIGNMENT + 40)
    contents = read_wal(disk, floor=0)
    assert numbers_of(contents) == [0, 2]
    assert contents.damaged_paths == {wal_path(0)}
    assert f"{wal_path(0)} is bad at byte 512, but good again at byte 1024" in contents.damage


def test_a_file_that_begins_with_a_bad_block_is_damaged_too() -> None:
    disk = wal_of([block(0), block(1)])
    flip(disk, wal_path(0), 3)
    contents = read_wal(disk, floor=0)
    assert numbers_of(contents) == [1]
    assert contents.damaged_paths == {wal_path(0)}


def test_a_missing_file_is_noticed_by_the_numbers() -> None:
    disk = wal_of([block(0, 3)], [block(3, 2)], [block(5)])
    disk.unlink(wal_path(1))
    contents = read_wal(disk, floor=0)
    assert numbers_of(contents) == [0, 1, 2, 5]
    assert contents.damage == [f"entries 3 to 4 are missing before byte 0 of {wal_path(2)}"]


def test_a_missing_first_file_is_noticed_by_the_floor() -> None:
    contents = read_wal(wal_of([], [block(5)]), floor=2)
    assert len(contents.damage) == 1
    assert "entries 2 to 4 are missing" in contents.damage[0]


def test_a_block_across_the_floor_is_found_behind_a_bad_one() -> None:
    """What is before the floor may rot; what was acknowledged after it must not be lost with it."""
    disk = wal_of([block(0, 3), block(3, 4), block(7)])
    flip(disk, wal_path(0), 40)
    assert {5, 6, 7} <= set(numbers_of(read_wal(disk, floor=5)))


def test_a_clients_bytes_are_never_taken_for_a_block() -> None:
    """A record may hold the image of a block; a torn commit around it must not bring that to life."""
    forged = block(50, data=b"forged", mark=b"guessed!")
    for padding in range(BLOCK_ALIGNMENT):
        carrier = block(1, data=bytes(padding) + forged + bytes(2 * BLOCK_ALIGNMENT))
        torn = carrier[:-1] + b"?"
        contents = read_wal(wal_of([block(0), torn]), floor=0)
        assert [bytes(entry.data) for entry in contents.entries()] == [b"0"]


def test_a_log_that_is_known_to_hold_nothing_is_only_listed() -> None:
    contents = read_marked(wal_of([block(0)], [block(1)]), MARK, 2, skip=True)
    assert (contents.places, contents.next_number, contents.next_file) == ([], 2, 2)
    assert contents.paths == [wal_path(0), wal_path(1)]


def test_a_log_larger_than_the_search_window_is_searched_to_its_end() -> None:
    disk = wal_of([block(0)])
    position = 3 << 20
    file = disk.open(wal_path(0))
    file.pwrite(block(9), position)
    file.pwrite(bytes(BLOCK_ALIGNMENT), position + BLOCK_ALIGNMENT)
    contents = read_wal(disk, floor=0)
    assert numbers_of(contents) == [0, 9]
    assert contents.damaged_paths == {wal_path(0)}
