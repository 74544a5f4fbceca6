"""The memory that frames are received into.

Everything begins in the chunk, and small frames are copied out of it. Large ones get a piece of their own.
"""

from logbrook.ports.lent_memory import LentMemory

# Large enough for many small requests, and no larger, because what begins in it is copied.
_CHUNK_BYTES = 64 * 1024


class FrameMemory:
    """What the connections of one thread share."""

    def __init__(self, chunk_bytes: int = _CHUNK_BYTES, pieces: LentMemory | None = None) -> None:
        self.chunk = memoryview(bytearray(chunk_bytes))
        self.pieces = pieces or LentMemory()
