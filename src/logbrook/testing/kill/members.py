"""Members of consumer groups. They commit what they were given, wait for the answer, and note where they begin.

A member begins at what its group has committed: the first record it is given of a partition tells what that was.
Members leave and come back, sometimes because they are told to, so that there is always a rebalance near.
"""

from threading import Event
from time import monotonic

from logbrook.model import TopicPartition
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import ClientPartition, Consumer, KafkaException, Message
from logbrook.testing.kill.payloads import value_of
from logbrook.testing.kill.scene import TOPIC, Client, Scene

_STAY_S = (3.0, 20.0)
_COMMIT_AFTER_S = (0.02, 0.3)


class Member(Client):
    """A place in a group, taken by one consumer after another."""

    def __init__(self, scene: Scene, name: str, group: str, settings: dict[str, object]) -> None:
        super().__init__(scene, name)
        self.group = group
        self.may_leave = True
        self._settings = settings
        self._lives = 0
        self._told_to_leave = Event()

    def leave(self) -> None:
        """Soon, and come back at once."""
        self._told_to_leave.set()

    def run(self) -> None:
        while not self.stopping.is_set():
            self._lives += 1
            self._told_to_leave.clear()
            _Stay(self, f"{self.name}.{self._lives}", self._settings).run(monotonic() + self.rng.uniform(*_STAY_S))

    def is_to_go(self, until: float) -> bool:
        is_over = monotonic() > until or self._told_to_leave.is_set()
        return self.stopping.is_set() or (is_over and self.may_leave)


class _Stay:
    """One consumer, from its joining to its leaving."""

    def __init__(self, member: Member, name: str, settings: dict[str, object]) -> None:
        self._member = member
        self._name = name
        self._recorder = member.scene.recorder
        self._consumer = clients.consumer(member.scene.address, member.group, **settings)
        # When partitions were assigned of which nothing has come yet, and what is to be committed of the others.
        self._assigned_at_ns: dict[TopicPartition, int] = {}
        self._uncommitted: dict[TopicPartition, int] = {}

    def run(self, until: float) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        try:
            commit_at = monotonic()
            while not self._member.is_to_go(until):
                message = self._consumer.poll(0.05)
                if message is not None:
                    self._take(message)
                if self._uncommitted and monotonic() >= commit_at:
                    self._commit()
                    commit_at = monotonic() + self._member.rng.uniform(*_COMMIT_AFTER_S)
        finally:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        if message.error() is not None:
            return
        topic, number, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None, "a record has a place"
        assert number is not None, "a record has a place"
        assert offset is not None, "a record has a place"
        partition = TopicPartition(topic, number)
        begun_at_ns = self._assigned_at_ns.pop(partition, None)
        if begun_at_ns is not None:
            self._recorder.resumed(begun_at_ns, self._name, self._member.group, partition, offset)
        self._recorder.polled(self._name, self._member.group, partition, offset, value_of(message.value()))
        self._uncommitted[partition] = offset + 1

    def _commit(self) -> None:
        """Any error leaves it open: the library may have asked twice, and have been heard the first time."""
        asked, self._uncommitted = self._uncommitted, {}
        begun_at_ns = self._recorder.now_ns()
        offsets = [clients.client_partition(partition, offset) for partition, offset in asked.items()]
        try:
            answered = self._consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException:
            answered = []
        sure = {TopicPartition(one.topic, one.partition) for one in answered if one.error is None}
        for partition, offset in asked.items():
            if partition in sure:
                self._recorder.committed(begun_at_ns, self._member.group, partition, offset)
                self._member.scene.committed += 1
            else:
                self._recorder.commit_unknown(begun_at_ns, self._member.group, partition, offset)

    def _assigned(self, _: Consumer, partitions: list[ClientPartition]) -> None:
        now_ns = self._recorder.now_ns()
        for one in partitions:
            self._assigned_at_ns[TopicPartition(one.topic, one.partition)] = now_ns

    def _revoked(self, _: Consumer, partitions: list[ClientPartition]) -> None:
        for one in partitions:
            partition = TopicPartition(one.topic, one.partition)
            self._assigned_at_ns.pop(partition, None)
            self._uncommitted.pop(partition, None)


def members(scene: Scene) -> list[Member]:
    """Two groups of two: one that gives up everything at a rebalance, and one that keeps what it can (KIP-429)."""
    kinds = {"eager": "range", "cooperative": "cooperative-sticky"}
    return [
        Member(
            scene,
            f"{group}-{number}",
            group,
            {"partition.assignment.strategy": strategy, "isolation.level": scene.isolation},
        )
        for group, strategy in kinds.items()
        for number in range(2)
    ]
