"""Clients of a chaos test written in Python: a producer of kafka-python, a producer and a consumer of aiokafka.

Each is replaced by a new one after some seconds. A write that the library gives up is unknown: it may be in the log.
"""

import asyncio
import logging
import warnings
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from logbrook.model import TopicPartition
from logbrook.testing.history.events import Acknowledged, Polled, ProducerStarted, Sent, Unknown
from logbrook.testing.kill.load_client import TOPIC, LoadClient, LoadState, payload, value_of
from logbrook.testing.kill.plan import ClientMissingError

try:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka import TopicPartition as AiokafkaPartition
    from aiokafka.errors import KafkaError as AiokafkaError

    with warnings.catch_warnings():
        # Its way of reading its schemas is deprecated in Python.
        warnings.filterwarnings("ignore", "(open|read)_text is deprecated", DeprecationWarning)
        from kafka import KafkaProducer
        from kafka.errors import KafkaError as KafkaPythonError
except ImportError as error:
    raise ClientMissingError("kafka-python and aiokafka") from error

_LIFETIME_S = (4.0, 15.0)
_REQUEST_TIMEOUT_MS = 10_000
_DELIVERY_TIMEOUT_MS = 120_000
_FLUSH_S = 60.0
_BYTES_MAX = 500
_OUTSTANDING_MAX = 200
_POLL_MS = 100
_CONNECT_RETRY_S = 0.2

# Both warn of every connection that is lost.
for _name in ("aiokafka", "kafka"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class _PythonProducer(LoadClient):
    """The history of a succession of producers of a Python library."""

    def __init__(self, state: LoadState, name: str, *, idempotent: bool) -> None:
        super().__init__(state, name)
        self._idempotent = idempotent
        self._producers = 0
        self._values = 0
        self.outstanding = 0

    def begin(self) -> tuple[str, float]:
        """A new producer begins. Return its name and when it ends."""
        self._producers += 1
        name = f"{self.name}.{self._producers}"
        self.state.recorder.record(ProducerStarted, name, idempotent=self._idempotent)
        return name, monotonic() + self.rng.uniform(*_LIFETIME_S)

    def burst(self) -> range:
        return range(self.rng.randint(1, self.state.pace.burst_max))

    def pause_s(self) -> float:
        return self.rng.uniform(0, 2 * self.state.pace.pause_s)

    def next_write(self, name: str) -> tuple[TopicPartition, str, bytes]:
        self._values += 1
        partition, value = self.rng.choice(self.state.partitions), f"{name}:{self._values}"
        self.state.recorder.record(Sent, name, partition, value)
        self.outstanding += 1
        return partition, value, payload(value, int(_BYTES_MAX ** self.rng.random()))

    def acknowledged(self, name: str, partition: TopicPartition, value: str, metadata: Any) -> None:
        self.outstanding -= 1
        if metadata.offset >= 0:
            self.state.recorder.record(Acknowledged, name, partition, metadata.offset, value)
            self.state.acknowledged += 1
        else:
            self.state.recorder.record(Unknown, name, partition, value, "no offset")

    def failed(self, name: str, partition: TopicPartition, value: str, error: BaseException) -> None:
        self.outstanding -= 1
        self.state.recorder.record(Unknown, name, partition, value, repr(error))


class KafkaPythonClient(_PythonProducer):
    """Producers of kafka-python without idempotence: nothing is lost, and retries may write twice."""

    def __init__(self, state: LoadState, name: str) -> None:
        super().__init__(state, name, idempotent=False)

    def run(self) -> None:
        while not self.stopping.is_set():
            name, until = self.begin()
            producer = self._connect()
            if producer is None:
                return
            try:
                while not self.stopping.is_set() and monotonic() < until:
                    if self.outstanding < _OUTSTANDING_MAX:
                        for _ in self.burst():
                            self._send(producer, name)
                    self.stopping.wait(self.pause_s() or 0.001)
                producer.flush(0.01 if self.state.is_abandoned else _FLUSH_S)
            except KafkaPythonError:
                # The flush timed out: what follows fails, or is acknowledged late.
                pass
            finally:
                with suppress(KafkaPythonError):
                    producer.close(timeout=1)

    def _connect(self) -> KafkaProducer | None:
        """The constructor fails if no broker can be reached."""
        while not self.stopping.is_set():
            try:
                return KafkaProducer(
                    bootstrap_servers=self.state.address.split(","),
                    acks="all",
                    enable_idempotence=False,
                    request_timeout_ms=_REQUEST_TIMEOUT_MS,
                    delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
                    reconnect_backoff_max_ms=500,
                    linger_ms=2,
                )
            except KafkaPythonError:
                self.stopping.wait(_CONNECT_RETRY_S)
        return None

    def _send(self, producer: KafkaProducer, name: str) -> None:
        partition, value, data = self.next_write(name)
        try:
            future = producer.send(TOPIC, data, partition=partition.partition)
        except KafkaPythonError as error:
            self.failed(name, partition, value, error)
            return
        future.add_callback(partial(self.acknowledged, name, partition, value))
        future.add_errback(partial(self.failed, name, partition, value))


class AiokafkaClient(_PythonProducer):
    """Idempotent producers of aiokafka."""

    def __init__(self, state: LoadState, name: str) -> None:
        super().__init__(state, name, idempotent=True)

    def run(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        while not self.stopping.is_set():
            name, until = self.begin()
            producer = AIOKafkaProducer(
                bootstrap_servers=self.state.address,
                enable_idempotence=True,
                acks="all",
                request_timeout_ms=_REQUEST_TIMEOUT_MS,
                linger_ms=2,
            )
            try:
                await producer.start()
            except (AiokafkaError, OSError):
                await producer.stop()
                await _pause(_CONNECT_RETRY_S)
                continue
            try:
                await self._produce_with(producer, name, until)
            except AiokafkaError:
                # A fatal error of the producer: writes of unknown outcome, of which it cannot repeat all.
                pass
            finally:
                await _stop(producer)

    async def _produce_with(self, producer: AIOKafkaProducer, name: str, until: float) -> None:
        """Raises AiokafkaError."""
        while not self.stopping.is_set() and monotonic() < until:
            if self.outstanding < _OUTSTANDING_MAX:
                for _ in self.burst():
                    partition, value, data = self.next_write(name)
                    try:
                        future = await producer.send(TOPIC, data, partition=partition.partition)
                    except BaseException as error:
                        self.failed(name, partition, value, error)
                        raise
                    future.add_done_callback(partial(self._done, name, partition, value))
            await _pause(self.pause_s() or 0.001)
        flushed = asyncio.ensure_future(producer.flush())
        await asyncio.wait([flushed], timeout=0.01 if self.state.is_abandoned else _FLUSH_S)
        flushed.cancel()

    def _done(self, name: str, partition: TopicPartition, value: str, future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            self.failed(name, partition, value, asyncio.CancelledError())
        elif (error := future.exception()) is not None:
            self.failed(name, partition, value, error)
        else:
            self.acknowledged(name, partition, value, future.result())


class AiokafkaReader(LoadClient):
    """A read_committed consumer of aiokafka without a group, which reads every partition from the start."""

    def run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.state.address,
            isolation_level=self.state.isolation,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            auto_offset_reset="none",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            partitions = [AiokafkaPartition(TOPIC, partition.partition) for partition in self.state.partitions]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
            while not self.stopping.is_set():
                records = await consumer.getmany(timeout_ms=_POLL_MS)
                for partition, messages in records.items():
                    for message in messages:
                        place = TopicPartition(partition.topic, partition.partition)
                        self.state.recorder.record(
                            Polled, self.name, "", place, message.offset, value_of(message.value)
                        )
        finally:
            await consumer.stop()


async def _stop(producer: AIOKafkaProducer) -> None:
    """Stop a producer; records that it still has are given up after a second."""
    stopping = asyncio.ensure_future(producer.stop())
    await asyncio.wait([stopping], timeout=1.0)
    if not stopping.done():
        stopping.cancel()
        await asyncio.wait([stopping], timeout=1.0)


async def _pause(seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
    except TimeoutError:
        pass
