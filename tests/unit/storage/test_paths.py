"""The names of files: they sort as their numbers do, and only whole names are read back."""

import pytest

from logbrook.model.identifiers import Offset
from logbrook.storage.paths import (
    index_path,
    log_path,
    parse_log,
    parse_swap,
    parse_wal,
    swap_path,
    wal_path,
)

OFFSETS = (0, 1, 999, 2**31, 2**63 - 1)


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_segments_name_gives_its_base_offset_back(offset: int) -> None:
    assert parse_log(name_of(log_path("orders-0", Offset(offset)))) == offset


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_swaps_name_gives_its_range_back(offset: int) -> None:
    assert parse_swap(name_of(swap_path("orders-0", Offset(offset), Offset(offset + 1)))) == (offset, offset + 1)


@pytest.mark.parametrize("number", OFFSETS)
def test_a_wal_files_name_gives_its_number_back(number: int) -> None:
    assert parse_wal(name_of(wal_path(number))) == number


def test_names_sort_as_their_offsets_do() -> None:
    paths = [log_path("orders-0", Offset(offset)) for offset in OFFSETS]
    assert paths == sorted(paths)


def test_an_index_has_the_base_offset_and_folder_of_its_segment() -> None:
    assert log_path("orders-0", Offset(17)) == "orders-0/00000000000000000017.log"
    assert index_path("orders-0", Offset(17)) == "orders-0/00000000000000000017.index"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "17.log",
        "00000000000000000017.log.deleted",
        "00000000000000000017.log.tmp",
        "x00000000000000000017.log",
        "00000000000000000017.log\n",
        "\u0660" * 20 + ".log",
        "0000000000000000001-.log",
        "00000000000000000017.index",
    ],
)
def test_only_complete_segment_file_names_are_parsed(name: str) -> None:
    assert parse_log(name) is None
    assert parse_wal(name.replace(".log", ".wal")) is None
    assert parse_swap(name.replace(".log", "-00000000000000000018.swap") + ".tmp") is None
