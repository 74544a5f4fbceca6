"""What all parts of the confluent-kafka adapter share: settings for short waits, and errors in our words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import RefusedError

# Short waits, and silence: what goes wrong on purpose is no news.
QUICK: dict[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "topic.metadata.propagation.max.ms": 250,
    "socket.timeout.ms": 10_000,
}


# What librdkafka says for each of Kafka's error codes.
_CODES = {KafkaError(code).str(): code for code in range(1, 130)}
_BROKER_SAYS = re.compile(r"Broker: [^:\n]+")


def code_in(text: str) -> int | None:
    """Kafka's number of the first error of the broker that librdkafka speaks of, or of its own timeout."""
    if KafkaError(KafkaError._MSG_TIMED_OUT).str() in text:
        return ErrorCode.REQUEST_TIMED_OUT
    codes = (_CODES.get(found.strip()) for found in _BROKER_SAYS.findall(text))
    return next((code for code in codes if code is not None), None)


def refused(error: KafkaError) -> RefusedError:
    code = error.code()
    if code == KafkaError._FENCED:
        # Its own word for all that the broker may say of it.
        return RefusedError(ErrorCode.PRODUCER_FENCED, f"{error.name()}: {error.str()}")
    if code in (KafkaError._FATAL, KafkaError._MSG_TIMED_OUT):
        # What is fatal is only in the words.
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
        # What is fatal is raised while it still calls back for deliveries, and Python wraps it in this.
        if not isinstance(error.__cause__, KafkaException):
            raise
        raise refused(error.__cause__.args[0]) from error


def isolation_level(read_committed: bool) -> str:
    return "read_committed" if read_committed else "read_uncommitted"


def checked(one: TopicPartition) -> TopicPartition:
    """Raises RefusedError."""
    if one.error is not None:
        raise refused(one.error)
    return one
