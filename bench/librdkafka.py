"""A load on librdkafka's C API: thousands of messages per call, without Python code per message.

The library is the one in the confluent-kafka package. Through confluent-kafka's own API, Python would be the bottleneck
with 100-byte messages.
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
# As an absolute offset: to look up the log start offset, the library takes half a second.
_BEGINNING = 0
_METADATA_S_MAX = 60.0
# Runs of messages per partition in a pool.
_RUNS_PER_PARTITION = 8
_ERROR_TEXT_BYTES = 512
_TICK_MS = 1

_QUIET = {"log_level": 2}
_FLUSH_S_MAX = 180.0
# A consumer's prefetch: as librdkafka's own performance tool, and without the pause of 1 s when the queue is full,
# which would dominate with small messages.
_PREFETCH = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 5}


class LibrdkafkaError(Exception):
    """An error reported by librdkafka."""


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


# Indexes of a message's error and length, read as 32-bit integers by the compiled callbacks below. No length needs
# more.
_ERR_AT, _LEN_AT = Message.err.offset // 4, Message.len.offset // 4


class Pool:
    """Messages in the library's format: in runs per partition, as a sticky partitioner sends them, or round-robin."""

    def __init__(
        self, values: Sequence[bytes], partitions: int, *, in_turn: bool = False, keys: Sequence[bytes] = ()
    ) -> None:
        self._values = values
        self._keys = keys
        runs = partitions * max(1, min(_RUNS_PER_PARTITION, len(values) // partitions))
        self.messages = (Message * len(values))()
        for number, (message, value) in enumerate(zip(self.messages, values, strict=True)):
            message.payload, message.len = value, len(value)
            message.partition = (number if in_turn else number * runs // len(values)) % partitions
        for message, key in zip(self.messages, keys, strict=False):
            message.key, message.key_len = key, len(key)

    def __len__(self) -> int:
        return len(self._values)


class Producer:
    """A producer handle. `_delivered` writes an error, the number of acknowledgements and latencies to `reports`."""

    def __init__(self, handle: int, topic: int, reports: "np.ndarray[Any, np.dtype[np.int64]]") -> None:
        self._handle = handle
        self._topic = topic
        self._reports = reports

    def produce(self, pool: Pool, count: int) -> None:
        """Enqueue the first `count` messages of the pool; blocks while the queue is full. Raises LibrdkafkaError."""
        enqueued = _library().rd_kafka_produce_batch(self._topic, 0, _COPY | _BLOCK | _PARTITION, pool.messages, count)
        if enqueued != count:
            raise LibrdkafkaError(f"enqueued {enqueued} of {count} messages")

    def produce_at(self, pool: Pool, count: int, rate: int) -> float:
        """Enqueue `count` messages at `rate` per second, once per millisecond. Return the seconds until the last is
        enqueued."""
        started, sent = time.monotonic(), 0
        while sent < count:
            due = min(count - sent, len(pool), int((time.monotonic() - started) * rate) + 1 - sent)
            if due > 0:
                self.produce(pool, due)
                sent += due
            _library().rd_kafka_poll(self._handle, _TICK_MS)
        return time.monotonic() - started

    def flush(self) -> None:
        """Wait until everything is acknowledged. Raises LibrdkafkaError."""
        error = _library().rd_kafka_flush(self._handle, int(1_000 * _FLUSH_S_MAX)) or int(self._reports[0])
        if error:
            raise LibrdkafkaError(_text_of(error))

    def latencies_ms(self) -> list[float]:
        """Return the times from enqueueing to acknowledgement, in the order of acknowledgements."""
        count = int(self._reports[1])
        return [float(latency_us) / 1e3 for latency_us in self._reports[2 : 2 + count]]


@contextmanager
def producing(settings: Mapping[str, Any], topic: str, *, timed: int = 0) -> Iterator[Producer]:
    """Open a producer with acks=all. `timed` is the number of messages it will send if their latencies are kept;
    without it only failures are reported."""
    library = _library()
    reports = np.zeros(2 + timed, dtype=np.int64)
    conf = _conf({"acks": "all", **settings, "delivery.report.only.error": "false" if timed else "true"})
    library.rd_kafka_conf_set_opaque(conf, reports.ctypes.data)
    library.rd_kafka_conf_set_dr_msg_cb(conf, _delivered().address)
    with _handle(_PRODUCER, conf) as handle, _topic(handle, topic) as topic_handle:
        yield Producer(handle, topic_handle, reports)


def latencies_ms(address: str, topic: str, pool: Pool, count: int, rate: int) -> tuple[list[float], float]:
    """Send `count` messages at `rate` per second; return their latencies in ms, and the seconds of sending.

    The producer is idempotent and does not linger. Raises LibrdkafkaError.
    """
    settings = {"bootstrap.servers": address, "linger.ms": 0, "enable.idempotence": True}
    with producing(settings, topic, timed=1 + count) as producer:
        # The first message does not count: it waits for InitProducerId.
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

    def consume(self, count: int, wait_s: float, passes: int = 1) -> tuple[int, int]:
        """Consume at least `count` messages, in each pass from the beginning; return how many and the bytes of values.

        Raises LibrdkafkaError if none arrives for `wait_s`.
        """
        seen = np.zeros(3, dtype=np.int64)
        for number in range(passes):
            if number:
                self._stop()
            self._start()
            self._read(seen, int(seen[0]) + count, wait_s)
        return int(seen[0]), int(seen[1])

    def _read(self, seen: "np.ndarray[Any, np.dtype[np.int64]]", count: int, wait_s: float) -> None:
        library = _library()
        counted = seen.ctypes.data_as(ctypes.c_void_p)
        until_s, before = time.monotonic() + wait_s, int(seen[0])
        while seen[0] < count:
            library.rd_kafka_consume_callback_queue(self._queue, int(1_000 * wait_s), _counting().address, counted)
            if seen[2]:
                raise LibrdkafkaError(_text_of(int(seen[2])))
            # The call may return early without messages.
            if seen[0] > before:
                until_s, before = time.monotonic() + wait_s, int(seen[0])
            elif time.monotonic() > until_s:
                raise LibrdkafkaError(f"{count - before} messages did not arrive")

    def _start(self) -> None:
        for number in range(self._partitions):
            if _library().rd_kafka_consume_start_queue(self._topic, number, _BEGINNING, self._queue):
                raise LibrdkafkaError(_text_of(_library().rd_kafka_last_error()))

    def _stop(self) -> None:
        for number in range(self._partitions):
            _library().rd_kafka_consume_stop(self._topic, number)

    def close(self) -> None:
        self._stop()
        _library().rd_kafka_queue_destroy(self._queue)


@contextmanager
def consuming(
    address: str, topic: str, partitions: int, settings: Mapping[str, Any] | None = None
) -> Iterator[Consumer]:
    with (
        _handle(_CONSUMER, _conf({"bootstrap.servers": address, **_PREFETCH, **(settings or {})})) as handle,
        _topic(handle, topic) as topic_handle,
    ):
        consumer = Consumer(handle, topic_handle, partitions)
        try:
            yield consumer
        finally:
            consumer.close()


@cache
def _counting() -> Any:
    """Return a compiled callback that writes message count, bytes and the last error to its three integers."""

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
    """Return a compiled callback that writes the last error and the latencies of acknowledgements to `reports`."""
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
    """Load the library and compile the callbacks in advance."""
    _counting()
    _delivered()


def _conf(settings: Mapping[str, Any]) -> int:
    library = _library()
    conf: int = library.rd_kafka_conf_new()
    error_text = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
    for name, value in {**_QUIET, **settings}.items():
        if library.rd_kafka_conf_set(conf, name.encode(), str(value).encode(), error_text, len(error_text)):
            raise LibrdkafkaError(error_text.value.decode())
    return conf


@contextmanager
def _handle(kind: int, conf: int) -> Iterator[int]:
    library = _library()
    error_text = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
    handle = library.rd_kafka_new(kind, conf, error_text, len(error_text))
    if not handle:
        raise LibrdkafkaError(error_text.value.decode())
    try:
        yield handle
    finally:
        library.rd_kafka_destroy(handle)


@contextmanager
def _topic(handle: int, name: str) -> Iterator[int]:
    library = _library()
    topic = library.rd_kafka_topic_new(handle, name.encode(), None)
    try:
        # Connects and loads the partitions before the measurement.
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
    argument_types = {
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
        # With a type that Numba can call.
        "message_latency": (ctypes.POINTER(ctypes.c_int32),),
        "consume_start_queue": (address, ctypes.c_int32, ctypes.c_int64, address),
        "consume_stop": (address, ctypes.c_int32),
        "consume_callback_queue": (address, ctypes.c_int, address, address),
    }
    for name, types in argument_types.items():
        getattr(library, f"rd_kafka_{name}").argtypes = types
    return library
