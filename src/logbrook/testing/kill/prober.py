"""Polls the offsets that must not go back: latest offsets and committed offsets."""

from logbrook.testing.history.events import CommittedSeen, LatestSeen
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import Consumer, KafkaException
from logbrook.testing.kill.load_client import LoadClient, LoadState

_ANSWER_TIMEOUT_S = 2.0
_PAUSE_S = 0.02


class Prober(LoadClient):
    """A client outside of any group. Requests without a response are not recorded."""

    def __init__(self, state: LoadState, name: str, groups: set[str]) -> None:
        super().__init__(state, name)
        self._groups = sorted(groups)

    def run(self) -> None:
        observers = {group: clients.consumer(self.state.address, group) for group in self._groups}
        reader = clients.reader(self.state.address, **{"isolation.level": "read_uncommitted"})
        try:
            while not self.stopping.wait(_PAUSE_S):
                self._ask_latest(reader)
                for group, observer in observers.items():
                    self._ask_committed(group, observer)
        finally:
            for consumer in (reader, *observers.values()):
                consumer.close()

    def _ask_latest(self, reader: Consumer) -> None:
        for partition in self.rng.sample(self.state.partitions, len(self.state.partitions)):
            begun_at_ns = self.state.recorder.now_ns()
            try:
                marks = reader.get_watermark_offsets(clients.client_partition(partition), timeout=_ANSWER_TIMEOUT_S)
            except KafkaException:
                continue
            if marks is not None:
                self.state.recorder.record(LatestSeen, begun_at_ns, self.name, partition, marks[1])

    def _ask_committed(self, group: str, observer: Consumer) -> None:
        begun_at_ns = self.state.recorder.now_ns()
        partitions = [clients.client_partition(partition) for partition in self.state.partitions]
        try:
            results = observer.committed(partitions, timeout=_ANSWER_TIMEOUT_S)
        except KafkaException:
            return
        for partition, result in zip(self.state.partitions, results, strict=True):
            if result.error is None:
                offset = result.offset if result.offset >= 0 else None
                self.state.recorder.record(CommittedSeen, begun_at_ns, self.name, group, partition, offset)
