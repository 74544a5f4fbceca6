"""The limit of a disk's speed: it is set while it is in use, and reported as unavailable where there is none."""

from contextlib import closing
from pathlib import Path

import pytest

from bench.disk_limit import LimitUnavailableError, ReadLimit


def limit_of(path: Path) -> ReadLimit:
    try:
        return ReadLimit(path)
    except LimitUnavailableError as error:
        pytest.skip(f"NO LIMITED DISK, SO NOTHING IS PROVEN FOR IT: {error}")


def test_a_file_system_without_a_disk_has_no_limit() -> None:
    with pytest.raises(LimitUnavailableError, match="not on a disk"):
        ReadLimit(Path("/proc"))


def test_a_limit_applies_while_it_is_in_use_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with closing(limit_of(tmp_path)) as limit:
        group = limit._group
        limits = group / limit._controller.file
        with limit.at(50_000_000):
            assert "50000000" in limits.read_text()
        assert "50000000" not in limits.read_text()
    assert not group.exists()
