"""librdkafka by its C functions: thousands of messages a call, and nothing of Python for each of them.

It is the library that confluent-kafka brings along. Through confluent-kafka itself the load would be Python, and at
100 bytes that is what would be measured.
"""

import ctypes
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
import numba
import numpy as np

_PRODUCER, _CONSUMER = 0, 1
_COPY, _BLOCK, _PARTITION = 0x2, 0x4, 0x8
# By its number: to look up where the log begins, the library takes half a second.
_BEGINNING = 0
_METADATA_S_MAX = 60.0
# How often each partition has its turn in a pool.
_TURNS = 8
_ERROR_TEXT_BYTES = 512
_TICK_MS = 1

_QUIET = {"log_level": 2}
_FLUSH_S_MAX = 180.0
# How far a consumer reads ahead: as far as librdkafka's own performance tool, and no pause of a second once it has.
# With its defaults that pause is what small messages are measured by.
_AHEAD = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 5}


class LibrdkafkaError(Exception):
    """What the library said."""


class Message(ctypes.Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_char_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_char_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


# Of a message that comes back: where its error and its length are, as the compiled callbacks below read them.
# Both as numbers of 32 bits, which no message is too long for.
_ERR_AT, _LEN_AT = Message.err.offset // 4, Message.len.offset // 4


class Pool:
    """Messages in the form that the library takes: some to one partition, then some to the next, as a client with
    sticky partitions sends them; or one to each in turn."""

    def __init__(self, values: Sequence[bytes], partitions: int, *, in_turn: bool = False) -> None:
        self._values = values
        runs = partitions * max(1, min(_TURNS, len(values) // partitions))
        self.messages = (Message * len(values))()
        for number, (message, value) in enumerate(zip(self.messages, values, strict=True)):
            message.payload, message.len = value, len(value)
            message.partition = (number if in_turn else number * runs // len(values)) % partitions

    def __len__(self) -> int:
        return len(self._values)


class Producer:
    """`reports` is what `_delivered` writes to: an error, how many were acknowledged, and how long each took."""

    def __init__(self, handle: int, topic: int, reports: "np.ndarray[Any, np.dtype[np.int64]]") -> None:
        self._handle = handle
        self._topic = topic
        self._reports = reports

    def produce(self, pool: Pool, count: int) -> None:
        """The first `count` messages of the pool; waits while the queue is full. Raises LibrdkafkaError."""
        taken = _library().rd_kafka_produce_batch(self._topic, 0, _COPY | _BLOCK | _PARTITION, pool.messages, count)
        if taken != count:
            raise LibrdkafkaError(f"took {taken} messages of {count}")

    def produce_at(self, pool: Pool, count: int, rate: int) -> float:
        """`count` messages, `rate` a second, those of each millisecond together. Returns how long it took, without
        waiting for the last of them."""
        started, sent = time.monotonic(), 0
        while sent < count:
            due = min(count - sent, len(pool), int((time.monotonic() - started) * rate) + 1 - sent)
            if due > 0:
                self.produce(pool, due)
                sent += due
            _library().rd_kafka_poll(self._handle, _TICK_MS)
        return time.monotonic() - started

    def flush(self) -> None:
        """Returns when everything is acknowledged. Raises LibrdkafkaError."""
        error = _library().rd_kafka_flush(self._handle, int(1_000 * _FLUSH_S_MAX)) or int(self._reports[0])
        if error:
            raise LibrdkafkaError(_text_of(error))

    def latencies_ms(self) -> list[float]:
        """From the call that sent it to its acknowledgement, in the order of the latter."""
        count = int(self._reports[1])
        return [float(one) for one in self._reports[2 : 2 + count] / 1e3]


@contextmanager
def producing(settings: Mapping[str, Any], topic: str, *, timed: int = 0) -> Iterator[Producer]:
    """With acks=all. The latencies of `timed` messages are kept, which are to be all; without it only failures are
    reported."""
    library = _library()
    reports = np.zeros(2 + timed, dtype=np.int64)
    conf = _conf({"acks": "all", **settings, "delivery.report.only.error": "false" if timed else "true"})
    library.rd_kafka_conf_set_opaque(conf, reports.ctypes.data)
    library.rd_kafka_conf_set_dr_msg_cb(conf, _delivered().address)
    with _handle(_PRODUCER, conf) as handle, _topic(handle, topic) as of_topic:
        yield Producer(handle, of_topic, reports)


def latencies_ms(address: str, topic: str, pool: Pool, count: int, rate: int) -> tuple[list[float], float]:
    """How long each of `count` messages at `rate` a second took to be acknowledged, and how long sending them took.

    An idempotent producer, as most clients of today are, and no lingering. Raises LibrdkafkaError.
    """
    settings = {"bootstrap.servers": address, "linger.ms": 0, "enable.idempotence": True}
    with producing(settings, topic, timed=1 + count) as producer:
        # The first one is not counted: it waits for what an idempotent producer asks for before it sends.
        producer.produce(pool, 1)
        producer.flush()
        took_s = producer.produce_at(pool, count, rate)
        producer.flush()
        _, *latencies = producer.latencies_ms()
    if len(latencies) != count:
        raise LibrdkafkaError(f"{count - len(latencies)} messages were not acknowledged")
    return latencies, took_s


class Consumer:
    def __init__(self, handle: int, topic: int, partitions: int) -> None:
        self._queue = _library().rd_kafka_queue_new(handle)
        self._topic = topic
        self._partitions = partitions

    def consume(self, count: int, wait_s: float) -> tuple[int, int]:
        """`count` messages from the beginning, or some more: how many, and how many bytes their values have. Raises
        LibrdkafkaError if none come for as long as it waits."""
        library = _library()
        for number in range(self._partitions):
            if library.rd_kafka_consume_start_queue(self._topic, number, _BEGINNING, self._queue):
                raise LibrdkafkaError(_text_of(library.rd_kafka_last_error()))
        seen = np.zeros(3, dtype=np.int64)
        counted = seen.ctypes.data_as(ctypes.c_void_p)
        until_s, before = time.monotonic() + wait_s, 0
        while seen[0] < count:
            library.rd_kafka_consume_callback_queue(self._queue, int(1_000 * wait_s), _counting().address, counted)
            if seen[2]:
                raise LibrdkafkaError(_text_of(int(seen[2])))
            # It may come back with nothing, though there is time left.
            if seen[0] > before:
                until_s, before = time.monotonic() + wait_s, int(seen[0])
            elif time.monotonic() > until_s:
                raise LibrdkafkaError(f"{count - before} messages did not come")
        return int(seen[0]), int(seen[1])

    def close(self) -> None:
        for number in range(self._partitions):
            _library().rd_kafka_consume_stop(self._topic, number)
        _library().rd_kafka_queue_destroy(self._queue)


@contextmanager
def consuming(address: str, topic: str, partitions: int) -> Iterator[Consumer]:
    with (
        _handle(_CONSUMER, _conf({"bootstrap.servers": address, **_AHEAD})) as handle,
        _topic(handle, topic) as of_topic,
    ):
        consumer = Consumer(handle, of_topic, partitions)
        try:
            yield consumer
        finally:
            consumer.close()


@cache
def _counting() -> Any:
    """Compiled: counts messages and their bytes, and keeps an error, in the three numbers that it is handed."""

    @numba.cfunc("void(CPointer(int32), CPointer(int64))")
    def count(message: Any, seen: Any) -> None:
        if message[_ERR_AT] != 0:
            seen[2] = message[_ERR_AT]
        else:
            seen[0] += 1
            seen[1] += message[_LEN_AT]

    return count


@cache
def _delivered() -> Any:
    """Compiled: keeps an error and the latency of what was acknowledged, in the numbers that it is handed."""
    latency = _library().rd_kafka_message_latency

    @numba.cfunc("void(voidptr, CPointer(int32), CPointer(int64))")
    def delivered(_handle: Any, message: Any, reports: Any) -> None:
        if message[_ERR_AT] != 0:
            reports[0] = message[_ERR_AT]
        else:
            reports[2 + reports[1]] = latency(message)
            reports[1] += 1

    return delivered


def get_ready() -> None:
    """Load and compile what a call would otherwise wait for."""
    _counting()
    _delivered()


def _conf(settings: Mapping[str, Any]) -> int:
    library = _library()
    conf: int = library.rd_kafka_conf_new()
    said = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
    for name, value in {**_QUIET, **settings}.items():
        if library.rd_kafka_conf_set(conf, name.encode(), str(value).encode(), said, len(said)):
            raise LibrdkafkaError(said.value.decode())
    return conf


@contextmanager
def _handle(kind: int, conf: int) -> Iterator[int]:
    library = _library()
    said = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
    handle = library.rd_kafka_new(kind, conf, said, len(said))
    if not handle:
        raise LibrdkafkaError(said.value.decode())
    try:
        yield handle
    finally:
        library.rd_kafka_destroy(handle)


@contextmanager
def _topic(handle: int, name: str) -> Iterator[int]:
    library = _library()
    topic = library.rd_kafka_topic_new(handle, name.encode(), None)
    try:
        # So that it is connected and knows the partitions before any time counts.
        metadata = ctypes.c_void_p()
        if error := library.rd_kafka_metadata(handle, 0, topic, ctypes.byref(metadata), int(1_000 * _METADATA_S_MAX)):
            raise LibrdkafkaError(_text_of(error))
        library.rd_kafka_metadata_destroy(metadata)
        yield topic
    finally:
        library.rd_kafka_topic_destroy(topic)


def _text_of(error: int) -> str:
    text: bytes = _library().rd_kafka_err2str(error)
    return text.decode()


@cache
def _library() -> ctypes.CDLL:
    package = Path(confluent_kafka.__file__).parent
    (path,) = [*package.parent.glob("confluent_kafka.libs/librdkafka-*"), *package.glob(".dylibs/librdkafka*")]
    library = ctypes.CDLL(str(path))
    pointers = ("conf_new", "new", "topic_new", "queue_new")
    for name in pointers:
        getattr(library, f"rd_kafka_{name}").restype = ctypes.c_void_p
    address = ctypes.c_void_p
    library.rd_kafka_err2str.restype = ctypes.c_char_p
    library.rd_kafka_message_latency.restype = ctypes.c_int64
    taken = {
        "conf_set": (address, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t),
        "conf_set_dr_msg_cb": (address, address),
        "conf_set_opaque": (address, address),
        "new": (ctypes.c_int, address, ctypes.c_char_p, ctypes.c_size_t),
        "destroy": (address,),
        "topic_new": (address, ctypes.c_char_p, address),
        "topic_destroy": (address,),
        "metadata": (address, ctypes.c_int, address, ctypes.POINTER(address), ctypes.c_int),
        "metadata_destroy": (address,),
        "queue_new": (address,),
        "queue_destroy": (address,),
        "produce_batch": (address, ctypes.c_int32, ctypes.c_int, address, ctypes.c_int),
        "poll": (address, ctypes.c_int),
        "flush": (address, ctypes.c_int),
        # In the terms that Numba can call it in.
        "message_latency": (ctypes.POINTER(ctypes.c_int32),),
        "consume_start_queue": (address, ctypes.c_int32, ctypes.c_int64, address),
        "consume_stop": (address, ctypes.c_int32),
        "consume_callback_queue": (address, ctypes.c_int, address, address),
    }
    for name, kinds in taken.items():
        getattr(library, f"rd_kafka_{name}").argtypes = kinds
    return library
