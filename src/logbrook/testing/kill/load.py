"""The load of a kill test: all clients, from start to drain."""

from collections.abc import Mapping, Sequence
from time import monotonic

from logbrook.model import TopicPartition
from logbrook.testing.history.events import TopicCreated
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import ClientPartition, Consumer, KafkaError, KafkaException, NewTopic
from logbrook.testing.kill.load_client import TOPIC, LoadClient, LoadState
from logbrook.testing.kill.members import LoadMember, members
from logbrook.testing.kill.prober import Prober
from logbrook.testing.kill.producers import producers
from logbrook.testing.kill.topic_maker import TopicMaker
from logbrook.testing.kill.transactional import transactional_clients
from logbrook.testing.processes import wait_until

_ANSWER_TIMEOUT_S = 10.0
_PRODUCERS_END_TIMEOUT_S = 45.0
_GROUPS_END_TIMEOUT_S = 30.0
_CLIENT_END_TIMEOUT_S = 30.0
_ABANDONED_END_TIMEOUT_S = 3.0


class ClientLoad:
    """All clients of a run. Started once the broker is ready, drained after its last restart.

    `readers` are consumers without a group. The topic has `replicas` replicas and these settings.
    """

    def __init__(
        self,
        state: LoadState,
        writers: Sequence[LoadClient],
        group_members: Sequence[LoadMember],
        readers: Sequence[LoadClient] = (),
        *,
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._state = state
        self.members = group_members
        self.writers = writers
        self.groups = {member.group for member in self.members}
        self._readers = [*self.members, *readers, Prober(state, "prober", self.groups)]
        self._topic = NewTopic(TOPIC, len(state.partitions), replicas, config=dict(settings or {}))

    def start(self) -> None:
        """Raises KafkaException or TimeoutError if the broker does not create the topic."""
        admin = clients.admin_client(self._state.address)
        admin.create_topics([self._topic])[TOPIC].result(_ANSWER_TIMEOUT_S)
        self._state.recorder.record(TopicCreated, TOPIC, len(self._state.partitions))
        for client in (*self.writers, *self._readers):
            client.start()

    def drain(self) -> None:
        """Stop the writers after their last responses, let the groups read to the end, then stop the readers."""
        self._stop(self.writers, _PRODUCERS_END_TIMEOUT_S)
        for member in self.members:
            member.may_leave = False
        observers = {group: clients.consumer(self._state.address, group) for group in self.groups}
        if not wait_until(lambda: not self._lags(observers), _GROUPS_END_TIMEOUT_S):
            for lag in self._lags(observers):
                self._state.problems.append(f"{lag}, {_GROUPS_END_TIMEOUT_S:.0f} s after the last write")
        for observer in observers.values():
            observer.close()
        self._stop(self._readers, _CLIENT_END_TIMEOUT_S)

    def abandon(self) -> None:
        """Stop all clients without waiting for the broker, which will not be restarted."""
        self._state.is_abandoned = True
        self._stop([*self.writers, *self._readers], _ABANDONED_END_TIMEOUT_S)

    def _stop(self, running: Sequence[LoadClient], timeout_s: float) -> None:
        """Stop the clients; they share one deadline."""
        deadline = monotonic() + timeout_s
        for client in running:
            client.stop()
        for client in running:
            client.join(deadline)

    def _lags(self, observers: dict[str, Consumer]) -> list[str]:
        """Describe the partitions that groups have not read to the end."""
        lags = []
        for group, observer in observers.items():
            try:
                partitions = [clients.client_partition(partition) for partition in self._state.partitions]
                for committed in observer.committed(partitions, timeout=_ANSWER_TIMEOUT_S):
                    marks = observer.get_watermark_offsets(committed, timeout=_ANSWER_TIMEOUT_S)
                    if marks is not None and self._has_more(committed, max(0, committed.offset), marks[1]):
                        name = f"{committed.topic}-{committed.partition}"
                        lags.append(f"group {group} was at {committed.offset} of {marks[1]} in {name}")
            except KafkaException as error:
                lags.append(f"group {group} did not return its offsets ({error})")
        return lags

    def _has_more(self, partition: ClientPartition, offset: int, end: int) -> bool:
        """True if a committed record exists from `offset` on; markers and aborted records do not count."""
        if offset >= end:
            return False
        reader = clients.reader(self._state.address)
        try:
            reader.assign([ClientPartition(partition.topic, partition.partition, offset)])
            message = reader.poll(_ANSWER_TIMEOUT_S)
            error = None if message is None else message.error()
            return error is None or error.code() != KafkaError._PARTITION_EOF
        finally:
            reader.close()


class KillLoad(ClientLoad):
    """The clients of a kill test."""

    def __init__(self, state: LoadState) -> None:
        self.topic_maker = TopicMaker(state, "topic-maker")
        super().__init__(state, [*producers(state), *transactional_clients(state), self.topic_maker], members(state))

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions that may have been written to."""
        return [*self._state.partitions, *self.topic_maker.made]
