"""The ways in which pending operations can survive a power loss.

Durable state is never touched: a variant chooses only among operations that no fsync has covered. The first five
variants treat the whole disk alike and are the extreme cases; the last three are random, from a seed.

`TORN` decides for each write and each sector independently. That is harsher than a real page cache, which never
persists a later write to a sector without the earlier ones.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from random import Random

from logbrook.testing.disk import Disk, resize
from logbrook.testing.journal import Write

SECTOR_BYTES = 512


class Variant(Enum):
    LOST = "lost"
    """Every pending operation is lost."""

    KEPT = "kept"
    """Every pending operation is kept."""

    NAMES_ONLY = "names only"
    """Pending names are kept, pending bytes and lengths are lost: new files are empty."""

    SIZES_ONLY = "sizes only"
    """Pending names and lengths are kept, pending bytes are lost: what is new reads as zeros."""

    DATA_ONLY = "data only"
    """Pending bytes are kept, pending names are lost."""

    TORN = "torn"
    """Each pending write keeps some of its 512-byte sectors and extends the file part of the way; what is missing reads
    as the old bytes, or as zeros where there were none. Each directory keeps its first few pending names."""

    PREFIX = "prefix"
    """The pending operations of the whole disk are kept in their order, up to some point."""

    REORDERED = "reordered"
    """Any of the pending operations are kept; a name operation only where it still makes sense."""

    @property
    def is_seeded(self) -> bool:
        return self in _SEEDED


_UNSEEDED = Random(0)
_SEEDED = {Variant.TORN: 1, Variant.PREFIX: 2, Variant.REORDERED: 3}

Names = Callable[[int], Mapping[str, int]]
Content = Callable[[int], bytes]


def survivors(disk: Disk, variant: Variant, rng: Random) -> tuple[Names, Content]:  # noqa: PLR0911 - one per variant
    """Return two functions: a directory's entries, and a file's content, after the power loss."""
    match variant:
        case Variant.LOST:
            return disk.names.__getitem__, disk.contents.__getitem__
        case Variant.KEPT:
            return disk.names_kept, disk.kept
        case Variant.NAMES_ONLY:
            return disk.names_kept, disk.contents.__getitem__
        case Variant.SIZES_ONLY:
            return disk.names_kept, disk.sized
        case Variant.DATA_ONLY:
            return disk.names.__getitem__, disk.kept
        case Variant.TORN:
            return partial(_first_names, disk, rng), partial(_torn_content, disk, rng)
        case Variant.PREFIX:
            end = _point_in_pending(disk, rng)
            return _survivors_where(disk, lambda position: position < end)
        case Variant.REORDERED:
            return _survivors_where(disk, lambda _: rng.getrandbits(1) == 1)


def _survivors_where(disk: Disk, is_kept: Callable[[int], bool]) -> tuple[Names, Content]:
    return partial(disk.names_where, is_kept), partial(disk.content_where, is_kept)


def random_of(prefix: int, variant: Variant, seed: int) -> Random:
    """The random source of a state, determined by prefix, variant and seed."""
    if not variant.is_seeded:
        return _UNSEEDED
    return Random((prefix << 40) ^ (seed << 2) ^ _SEEDED[variant])


def _first_names(disk: Disk, rng: Random, directory: int) -> Mapping[str, int]:
    pending = disk.pending_names.get(directory)
    if pending is None:
        return disk.names[directory]
    kept = {position for position, _ in pending[: rng.randint(0, len(pending))]}
    return disk.names_where(kept.__contains__, directory)


def _torn_content(disk: Disk, rng: Random, node: int) -> bytes:
    pending = disk.pending_data.get(node)
    if pending is None:
        return disk.contents[node]
    content = bytearray(disk.contents[node])
    for _, op in pending:
        if isinstance(op, Write):
            _tear(content, op, rng)
        elif rng.getrandbits(1):
            resize(content, op.length)
    return bytes(content)


def _tear(content: bytearray, op: Write, rng: Random) -> None:
    end = op.position + len(op.data)
    length = len(content)
    if end > length:
        # All, none and part of the extension are equally likely: the first two find the most bugs.
        resize(content, (length, end, rng.randint(length, end))[rng.randrange(3)])
    stop = min(end, len(content))
    sector_first = op.position // SECTOR_BYTES
    sector_count = -(-end // SECTOR_BYTES) - sector_first
    is_kept = rng.getrandbits(sector_count)
    for sector in range(sector_first, sector_first + sector_count):
        if is_kept & 1:
            left = max(op.position, sector * SECTOR_BYTES)
            right = min(stop, (sector + 1) * SECTOR_BYTES)
            if left < right:
                content[left:right] = op.data[left - op.position : right - op.position]
        is_kept >>= 1


def _point_in_pending(disk: Disk, rng: Random) -> int:
    """Draw a journal position; pending operations before it survive."""
    positions = [position for ops in disk.pending_names.values() for position, _ in ops]
    positions += [position for ops in disk.pending_data.values() for position, _ in ops]
    if not positions:
        return 0
    positions.sort()
    positions.append(positions[-1] + 1)
    return rng.choice(positions)
