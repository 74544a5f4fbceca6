"""Large pieces of memory, lent out again and again.

Memory that is fresh from the system is paid for page by page: for a busy producer as much as checking its batches, for
a reader more than what it reads. So a few pieces are kept and lent out. Nobody gives them back. A view of a piece holds
a reference to it, whoever has that view, so a piece without references other than our own is free.
"""

from sys import getrefcount

PIECE_BYTES = (1 << 20) + (1 << 16)
"""Enough for a request with one batch of the usual largest size."""
LENT_BYTES_MIN = PIECE_BYTES // 4
"""For less than this a piece would be a waste."""
_PIECES_MAX = 32
_PIECES_KEPT = 4


class LentMemory:
    """What the users of one thread share."""

    def __init__(self) -> None:
        self._pieces: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Memory for `size` bytes, with anything in it."""
        if not LENT_BYTES_MIN <= size <= PIECE_BYTES:
            return memoryview(bytearray(size))
        pieces = self._pieces
        for index in range(len(pieces)):
            if _references(pieces, index) == _UNUSED:
                return memoryview(pieces[index])[:size]
        if len(pieces) == _PIECES_MAX:
            return memoryview(bytearray(size))
        pieces.append(bytearray(PIECE_BYTES))
        return memoryview(pieces[-1])[:size]

    def trim(self) -> None:
        """Give back what a burst has taken. To be called now and then."""
        pieces = self._pieces
        unused = [index for index in range(len(pieces)) if _references(pieces, index) == _UNUSED]
        for index in reversed(unused[_PIECES_KEPT:]):
            del pieces[index]


def _references(pieces: list[bytearray], index: int) -> int:
    return getrefcount(pieces[index])


_UNUSED = _references([bytearray()], 0)
