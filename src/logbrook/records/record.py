"""A record, as a producer gives it and as a batch holds it."""

from collections.abc import Sequence
from typing import NamedTuple

from logbrook.records.batch import NO_TIMESTAMP

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """What a producer gives: no offset yet."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp: int = NO_TIMESTAMP


class RawRecord(NamedTuple):
    """What a batch holds: the record with its place in the log, and its bytes as they stand in the batch.

    All of it is copied out of the batch, so that none of it keeps a mapped file open.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    # The encoded record with its length in front. Its deltas are relative to the batch it was read from.
    encoded: bytes

    @property
    def is_tombstone(self) -> bool:
        """A record with a key and a null value deletes the key."""
        return self.value is None
