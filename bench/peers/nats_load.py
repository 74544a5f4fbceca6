"""The load for NATS JetStream: nats-py. A partition is a stream with one subject.

The client is pure Python on asyncio and often the bottleneck: the table marks where, and two processes produce. PubAcks
are counted by a subscription to their reply subject, which is cheaper than a future per message.
"""

import asyncio
import importlib
import itertools
import socket
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from bench.peers.load import (
    RETRY_S,
    TICK_S,
    WAIT_S_MAX,
    Job,
    Load,
    LoadError,
    Spent,
    age_ms,
    messages,
    quantiles,
    spending,
    stamped,
)

_IN_FLIGHT_MAX = 4_000
_IN_FLIGHT_BYTES_MAX = 8_000_000
_T = TypeVar("_T")


class NatsLoad(Load):
    def ready(self, job: Job) -> None:
        super().ready(job)
        _nats()

    def create(self, job: Job) -> None:
        _run(_create(job))

    def delete(self, job: Job) -> None:
        _run(_delete(job))

    def produce(self, job: Job) -> Spent:
        return _run(_produce(job))

    def consume(self, job: Job) -> Spent:
        return _run(_consume(job))

    def acknowledged(self, job: Job) -> dict[str, float]:
        return _run(_acknowledged(job))

    def send_stamped(self, job: Job) -> None:
        _run(_send_stamped(job))

    def receive_stamped(self, job: Job) -> dict[str, float]:
        return _run(_receive_stamped(job))

    def wait_for_ack(self, job: Job) -> None:
        _run(_wait_for_ack(job))

    def connect_and_ping(self, job: Job) -> socket.socket:
        connection = socket.create_connection((job.host, job.port), 10.0)
        connection.recv(4096)
        connection.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        if not connection.recv(64).startswith(b"PONG"):
            connection.close()
            raise ConnectionError("closed or refused before the reply")
        return connection


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


def _nats() -> Any:
    """Import the client, which is in the optional extra `bench`."""
    return importlib.import_module("nats")


@asynccontextmanager
async def _connected(job: Job) -> AsyncIterator[Any]:
    client = await _nats().connect(f"nats://{job.address}", allow_reconnect=False, connect_timeout=10)
    try:
        yield client
    finally:
        await client.close()


def _subjects(job: Job) -> list[str]:
    return [f"{job.topic}-{number}" for number in range(job.partitions)]


async def _create(job: Job) -> None:
    async with _connected(job) as client:
        stream = client.jetstream(timeout=WAIT_S_MAX)
        for subject in _subjects(job):
            await stream.add_stream(name=subject, subjects=[subject])


async def _delete(job: Job) -> None:
    async with _connected(job) as client:
        stream = client.jetstream(timeout=WAIT_S_MAX)
        for subject in _subjects(job):
            await stream.delete_stream(subject)


class _Acks:
    """Counts the PubAcks of messages that were published with `subject` as their reply subject."""

    def __init__(self, client: Any) -> None:
        self.subject = client.new_inbox()
        self.count = 0
        self.error = ""
        self._goal = 0
        self._reached = asyncio.Event()

    async def on_message(self, message: Any) -> None:
        if b'"error"' in message.data:
            self.error = message.data.decode()
            self._reached.set()
        self.count += 1
        if self.count >= self._goal:
            self._reached.set()

    async def wait_for(self, goal: int) -> None:
        if self.count < goal:
            self._goal = goal
            self._reached.clear()
            try:
                await asyncio.wait_for(self._reached.wait(), WAIT_S_MAX)
            except TimeoutError:
                raise LoadError(f"{goal - self.count} messages were not acknowledged") from None
        if self.error:
            raise LoadError(self.error)


async def _produce(job: Job) -> Spent:
    async with _connected(job) as client:
        acks = _Acks(client)
        await client.subscribe(acks.subject, cb=acks.on_message, pending_bytes_limit=-1, pending_msgs_limit=-1)
        pool, subjects = messages(job.size), _subjects(job)
        in_flight_max = max(16, min(_IN_FLIGHT_MAX, _IN_FLIGHT_BYTES_MAX // job.size))
        with spending(job.count) as spent:
            for number in range(job.count):
                await client.publish(subjects[number % len(subjects)], pool[number % len(pool)], reply=acks.subject)
                if number - acks.count > in_flight_max:
                    await acks.wait_for(number - in_flight_max // 2)
            await acks.wait_for(job.count)
        return spent


async def _consume(job: Job) -> Spent:
    """Use ordered consumers: the server pushes messages, with flow control."""
    async with _connected(job) as client:
        stream = client.jetstream(timeout=WAIT_S_MAX)
        received = 0
        is_complete = asyncio.Event()

        async def on_message(_message: Any) -> None:
            nonlocal received
            received += 1
            if received == job.count:
                is_complete.set()

        with spending(job.count) as spent:
            for subject in _subjects(job):
                await stream.subscribe(subject, stream=subject, ordered_consumer=True, cb=on_message)
            try:
                await asyncio.wait_for(is_complete.wait(), WAIT_S_MAX)
            except TimeoutError:
                raise LoadError(f"{job.count - received} messages did not arrive") from None
        return spent


async def _paced(job: Job) -> AsyncIterator[int]:
    """Like `load.paced`, without blocking the event loop."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    sent = 0
    while sent < job.count:
        due = min(job.count, int((loop.time() - started) * job.rate) + 1)
        if due > sent:
            yield due - sent
            sent = due
        await _pause(TICK_S)


async def _pause(pause_s: float) -> None:
    tick = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(pause_s, tick.set_result, None)
    await tick


async def _acknowledged(job: Job) -> dict[str, float]:
    async with _connected(job) as client:
        inbox = client.new_inbox()
        sent: list[float] = []
        latencies = [0.0] * job.count
        remaining = job.count
        is_complete = asyncio.Event()

        async def on_message(message: Any) -> None:
            nonlocal remaining
            number = int(message.subject.rpartition(".")[2])
            latencies[number] = 1_000 * (time.monotonic() - sent[number])
            remaining -= 1
            if remaining == 0 or b'"error"' in message.data:
                is_complete.set()

        await client.subscribe(f"{inbox}.*", cb=on_message)
        subject, value, numbers = _subjects(job)[0], messages(job.size)[0], itertools.count()
        started = time.monotonic()
        async for due in _paced(job):
            for _ in range(due):
                sent.append(time.monotonic())
                await client.publish(subject, value, reply=f"{inbox}.{next(numbers)}")
        took_s = time.monotonic() - started
        await asyncio.wait_for(is_complete.wait(), WAIT_S_MAX)
        if remaining:
            raise LoadError(f"{remaining} messages were not acknowledged")
        return quantiles(latencies, took_s)


async def _send_stamped(job: Job) -> None:
    async with _connected(job) as client:
        acks = _Acks(client)
        await client.subscribe(acks.subject, cb=acks.on_message)
        subject, value = _subjects(job)[0], messages(job.size)[0]
        async for due in _paced(job):
            for _ in range(due):
                await client.publish(subject, stamped(value), reply=acks.subject)
        await acks.wait_for(job.count)


async def _receive_stamped(job: Job) -> dict[str, float]:
    async with _connected(job) as client:
        ages: list[float] = []
        is_complete = asyncio.Event()

        async def on_message(message: Any) -> None:
            ages.append(age_ms(message.data))
            if len(ages) == job.count:
                is_complete.set()

        started = time.monotonic()
        subject = _subjects(job)[0]
        stream = client.jetstream(timeout=WAIT_S_MAX)
        await stream.subscribe(subject, stream=subject, ordered_consumer=True, cb=on_message)
        try:
            await asyncio.wait_for(is_complete.wait(), WAIT_S_MAX)
        except TimeoutError:
            raise LoadError(f"{job.count - len(ages)} messages did not arrive") from None
        return quantiles(ages, time.monotonic() - started)


async def _wait_for_ack(job: Job) -> None:
    """Retry until the server listens, which it does once its streams are loaded."""
    until = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            with socket.create_connection((job.host, job.port), 1.0) as connection:
                if connection.recv(4):
                    break
        except OSError:
            pass
        if time.monotonic() > until:
            raise LoadError(f"the server did not answer within {WAIT_S_MAX:.0f} s")
        await _pause(RETRY_S)
    async with _connected(job) as client:
        await client.jetstream(timeout=WAIT_S_MAX).publish(_subjects(job)[0], messages(job.size)[0])
