"""The replication model: clients, disks, the network between brokers, and the judgement of what clients saw."""

from logbrook.core.replication.follower import (
    AppendFetched,
    FollowerEffect,
    MoveHighWatermark,
    MoveLogStart,
    PartitionFollower,
    StartAt,
    TruncateLog,
    find_divergence,
)
from logbrook.core.replication.leader import NotAReplicaError, StaleReplicaEpochError
from logbrook.model.identifiers import BrokerEpoch, BrokerId, Offset
from logbrook.testing.replication.cluster import RETRY_MS, ModelCluster
from logbrook.testing.replication.state import (
    FetchAnswer,
    FetchMessage,
    ModelBroker,
    ModelLog,
    ModelRecord,
    ModelViolationError,
)


class ReplicationModel(ModelCluster):
    """Each call is one step; it returns False if it had no effect."""

    # Clients

    def produce(self, broker_id: int, count: int = 1) -> bool:
        """Send a batch with acks=all to a broker; False if it does not accept it."""
        broker = self.brokers[BrokerId(broker_id)]
        leader = broker.leader
        if not broker.is_up or leader is None or not leader.has_enough_in_sync():
            return False
        base = broker.log.log_end_offset
        written = [(Offset(base + number), self._values + 1 + number) for number in range(count)]
        self._values += count
        end = Offset(base + count)
        broker.log.append([ModelRecord(leader.leader_epoch, value, base, end) for _, value in written])
        leader.on_append(broker.log.log_end_offset)
        if self.faults.acknowledges_when_appended:
            for offset, value in written:
                self._acknowledge(offset, value)
        else:
            broker.waiting += written
        return True

    def read(self, broker_id: int) -> bool:
        """Read everything that a broker shows, as a consumer does; also from a follower (KIP-392)."""
        broker = self.brokers[BrokerId(broker_id)]
        if not broker.is_up or (broker.leader is None and broker.follower is None):
            return False
        end = broker.high_watermark
        if broker.follower is not None and self.faults.reads_follower_past_high_watermark:
            end = broker.log.log_end_offset
        start = broker.log.log_start_offset
        for offset, record in enumerate(broker.log.values_from(start)[: end - start], start):
            value = record.value
            if self.seen.setdefault(Offset(offset), value) != value:
                raise ModelViolationError(
                    f"offset {offset} of broker {broker_id} is {value}, and a reader saw {self.seen[Offset(offset)]}"
                )
        return True

    def list_offset(self, broker_id: int) -> Offset | None:
        """Ask a leader for its latest offset; None if it does not know it."""
        broker = self.brokers[BrokerId(broker_id)]
        leader = broker.leader
        is_known = leader is not None and (leader.is_offset_known or self.faults.shows_unknown_offsets)
        # A deposed leader answers, too. Clients discard it by its leader epoch.
        if not broker.is_up or leader is None or not is_known or leader.leader_epoch < self.registration.leader_epoch:
            return None
        self._check_deletions(broker)
        if broker.high_watermark < self.told_offset:
            raise ModelViolationError(f"the latest offset fell from {self.told_offset} to {broker.high_watermark}")
        self.told_offset = broker.high_watermark
        return self.told_offset

    # Disks

    def sync(self, broker_id: int, offset: int | None = None) -> bool:
        """Sync a broker's log, all of it or up to an offset."""
        broker = self.brokers[BrokerId(broker_id)]
        if not broker.is_up or broker.log.synced_end_offset == broker.log.log_end_offset:
            return False
        broker.log.sync(None if offset is None else Offset(offset))
        if broker.leader is not None:
            self._lead(broker, broker.leader.on_sync(broker.log.synced_end_offset))
        return True

    def checkpoint(self, broker_id: int) -> bool:
        """Save the broker's high watermark."""
        broker = self.brokers[BrokerId(broker_id)]
        if not broker.is_up:
            return False
        broker.log.high_watermark = broker.high_watermark
        return True

    def log_end(self, broker_id: int) -> Offset:
        return self.brokers[BrokerId(broker_id)].log.log_end_offset

    def synced_end(self, broker_id: int) -> Offset:
        return self.brokers[BrokerId(broker_id)].log.synced_end_offset

    # Replication

    def fetch(self, broker_id: int) -> bool:
        """Let a follower send its next fetch."""
        broker = self.brokers[BrokerId(broker_id)]
        follower, log = broker.follower, broker.log
        if not broker.is_up or follower is None or broker.broker_epoch is None or broker.damaged_in is not None:
            return False
        synced = log.log_end_offset if self.faults.reports_unsynced_offsets else log.synced_end_offset
        if not follower.may_fetch(log.log_end_offset, synced):
            return False
        broker.fetch_number += 1
        fetch = follower.fetch(log.log_start_offset, log.log_end_offset, synced, log.last_epoch)
        message = FetchMessage(broker.broker_id, broker.broker_epoch, broker.fetch_number, follower.leader, fetch)
        self.messages.append(message)
        return True

    def receive(self, index: int, *, keep: bool = False, records_max: int = 1 << 30, outcome: str = "ok") -> None:
        """Deliver a message of `messages`; `keep` leaves it there, to be delivered again."""
        message = self.messages[index] if keep else self.messages.pop(index)
        if isinstance(message, FetchMessage):
            self._answer(message, records_max, outcome)
        else:
            self._follow(message)

    def replicate(self, follower_id: int) -> None:
        """A fetch, its answer and the sync, without a fault."""
        self.sync(follower_id)
        if self.fetch(follower_id):
            self.receive(len(self.messages) - 1)
            if self.messages and isinstance(self.messages[-1], FetchAnswer):
                self.receive(len(self.messages) - 1)
            self.sync(follower_id)

    def _answer(self, message: FetchMessage, records_max: int, outcome: str) -> None:
        broker = self.brokers[message.leader]
        leader, log, fetch = broker.leader, broker.log, message.fetch
        if not broker.is_up or leader is None:
            return
        if fetch.leader_epoch != leader.leader_epoch and not self.faults.ignores_leader_epochs:
            return
        divergence = find_divergence(fetch, log.end_of(fetch.last_epoch), log.first_epoch_start)
        if divergence is None and log.log_start_offset <= fetch.offset <= log.log_end_offset:
            broker_epoch = self._broker_epoch_of(message, broker)
            is_eligible = broker.image.is_current(message.sender, broker_epoch)
            try:
                effects = leader.on_fetch(
                    message.sender,
                    broker_epoch,
                    fetch.offset,
                    self.now_ms,
                    log_start_offset=fetch.log_start_offset,
                    is_eligible=is_eligible,
                )
            except (NotAReplicaError, StaleReplicaEpochError):
                return
            self._lead(broker, effects, outcome)
        is_out_of_range = divergence is None and not log.log_start_offset <= fetch.offset <= log.log_end_offset
        has_records = divergence is None and not is_out_of_range
        records = tuple(log.batches_from(fetch.offset, records_max)) if has_records else ()
        answer = FetchAnswer(
            message.sender,
            message.number,
            leader.leader_epoch,
            divergence,
            fetch.offset,
            records,
            leader.high_watermark,
            log.log_start_offset,
            is_out_of_range,
        )
        self.messages.append(answer)

    def _broker_epoch_of(self, message: FetchMessage, leader: ModelBroker) -> BrokerEpoch:
        """Return the life of its sender to which a leader attributes a fetch."""
        epoch = message.broker_epoch
        if self.faults.ignores_broker_epochs:
            return max(epoch, leader.image.broker_epochs.get(message.sender, epoch))
        return epoch

    def _follow(self, answer: FetchAnswer) -> None:
        broker = self.brokers[answer.receiver]
        follower, log = broker.follower, broker.log
        if not broker.is_up or follower is None or answer.number != broker.fetch_number:
            return
        if answer.leader_epoch != follower.leader_epoch and not self.faults.ignores_leader_epochs:
            return
        # An answer is used once.
        broker.fetch_number += 1
        if answer.offset != log.log_end_offset:
            return
        if answer.records:
            first, start, end = answer.records[0], log.log_start_offset, log.log_end_offset
            effects = follower.before_append(first.base_offset, first.next_offset, start, end)
            self._carry_out(broker, log, answer, effects)
            if effects and broker.log is log:
                return
        self._carry_out(broker, broker.log, answer, self._follower_effects(broker, follower, answer))

    @staticmethod
    def _carry_out(broker: ModelBroker, log: ModelLog, answer: FetchAnswer, effects: list[FollowerEffect]) -> None:
        for effect in effects:
            match effect:
                case TruncateLog(offset):
                    log.truncate(offset)
                case StartAt(offset):
                    if log.synced_end_offset == log.log_end_offset:
                        broker.log = ModelLog(offset)
                        broker.high_watermark = offset
                case AppendFetched():
                    log.append(answer.records)
                case MoveHighWatermark(offset):
                    broker.high_watermark = offset
                case MoveLogStart(offset):
                    log.delete_before(offset)

    @staticmethod
    def _follower_effects(
        broker: ModelBroker, follower: PartitionFollower, answer: FetchAnswer
    ) -> list[FollowerEffect]:
        log = broker.log
        if answer.divergence is not None:
            own_end = log.end_of(answer.divergence.epoch)
            return follower.on_divergence(
                answer.divergence, own_end, log.log_start_offset, log.log_end_offset, answer.log_start_offset
            )
        if answer.is_out_of_range:
            return follower.on_out_of_range(answer.log_start_offset, log.log_start_offset, log.log_end_offset)
        return follower.on_response(
            has_records=bool(answer.records),
            leader_high_watermark=answer.high_watermark,
            leader_log_start_offset=answer.log_start_offset,
            high_watermark=broker.high_watermark,
            log_start_offset=log.log_start_offset,
            log_end_offset=Offset(log.log_end_offset + len(answer.records)),
        )

    def delete_records(self, broker_id: int, offset: int | None = None) -> bool:
        """Let a leader delete the records below an offset, by default its high watermark."""
        broker = self.brokers[BrokerId(broker_id)]
        end = Offset(broker.high_watermark if offset is None else min(offset, broker.high_watermark))
        if not broker.is_up or broker.leader is None or broker.log.log_start_offset >= end:
            return False
        broker.log.delete_before(end)
        self.deleted_before = max(self.deleted_before, end)
        broker.leader.on_deletion(end)
        broker.deletions.append(end)
        self._acknowledge_deletions(broker)
        return True

    # Judgement

    def validate(self) -> None:
        """Assert the invariants of all machines."""
        self.store.validate()
        self.registration.validate()
        for broker in self.brokers.values():
            broker.image.validate()
            if broker.is_up:
                assert broker.high_watermark <= broker.log.log_end_offset, f"broker {broker.broker_id}"
            if broker.leader is not None:
                broker.leader.validate()
            if broker.follower is not None:
                broker.follower.validate()

    def heal(self, rounds_max: int = 60) -> None:
        """End all faults and let the brokers do what they do, until all replicas are in sync and have the same records.

        Raises ModelViolationError if that does not happen.
        """
        self.messages.clear()
        for _ in range(rounds_max):
            self.now_ms += RETRY_MS
            for broker_id in self.brokers:
                if not self.brokers[broker_id].is_up:
                    self.expire_lease(broker_id)
                    self.start(broker_id)
                self.register_again(broker_id)
            self.deliver_all()
            for broker_id in self.brokers:
                self.elect(broker_id)
                self.deliver_all()
            for broker_id in self.brokers:
                self.tick(broker_id)
                self.repair(broker_id)
                self.deliver_all()
                self.sync(broker_id)
                self.replicate(broker_id)
                self.finish_reassignment(broker_id)
                self.deliver_all()
            if self._is_healed():
                return
        raise ModelViolationError(f"the replicas are not in sync after {rounds_max} rounds: {self.registration}")

    def _is_healed(self) -> bool:
        registration = self.registration
        leader = self.brokers[registration.leader].leader if registration.has_leader else None
        return (
            leader is not None
            and leader.leader_epoch == registration.leader_epoch
            and leader.high_watermark == leader.log_end_offset
            and set(registration.isr) == set(registration.replicas)
            and not registration.is_reassigning
            and len({len(self.brokers[replica].log.records) for replica in registration.replicas}) == 1
            and all(self._has_records_of(leader.broker_id, replica) for replica in registration.replicas)
        )

    def _has_records_of(self, leader: BrokerId, replica: BrokerId) -> bool:
        """True if the records that both logs have are the same."""
        log, other = self.brokers[leader].log, self.brokers[replica].log
        start = max(log.log_start_offset, other.log_start_offset)
        return log.records[start:] == other.records[start:]

    def judge(self) -> None:
        """After `heal`: everything that a client was told is true. Raises ModelViolationError."""
        leader = self.brokers[self.registration.leader]
        self._check_deletions(leader)
        for name, known in (("acknowledged", self.acknowledged), ("read", self.seen)):
            for offset, value in known.items():
                record = leader.log.records[offset] if offset < leader.log.log_end_offset else None
                actual = None if record is None else record.value
                is_deleted = offset < self.deleted_before and offset < leader.log.log_start_offset
                if actual != value and not is_deleted:
                    raise ModelViolationError(f"{value} was {name} at offset {offset}, where now is {actual}")
        if leader.high_watermark < self.told_offset:
            raise ModelViolationError(f"the latest offset fell from {self.told_offset} to {leader.high_watermark}")

    def _check_deletions(self, leader: ModelBroker) -> None:
        """Raises ModelViolationError."""
        start = leader.log.log_start_offset
        if start < self.deletion_acknowledged:
            raise ModelViolationError(f"the log starts at {start}, {self.deletion_acknowledged} was acknowledged")
