"""The small durable files of a partition."""

import pytest

from logbrook.model.identifiers import Offset
from logbrook.storage.errors import CorruptFileError
from logbrook.storage.partition_files import (
    Checkpoint,
    PartitionState,
    Quarantine,
    RecoveryPoint,
    Snapshot,
    read_checkpoint,
    read_snapshot,
    read_state,
    write_checkpoint,
    write_snapshot,
    write_state,
)
from logbrook.testing import MemoryFiles
from tests.unit.storage.kit import flip

DIRECTORY = "orders-0"


@pytest.fixture
def disk(files: MemoryFiles) -> MemoryFiles:
    files.make_dir(DIRECTORY)
    return files


def test_a_missing_file_reads_as_none(disk: MemoryFiles) -> None:
    assert read_state(disk, DIRECTORY) is None
    assert read_snapshot(disk, DIRECTORY) is None
    assert read_checkpoint(disk) is None


@pytest.mark.parametrize(
    "state",
    [
        PartitionState(),
        PartitionState(log_start_offset=Offset(5), floor_number=9, floor=RecoveryPoint(Offset(7), Offset(3), 120)),
        PartitionState(truncate_to=0, cleaned_offset=Offset(2**40)),
        PartitionState(quarantine=Quarantine("orders-0/x.log", 17, Offset(40), "CRC32C is wrong", Offset(99))),
        PartitionState(quarantine=Quarantine("orders-0/x.log", 17, Offset(40), "I/O error", Offset(99), True)),
    ],
)
def test_a_state_is_read_back_as_it_was_written(disk: MemoryFiles, state: PartitionState) -> None:
    write_state(disk, DIRECTORY, state)
    assert read_state(disk, DIRECTORY) == state


def test_a_snapshot_is_read_back_as_it_was_written(disk: MemoryFiles) -> None:
    snapshot = Snapshot(Offset(40), 17, [[0, 0], [3, 12]], [[9, 0, None, 5, [[0, 1, 2, 3, 4]]]])
    write_snapshot(disk, DIRECTORY, snapshot)
    assert read_snapshot(disk, DIRECTORY) == snapshot


def test_a_checkpoint_is_read_back_as_it_was_written(disk: MemoryFiles) -> None:
    points = {
        "orders-0": RecoveryPoint(Offset(7), Offset(3), 120),
        "payments-3": RecoveryPoint(Offset(0), Offset(0), 0),
    }
    for clean in (False, True):
        checkpoint = Checkpoint(17, points, b"\x00our\xffmk", clean)
        write_checkpoint(disk, checkpoint)
        assert read_checkpoint(disk) == checkpoint


def test_a_checkpoint_of_many_partitions_is_read_back_as_it_was_written(disk: MemoryFiles) -> None:
    points = {f"orders-{number}": RecoveryPoint(Offset(number), Offset(0), 7) for number in range(1_234)}
    checkpoint = Checkpoint(17, points, bytes(8))
    write_checkpoint(disk, checkpoint)
    assert read_checkpoint(disk) == checkpoint


def test_a_damaged_state_is_an_error(disk: MemoryFiles) -> None:
    write_state(disk, DIRECTORY, PartitionState())
    flip(disk, f"{DIRECTORY}/state", -3)
    with pytest.raises(CorruptFileError, match="orders-0/state"):
        read_state(disk, DIRECTORY)


def test_a_damaged_checkpoint_is_an_error(disk: MemoryFiles) -> None:
    write_checkpoint(disk, Checkpoint(0, {}, bytes(8)))
    flip(disk, "checkpoint", -3)
    with pytest.raises(CorruptFileError, match="checkpoint"):
        read_checkpoint(disk)


def test_a_damaged_snapshot_is_none_since_it_can_be_rebuilt(disk: MemoryFiles) -> None:
    write_snapshot(disk, DIRECTORY, Snapshot(Offset(40), 17, [], []))
    flip(disk, f"{DIRECTORY}/snapshot", -3)
    assert read_snapshot(disk, DIRECTORY) is None
