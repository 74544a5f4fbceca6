"""The clients that make the load: confluent-kafka, told to come back quickly.

The library is needed by what imports this module, and by nothing else of the test kit.
"""

from time import monotonic
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
    "producer",
    "reader",
]

_POLL_INTERVAL_MS_MAX = 6_000
_DELIVERY_TIMEOUT_MS = 60_000
_FLUSH_TIMEOUT_S = 30.0

_COMMON: dict[str, Any] = {
    "log_level": 0,
    "log.connection.close": False,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 5_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
}


def producer(address: str, **settings: Any) -> Producer:
    """Delivers for a minute before it gives up; that is longer than the broker is ever away."""
    defaults = {"message.timeout.ms": _DELIVERY_TIMEOUT_MS, "request.timeout.ms": 5_000, "linger.ms": 2}
    return Producer({**_COMMON, **defaults, "bootstrap.servers": address, **settings})


def last_answers(scene: Scene, name: str, sender: Producer) -> None:
    """Wait for them; a write that gets none is unknown, and a problem: the broker is never away for so long."""
    deadline = monotonic() + _FLUSH_TIMEOUT_S
    while sender.flush(0.2) and monotonic() < deadline and not scene.is_abandoned:
        pass
    if len(sender):
        scene.problems.append(f"{name} had {len(sender)} writes without an answer at its end")
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


def reader(address: str) -> Consumer:
    """Reads what it is assigned, and never jumps: an offset that is out of range is an error."""
    return consumer(address, "kill-test-reader", **{"auto.offset.reset": "error", "enable.partition.eof": True})


def admin_client(address: str) -> AdminClient:
    return AdminClient({**_COMMON, "bootstrap.servers": address})


def client_partition(partition: TopicPartition, offset: int | None = None) -> ClientPartition:
    if offset is None:
        return ClientPartition(partition.topic, partition.partition)
    return ClientPartition(partition.topic, partition.partition, offset)
