"""Reading the write-ahead log after a crash.

A block proves that every block before it was durable, so the log may end in only one way: at the newest end, where the
last commit never finished. A gap anywhere else (a bad block with good ones of higher numbers behind it, a run of
numbers that nothing holds) is damage to what was acknowledged, and is reported as such.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from logbrook.ports import File, Files
from logbrook.storage.paths import WAL_DIRECTORY, parse_wal
from logbrook.storage.wal_format import (
    BLOCK_ALIGNMENT,
    BLOCK_MAGIC,
    WalBlock,
    WalEntry,
    align,
    iter_entries,
    read_block,
)

_CHUNK_BYTES = 1 << 20


class _Place(NamedTuple):
    """Where a good block is. Sorted by number."""

    first_number: int
    end_number: int
    previous_end_number: int
    path: str
    position: int


@dataclass
class WalContents:
    """Every good block at or past the floor, in the order it was committed."""

    files: Files
    paths: list[str] = field(default_factory=list)
    places: list[_Place] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    damaged_paths: set[str] = field(default_factory=set)
    next_number: int = 0
    next_file: int = 0

    def entries(self) -> Iterator[tuple[int, WalEntry]]:
        """(number, entry), one block in memory at a time."""
        for place in self.places:
            file = self.files.open(place.path)
            try:
                block = read_block(file, place.position, file.size())
            finally:
                file.close()
            assert block is not None, "a block that was good a moment ago is bad"
            yield from iter_entries(block)


def read_wal(files: Files, floor: int) -> WalContents:
    """What the log holds from entry number `floor` on."""
    contents = WalContents(files, next_number=floor)
    for name in files.list(WAL_DIRECTORY):
        number = parse_wal(name)
        if number is not None:
            path = f"{WAL_DIRECTORY}/{name}"
            contents.paths.append(path)
            contents.next_file = max(contents.next_file, number + 1)
            _read_file(contents, path, floor)
    contents.places.sort()
    expected = floor
    for place in contents.places:
        if place.previous_end_number > expected:
            gap = f"entries {expected} to {place.previous_end_number - 1}"
            contents.damage.append(f"{gap} are missing before byte {place.position} of {place.path}")
        expected = place.end_number
    contents.next_number = max(contents.next_number, expected)
    return contents


def _read_file(contents: WalContents, path: str, floor: int) -> None:
    file = contents.files.open(path)
    try:
        size = file.size()
        position = 0
        expected: int | None = None
        while position < size:
            block = read_block(file, position, size)
            if block is None or expected not in (None, block.previous_end_number):
                block = _find_block(file, position, size, max(floor, expected or 0))
                if block is None:
                    return
                contents.damage.append(f"{path} is bad at byte {position}, but good again at byte {block.position}")
                contents.damaged_paths.add(path)
            expected = block.end_number
            position = block.end
            if block.end_number > floor:
                contents.places.append(
                    _Place(block.first_number, block.end_number, block.previous_end_number, path, block.position)
                )
    finally:
        file.close()


def _find_block(file: File, position: int, size: int, number_min: int) -> WalBlock | None:
    """The first good block from `position` on that is numbered `number_min` or higher."""
    position = align(position)
    while position < size:
        chunk = file.pread(_CHUNK_BYTES, position)
        found = chunk.find(BLOCK_MAGIC)
        while found >= 0:
            if found % BLOCK_ALIGNMENT == 0:
                block = read_block(file, position + found, size)
                if block is not None and block.first_number >= number_min:
                    return block
            found = chunk.find(BLOCK_MAGIC, found + 1)
        position += _CHUNK_BYTES
    return None
