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
    WalBlock,
    WalEntry,
    align,
    iter_entries,
    read_block,
)

_CHUNK_BYTES = 1 << 20


class _Place(NamedTuple):
    """Where a good block is. Sorted by number."""

    end_number: int
    previous_end_number: int
    path: str
    position: int


@dataclass
class WalContents:
    """Every good block at or past the floor, in the order it was committed."""

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
        """The entries from the floor on, in order, one block in memory at a time."""
        for place in self.places:
            file = self.files.open(place.path)
            try:
                block = read_block(file, self.mark, place.position, file.size())
            finally:
                file.close()
            assert block is not None, "a block that was good a moment ago is bad"
            yield from (entry for entry in iter_entries(block) if entry.number >= self.floor)


def read_wal(files: Files, mark: bytes, floor: int, *, skip: bool = False) -> WalContents:
    """What the log of the directory with this mark holds from entry number `floor` on.

    With `skip` there is known to be nothing, and the files are only listed.
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
                # They were at the end of the file before, or in one of which nothing can be read.
                unread = set(contents.paths) - {one.path for one in contents.places}
                contents.damaged_paths |= unread if previous is None else {previous.path, *unread}
        contents.next_number = place.end_number
        previous = place
    return contents


def _read_file(contents: WalContents, path: str, floor: int) -> None:
    file = contents.files.open(path)
    try:
        size = file.size()
        position = 0
        expected: int | None = None
        while position < size:
            block = read_block(file, contents.mark, position, size)
            if block is None or expected not in (None, block.previous_end_number):
                block = _find_block(file, contents.mark, position, size, floor, expected or 0)
                if block is None:
                    return
                contents.damage.append(f"{path} is bad at byte {position}, but good again at byte {block.position}")
                contents.damaged_paths.add(path)
            expected = block.end_number
            position = block.end
            if block.end_number > floor:
                contents.places.append(_Place(block.end_number, block.previous_end_number, path, block.position))
    finally:
        file.close()


def _find_block(file: File, mark: bytes, position: int, size: int, floor: int, expected: int) -> WalBlock | None:
    """The first good block from `position` on that goes past the floor and comes after what was read so far.

    What an earlier use of the file left behind does neither.
    """
    position = align(position)
    while position < size:
        chunk = file.pread(_CHUNK_BYTES, position)
        found = chunk.find(mark)
        while found >= 0:
            if found % BLOCK_ALIGNMENT == 0:
                block = read_block(file, mark, position + found, size)
                if block is not None and block.end_number > floor and block.previous_end_number >= expected:
                    return block
            found = chunk.find(mark, found + 1)
        position += _CHUNK_BYTES
    return None
