"""The brokers of the replication model and their metadata store: lives, images, roles, effects of leaders."""

from collections.abc import Sequence
from dataclasses import replace

from logbrook.core.cluster.elections import election_transactions, find_elections, partition_change
from logbrook.core.cluster.image import (
    BrokerRegistration,
    ClusterImage,
    NodeRecord,
    PartitionKey,
    broker_key,
    decode_partition,
    encode_broker,
    encode_node,
    encode_partition,
    node_key,
    partition_key,
)
from logbrook.core.cluster.lifecycle import DirectoryIdentity, DirectoryLoss, directory_loss
from logbrook.core.cluster.partition import (
    PartitionRegistration,
    finish_reassignment,
    hand_over,
    leave,
    new_partition,
    reassign,
    step_down,
    withdraw,
)
from logbrook.core.replication.follower import PartitionFollower
from logbrook.core.replication.leader import (
    AdvanceHighWatermark,
    LeaderEffect,
    PartitionLeader,
    ProposeRegistration,
)
from logbrook.core.store_state import StoreState
from logbrook.model.identifiers import BrokerEpoch, BrokerId, Offset
from logbrook.ports.metadata_store import Delete, Put, Revision, StoreTransaction, is_absent, is_unmodified
from logbrook.testing.replication.state import (
    FetchAnswer,
    FetchMessage,
    ModelBroker,
    ModelFaults,
    ModelLog,
    ModelViolationError,
)

KEY = PartitionKey(b"topic-of-a-model", 0)
_PARTITION_KEY = partition_key(KEY)
LAG_MS_MAX = 1_000
RETRY_MS = 100


class ModelCluster:
    """Brokers 1 to `broker_count`, and one partition on the first `replication_factor` of them."""

    def __init__(
        self,
        broker_count: int = 3,
        replication_factor: int = 3,
        min_insync: int = 2,
        faults: ModelFaults | None = None,
    ) -> None:
        self.now_ms = 1
        self.min_insync = min_insync
        self.store = StoreState(Revision(1))
        self.messages: list[FetchMessage | FetchAnswer] = []
        self.faults = faults or ModelFaults()
        self.brokers = {BrokerId(number): ModelBroker(BrokerId(number)) for number in range(1, broker_count + 1)}
        # Known to clients: acknowledged and read records by offset, and the largest offset they were told.
        self.acknowledged: dict[Offset, int] = {}
        self.seen: dict[Offset, int] = {}
        self.told_offset = Offset(0)
        # Clients have deleted records below this offset.
        self.deleted_before = Offset(0)
        # All deletions up to here were acknowledged.
        self.deletion_acknowledged = Offset(0)
        self.lost_disks: set[BrokerId] = set()
        # The partition epoch and the registration that was decoded last.
        self._decoded: tuple[int, PartitionRegistration] | None = None
        self._values = 0
        self._directories = 0
        for broker in self.brokers.values():
            self._new_disk(broker)
            self.start(broker.broker_id)
        replicas = [BrokerId(number) for number in range(1, replication_factor + 1)]
        epochs = {broker.broker_id: broker.broker_epoch for broker in self.brokers.values() if broker.broker_epoch}
        registration = new_partition(replicas, list(self.brokers), epochs)
        self._commit(StoreTransaction((), [Put(_PARTITION_KEY, encode_partition(registration))]))
        self.deliver_all()

    @property
    def registration(self) -> PartitionRegistration:
        """The registration in the store."""
        epoch = self.partition_epoch
        if self._decoded is None or self._decoded[0] != epoch:
            self._decoded = (epoch, decode_partition(self.store.entries[_PARTITION_KEY].value))
        return self._decoded[1]

    @property
    def partition_epoch(self) -> int:
        return self.store.entries[_PARTITION_KEY].mod_revision

    # Brokers

    def stop(self, broker_id: int, keep: int | None = None) -> bool:
        """Kill a broker. `keep` is the log end after a power loss; None keeps the page cache."""
        broker = self.brokers[BrokerId(broker_id)]
        if not broker.is_up:
            return False
        broker.is_up = False
        broker.leader = broker.follower = broker.broker_epoch = None
        broker.waiting.clear()
        broker.refused.clear()
        if keep is not None:
            broker.log.truncate(Offset(max(broker.log.synced_end_offset, min(keep, broker.log.log_end_offset))))
        return True

    def replace_disk(self, broker_id: int) -> bool:
        """Give a stopped broker an empty disk, unless no other replica has all records."""
        broker = self.brokers[BrokerId(broker_id)]
        if broker.is_up or not self._complete_without(broker):
            return False
        self.lost_disks.add(broker.broker_id)
        self._new_disk(broker)
        return True

    def _complete_without(self, broker: ModelBroker) -> set[BrokerId]:
        """Return the other replicas that have all records, on disks that are neither lost nor damaged."""
        damaged = {other.broker_id for other in self.brokers.values() if other.damaged_in is not None}
        return {*self.registration.isr, *self.registration.elr} - self.lost_disks - damaged - {broker.broker_id}

    def start(self, broker_id: int) -> bool:
        """Start a stopped broker: recover, leave every ISR if the disk has lost something, and register."""
        broker = self.brokers[BrokerId(broker_id)]
        if broker.is_up or broker_key(broker.broker_id) in self.store.entries:
            # The lease of its earlier life has not expired.
            return False
        broker.is_up = True
        # Recovery syncs everything that it finds.
        broker.log.sync()
        known = min(broker.log.high_watermark, broker.log.log_end_offset)
        broker.high_watermark = Offset(max(known, broker.log.log_start_offset))
        self._load(broker)
        self._register(broker)
        if broker.damaged_in is not None:
            # Found again.
            broker.damaged_in = self.registration.leader_epoch
        return True

    def register_again(self, broker_id: int) -> bool:
        """Register a running broker whose lease has expired."""
        broker = self.brokers[BrokerId(broker_id)]
        if not broker.is_up or broker_key(broker.broker_id) in self.store.entries:
            return False
        self._register(broker)
        return True

    def expire_lease(self, broker_id: int) -> bool:
        """Delete the registration of a broker, which may be alive and not know it."""
        key = broker_key(BrokerId(broker_id))
        if key not in self.store.entries:
            return False
        self._commit(StoreTransaction((), [Delete(key)]))
        return True

    def damage(self, broker_id: int) -> bool:
        """Find a running broker's log damaged, unless no other replica has all records. It stays readable."""
        broker = self.brokers[BrokerId(broker_id)]
        partition = broker.image.partitions.get(KEY)
        if not broker.is_up or broker.damaged_in is not None or partition is None:
            return False
        if not self._complete_without(broker):
            return False
        broker.damaged_in = partition.registration.leader_epoch
        return True

    def repair(self, broker_id: int) -> bool:
        """Let a broker whose log is damaged withdraw, or replace the log by an empty one."""
        broker = self.brokers[BrokerId(broker_id)]
        partition = broker.image.partitions.get(KEY)
        if not broker.is_up or broker.damaged_in is None or broker.broker_epoch is None or partition is None:
            return False
        registration = partition.registration
        is_needed = broker.broker_id in (*registration.isr, *registration.elr)
        if not is_needed and (registration.leader_epoch > broker.damaged_in or self.faults.repairs_without_epoch):
            return self._rebuild(broker, registration)
        after = withdraw(registration, broker.broker_id, broker.image.broker_epochs)
        if after is not None and self.faults.repairs_without_epoch and registration.leader == after.leader:
            after = replace(after, leader_epoch=registration.leader_epoch)
        return after is not None and self._change(broker, partition.epoch, after)

    def _rebuild(self, broker: ModelBroker, registration: PartitionRegistration) -> bool:
        if not broker.image.has_live_leader(registration) or broker.broker_id not in registration.replicas:
            return False
        broker.damaged_in = None
        broker.log = ModelLog(broker.log.log_start_offset)
        broker.high_watermark = broker.log.log_start_offset
        self._begin_following(broker, registration)
        return True

    def change_min_insync(self, min_insync: int) -> bool:
        """Change the topic's setting, which all brokers see at once."""
        if min_insync == self.min_insync:
            return False
        self.min_insync = min_insync
        for broker in self.brokers.values():
            if broker.leader is not None:
                self._lead(broker, broker.leader.on_min_insync(min_insync))
        return True

    # The metadata store

    def deliver(self, broker_id: int) -> bool:
        """Let a broker see the next change of the store."""
        broker = self.brokers[BrokerId(broker_id)]
        changes = self.store.changes_after(broker.revision)
        if not broker.is_up or not changes:
            return False
        broker.revision = changes[0].revision
        for key, entry in changes[0].events:
            if ClusterImage.has_key(key):
                broker.image.replay(key, entry)
        self._apply_image(broker)
        self._report_refused(broker)
        return True

    def deliver_all(self) -> None:
        for broker_id in self.brokers:
            while self.deliver(broker_id):
                pass

    def elect(self, broker_id: int) -> bool:
        """Let a broker take over the partition if its image allows it. Returns True if the store agrees."""
        broker = self.brokers[BrokerId(broker_id)]
        if not broker.is_up or broker.broker_epoch is None:
            return False
        elections = find_elections(
            broker.image,
            broker.broker_id,
            broker.broker_epoch,
            lambda _key: self.min_insync,
            is_damaged=lambda _key: broker.damaged_in is not None,
        )
        for _, transaction in election_transactions(elections, broker.broker_id, broker.broker_epoch):
            return self._commit(transaction)
        return False

    def hand_over(self, broker_id: int, successor: int) -> bool:
        """Let a leader name its successor."""
        broker = self.brokers[BrokerId(broker_id)]
        epochs = broker.image.broker_epochs
        if broker.leader is None or broker.broker_epoch is None or successor not in epochs:
            return False
        after = hand_over(broker.leader.registration, BrokerId(successor), epochs[BrokerId(successor)])
        return after is not None and self._change(broker, broker.leader.partition_epoch, after)

    def step_down(self, broker_id: int, successor: int) -> bool:
        """Let a leader whose disk is full name its successor."""
        broker = self.brokers[BrokerId(broker_id)]
        epochs = broker.image.broker_epochs
        if broker.leader is None or broker.broker_epoch is None or successor not in epochs:
            return False
        after = step_down(broker.leader.registration, BrokerId(successor), epochs[BrokerId(successor)])
        return after is not None and self._change(broker, broker.leader.partition_epoch, after)

    def reassign(self, target: Sequence[int]) -> bool:
        """Begin to move the partition, at an operator's request."""
        after = reassign(self.registration, [BrokerId(broker_id) for broker_id in target])
        condition = is_unmodified(_PARTITION_KEY, self.partition_epoch)
        return self._commit(StoreTransaction([condition], [Put(_PARTITION_KEY, encode_partition(after))]))

    def finish_reassignment(self, broker_id: int) -> bool:
        """Let a leader drop the old replicas if the new ones are in sync."""
        broker = self.brokers[BrokerId(broker_id)]
        if broker.leader is None:
            return False
        after = finish_reassignment(broker.leader.registration, broker.image.broker_epochs)
        return after is not None and self._change(broker, broker.leader.partition_epoch, after)

    def tick(self, broker_id: int, *, outcome: str = "ok") -> bool:
        """Let a leader look at the time: it drops followers that lag, and repeats a proposal of unknown outcome."""
        broker = self.brokers[BrokerId(broker_id)]
        if broker.leader is None:
            return False
        effects = broker.leader.on_tick(self.now_ms) or broker.leader.retry_proposal(self.now_ms)
        self._lead(broker, effects, outcome)
        return bool(effects)

    # Effects and roles

    def _lead(self, broker: ModelBroker, effects: Sequence[LeaderEffect], outcome: str = "ok") -> None:
        """`outcome` of a proposal: ok, refused, lost (not committed, no answer) or unknown (committed, no answer)."""
        for effect in effects:
            match effect:
                case AdvanceHighWatermark(offset):
                    broker.high_watermark = offset
                    self._acknowledge_waiting(broker)
                case ProposeRegistration():
                    self._propose(broker, effect, outcome)
        self._acknowledge_deletions(broker)

    def _acknowledge_deletions(self, broker: ModelBroker) -> None:
        leader = broker.leader
        done = [offset for offset in broker.deletions if leader is not None and leader.has_deletion(offset)]
        broker.deletions = [offset for offset in broker.deletions if offset not in done]
        self.deletion_acknowledged = max(self.deletion_acknowledged, *done, Offset(0))

    def _propose(self, broker: ModelBroker, proposal: ProposeRegistration, outcome: str) -> None:
        leader, registration, partition_epoch = broker.leader, proposal.registration, proposal.partition_epoch
        assert leader is not None
        if self.faults.applies_isr_without_store:
            self._lead(broker, leader.on_registration(registration, partition_epoch + 1))
            leader.partition_epoch = partition_epoch
        is_committed = outcome != "lost" and self._change(broker, partition_epoch, registration, proposal.joining)
        if outcome in ("lost", "unknown"):
            leader.on_proposal_failed(proposal, self.now_ms, RETRY_MS, is_unknown=True)
        elif is_committed:
            self._lead(broker, leader.on_registration(registration, self.partition_epoch))
        else:
            broker.refused.append((self.store.revision, leader, proposal))
            self._report_refused(broker)

    def _report_refused(self, broker: ModelBroker) -> None:
        """Tell a leader of the refusals up to which it has seen all changes of the store."""
        reported = [entry for entry in broker.refused if entry[0] <= broker.revision]
        broker.refused = [entry for entry in broker.refused if entry[0] > broker.revision]
        for _, leader, proposal in reported:
            leader.on_proposal_failed(proposal, self.now_ms, RETRY_MS, is_unknown=False)

    def _acknowledge_waiting(self, broker: ModelBroker) -> None:
        done = [entry for entry in broker.waiting if entry[0] < broker.high_watermark]
        broker.waiting = [entry for entry in broker.waiting if entry[0] >= broker.high_watermark]
        for offset, value in done:
            self._acknowledge(offset, value)

    def _acknowledge(self, offset: Offset, value: int) -> None:
        other = self.acknowledged.setdefault(offset, value)
        if other != value:
            raise ModelViolationError(f"{value} and {other} were both acknowledged at offset {offset}")

    def _change(
        self,
        broker: ModelBroker,
        partition_epoch: int,
        after: PartitionRegistration,
        joining: Sequence[tuple[BrokerId, BrokerEpoch]] = (),
    ) -> bool:
        if broker.broker_epoch is None:
            return False
        after.validate()
        change = partition_change(KEY, partition_epoch, after, broker.broker_id, broker.broker_epoch, joining)
        return self._commit(change)

    def _commit(self, transaction: StoreTransaction) -> bool:
        operations = self.store.decide(transaction)
        if operations:
            self.store.apply(Revision(self.store.revision + 1), operations)
        return operations is not None

    def _new_disk(self, broker: ModelBroker) -> None:
        self._directories += 1
        broker.damaged_in = None
        broker.identity = DirectoryIdentity(f"directory-{self._directories}")
        broker.log = ModelLog()

    def _register(self, broker: ModelBroker) -> None:
        # Read from the store: the broker's image may be older than its last registration.
        current = ClusterImage()
        current.load(self.store.entries)
        loss = directory_loss(current.nodes.get(broker.broker_id), broker.identity, "", syncs_before_reply=True)
        if loss is not DirectoryLoss.NOTHING and not self.faults.keeps_isr_with_replaced_disk:
            self._leave_all(broker)
        self.lost_disks.discard(broker.broker_id)
        registration_id = f"{broker.broker_id}@{self.store.revision}"
        broker.identity = broker.identity.begin_registration(registration_id).finish_registration()
        registration = BrokerRegistration("host", 9092, directory_id=broker.identity.directory_id)
        record = NodeRecord(broker.identity.directory_id, registration_id)
        key = broker_key(broker.broker_id)
        puts = [Put(key, encode_broker(registration)), Put(node_key(broker.broker_id), encode_node(record))]
        assert self._commit(StoreTransaction([is_absent(key)], puts))
        broker.broker_epoch = BrokerEpoch(self.store.entries[key].create_revision)
        if self.faults.leads_on_after_restart:
            self._resume_leadership(broker)

    def _leave_all(self, broker: ModelBroker) -> None:
        if _PARTITION_KEY not in self.store.entries:
            return
        after = leave(self.registration, broker.broker_id)
        if after is not None:
            self._commit(StoreTransaction((), [Put(_PARTITION_KEY, encode_partition(after))]))
            self._load(broker)

    def _resume_leadership(self, broker: ModelBroker) -> None:
        if _PARTITION_KEY in self.store.entries and self.registration.leader == broker.broker_id:
            self._begin_leading(broker, self.registration, self.partition_epoch)

    def _load(self, broker: ModelBroker) -> None:
        broker.image.load(self.store.entries)
        broker.revision = self.store.revision

    def _apply_image(self, broker: ModelBroker) -> None:
        """Take the role that the image gives to the broker."""
        partition = broker.image.partitions.get(KEY)
        if partition is None or broker.broker_id not in partition.registration.replicas:
            broker.leader = broker.follower = broker.damaged_in = None
            broker.log = ModelLog()
            broker.high_watermark = Offset(0)
            return
        registration = partition.registration
        leads = registration.leader == broker.broker_id
        if leads and registration.leader_broker_epoch == broker.broker_epoch:
            leader = broker.leader
            if leader is None or leader.leader_epoch != registration.leader_epoch:
                self._begin_leading(broker, registration, partition.epoch)
            else:
                self._lead(broker, leader.on_registration(registration, partition.epoch))
        elif registration.has_leader and not leads:
            follower = broker.follower
            if follower is None or follower.leader_epoch != registration.leader_epoch:
                self._begin_following(broker, registration)
        elif not self.faults.leads_on_after_restart:
            broker.leader = broker.follower = None
            broker.waiting.clear()

    def _begin_leading(self, broker: ModelBroker, registration: PartitionRegistration, partition_epoch: int) -> None:
        broker.follower = None
        broker.waiting.clear()
        broker.deletions.clear()
        broker.leader = PartitionLeader(
            broker.broker_id,
            registration,
            partition_epoch,
            log_end_offset=broker.log.log_end_offset,
            synced_end_offset=broker.log.synced_end_offset,
            high_watermark=broker.high_watermark,
            log_start_offset=broker.log.log_start_offset,
            min_insync=self.min_insync,
            lag_ms_max=LAG_MS_MAX,
            now_ms=self.now_ms,
        )
        self._lead(broker, broker.leader.on_sync(broker.log.synced_end_offset))

    def _begin_following(self, broker: ModelBroker, registration: PartitionRegistration) -> None:
        broker.leader = None
        broker.waiting.clear()
        broker.fetch_number += 1
        if self.faults.truncates_by_high_watermark:
            broker.log.truncate(broker.high_watermark)
        broker.follower = PartitionFollower(registration.leader, registration.leader_epoch)
