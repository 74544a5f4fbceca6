"""Asks again and again for what must not go back: latest offsets, and what groups have committed."""

from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import Consumer, KafkaException
from logbrook.testing.kill.scene import Client, Scene

_ANSWER_TIMEOUT_S = 2.0
_PAUSE_S = 0.02


class Prober(Client):
    """A member of nothing. What it is not told it does not know: a question without an answer is no event."""

    def __init__(self, scene: Scene, name: str, groups: set[str]) -> None:
        super().__init__(scene, name)
        self._groups = sorted(groups)

    def run(self) -> None:
        observers = {group: clients.consumer(self.scene.address, group) for group in self._groups}
        asker = clients.reader(self.scene.address, **{"isolation.level": "read_uncommitted"})
        try:
            while not self.stopping.wait(_PAUSE_S):
                self._ask_latest(asker)
                for group, observer in observers.items():
                    self._ask_committed(group, observer)
        finally:
            for one in (asker, *observers.values()):
                one.close()

    def _ask_latest(self, asker: Consumer) -> None:
        for partition in self.rng.sample(self.scene.partitions, len(self.scene.partitions)):
            begun_at_ns = self.scene.recorder.now_ns()
            try:
                answer = asker.get_watermark_offsets(clients.client_partition(partition), timeout=_ANSWER_TIMEOUT_S)
            except KafkaException:
                continue
            if answer is not None:
                self.scene.recorder.latest_seen(begun_at_ns, self.name, partition, answer[1])

    def _ask_committed(self, group: str, observer: Consumer) -> None:
        begun_at_ns = self.scene.recorder.now_ns()
        asked = [clients.client_partition(partition) for partition in self.scene.partitions]
        try:
            answer = observer.committed(asked, timeout=_ANSWER_TIMEOUT_S)
        except KafkaException:
            return
        for partition, one in zip(self.scene.partitions, answer, strict=True):
            if one.error is None:
                offset = one.offset if one.offset >= 0 else None
                self.scene.recorder.committed_seen(begun_at_ns, self.name, group, partition, offset)
