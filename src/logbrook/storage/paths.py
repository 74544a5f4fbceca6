"""The names of the files in a data directory.

checkpoint                              up to where each partition's segments are known to be synced
lock                                    held while the directory is open
wal/<20 digits>.wal                     the shared write-ahead log
wal/<20 digits>.wal.damaged             a file of it that had bad bytes between good ones
<20 digits>.deleted/                    a partition on its way out
<topic>-<partition>/                    a partition
    state                               what its owner decided: log start, truncation, compaction progress
    snapshot                            leader epochs and producers as of an offset
    aborted                             the transactions that were aborted, unless there never was one
    <20 digits>.log                     a segment, named by its first offset
    <20 digits>.index                   its sparse index by offset and by time
    <20 digits>-<20 digits>.swap        a compacted segment that replaces those with offsets in this range
    *.tmp                               being written, worth nothing after a crash
    *.deleted                           on its way out
"""

import re

CHECKPOINT = "checkpoint"
LOCK = "lock"
WAL_DIRECTORY = "wal"
WAL_SUFFIX = ".wal"
STATE = "state"
SNAPSHOT = "snapshot"
ABORTED = "aborted"
LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"
DELETED_SUFFIX = ".deleted"
DAMAGED_SUFFIX = ".damaged"

_SWAP = re.compile(r"([0-9]{20})-([0-9]{20})\.swap", re.ASCII)
_OFFSET_DIGITS = 20
_WAL = re.compile(r"([0-9]{20})\.wal", re.ASCII)


def log_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}{LOG_SUFFIX}"


def index_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}{INDEX_SUFFIX}"


def swap_path(directory: str, base_offset: int, end_offset: int) -> str:
    return f"{directory}/{base_offset:020d}-{end_offset:020d}{SWAP_SUFFIX}"


def wal_path(number: int) -> str:
    return f"{WAL_DIRECTORY}/{number:020d}{WAL_SUFFIX}"


def grave_path(number: int) -> str:
    """Where a deleted partition waits for its files to be unlinked. A topic's name may be too long to add to."""
    return f"{number:020d}{DELETED_SUFFIX}"


def grave_number(name: str) -> int | None:
    digits = name.removesuffix(DELETED_SUFFIX)
    return int(digits) if digits != name and digits.isdigit() and digits.isascii() else None


def parse_log(name: str) -> int | None:
    """The base offset in a segment's file name. Called for every file when a log is opened, so it is no regex."""
    digits = name[:_OFFSET_DIGITS]
    if name[_OFFSET_DIGITS:] == LOG_SUFFIX and digits.isdigit() and digits.isascii():
        return int(digits)
    return None


def parse_swap(name: str) -> tuple[int, int] | None:
    """(base offset, end offset) of a compacted segment waiting to replace others."""
    match = _SWAP.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def parse_wal(name: str) -> int | None:
    """The number in the name of a write-ahead log file."""
    match = _WAL.fullmatch(name)
    return int(match[1]) if match else None
