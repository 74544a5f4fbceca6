"""File names in a data directory.

checkpoint                              recovery point of each partition
high-watermarks                         high watermark of each replica; absent if there is none
scrub                                   position of the scrub; absent before the first one
failed-directories                      of several data directories, those that have failed; absent if none has
lock                                    locked while the directory is open
wal/<20 digits>.wal                     the shared write-ahead log
wal/<20 digits>.wal.damaged             a WAL file with damaged blocks, kept for inspection
<20 digits>.deleted/                    a deleted partition, to be unlinked
<topic>-<partition>/                    a partition
    state                               log start offset, truncation, compaction progress, quarantine
    snapshot                            leader epochs and producer state as of an offset
    aborted                             transaction index; absent if no transaction was aborted
    <20 digits>.log                     a segment, named by its base offset
    <20 digits>.index                   its sparse index by offset and by time
    <20 digits>-<20 digits>.swap        a compacted segment about to replace those in this offset range
    <20 digits>.skipped                 a poison batch that an operator skipped, named by its base offset
    *.tmp                               incomplete; discarded by recovery
    *.deleted                           removed from the log, to be unlinked
"""

import re

from logbrook.model.identifiers import Offset

CHECKPOINT = "checkpoint"
HIGH_WATERMARKS = "high-watermarks"
SCRUB = "scrub"
FAILED_DIRECTORIES = "failed-directories"
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
SKIPPED_SUFFIX = ".skipped"

_SWAP = re.compile(r"([0-9]{20})-([0-9]{20})\.swap", re.ASCII)
_OFFSET_DIGITS = 20
_WAL = re.compile(r"([0-9]{20})\.wal", re.ASCII)


def log_path(directory: str, base_offset: Offset) -> str:
    return f"{directory}/{base_offset:020d}{LOG_SUFFIX}"


def index_path(directory: str, base_offset: Offset) -> str:
    return f"{directory}/{base_offset:020d}{INDEX_SUFFIX}"


def skipped_path(directory: str, base_offset: Offset) -> str:
    return f"{directory}/{base_offset:020d}{SKIPPED_SUFFIX}"


def is_index(path: str) -> bool:
    return path.endswith(INDEX_SUFFIX)


def swap_path(directory: str, base_offset: Offset, end_offset: Offset) -> str:
    return f"{directory}/{base_offset:020d}-{end_offset:020d}{SWAP_SUFFIX}"


def wal_path(number: int) -> str:
    return f"{WAL_DIRECTORY}/{number:020d}{WAL_SUFFIX}"


def deleted_directory(number: int) -> str:
    """Directory name of a deleted partition. It has no topic name: that may already have the maximum length."""
    return f"{number:020d}{DELETED_SUFFIX}"


def deleted_directory_number(name: str) -> int | None:
    digits = name.removesuffix(DELETED_SUFFIX)
    return int(digits) if digits != name and digits.isdigit() and digits.isascii() else None


def parse_log(name: str) -> int | None:
    """Return the base offset in a segment's file name. No regex: opening a log calls this for every file."""
    digits = name[:_OFFSET_DIGITS]
    if name[_OFFSET_DIGITS:] == LOG_SUFFIX and digits.isdigit() and digits.isascii():
        return int(digits)
    return None


def parse_swap(name: str) -> tuple[int, int] | None:
    """Return (base offset, end offset) of a compacted segment about to replace others."""
    match = _SWAP.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def parse_wal(name: str) -> int | None:
    """Return the file number of a write-ahead log file."""
    match = _WAL.fullmatch(name)
    return int(match[1]) if match else None
