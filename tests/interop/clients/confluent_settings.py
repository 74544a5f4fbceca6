"""What all parts of the confluent-kafka adapter share: settings for short waits, and errors in our words."""

import re
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

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
    if code in (KafkaError._FATAL, KafkaError._MSG_TIMED_OUT):
        # What is fatal is only in the words.
        code = code_in(error.str()) or code
    return RefusedError(code, f"{error.name()}: {error.str()}")


def checked(one: TopicPartition) -> TopicPartition:
    """Raises RefusedError."""
    if one.error is not None:
        raise refused(one.error)
    return one
