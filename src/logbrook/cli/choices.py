"""What may be chosen in the same way wherever something is written."""

from enum import StrEnum

from logbrook.client.record_writer import ACKS_ALL, ACKS_LEADER, ACKS_NONE


class Acks(StrEnum):
    """Who has to have a record before it counts."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"

    @property
    def number(self) -> int:
        """As the protocol has it."""
        return {Acks.ALL: ACKS_ALL, Acks.LEADER: ACKS_LEADER, Acks.NONE: ACKS_NONE}[self]


class Compression(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"
