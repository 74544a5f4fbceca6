"""Producers: bursts of values to all partitions, with as many on their way as the broker can be made to bear.

A producer lives for a while and is followed by another, so that the broker has new ones to give ids to, and old ones to
remember, at every kill. Only what cannot have been written has failed: a value that never left, or one that is too
large to be taken in any company. Everything else without an offset is unknown. A fatal error, of a producer that was
refused what it was promised, is raised by the library, and ends the client with a problem.
"""

from functools import partial
from time import monotonic

from logbrook.model import TopicPartition
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import KafkaError, Message, Producer
from logbrook.testing.kill.payloads import payload
from logbrook.testing.kill.plan import MESSAGE_BYTES_MAX
from logbrook.testing.kill.scene import Client, Scene

_TOO_LARGE_CHANCE = 0.002
_OUTSTANDING_MAX = 200
_LIFE_S = (0.5, 6.0)


class ProducerClient(Client):
    """One kind of producer: `settings` are the library's."""

    def __init__(self, scene: Scene, name: str, settings: dict[str, object], *, idempotent: bool) -> None:
        super().__init__(scene, name)
        self._settings = settings
        self._idempotent = idempotent
        self._lives = 0
        self._outstanding = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            self._lives += 1
            self._live(f"{self.name}.{self._lives}", monotonic() + self.rng.uniform(*_LIFE_S))

    def _live(self, name: str, until: float) -> None:
        self.scene.recorder.producer_started(name, idempotent=self._idempotent)
        library: dict[str, object] = {**self._settings, "message.max.bytes": 4 * MESSAGE_BYTES_MAX}
        producer = clients.producer(self.scene.address, **library, **{"enable.idempotence": self._idempotent})
        number = self._outstanding = 0
        while not self.stopping.is_set() and monotonic() < until:
            for _ in range(self.rng.randint(1, 40)):
                number += 1
                self._send(producer, name, f"{name}:{number}")
            producer.poll(self.rng.choice((0, 0.002, 0.01, 0.03)))
            while self._outstanding > _OUTSTANDING_MAX and not self.stopping.is_set():
                producer.poll(0.05)
        clients.last_answers(self.scene, name, producer)

    def _send(self, producer: Producer, name: str, value: str) -> None:
        partition = self.rng.choice(self.scene.partitions)
        size = int(2_000 ** self.rng.random())
        if not self._idempotent and self.rng.random() < _TOO_LARGE_CHANCE:
            size = 2 * MESSAGE_BYTES_MAX
        self.scene.recorder.sent(name, partition, value)
        answered = partial(self._answered, name, partition, value, size > MESSAGE_BYTES_MAX)
        try:
            producer.produce(partition.topic, payload(value, size), partition=partition.partition, on_delivery=answered)
        except BufferError as error:
            self.scene.recorder.failed(name, partition, value, str(error))
        else:
            self._outstanding += 1

    def _answered(
        self,
        name: str,
        partition: TopicPartition,
        value: str,
        is_too_large: bool,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        recorder = self.scene.recorder
        self._outstanding -= 1
        offset = message.offset()
        if error is None and offset is not None and offset >= 0:
            recorder.acknowledged(name, partition, offset, value)
            self.scene.acknowledged += 1
            self.scene.idempotent_acknowledged += self._idempotent
        elif error is not None and is_too_large and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            recorder.failed(name, partition, value, error.name())
        else:
            recorder.unknown(name, partition, value, "no offset" if error is None else error.name())


def producers(scene: Scene) -> list[ProducerClient]:
    """Two that are idempotent, one that retries, one that does not and waits for the leader alone."""
    return [
        ProducerClient(scene, "idempotent-0", {}, idempotent=True),
        ProducerClient(scene, "idempotent-1", {"linger.ms": 0, "compression.type": "lz4"}, idempotent=True),
        ProducerClient(scene, "plain-0", {"acks": "all"}, idempotent=False),
        ProducerClient(scene, "plain-1", {"acks": 1, "retries": 0}, idempotent=False),
    ]
