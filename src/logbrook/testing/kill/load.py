"""The load: all clients together, from the first to the last."""

from time import monotonic

from logbrook.model import TopicPartition
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import ClientPartition, Consumer, KafkaError, KafkaException, NewTopic
from logbrook.testing.kill.members import members
from logbrook.testing.kill.prober import Prober
from logbrook.testing.kill.producers import producers
from logbrook.testing.kill.scene import TOPIC, Client, Scene
from logbrook.testing.kill.topic_maker import TopicMaker
from logbrook.testing.kill.transactional import transactional_clients
from logbrook.testing.kill.waiting import wait_until

_ANSWER_TIMEOUT_S = 10.0
_PRODUCERS_END_TIMEOUT_S = 45.0
_GROUPS_END_TIMEOUT_S = 30.0
_CLIENT_END_TIMEOUT_S = 30.0
_ABANDONED_END_TIMEOUT_S = 3.0


class Load:
    """Started once, when the broker answers, and drained once, when it answers for the last time."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.members = members(scene)
        self.topic_maker = TopicMaker(scene, "topic-maker")
        self._writers: list[Client] = [*producers(scene), *transactional_clients(scene), self.topic_maker]
        self._groups = {member.group for member in self.members}
        self._readers: list[Client] = [*self.members, Prober(scene, "prober", self._groups)]

    @property
    def partitions(self) -> list[TopicPartition]:
        """All that may have been written to."""
        return [*self._scene.partitions, *self.topic_maker.made]

    def start(self) -> None:
        """Raises KafkaException or TimeoutError if the broker does not create the topic."""
        admin = clients.admin_client(self._scene.address)
        topic = NewTopic(TOPIC, len(self._scene.partitions), 1)
        admin.create_topics([topic])[TOPIC].result(_ANSWER_TIMEOUT_S)
        self._scene.recorder.topic_created(TOPIC, len(self._scene.partitions))
        for client in (*self._writers, *self._readers):
            client.start()

    def drain(self) -> None:
        """Writers get their last answers, groups read to the end, and then everybody stops."""
        self._stop(self._writers, _PRODUCERS_END_TIMEOUT_S)
        for member in self.members:
            member.may_leave = False
        observers = {group: clients.consumer(self._scene.address, group) for group in self._groups}
        if not wait_until(lambda: not self._lags(observers), _GROUPS_END_TIMEOUT_S):
            for lag in self._lags(observers):
                self._scene.problems.append(f"{lag}, {_GROUPS_END_TIMEOUT_S:.0f} s after the last write")
        for observer in observers.values():
            observer.close()
        self._stop(self._readers, _CLIENT_END_TIMEOUT_S)

    def abandon(self) -> None:
        """Everybody stops, whatever they are at: the broker is gone."""
        self._scene.is_abandoned = True
        self._stop([*self._writers, *self._readers], _ABANDONED_END_TIMEOUT_S)

    def _stop(self, stopped: list[Client], timeout_s: float) -> None:
        """All of them together have this long."""
        deadline = monotonic() + timeout_s
        for client in stopped:
            client.stop()
        for client in stopped:
            client.join(deadline)

    def _lags(self, observers: dict[str, Consumer]) -> list[str]:
        """What is left to read, in words."""
        lags = []
        for group, observer in observers.items():
            try:
                asked = [clients.client_partition(partition) for partition in self._scene.partitions]
                for one in observer.committed(asked, timeout=_ANSWER_TIMEOUT_S):
                    marks = observer.get_watermark_offsets(one, timeout=_ANSWER_TIMEOUT_S)
                    if marks is not None and self._has_more(one, max(0, one.offset), marks[1]):
                        lags.append(f"group {group} was at {one.offset} of {marks[1]} in {one.topic}-{one.partition}")
            except KafkaException as error:
                lags.append(f"group {group} could not be asked for its offsets ({error})")
        return lags

    def _has_more(self, partition: ClientPartition, offset: int, end: int) -> bool:
        """Whether there is a record from `offset` on: the ends of transactions are none, nor is what was aborted."""
        if offset >= end:
            return False
        reader = clients.reader(self._scene.address)
        try:
            reader.assign([ClientPartition(partition.topic, partition.partition, offset)])
            message = reader.poll(_ANSWER_TIMEOUT_S)
            error = None if message is None else message.error()
            return error is None or error.code() != KafkaError._PARTITION_EOF
        finally:
            reader.close()
