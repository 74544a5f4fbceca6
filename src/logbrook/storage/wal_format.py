"""The format of the write-ahead log, and reading it in recovery.

A file is a sequence of blocks, each at a multiple of 512 bytes, so that writing one never touches a sector of the one
before. A block is what one commit wrote:

    bytes   field
    0-7     the directory's mark, chosen at random when the directory was created
    8-11    CRC32C of the rest of the block
    12-15   number of entries
    16-23   end number of the previous block, to detect a missing block
    24-31   end number of this block: its last entry's number + 1
    32-35   bytes of entries that follow

An entry is physical (ADR 2): it has bytes and their position in a segment, and redo writes them there again. An entry
without data (ADR 27) only tells that the segment was synced up to the next offset before the block was written.

    bytes   field
    0-7     number; ascending over the whole life of the directory
    8-15    base offset of the segment
    16-23   position in the segment
    24-31   next offset after the last record
    32-35   length of the data; 0 if the segment was synced instead
    36-37   length of the partition's directory name
    38-     the name, then the data: one or more whole record batches

The data comes from clients, who may send anything, even the image of a block. They cannot know the mark, so they cannot
forge a block that the search for blocks after a torn one would accept. Files are reused without being cleared; blocks
of an earlier use have lower numbers.

A block proves that every block before it was durable, so the log may end in one way only: after the newest durable
block, with a torn commit. Any other gap (a damaged block before a valid one with higher numbers, a missing range of
numbers) is damage to acknowledged data and is reported.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from logbrook.model.identifiers import Offset
from logbrook.ports import Bytes, File, Files
from logbrook.storage.paths import WAL_DIRECTORY, parse_wal

BLOCK_ALIGNMENT = 512
MARK_BYTES = 8
_BLOCK = Struct(">8sIIQQI")
_CRC_COVERS_FROM = 12
_ENTRY = Struct(">QqqqIH")
_ENTRY_BYTES_MIN = _BLOCK.size + _ENTRY.size
_NO_DATA = memoryview(b"")


class WalEntry(NamedTuple):
    """A segment write, with the data to write again unless the segment was synced after it."""

    number: int
    directory: bytes
    segment_base_offset: Offset
    position: int
    next_offset: Offset
    data: memoryview

    @property
    def segment(self) -> tuple[bytes, Offset]:
        return self.directory, self.segment_base_offset

    def without_data(self) -> "WalEntry":
        """Return the entry of a segment that is synced."""
        return self._replace(data=_NO_DATA)


class WalBlock(NamedTuple):
    position: int
    entries: int
    previous_end_number: int
    end_number: int
    body: memoryview

    @property
    def end(self) -> int:
        """Position of the next block."""
        return align(self.position + _BLOCK.size + len(self.body))


def entry_bytes(directory: bytes, length: int) -> int:
    """Return the most bytes an entry can occupy, including a block header and padding of its own."""
    return -(-(_ENTRY_BYTES_MIN + len(directory) + length) // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT


def align(position: int) -> int:
    return -(-position // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT


def encode_block(mark: bytes, previous_end_number: int, entries: Sequence[WalEntry]) -> tuple[list[Bytes], int]:
    """Return (buffers of a block, their total length). The entries' data is not copied."""
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
    """Return the block at `position` of a file of `size` bytes, or None if there is no valid one."""
    head = file.pread(_BLOCK.size, position)
    if len(head) < _BLOCK.size:
        return None
    block_mark, crc, entries, previous_end_number, end_number, length = _BLOCK.unpack(head)
    if block_mark != mark or length > size - position - _BLOCK.size:
        return None
    body = file.pread(length, position + _BLOCK.size)
    if crc32c(body, crc32c(head[_CRC_COVERS_FROM:])) != crc:
        return None
    return WalBlock(position, entries, previous_end_number, end_number, memoryview(body))


def iter_entries(block: WalBlock) -> Iterator[WalEntry]:
    """Decode the entries of a valid block."""
    position = 0
    for _ in range(block.entries):
        number, segment_base_offset, log_position, next_offset, length, name_length = _ENTRY.unpack_from(
            block.body, position
        )
        name_end = position + _ENTRY.size + name_length
        directory = bytes(block.body[name_end - name_length : name_end])
        position = name_end + length
        yield WalEntry(number, directory, segment_base_offset, log_position, next_offset, block.body[name_end:position])


_CHUNK_BYTES = 1 << 20


class _Place(NamedTuple):
    """Location of a valid block. Sorts by number."""

    end_number: int
    previous_end_number: int
    path: str
    position: int


@dataclass
class WalContents:
    """The valid blocks with entries at or above number `floor`, in commit order."""

    files: Files
    mark: bytes
    floor: int
    next_number: int
    next_file: int = 0
    paths: list[str] = field(default_factory=list)
    places: list[_Place] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    damaged_paths: set[str] = field(default_factory=set)

    def entries(self) -> Iterator[WalEntry]:
        """Iterate over the entries from the floor on, with one block in memory at a time."""
        for place in self.places:
            with closing(self.files.open(place.path)) as file:
                block = read_block(file, self.mark, place.position, file.size())
            assert block is not None, "a block that was valid before is not"
            yield from (entry for entry in iter_entries(block) if entry.number >= self.floor)

    def is_synced_after(self, entry: WalEntry) -> bool:
        """Return True if the segment was synced with this entry's data: a later entry for it has no data."""
        return any(
            later.number > entry.number and later.segment == entry.segment and not later.data
            for later in self.entries()
        )


def read_wal(files: Files, mark: bytes, floor: int, *, skip: bool = False) -> WalContents:
    """Read the write-ahead log of the directory with this mark from entry number `floor` on.

    `skip`, after a clean stop, only lists the files: they hold no entries to redo.
    """
    contents = WalContents(files, mark, floor, next_number=floor)
    for name in files.list(WAL_DIRECTORY):
        number = parse_wal(name)
        if number is not None:
            path = f"{WAL_DIRECTORY}/{name}"
            contents.paths.append(path)
            contents.next_file = max(contents.next_file, number + 1)
            if not skip:
                _read_file(contents, path, floor)
    contents.places.sort()
    previous: _Place | None = None
    for place in contents.places:
        if place.previous_end_number > contents.next_number:
            gap = f"entries {contents.next_number} to {place.previous_end_number - 1}"
            contents.damage.append(f"{gap} are missing before byte {place.position} of {place.path}")
            if place.path not in contents.damaged_paths:
                # They were at the end of the previous file, or in a file without any valid block.
                unread = set(contents.paths) - {block.path for block in contents.places}
                contents.damaged_paths |= unread if previous is None else {previous.path, *unread}
        contents.next_number = place.end_number
        previous = place
    return contents


def _read_file(contents: WalContents, path: str, floor: int) -> None:
    with closing(contents.files.open(path)) as file:
        size = file.size()
        position = 0
        expected: int | None = None
        while position < size:
            block = read_block(file, contents.mark, position, size)
            if block is None or expected not in (None, block.previous_end_number):
                block = _find_block(file, contents.mark, position, size, floor, expected or 0)
                if block is None:
                    return
                contents.damage.append(f"{path} is damaged at byte {position}, valid again at byte {block.position}")
                contents.damaged_paths.add(path)
            expected = block.end_number
            position = block.end
            if block.end_number > floor:
                contents.places.append(_Place(block.end_number, block.previous_end_number, path, block.position))


def _find_block(file: File, mark: bytes, position: int, size: int, floor: int, expected: int) -> WalBlock | None:
    """Return the first valid block from `position` on that ends above the floor and follows the blocks read so far.

    Blocks left by an earlier use of the file do neither.
    """
    position = align(position)
    while position < size:
        chunk = file.pread(_CHUNK_BYTES, position)
        index = chunk.find(mark)
        while index >= 0:
            if index % BLOCK_ALIGNMENT == 0:
                block = read_block(file, mark, position + index, size)
                if block is not None and block.end_number > floor and block.previous_end_number >= expected:
                    return block
            index = chunk.find(mark, index + 1)
        position += _CHUNK_BYTES
    return None
