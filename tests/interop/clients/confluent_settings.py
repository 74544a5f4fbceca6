"""Settings for short timeouts and translation of errors, shared by the parts of the confluent-kafka adapter."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import RefusedError

# Short timeouts, and no log: scenarios provoke errors.
QUICK: dict[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "topic.metadata.propagation.max.ms": 250,
    "socket.timeout.ms": 10_000,
}


# librdkafka's text for each of Kafka's error codes.
_CODES = {KafkaError(code).str(): code for code in range(1, 130)}
_BROKER_SAYS = re.compile(r"Broker: [^:\n]+")


def code_in(text: str) -> int | None:
    """Return the code of the first broker error in librdkafka's text, or of its own timeout."""
    if KafkaError(KafkaError._MSG_TIMED_OUT).str() in text:
        return ErrorCode.REQUEST_TIMED_OUT
    codes = (_CODES.get(name.strip()) for name in _BROKER_SAYS.findall(text))
    return next((code for code in codes if code is not None), None)


def refused(error: KafkaError) -> RefusedError:
    code = error.code()
    if code == KafkaError._FENCED:
        # Its generic error for all fatal responses of the broker.
        return RefusedError(ErrorCode.PRODUCER_FENCED, f"{error.name()}: {error.str()}")
    if code in (KafkaError._FATAL, KafkaError._MSG_TIMED_OUT):
        # The cause of a fatal error is only in its text.
        code = code_in(error.str()) or code
    return RefusedError(code, f"{error.name()}: {error.str()}")


@contextmanager
def refusals() -> Iterator[None]:
    """Raises a RefusedError in place of the client's own error."""
    try:
        yield
    except KafkaException as error:
        raise refused(error.args[0]) from error
    except SystemError as error:
        # A fatal error is raised inside a delivery callback, and Python wraps it in this.
        if not isinstance(error.__cause__, KafkaException):
            raise
        raise refused(error.__cause__.args[0]) from error


def isolation_level(read_committed: bool) -> str:
    return "read_committed" if read_committed else "read_uncommitted"


def checked(partition: TopicPartition) -> TopicPartition:
    """Raises RefusedError."""
    if partition.error is not None:
        raise refused(partition.error)
    return partition
