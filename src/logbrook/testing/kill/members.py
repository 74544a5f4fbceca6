"""Members of consumer groups that commit synchronously what they received and record where they resume.

A member resumes at its group's committed offset, which its first record of a partition reveals. Members leave and
rejoin, also on demand, so that a rebalance is always near.
"""

from threading import Event
from time import monotonic

from logbrook.model import TopicPartition
from logbrook.testing.history.events import Committed, CommitUnknown, Polled, Resumed
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import ClientPartition, Consumer, KafkaException, Message
from logbrook.testing.kill.load_client import TOPIC, LoadClient, LoadState, value_of

_STAY_S = (3.0, 20.0)
_COMMIT_AFTER_S = (0.02, 0.3)


class LoadMember(LoadClient):
    """A member of a group, implemented by one consumer after another."""

    def __init__(self, state: LoadState, name: str, group: str, settings: dict[str, object]) -> None:
        super().__init__(state, name)
        self.group = group
        self.may_leave = True
        self._settings = settings
        self._consumer_count = 0
        self._leave_requested = Event()

    def leave(self) -> None:
        """Leave the group soon, then rejoin."""
        self._leave_requested.set()

    def run(self) -> None:
        while not self.stopping.is_set():
            self._consumer_count += 1
            self._leave_requested.clear()
            _Membership(self, f"{self.name}.{self._consumer_count}", self._settings).run(
                monotonic() + self.rng.uniform(*_STAY_S)
            )

    def must_leave(self, until: float) -> bool:
        is_due = monotonic() > until or self._leave_requested.is_set()
        return self.stopping.is_set() or (is_due and self.may_leave)


class _Membership:
    """One consumer, from joining the group to leaving it."""

    def __init__(self, member: LoadMember, name: str, settings: dict[str, object]) -> None:
        self._member = member
        self._name = name
        self._recorder = member.state.recorder
        self._consumer = clients.consumer(member.state.address, member.group, **settings)
        # Assignment time of partitions without records yet, and the next offset to commit of the others.
        self._assigned_at_ns: dict[TopicPartition, int] = {}
        self._uncommitted: dict[TopicPartition, int] = {}

    def run(self, until: float) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        try:
            commit_at = monotonic()
            while not self._member.must_leave(until):
                message = self._consumer.poll(0.05)
                if message is not None:
                    self._receive(message)
                if self._uncommitted and monotonic() >= commit_at:
                    self._commit()
                    commit_at = monotonic() + self._member.rng.uniform(*_COMMIT_AFTER_S)
        finally:
            self._consumer.close()

    def _receive(self, message: Message) -> None:
        if message.error() is not None:
            return
        topic, number, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None, "a delivered record has a topic, partition and offset"
        assert number is not None, "a delivered record has a topic, partition and offset"
        assert offset is not None, "a delivered record has a topic, partition and offset"
        partition = TopicPartition(topic, number)
        begun_at_ns = self._assigned_at_ns.pop(partition, None)
        if begun_at_ns is not None:
            self._recorder.record(Resumed, begun_at_ns, self._name, self._member.group, partition, offset)
        self._recorder.record(Polled, self._name, self._member.group, partition, offset, value_of(message.value()))
        self._uncommitted[partition] = offset + 1

    def _commit(self) -> None:
        """Commit; on any error the outcome is unknown, as the library may have sent the request twice."""
        to_commit, self._uncommitted = self._uncommitted, {}
        begun_at_ns = self._recorder.now_ns()
        offsets = [clients.client_partition(partition, offset) for partition, offset in to_commit.items()]
        try:
            results = self._consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException:
            results = []
        committed = {TopicPartition(result.topic, result.partition) for result in results if result.error is None}
        for partition, offset in to_commit.items():
            if partition in committed:
                self._recorder.record(Committed, begun_at_ns, self._member.group, partition, offset)
                self._member.state.committed += 1
            else:
                self._recorder.record(CommitUnknown, begun_at_ns, self._member.group, partition, offset)

    def _assigned(self, _: Consumer, partitions: list[ClientPartition]) -> None:
        now_ns = self._recorder.now_ns()
        for assigned in partitions:
            self._assigned_at_ns[TopicPartition(assigned.topic, assigned.partition)] = now_ns

    def _revoked(self, _: Consumer, partitions: list[ClientPartition]) -> None:
        for revoked in partitions:
            partition = TopicPartition(revoked.topic, revoked.partition)
            self._assigned_at_ns.pop(partition, None)
            self._uncommitted.pop(partition, None)


def members(state: LoadState) -> list[LoadMember]:
    """Two groups of two members: one with eager and one with cooperative rebalancing (KIP-429)."""
    kinds = {"eager": "range", "cooperative": "cooperative-sticky"}
    return [
        LoadMember(
            state,
            f"{group}-{number}",
            group,
            {"partition.assignment.strategy": strategy, "isolation.level": state.isolation},
        )
        for group, strategy in kinds.items()
        for number in range(2)
    ]
