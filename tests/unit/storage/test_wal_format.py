"""The format of the write-ahead log, and reading it after a crash: complete blocks in order, and reported damage."""

from collections.abc import Sequence

import pytest

from logbrook.model.identifiers import Offset
from logbrook.ports import File
from logbrook.storage.paths import WAL_DIRECTORY, wal_path
from logbrook.storage.wal_format import (
    BLOCK_ALIGNMENT,
    WalContents,
    WalEntry,
    align,
    encode_block,
    entry_bytes,
    iter_entries,
    read_block,
)
from logbrook.storage.wal_format import read_wal as read_marked
from logbrook.testing import MemoryFiles
from tests.unit.storage.kit import flip, put

MARK = b"our mark"
ENTRIES = [
    WalEntry(41, b"orders-0", Offset(0), 0, Offset(3), memoryview(b"the first batches")),
    WalEntry(42, b"payments-12", Offset(7_000_000_000), 2**31, Offset(7_000_000_004), memoryview(b"")),
    WalEntry(45, b"x" * 260, Offset(2**63 - 10), 2**32, Offset(2**63 - 1), memoryview(bytes(2000))),
]


def file_with(*blocks: bytes) -> File:
    """Return a file with each block at the next multiple of the alignment."""
    file = MemoryFiles().create("a")
    position = 0
    for block in blocks:
        file.pwrite(block, position)
        position = align(position + len(block))
    file.truncate(max(position, 8192))
    return file


def encoded(entries: list[WalEntry] = ENTRIES, previous_end_number: int = 38, mark: bytes = MARK) -> bytes:
    buffers, length = encode_block(mark, previous_end_number, entries)
    block = b"".join(buffers)
    assert len(block) == length
    return block


def test_a_block_is_read_back_as_it_was_written() -> None:
    file = file_with(encoded())
    block = read_block(file, MARK, 0, file.size())
    assert block is not None
    assert (block.position, block.previous_end_number, block.end_number, block.entries) == (0, 38, 46, 3)
    assert list(iter_entries(block)) == ENTRIES


def test_a_block_with_the_id_of_another_directory_is_invalid() -> None:
    file = file_with(encoded(mark=b"not ours"))
    assert read_block(file, MARK, 0, file.size()) is None


def test_the_data_of_an_entry_is_not_copied() -> None:
    data = bytearray(b"bytes in a network buffer")
    buffers, _ = encode_block(MARK, 0, [WalEntry(0, b"orders-0", Offset(0), 0, Offset(1), memoryview(data))])
    assert any(isinstance(buffer, memoryview) and buffer.obj is data for buffer in buffers)


def test_the_next_block_starts_in_a_sector_of_its_own() -> None:
    file = file_with(encoded(ENTRIES[:2]), encoded(ENTRIES[2:], previous_end_number=43))
    first = read_block(file, MARK, 0, file.size())
    assert first is not None
    assert first.end % BLOCK_ALIGNMENT == 0
    second = read_block(file, MARK, first.end, file.size())
    assert second is not None
    assert list(iter_entries(second)) == ENTRIES[2:]


@pytest.mark.parametrize(("position", "aligned"), [(0, 0), (1, 512), (511, 512), (512, 512), (513, 1024)])
def test_positions_are_aligned_upwards(position: int, aligned: int) -> None:
    assert align(position) == aligned


def test_every_changed_byte_is_detected() -> None:
    good = encoded(ENTRIES[:2])
    for position in range(len(good)):
        file = file_with(good[:position] + bytes([good[position] ^ 0x40]) + good[position + 1 :])
        assert read_block(file, MARK, 0, file.size()) is None


def test_a_truncated_block_is_invalid() -> None:
    good = encoded(ENTRIES[:1])
    for length in range(len(good)):
        file = MemoryFiles().create("a")
        file.pwrite(good[:length], 0)
        assert read_block(file, MARK, 0, length) is None


def test_zeros_are_no_block() -> None:
    file = file_with(b"")
    assert read_block(file, MARK, 0, file.size()) is None


def test_a_length_beyond_the_end_of_the_file_is_not_read() -> None:
    block = MARK + bytes(24) + (2**32 - 1).to_bytes(4, "big")
    file = file_with(block)
    assert read_block(file, MARK, 0, file.size()) is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_block_takes_no_more_room_than_its_entries_reserved(count: int) -> None:
    entries = ENTRIES[:count]
    reserved = sum(entry_bytes(entry.directory, len(entry.data)) for entry in entries)
    assert align(len(encoded(entries))) <= reserved


FILE_BYTES = 8192


def block(
    first_number: int, count: int = 1, previous_end: int | None = None, data: bytes = b"", mark: bytes = MARK
) -> bytes:
    """Return a block of `count` entries; the data of each is its number unless it is given."""
    entries = [
        WalEntry(number, b"orders-0", Offset(0), 100 * number, Offset(number + 1), memoryview(data or b"%d" % number))
        for number in range(first_number, first_number + count)
    ]
    buffers, _ = encode_block(mark, first_number if previous_end is None else previous_end, entries)
    return b"".join(buffers)


def wal_of(*files: Sequence[bytes]) -> MemoryFiles:
    """Return a log of these files, each with these blocks, aligned and padded with zeros."""
    disk = MemoryFiles()
    disk.make_dir(WAL_DIRECTORY)
    for number, blocks in enumerate(files):
        data = bytearray()
        for block in blocks:
            data += block + bytes(align(len(block)) - len(block))
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


def test_a_block_across_the_floor_is_read() -> None:
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


def test_blocks_with_lower_numbers_end_the_write_ahead_log() -> None:
    contents = read_wal(wal_of([block(10), block(3), block(4)]), floor=10)
    assert numbers_of(contents) == [10]
    assert contents.next_number == 11
    assert contents.damage == []


def test_old_blocks_before_the_floor_are_no_damage_however_torn() -> None:
    contents = read_wal(wal_of([block(3)[:-1], block(4), block(5)]), floor=10)
    assert (numbers_of(contents), contents.damage) == ([], [])


def test_a_bad_block_before_good_ones_is_damage() -> None:
    disk = wal_of([block(0), block(1), block(2)])
    flip(disk, wal_path(0), BLOCK_ALIGNMENT + 40)
    contents = read_wal(disk, floor=0)
    assert numbers_of(contents) == [0, 2]
    assert contents.damaged_paths == {wal_path(0)}
    assert f"{wal_path(0)} is damaged at byte 512, valid again at byte 1024" in contents.damage


def test_a_file_that_begins_with_a_bad_block_is_damaged_too() -> None:
    disk = wal_of([block(0), block(1)])
    flip(disk, wal_path(0), 3)
    contents = read_wal(disk, floor=0)
    assert numbers_of(contents) == [1]
    assert contents.damaged_paths == {wal_path(0)}


def test_a_missing_file_is_detected_by_the_numbers() -> None:
    disk = wal_of([block(0, 3)], [block(3, 2)], [block(5)])
    disk.unlink(wal_path(1))
    contents = read_wal(disk, floor=0)
    assert numbers_of(contents) == [0, 1, 2, 5]
    assert contents.damage == [f"entries 3 to 4 are missing before byte 0 of {wal_path(2)}"]


def test_a_missing_first_file_is_detected_by_the_floor() -> None:
    contents = read_wal(wal_of([], [block(5)]), floor=2)
    assert len(contents.damage) == 1
    assert "entries 2 to 4 are missing" in contents.damage[0]


def test_a_block_across_the_floor_is_read_after_a_bad_one() -> None:
    """Damage below the floor must not lose acknowledged entries above it."""
    disk = wal_of([block(0, 3), block(3, 4), block(7)])
    flip(disk, wal_path(0), 40)
    assert {5, 6, 7} <= set(numbers_of(read_wal(disk, floor=5)))


def test_a_clients_bytes_are_never_taken_for_a_block() -> None:
    """A record may contain the image of a block, which must not be read as one after a torn commit around it."""
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
