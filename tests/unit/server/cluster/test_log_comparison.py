"""The comparison of a follower's log with that of a leader whose start has found damage."""

import pytest

from logbrook.config import LogConfig, StorageConfig
from logbrook.core.replication.follower import EpochEnd, ReplicaFetch
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.records.batch import HEADER_BYTES
from logbrook.server.cluster.log_comparison import divergence_of
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.paths import log_path
from logbrook.testing.clock import FakeClock
from logbrook.testing.memory_files import MemoryFiles
from tests.unit.storage.kit import NOW_MS, batch

PARTITION = TopicPartition("orders", 0)
# Epochs of the records, by offset; the last three are damaged.
EPOCHS = (1, 2, 2, 3, 3, 4)
DAMAGED_FROM = 3


def opened(files: MemoryFiles) -> LogDirectory:
    config = StorageConfig(segment_sync_min_bytes=1)
    return LogDirectory.open(files, config, clock=FakeClock(NOW_MS), now_ms=NOW_MS)


@pytest.fixture
def damaged() -> Log:
    files = MemoryFiles()
    directory = opened(files)
    log = directory.create(PARTITION, LogConfig())
    positions = []
    for epoch in EPOCHS:
        positions.append(log.size)
        log.append(batch(b"v"), now_ms=NOW_MS, leader_epoch=LeaderEpoch(epoch))
        directory.commit()
    directory.abandon()
    file = files.open(log_path(PARTITION.directory, Offset(0)))
    file.pwrite(bytes(HEADER_BYTES), positions[DAMAGED_FROM])
    file.close()
    log = opened(files).get(PARTITION)
    assert log.corruption is not None
    assert (log.corruption.offset, log.log_end_offset) == (DAMAGED_FROM, len(EPOCHS))
    return log


def fetch(offset: int, last_epoch: int) -> ReplicaFetch:
    return ReplicaFetch(Offset(offset), LeaderEpoch(last_epoch), LeaderEpoch(5), Offset(0))


@pytest.mark.parametrize(("offset", "last_epoch"), [(0, -1), (1, 1), (2, 2), (3, 2)])
def test_a_log_that_agrees_up_to_the_damage_is_a_prefix(damaged: Log, offset: int, last_epoch: int) -> None:
    assert divergence_of(damaged, fetch(offset, last_epoch)) is None


def test_a_divergence_before_the_damage_is_known(damaged: Log) -> None:
    assert divergence_of(damaged, fetch(3, 1)) == EpochEnd(LeaderEpoch(1), Offset(1))


@pytest.mark.parametrize(("offset", "last_epoch"), [(6, 4), (5, 3), (4, 3), (4, 2)])
def test_a_log_beyond_the_damage_cannot_be_compared(damaged: Log, offset: int, last_epoch: int) -> None:
    """The follower would have been truncated to the end of epoch 2, or taken for one that has the leader's records."""
    with pytest.raises(CorruptLogError):
        divergence_of(damaged, fetch(offset, last_epoch))
