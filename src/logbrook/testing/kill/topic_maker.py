"""Creates a topic on demand and writes to it as soon as it exists."""

from functools import partial
from threading import Event

from logbrook.model import TopicPartition
from logbrook.testing.history.events import ProducerStarted, Sent, TopicCreated
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import KafkaError, KafkaException, Message, NewTopic
from logbrook.testing.kill.load_client import LoadClient, LoadState, payload

_ANSWER_TIMEOUT_S = 5.0
_VALUES = 20


class TopicMaker(LoadClient):
    """Creates topics. Only acknowledged creations are recorded: others may or may not have taken effect."""

    def __init__(self, state: LoadState, name: str) -> None:
        super().__init__(state, name)
        self.made: list[TopicPartition] = []
        """The partitions of topics whose creation was acknowledged."""
        self._requested = Event()
        self._sending = Event()
        self._topics = 0

    def make(self, timeout_s: float) -> None:
        """Request a creation. Returns when the request is about to be sent."""
        self._sending.clear()
        self._requested.set()
        self._sending.wait(timeout_s)

    def run(self) -> None:
        admin = clients.admin_client(self.state.address)
        while not self.stopping.is_set():
            if self._requested.wait(0.1):
                self._requested.clear()
                self._topics += 1
                topic, partitions = f"made-{self._topics}", self.rng.randint(1, 4)
                created = admin.create_topics([NewTopic(topic, partitions, 1)], request_timeout=_ANSWER_TIMEOUT_S)[
                    topic
                ]
                self._sending.set()
                try:
                    created.result(2 * _ANSWER_TIMEOUT_S)
                except (KafkaException, TimeoutError):
                    continue
                self.state.recorder.record(TopicCreated, topic, partitions)
                self.made += [TopicPartition(topic, number) for number in range(partitions)]
                self._write(topic, partitions)

    def _write(self, topic: str, partitions: int) -> None:
        name, recorder = f"{self.name}.{self._topics}", self.state.recorder
        recorder.record(ProducerStarted, name, idempotent=True)
        producer = clients.producer(self.state.address, **{"enable.idempotence": True})

        def delivered(partition: TopicPartition, value: str, error: KafkaError | None, message: Message) -> None:
            clients.record_delivery(recorder, name, partition, value, error, message)

        for number in range(_VALUES):
            partition, value = TopicPartition(topic, number % partitions), f"{name}:{number}"
            recorder.record(Sent, name, partition, value)
            on_delivery = partial(delivered, partition, value)
            producer.produce(topic, payload(value, 100), partition=partition.partition, on_delivery=on_delivery)
        clients.flush_all(self.state, name, producer)
