"""Clients that authenticate: each writes a record and reads it again, and says why it could not."""

import asyncio
import ssl
import subprocess
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import kafka
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from tests.interop.clients.confluent_settings import QUICK
from tests.interop.secure_broker import Login

VALUE = b"secret"
_WITHIN_S = 15.0


class LoginFailedError(Exception):
    """The client could not connect; the text is the client's own."""


def confluent(login: Login, topic: str) -> bytes | None:
    """Raises LoginFailedError with the error that librdkafka's callback was told first."""
    reasons: list[str] = []

    def note(error: KafkaError) -> None:
        # Others, such as that all brokers are down, follow from these.
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            reasons.append(error.str())

    settings = {**QUICK, **login.librdkafka, "error_cb": note, "message.timeout.ms": login.patience_ms}
    if login.token:
        settings["oauth_cb"] = lambda _: (login.token, time.time() + 300)
    producer = Producer(settings)
    delivered: list[Any] = []
    try:
        producer.produce(topic, VALUE, callback=lambda error, _: delivered.append(error))
        until_s = time.monotonic() + _WITHIN_S
        while not delivered and not reasons and time.monotonic() < until_s:
            producer.poll(0.05)
        # Not `==`: a KafkaError that is compared with None leaves an exception behind.
        if not delivered or delivered[0] is not None:
            raise LoginFailedError("; ".join(reasons) or "not delivered")
    finally:
        producer.purge()
        producer.flush(_WITHIN_S)
    consuming = {name: value for name, value in settings.items() if name != "message.timeout.ms"}
    consumer = Consumer({**consuming, "group.id": "secure"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(_WITHIN_S)
        assert message is not None
        if message.error() is not None:
            raise KafkaException(message.error())
        return message.value()
    finally:
        consumer.close()


class _KafkaPythonToken(KafkaPythonTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def kafka_python(login: Login, topic: str) -> bytes | None:
    settings: dict[str, Any] = {
        "bootstrap_servers": login.servers,
        "security_protocol": login.protocol.value,
        "bootstrap_timeout_ms": login.patience_ms,
        "reconnect_backoff_ms": 10,
    }
    if login.protocol.uses_tls:
        settings["ssl_cafile"] = str(login.ca)
    if login.certificate is not None:
        settings["ssl_certfile"] = str(login.certificate.certificate)
        settings["ssl_keyfile"] = str(login.certificate.key)
    if login.protocol.uses_sasl:
        settings["sasl_mechanism"] = login.mechanism
        if login.token:
            settings["sasl_oauth_token_provider"] = _KafkaPythonToken(login.token)
        else:
            settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    try:
        producer = kafka.KafkaProducer(**settings, max_block_ms=login.patience_ms)
        try:
            producer.send(topic, VALUE).get(_WITHIN_S)
        finally:
            producer.close(timeout=0)
        consumer = kafka.KafkaConsumer(**settings)
    except (kafka.errors.KafkaError, OSError) as error:
        raise LoginFailedError(f"{type(error).__name__}: {error}") from error
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        until_s = time.monotonic() + _WITHIN_S
        while time.monotonic() < until_s:
            for records in consumer.poll(timeout_ms=1_000).values():
                value: bytes = records[0].value
                return value
        return None
    finally:
        consumer.close(autocommit=False)


class _AiokafkaToken(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def aiokafka_client(login: Login, topic: str) -> bytes | None:
    return asyncio.run(_aiokafka(login, topic))


async def _aiokafka(login: Login, topic: str) -> bytes | None:
    settings: dict[str, Any] = {"bootstrap_servers": login.servers, "security_protocol": login.protocol.value}
    if login.protocol.uses_tls:
        context = ssl.create_default_context(cafile=str(login.ca))
        if login.certificate is not None:
            context.load_cert_chain(login.certificate.certificate, login.certificate.key)
        settings["ssl_context"] = context
    if login.protocol.uses_sasl:
        settings["sasl_mechanism"] = login.mechanism
        if login.token:
            settings["sasl_oauth_token_provider"] = _AiokafkaToken(login.token)
        else:
            settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    producer = aiokafka.AIOKafkaProducer(**settings)
    try:
        await producer.start()
        await producer.send_and_wait(topic, VALUE)
    except (aiokafka.errors.KafkaError, OSError) as error:
        raise LoginFailedError(f"{type(error).__name__}: {error}") from error
    finally:
        await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(**settings)
    await consumer.start()
    try:
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        value: bytes = (await asyncio.wait_for(consumer.getone(), _WITHIN_S)).value
        return value
    finally:
        await consumer.stop()


def kcat(path: str, login: Login, topic: str) -> bytes | None:
    words = [path]
    for name, value in login.librdkafka.items():
        words += ["-X", f"{name}={value}"]
    produce = subprocess.run(
        [*words, "-P", "-t", topic, "-X", f"message.timeout.ms={login.patience_ms}"],
        input=VALUE,
        capture_output=True,
        timeout=_WITHIN_S,
        check=False,
    )
    if produce.returncode:
        raise LoginFailedError(produce.stderr.decode())
    consume = [*words, "-C", "-t", topic, "-o", "beginning", "-e", "-q"]
    return subprocess.run(consume, capture_output=True, timeout=_WITHIN_S, check=True).stdout.rstrip(b"\n")


RoundTrip = Callable[[Login, str], bytes | None]
SECURE_CLIENTS: dict[str, RoundTrip] = {
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka_client,
}
