"""The bytes of the write-ahead log.

A file is a run of blocks, each at a multiple of 512 bytes so that writing one never touches a sector of the one
before. A block is what one commit wrote:

    bytes   field
    0-3     "LBW1"
    4-7     CRC32C of the rest of the block
    8-15    where the numbers of the block before ended, so that a missing block is noticed
    16-23   the number of its first entry; numbers only rise over the whole life of the directory
    24-27   how many entries
    28-31   how many bytes of entries follow

and an entry says which bytes go where, so that recovery only has to write them there again:

    bytes   field
    0-1     length of the partition's directory name
    2-9     the segment's base offset
    10-17   the position in the segment
    18-25   the offset after the last record
    26-29   length of the data
    30-     the name, then the data: one or more whole record batches

Files are used again without being cleared. What an earlier use left behind has lower entry numbers, and that is how
it is known.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from logbrook.ports import Bytes, File

BLOCK_ALIGNMENT = 512
BLOCK_MAGIC = b"LBW1"
_BLOCK = Struct(">4sIQQII")
_CRC_COVERS_FROM = 8
_ENTRY = Struct(">HqqqI")


class WalEntry(NamedTuple):
    """A write to repeat."""

    directory: bytes
    segment_base_offset: int
    position: int
    next_offset: int
    data: memoryview


class WalBlock(NamedTuple):
    position: int
    previous_end_number: int
    first_number: int
    entries: int
    body: memoryview

    @property
    def end_number(self) -> int:
        return self.first_number + self.entries

    @property
    def end(self) -> int:
        """Where the next block starts."""
        return align(self.position + _BLOCK.size + len(self.body))


def entry_bytes(directory: bytes, length: int) -> int:
    """The most that an entry can take up, a block header and padding of its own included."""
    return align(_BLOCK.size + _ENTRY.size + len(directory) + length)


def align(position: int) -> int:
    return -(-position // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT


def encode_block(previous_end_number: int, first_number: int, entries: Sequence[WalEntry]) -> tuple[list[Bytes], int]:
    """(the buffers of a block, their length). The data of the entries is not copied."""
    buffers: list[Bytes] = [b""]
    length = 0
    for entry in entries:
        head = _ENTRY.pack(
            len(entry.directory), entry.segment_base_offset, entry.position, entry.next_offset, len(entry.data)
        )
        buffers += (head + entry.directory, entry.data)
        length += len(head) + len(entry.directory) + len(entry.data)
    checked = _BLOCK.pack(BLOCK_MAGIC, 0, previous_end_number, first_number, len(entries), length)[_CRC_COVERS_FROM:]
    crc = crc32c(checked)
    for buffer in buffers:
        crc = crc32c(buffer, crc)
    buffers[0] = BLOCK_MAGIC + crc.to_bytes(4, "big") + checked
    return buffers, _BLOCK.size + length


def read_block(file: File, position: int, size: int) -> WalBlock | None:
    """The block at `position` of a file of `size` bytes, or None where there is no whole one."""
    head = file.pread(_BLOCK.size, position)
    if len(head) < _BLOCK.size:
        return None
    magic, crc, previous_end_number, first_number, entries, length = _BLOCK.unpack(head)
    if magic != BLOCK_MAGIC or length > size - position - _BLOCK.size:
        return None
    body = file.pread(length, position + _BLOCK.size)
    if crc32c(body, crc32c(head[_CRC_COVERS_FROM:])) != crc:
        return None
    return WalBlock(position, previous_end_number, first_number, entries, memoryview(body))


def iter_entries(block: WalBlock) -> Iterator[tuple[int, WalEntry]]:
    """(number, entry) of a block whose checksum holds."""
    position = 0
    for number in range(block.first_number, block.end_number):
        name_length, segment_base_offset, log_position, next_offset, length = _ENTRY.unpack_from(block.body, position)
        position += _ENTRY.size
        directory = bytes(block.body[position : position + name_length])
        position += name_length
        yield (
            number,
            WalEntry(
                directory, segment_base_offset, log_position, next_offset, block.body[position : position + length]
            ),
        )
        position += length
