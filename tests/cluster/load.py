"""A producer that writes to a topic until it is stopped, with acks=all."""

from threading import Event, Thread
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

# Between two records.
_PAUSE_S = 0.002
_FLUSH_S_MAX = 60


class Load:
    """Writes numbered records to all partitions. `acknowledged` has those that the cluster has confirmed."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.errors: list[str] = []
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "acks": "all", "enable.idempotence": True, "linger.ms": 1}
        )
        self._stopping = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(_FLUSH_S_MAX) == 0, "the records were not acknowledged"

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(_PAUSE_S):
            self._producer.produce(self._topic, b"%d" % number, on_delivery=self._on_delivery)
            self._producer.poll(0)
            number += 1

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is not None:
            self.errors.append(str(error))
        elif isinstance(value, bytes):
            self.acknowledged.append(value)
