"""Which offset is the newest of each key, in bounded memory."""

from hashlib import blake2b

# A 16-byte digest, an int and their place in a dict, as CPython stores them, rounded up.
_ENTRY_BYTES = 200


class OffsetMap:
    """Keys are kept as digests, so a long key costs no more than a short one. Two keys never meet in 128 bits."""

    def __init__(self, bytes_max: int) -> None:
        self._entries_max = max(1, bytes_max // _ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def room(self) -> int:
        """How many more keys there is room for."""
        return self._entries_max - len(self._offsets)

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[_digest(key)] = offset

    def is_newest(self, key: bytes, offset: int) -> bool:
        """Whether the map knows of no newer record with this key."""
        newest = self._offsets.get(_digest(key))
        return newest is None or offset >= newest


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()
