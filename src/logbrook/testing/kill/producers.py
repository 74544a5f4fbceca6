"""Producers that send bursts of values to all partitions, with many requests in flight.

Each producer lives for a few seconds and is replaced by a new one, so that every kill finds new producer ids to assign
and old producer state to keep. A value counts as failed only if it cannot have been written: it was never sent, or it
is larger than any batch may be. Everything else without an offset is unknown. A fatal error is raised by the library
and ends the client with a problem.
"""

from functools import partial
from time import monotonic

from logbrook.model import TopicPartition
from logbrook.testing.history.events import Failed, ProducerStarted, Sent
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import KafkaError, Message, Producer
from logbrook.testing.kill.load_client import LoadClient, LoadState, payload
from logbrook.testing.kill.plan import MESSAGE_BYTES_MAX

_TOO_LARGE_CHANCE = 0.002
_OUTSTANDING_MAX = 200
_PRODUCER_LIFETIME_S = (0.5, 6.0)


class ProducerClient(LoadClient):
    """A succession of producers with the same librdkafka `settings`."""

    def __init__(self, state: LoadState, name: str, settings: dict[str, object], *, idempotent: bool) -> None:
        super().__init__(state, name)
        self._settings = settings
        self._idempotent = idempotent
        self._producer_count = 0
        self._outstanding = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            self._producer_count += 1
            self._run_producer(
                f"{self.name}.{self._producer_count}", monotonic() + self.rng.uniform(*_PRODUCER_LIFETIME_S)
            )

    def _run_producer(self, name: str, until: float) -> None:
        self.state.recorder.record(ProducerStarted, name, idempotent=self._idempotent)
        settings: dict[str, object] = {**self._settings, "message.max.bytes": 4 * MESSAGE_BYTES_MAX}
        producer = clients.producer(self.state.address, **settings, **{"enable.idempotence": self._idempotent})
        number = self._outstanding = 0
        while not self.stopping.is_set() and monotonic() < until:
            for _ in range(self.rng.randint(1, self.state.pace.burst_max)):
                number += 1
                self._send(producer, name, f"{name}:{number}")
            producer.poll(self.rng.choice((0, 0.002, 0.01, 0.03)))
            clients.serve(producer, self.rng.uniform(0, 2 * self.state.pace.pause_s))
            while self._outstanding > _OUTSTANDING_MAX and not self.stopping.is_set():
                producer.poll(0.05)
        clients.flush_all(self.state, name, producer)

    def _send(self, producer: Producer, name: str, value: str) -> None:
        partition = self.rng.choice(self.state.partitions)
        size = int(2_000 ** self.rng.random())
        if not self._idempotent and self.rng.random() < _TOO_LARGE_CHANCE:
            size = 2 * MESSAGE_BYTES_MAX
        self.state.recorder.record(Sent, name, partition, value)
        on_delivery = partial(self._delivered, name, partition, value, size > MESSAGE_BYTES_MAX)
        try:
            producer.produce(
                partition.topic, payload(value, size), partition=partition.partition, on_delivery=on_delivery
            )
        except BufferError as error:
            self.state.recorder.record(Failed, name, partition, value, str(error))
        else:
            self._outstanding += 1

    def _delivered(
        self,
        name: str,
        partition: TopicPartition,
        value: str,
        is_too_large: bool,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        recorder = self.state.recorder
        self._outstanding -= 1
        if error is not None and is_too_large and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            recorder.record(Failed, name, partition, value, error.name())
        elif clients.record_delivery(recorder, name, partition, value, error, message):
            self.state.acknowledged += 1
            self.state.idempotent_acknowledged += self._idempotent


def producers(state: LoadState) -> list[ProducerClient]:
    """Two idempotent producers, one with retries, and one with acks=1 and no retries."""
    return [
        ProducerClient(state, "idempotent-0", {}, idempotent=True),
        ProducerClient(state, "idempotent-1", {"linger.ms": 0, "compression.type": "lz4"}, idempotent=True),
        ProducerClient(state, "plain-0", {"acks": "all"}, idempotent=False),
        ProducerClient(state, "plain-1", {"acks": 1, "retries": 0}, idempotent=False),
    ]
