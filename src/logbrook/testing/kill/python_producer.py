"""An idempotent producer of another library, kafka-python: another opinion on what to retry, and when to give up."""

import logging
from functools import partial
from importlib import import_module
from threading import Semaphore
from time import monotonic
from typing import Any

from logbrook.model import TopicPartition
from logbrook.testing.kill.errors import ClientMissingError
from logbrook.testing.kill.payloads import payload
from logbrook.testing.kill.scene import Client, Scene

_LIFE_S = (2.0, 10.0)
_OUTSTANDING_MAX = 100
_FLUSH_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 5.0


class PythonProducer(Client):
    """Answers come in a thread of the library's."""

    def __init__(self, scene: Scene, name: str) -> None:
        super().__init__(scene, name)
        try:
            self._library = import_module("kafka")
        except ImportError as error:
            raise ClientMissingError("kafka-python") from error
        # It warns of every connection that breaks, and here they all do.
        logging.getLogger("kafka").addHandler(logging.NullHandler())

    def run(self) -> None:
        lives = 0
        while not self.stopping.is_set():
            producer = self._connect()
            if producer is None:
                self.stopping.wait(0.1)
                continue
            lives += 1
            self._live(producer, f"{self.name}.{lives}", monotonic() + self.rng.uniform(*_LIFE_S))

    def _connect(self) -> Any:
        """None while the broker is away."""
        try:
            return self._library.KafkaProducer(
                bootstrap_servers=self.scene.address,
                enable_idempotence=True,
                delivery_timeout_ms=60_000,
                request_timeout_ms=5_000,
                bootstrap_timeout_ms=1_000,
                max_block_ms=10_000,
                linger_ms=2,
                retry_backoff_ms=20,
                reconnect_backoff_ms=10,
                reconnect_backoff_max_ms=100,
            )
        except self._library.errors.KafkaError:
            return None

    def _live(self, producer: Any, name: str, until: float) -> None:
        self.scene.recorder.producer_started(name, idempotent=True)
        room = Semaphore(_OUTSTANDING_MAX)
        number = 0
        while not self.stopping.is_set() and monotonic() < until:
            if room.acquire(timeout=0.1):
                number += 1
                self._send(producer, name, f"{name}:{number}", room)
        try:
            producer.flush(timeout=_FLUSH_TIMEOUT_S)
        except self._library.errors.KafkaError as error:
            self.scene.problems.append(f"{name} had writes without an answer at its end: {error!r}")
        producer.close(timeout=_CLOSE_TIMEOUT_S)

    def _send(self, producer: Any, name: str, value: str, room: Semaphore) -> None:
        partition = self.rng.choice(self.scene.partitions)
        self.scene.recorder.sent(name, partition, value)
        try:
            answer = producer.send(
                partition.topic, payload(value, int(500 ** self.rng.random())), partition=partition.partition
            )
        except self._library.errors.KafkaError as error:
            self.scene.recorder.unknown(name, partition, value, repr(error))
            room.release()
            return
        answer.add_both(partial(self._answered, name, partition, value, room, answer))

    def _answered(
        self, name: str, partition: TopicPartition, value: str, room: Semaphore, answer: Any, _: object
    ) -> None:
        if answer.succeeded():
            self.scene.recorder.acknowledged(name, partition, answer.value.offset, value)
            self.scene.acknowledged += 1
        else:
            self.scene.recorder.unknown(name, partition, value, repr(answer.exception))
        room.release()
