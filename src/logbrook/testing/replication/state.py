"""The parts of the replication model: logs, messages, brokers and planted bugs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logbrook.core.cluster.image import ClusterImage
from logbrook.core.cluster.lifecycle import DirectoryIdentity
from logbrook.core.replication.follower import EpochEnd, PartitionFollower, ReplicaFetch
from logbrook.core.replication.leader import PartitionLeader, ProposeRegistration
from logbrook.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from logbrook.ports.metadata_store import Revision
from logbrook.storage.leader_epochs import LeaderEpochs


class ModelViolationError(AssertionError):
    """A promise to clients was broken."""


class ModelRecord(NamedTuple):
    epoch: LeaderEpoch
    value: int
    # The batch that it was written and is replicated with, whole.
    base_offset: Offset
    next_offset: Offset


@dataclass(frozen=True)
class ModelFaults:
    """Planted bugs. All are off by default."""

    truncates_by_high_watermark: bool = False
    reports_unsynced_offsets: bool = False
    ignores_leader_epochs: bool = False
    ignores_broker_epochs: bool = False
    leads_on_after_restart: bool = False
    keeps_isr_with_replaced_disk: bool = False
    acknowledges_when_appended: bool = False
    applies_isr_without_store: bool = False
    reads_follower_past_high_watermark: bool = False
    shows_unknown_offsets: bool = False
    repairs_without_epoch: bool = False


class ModelLog:
    """Records by offset; those below `synced_end_offset` survive a power loss."""

    def __init__(self, log_start_offset: Offset = Offset(0)) -> None:
        self.log_start_offset = log_start_offset
        # None below the batch of the log start offset.
        self.records: list[ModelRecord | None] = [None] * log_start_offset
        self.synced_end_offset = log_start_offset
        # As of the last checkpoint; it survives a restart.
        self.high_watermark = log_start_offset
        self._epochs = LeaderEpochs()

    @property
    def log_end_offset(self) -> Offset:
        return Offset(len(self.records))

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The latest epoch. A log that is emptied by deletions keeps it."""
        return self._epochs.latest

    def values_from(self, offset: Offset) -> list[ModelRecord]:
        """Return the records from an offset on, which is at least the log start offset."""
        return [record for record in self.records[offset:] if record is not None]

    def base_of(self, offset: Offset) -> Offset:
        """Return the base offset of the batch that an offset is in, or the offset at the end of the log."""
        record = self.records[offset] if offset < self.log_end_offset else None
        return offset if record is None else record.base_offset

    def batches_from(self, offset: Offset, records_max: int) -> list[ModelRecord]:
        """Return whole batches from the one with the offset on: the first one, and up to `records_max` records."""
        base = self.base_of(offset)
        end = self.base_of(Offset(min(base + records_max, self.log_end_offset)))
        first = self.records[base] if base < self.log_end_offset else None
        return self.values_from(base)[: max(end, base if first is None else first.next_offset) - base]

    def delete_before(self, offset: Offset) -> None:
        for number in range(self.base_of(offset)):
            self.records[number] = None
        self.log_start_offset = offset
        self._epochs.truncate_start(offset)

    def append(self, records: Iterable[ModelRecord]) -> None:
        for record in records:
            assert record.base_offset <= self.log_end_offset < record.next_offset, "the batch is not at its offset"
            self._epochs.assign(record.epoch, self.log_end_offset)
            self.records.append(record)

    def truncate(self, offset: Offset) -> None:
        """Truncate durably, as the storage engine does, which removes whole batches."""
        offset = max(self.log_start_offset, self.base_of(offset))
        self.records[self.base_of(offset) :] = [None] * (offset - self.base_of(offset))
        self._epochs.truncate_end(offset)
        self.synced_end_offset = self.log_end_offset

    def sync(self, offset: Offset | None = None) -> None:
        end = self.log_end_offset if offset is None else self.base_of(offset)
        self.synced_end_offset = max(self.synced_end_offset, end)

    def end_of(self, epoch: LeaderEpoch) -> EpochEnd | None:
        end = self._epochs.end_offset(epoch, self.log_end_offset)
        return None if end is None else EpochEnd(end.epoch, end.start_offset)

    @property
    def first_epoch_start(self) -> Offset:
        return self._epochs.starts[0].start_offset if self._epochs.starts else self.log_end_offset


class FetchMessage(NamedTuple):
    sender: BrokerId
    broker_epoch: BrokerEpoch
    number: int
    leader: BrokerId
    fetch: ReplicaFetch


class FetchAnswer(NamedTuple):
    receiver: BrokerId
    number: int
    leader_epoch: LeaderEpoch
    divergence: EpochEnd | None
    offset: Offset
    records: Sequence[ModelRecord]
    high_watermark: Offset
    log_start_offset: Offset
    is_out_of_range: bool


@dataclass
class ModelBroker:
    broker_id: BrokerId
    log: ModelLog = field(default_factory=ModelLog)
    identity: DirectoryIdentity = field(default_factory=lambda: DirectoryIdentity(""))
    image: ClusterImage = field(default_factory=ClusterImage)
    revision: Revision = field(default_factory=lambda: Revision(0))
    is_up: bool = False
    # None while it is not registered, as far as it knows.
    broker_epoch: BrokerEpoch | None = None
    high_watermark: Offset = Offset(0)
    leader: PartitionLeader | None = None
    follower: PartitionFollower | None = None
    fetch_number: int = 0
    # The leader epoch in which its log was found to be damaged. It fetches nothing until the log is replaced.
    damaged_in: LeaderEpoch | None = None
    # Offsets and values that a producer with acks=all waits for.
    waiting: list[tuple[Offset, int]] = field(default_factory=list)
    # Deletions of records that a client waits for.
    deletions: list[Offset] = field(default_factory=list)
    # Proposals that the store refused, until the broker has seen its changes up to that revision.
    refused: list[tuple[Revision, PartitionLeader, ProposeRegistration]] = field(default_factory=list)
