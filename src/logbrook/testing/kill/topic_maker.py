"""Creates a topic when it is told to, and writes to it as soon as it is there."""

from threading import Event

from logbrook.model import TopicPartition
from logbrook.testing.kill import clients
from logbrook.testing.kill.clients import KafkaError, KafkaException, Message, NewTopic
from logbrook.testing.kill.payloads import payload
from logbrook.testing.kill.scene import Client, Scene

_ANSWER_TIMEOUT_S = 5.0
_VALUES = 20


class TopicMaker(Client):
    """`make` returns at once. Only a creation that was acknowledged is recorded: others may be there or not."""

    def __init__(self, scene: Scene, name: str) -> None:
        super().__init__(scene, name)
        self.made: list[TopicPartition] = []
        """The partitions of topics that are sure to be there."""
        self._told = Event()
        self._asked = Event()
        self._topics = 0

    def make(self, timeout_s: float) -> None:
        """Returns when the request is about to leave."""
        self._asked.clear()
        self._told.set()
        self._asked.wait(timeout_s)

    def run(self) -> None:
        admin = clients.admin_client(self.scene.address)
        while not self.stopping.is_set():
            if self._told.wait(0.1):
                self._told.clear()
                self._topics += 1
                topic, partitions = f"made-{self._topics}", self.rng.randint(1, 4)
                created = admin.create_topics([NewTopic(topic, partitions, 1)], request_timeout=_ANSWER_TIMEOUT_S)[
                    topic
                ]
                self._asked.set()
                try:
                    created.result(2 * _ANSWER_TIMEOUT_S)
                except (KafkaException, TimeoutError):
                    continue
                self.scene.recorder.topic_created(topic, partitions)
                self.made += [TopicPartition(topic, number) for number in range(partitions)]
                self._write(topic, partitions)

    def _write(self, topic: str, partitions: int) -> None:
        name, recorder = f"{self.name}.{self._topics}", self.scene.recorder
        recorder.producer_started(name, idempotent=True)
        producer = clients.producer(self.scene.address, **{"enable.idempotence": True})

        def answered(error: KafkaError | None, message: Message) -> None:
            number, offset = message.partition(), message.offset()
            assert number is not None, "it was sent to a partition"
            partition, value = TopicPartition(topic, number), values[number, message.key()]
            if error is None and offset is not None:
                recorder.acknowledged(name, partition, offset, value)
            else:
                recorder.unknown(name, partition, value, "no offset" if error is None else error.name())

        values: dict[tuple[int, bytes | None], str] = {}
        for number in range(_VALUES):
            partition, value = TopicPartition(topic, number % partitions), f"{name}:{number}"
            key = str(number).encode()
            values[partition.partition, key] = value
            recorder.sent(name, partition, value)
            producer.produce(topic, payload(value, 100), key, partition=partition.partition, on_delivery=answered)
        clients.last_answers(self.scene, name, producer)
