"""The clients that make the load: confluent-kafka, told to come back quickly.

The library is needed by what imports this module, and by nothing else of the test kit.
"""

from typing import Any

from logbrook.model import TopicPartition
from logbrook.testing.kill.errors import ClientMissingError
from logbrook.testing.kill.plan import SESSION_TIMEOUT_MS
from logbrook.testing.kill.scene import Scene

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
    "NewTopic",
    "Producer",
    "admin_client",
    "client_partition",
    "consumer",
    "last_answers",
    "may_pass",
    "producer",
    "reader",
]

_POLL_INTERVAL_MS_MAX = 6_000
_DELIVERY_TIMEOUT_MS = 600_000
FLUSH_TIMEOUT_S = 30.0
_FLUSH_STEP_S = 0.1

_COMMON: dict[str, Any] = {
    "log_level": 0,
    "log.connection.close": False,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 5_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    # With the library's default, a producer whose only broker is away forgets that broker, but not that it coordinates
    # the group: offsets that it sends to a transaction then wait for a connection that nobody makes (issue 5511 of
    # librdkafka).
    "metadata.recovery.strategy": "none",
}


def producer(address: str, **settings: Any) -> Producer:
    """Tries for longer than a run takes."""
    defaults = {"message.timeout.ms": _DELIVERY_TIMEOUT_MS, "request.timeout.ms": 5_000, "linger.ms": 2}
    return Producer({**_COMMON, **defaults, "bootstrap.servers": address, **settings})


def may_pass(error: KafkaError) -> bool:
    """Whether a call that failed so is to be made again: nothing was refused, there was just no answer yet."""
    return error.retriable() or error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._WAIT_COORD)


def last_answers(scene: Scene, name: str, sender: Producer) -> None:
    """Wait for them. A write that gets none while the broker is up for so long is unknown, and a problem.

    Only the time in which the broker is up counts: on a slow machine, kills in a row keep it away for longer than that.
    """
    up_s = 0.0
    while sender.flush(_FLUSH_STEP_S) and up_s < FLUSH_TIMEOUT_S and not scene.is_abandoned:
        up_s += _FLUSH_STEP_S if scene.is_up else 0.0
    if len(sender):
        if not scene.is_abandoned:
            waited = f"with the broker up for {FLUSH_TIMEOUT_S:.1f} s"
            scene.problems.append(f"{name} had {len(sender)} writes without an answer {waited}")
        sender.purge()
        sender.poll(0)


def consumer(address: str, group: str, **settings: Any) -> Consumer:
    """A member, or with `committed` alone a mere observer, of a group. It commits when it is told to."""
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
    """Reads what it is assigned, and never jumps: an offset that is out of range is an error."""
    defaults = {"auto.offset.reset": "error", "enable.partition.eof": True}
    return consumer(address, "kill-test-reader", **{**defaults, **settings})


def admin_client(address: str) -> AdminClient:
    return AdminClient({**_COMMON, "bootstrap.servers": address})


def client_partition(partition: TopicPartition, offset: int | None = None) -> ClientPartition:
    if offset is None:
        return ClientPartition(partition.topic, partition.partition)
    return ClientPartition(partition.topic, partition.partition, offset)
