"""The bytes of the write-ahead log."""

import pytest

from logbrook.ports import File
from logbrook.storage.wal_format import (
    BLOCK_ALIGNMENT,
    WalEntry,
    align,
    encode_block,
    entry_bytes,
    iter_entries,
    read_block,
)
from logbrook.testing import MemoryFiles

MARK = b"our mark"
ENTRIES = [
    WalEntry(41, b"orders-0", 0, 0, 3, memoryview(b"the first batches")),
    WalEntry(42, b"payments-12", 7_000_000_000, 2**31, 7_000_000_004, memoryview(b"")),
    WalEntry(45, b"x" * 260, 2**63 - 10, 2**32, 2**63 - 1, memoryview(bytes(2000))),
]


def file_with(*blocks: bytes) -> File:
    """Each block at the next multiple of the alignment."""
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


def test_a_block_with_the_mark_of_another_directory_is_none() -> None:
    file = file_with(encoded(mark=b"not ours"))
    assert read_block(file, MARK, 0, file.size()) is None


def test_the_data_of_an_entry_is_not_copied() -> None:
    data = bytearray(b"bytes in a network buffer")
    buffers, _ = encode_block(MARK, 0, [WalEntry(0, b"orders-0", 0, 0, 1, memoryview(data))])
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


def test_every_changed_byte_is_noticed() -> None:
    good = encoded(ENTRIES[:2])
    for position in range(len(good)):
        file = file_with(good[:position] + bytes([good[position] ^ 0x40]) + good[position + 1 :])
        assert read_block(file, MARK, 0, file.size()) is None


def test_a_block_that_is_cut_is_none() -> None:
    good = encoded(ENTRIES[:1])
    for length in range(len(good)):
        file = MemoryFiles().create("a")
        file.pwrite(good[:length], 0)
        assert read_block(file, MARK, 0, length) is None


def test_zeros_are_no_block() -> None:
    file = file_with(b"")
    assert read_block(file, MARK, 0, file.size()) is None


def test_a_length_past_the_end_of_the_file_is_not_read() -> None:
    block = MARK + bytes(24) + (2**32 - 1).to_bytes(4, "big")
    file = file_with(block)
    assert read_block(file, MARK, 0, file.size()) is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_block_takes_no_more_room_than_its_entries_reserved(count: int) -> None:
    entries = ENTRIES[:count]
    reserved = sum(entry_bytes(entry.directory, len(entry.data)) for entry in entries)
    assert align(len(encoded(entries))) <= reserved
