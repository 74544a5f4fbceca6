"""The bytes of the write-ahead log.

A file is a run of blocks, each at a multiple of 512 bytes so that writing one never touches a sector of the one
before. A block is what one commit wrote:

    bytes   field
    0-7     the directory's own mark, chosen at random when it was made
    8-11    CRC32C of the rest of the block
    12-15   how many entries
    16-23   where the numbers of the block before ended, so that a missing block is noticed
    24-31   where the numbers of this one end
    32-35   how many bytes of entries follow

and an entry says which bytes go where, so that recovery only has to write them there again:

    bytes   field
    0-7     its number; numbers only rise over the whole life of the directory
    8-15    the segment's base offset
    16-23   the position in the segment
    24-31   the offset after the last record
    32-35   length of the data
    36-37   length of the partition's directory name
    38-     the name, then the data: one or more whole record batches

The data is a client's, and a client may send anything, even the image of a block. It cannot know the mark, so it cannot
send one that would be taken for a block where a torn one is searched for what follows it.

Files are used again without being cleared. What an earlier use left behind has lower entry numbers, and that is how
it is known.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from logbrook.ports import Bytes, File

BLOCK_ALIGNMENT = 512
MARK_BYTES = 8
_BLOCK = Struct(">8sIIQQI")
_CRC_COVERS_FROM = 12
_ENTRY = Struct(">QqqqIH")


class WalEntry(NamedTuple):
    """A write to repeat."""

    number: int
    directory: bytes
    segment_base_offset: int
    position: int
    next_offset: int
    data: memoryview


class WalBlock(NamedTuple):
    position: int
    entries: int
    previous_end_number: int
    end_number: int
    body: memoryview

    @property
    def end(self) -> int:
        """Where the next block starts."""
        return align(self.position + _BLOCK.size + len(self.body))


def entry_bytes(directory: bytes, length: int) -> int:
    """The most that an entry can take up, a block header and padding of its own included."""
    return align(_BLOCK.size + _ENTRY.size + len(directory) + length)


def align(position: int) -> int:
    return -(-position // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT


def encode_block(mark: bytes, previous_end_number: int, entries: Sequence[WalEntry]) -> tuple[list[Bytes], int]:
    """(the buffers of a block, their length). The data of the entries is not copied."""
    buffers: list[Bytes] = [b""]
    length = 0
    for number, directory, segment_base_offset, position, next_offset, data in entries:
        head = _ENTRY.pack(number, segment_base_offset, position, next_offset, len(data), len(directory)) + directory
        buffers += (head, data)
        length += len(head) + len(data)
    end_number = entries[-1].number + 1
    checked = _BLOCK.pack(mark, 0, len(entries), previous_end_number, end_number, length)[_CRC_COVERS_FROM:]
    crc = crc32c(checked)
    for buffer in buffers:
        crc = crc32c(buffer, crc)
    buffers[0] = mark + crc.to_bytes(4, "big") + checked
    return buffers, _BLOCK.size + length


def read_block(file: File, mark: bytes, position: int, size: int) -> WalBlock | None:
    """The block at `position` of a file of `size` bytes, or None where there is no whole one."""
    head = file.pread(_BLOCK.size, position)
    if len(head) < _BLOCK.size:
        return None
    found, crc, entries, previous_end_number, end_number, length = _BLOCK.unpack(head)
    if found != mark or length > size - position - _BLOCK.size:
        return None
    body = file.pread(length, position + _BLOCK.size)
    if crc32c(body, crc32c(head[_CRC_COVERS_FROM:])) != crc:
        return None
    return WalBlock(position, entries, previous_end_number, end_number, memoryview(body))


def iter_entries(block: WalBlock) -> Iterator[WalEntry]:
    """The entries of a block whose checksum holds."""
    position = 0
    for _ in range(block.entries):
        number, segment_base_offset, log_position, next_offset, length, name_length = _ENTRY.unpack_from(
            block.body, position
        )
        name_end = position + _ENTRY.size + name_length
        directory = bytes(block.body[name_end - name_length : name_end])
        position = name_end + length
        yield WalEntry(number, directory, segment_base_offset, log_position, next_offset, block.body[name_end:position])
