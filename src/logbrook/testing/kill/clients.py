"""confluent-kafka clients with settings for fast reconnection.

Importing this module needs confluent-kafka; the rest of the test kit does not.
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from logbrook.model import TopicPartition
from logbrook.testing.history import Recorder
from logbrook.testing.history.events import Acknowledged, Unknown
from logbrook.testing.kill.load_client import LoadState
from logbrook.testing.kill.plan import SESSION_TIMEOUT_MS, ClientMissingError

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
    from confluent_kafka import TopicPartition as ClientPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic
except ImportError as error:
    raise ClientMissingError("confluent-kafka") from error

__all__ = [
    "AdminClient",
    "ClientPartition",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "MustAbortError",
    "NewTopic",
    "Producer",
    "admin_client",
    "client_partition",
    "consumer",
    "flush_all",
    "is_retriable",
    "producer",
    "reader",
    "record_delivery",
    "retry",
    "serve",
]

_POLL_INTERVAL_MS_MAX = 6_000
_DELIVERY_TIMEOUT_MS = 600_000
FLUSH_TIMEOUT_S = 30.0
_FLUSH_STEP_S = 0.1

_T = TypeVar("_T")

# Fenced producers are part of the load, and each writes its end to standard error otherwise.
_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())
_logger.propagate = False

_COMMON: dict[str, Any] = {
    "log_level": 0,
    "logger": _logger,
    "log.connection.close": False,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 5_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    # By default a producer drops its only broker when that is unreachable, but not the cached group coordinator:
    # offsets sent to a transaction then wait for a connection that is never opened (librdkafka issue 5511).
    "metadata.recovery.strategy": "none",
}


def producer(address: str, **settings: Any) -> Producer:
    """A producer whose delivery timeout is longer than a run."""
    defaults = {"message.timeout.ms": _DELIVERY_TIMEOUT_MS, "request.timeout.ms": 5_000, "linger.ms": 2}
    return Producer({**_COMMON, **defaults, "bootstrap.servers": address, **settings})


def is_retriable(error: KafkaError) -> bool:
    """True if the call may be repeated: it timed out or there was no connection, but nothing was refused."""
    return error.retriable() or error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._WAIT_COORD)


class MustAbortError(Exception):
    """The transaction can only be aborted; nothing of it is visible."""


def retry(call: Callable[[], _T], before_retry: Callable[[], None] = lambda: None) -> _T:
    """Call until it succeeds. Raises MustAbortError, KafkaException if it is not retriable, or as `before_retry`."""
    while True:
        try:
            return call()
        except KafkaException as raised:
            error = raised.args[0]
            if error.txn_requires_abort():
                raise MustAbortError(str(error)) from raised
            if error.fatal() or not is_retriable(error):
                raise
        before_retry()


def serve(sender: Producer, seconds: float) -> None:
    """Handle delivery reports for some time."""
    until = monotonic() + seconds
    while (remaining := until - monotonic()) > 0:
        sender.poll(remaining)


def flush_all(state: LoadState, name: str, sender: Producer) -> None:
    """Wait for all delivery reports. Writes without one after the timeout are unknown, and a problem.

    Only time with a running broker counts: on a slow machine, consecutive kills can exceed the timeout.
    """
    up_s = 0.0
    while sender.flush(_FLUSH_STEP_S) and up_s < FLUSH_TIMEOUT_S and not state.is_abandoned:
        up_s += _FLUSH_STEP_S if state.is_up else 0.0
    if len(sender):
        if not state.is_abandoned:
            waited = f"with the broker up for {FLUSH_TIMEOUT_S:.1f} s"
            state.problems.append(f"{name} had {len(sender)} writes without a response {waited}")
        sender.purge()
        sender.poll(0)


def record_delivery(
    recorder: Recorder, name: str, partition: TopicPartition, value: str, error: KafkaError | None, message: Message
) -> bool:
    """Record the delivery report of a value: acknowledged if it has an offset, else unknown. Returns True if
    it is acknowledged."""
    offset = message.offset()
    if error is None and offset is not None and offset >= 0:
        recorder.record(Acknowledged, name, partition, offset, value)
        return True
    recorder.record(Unknown, name, partition, value, "no offset" if error is None else error.name())
    return False


def consumer(address: str, group: str, **settings: Any) -> Consumer:
    """A consumer with manual commits: a group member, or an observer of its offsets if it only calls `committed`."""
    defaults = {
        "group.id": group,
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "max.poll.interval.ms": _POLL_INTERVAL_MS_MAX,
        "heartbeat.interval.ms": 300,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
        "fetch.error.backoff.ms": 20,
        "check.crcs": True,
    }
    return Consumer({**_COMMON, **defaults, "bootstrap.servers": address, **settings})


def reader(address: str, **settings: Any) -> Consumer:
    """A consumer for manual assignment; an offset out of range is an error instead of a reset."""
    defaults = {"auto.offset.reset": "error", "enable.partition.eof": True}
    return consumer(address, "kill-test-reader", **{**defaults, **settings})


def admin_client(address: str) -> AdminClient:
    return AdminClient({**_COMMON, "bootstrap.servers": address})


def client_partition(partition: TopicPartition, offset: int | None = None) -> ClientPartition:
    if offset is None:
        return ClientPartition(partition.topic, partition.partition)
    return ClientPartition(partition.topic, partition.partition, offset)
