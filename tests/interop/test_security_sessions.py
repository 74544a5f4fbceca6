"""Sessions that end while clients use them: re-authentication (KIP-368), new connections, and users who are deleted."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import aiokafka
import kafka
import pytest
from confluent_kafka import KafkaError, Producer

from logbrook.core.users import Credentials
from logbrook.model.security import SaslMechanism
from logbrook.protocol.scram import credential_of, salted_password
from tests.interop.client_leaks import collect_leaks, forget_connection_errors
from tests.interop.clients.confluent_settings import QUICK
from tests.interop.secure_broker import PASSWORD, Login, SecureBroker
from tests.interop.waiting import WITHIN_S
from tests.sasl_kit import SALT

# Clients leave the sockets of failed connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SESSION_MS = 1_000
# Several sessions long.
PRODUCE_S = 2.5 * SESSION_MS / 1000
MECHANISM = SaslMechanism.SCRAM_SHA_256

ProduceFor = Callable[[Login, str, Callable[[], bool]], int]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure"), reauthentication_ms=SESSION_MS).running() as secure:
        yield secure


@pytest.fixture(autouse=True)
def nothing_leaked(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect the sockets that the clients of a test have left, before another test is told of them."""
    yield
    forget_connection_errors(caplog)
    collect_leaks()


class RefusedLoginError(Exception):
    """The client was told that its authentication failed."""


def confluent(login: Login, topic: str, is_over: Callable[[], bool]) -> int:
    """Produce record after record. Returns how many were acknowledged; raises RefusedLoginError."""
    refused: list[str] = []

    def note(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION and "Authentication failed" in error.str():
            refused.append(error.str())

    producer = Producer({**QUICK, **login.librdkafka, "error_cb": note})
    acknowledged = 0
    while not is_over():
        producer.produce(topic, b"v")
        while producer.flush(0.05):
            if refused:
                producer.purge()
                producer.flush()
                raise RefusedLoginError(refused[0])
        acknowledged += 1
    return acknowledged


def kafka_python(login: Login, topic: str, is_over: Callable[[], bool]) -> int:
    producer = kafka.KafkaProducer(
        bootstrap_servers=login.servers,
        security_protocol=login.protocol.value,
        sasl_mechanism=login.mechanism,
        sasl_plain_username=login.user,
        sasl_plain_password=login.password,
        reconnect_backoff_ms=10,
    )
    acknowledged = 0
    try:
        while not is_over():
            producer.send(topic, b"v").get(WITHIN_S)
            acknowledged += 1
    finally:
        producer.close(timeout=0)
    return acknowledged


def aiokafka_client(login: Login, topic: str, is_over: Callable[[], bool]) -> int:
    async def run() -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=login.servers,
            security_protocol=login.protocol.value,
            sasl_mechanism=login.mechanism,
            sasl_plain_username=login.user,
            sasl_plain_password=login.password,
            retry_backoff_ms=10,
        )
        await producer.start()
        acknowledged = 0
        try:
            while not is_over():
                await producer.send_and_wait(topic, b"v")
                acknowledged += 1
        finally:
            await producer.stop()
        return acknowledged

    return asyncio.run(run())


def after(seconds: float) -> Callable[[], bool]:
    """Return a function that tells whether this time is over. It is slow, so that clients send little."""
    end_s = time.monotonic() + seconds

    def is_over() -> bool:
        threading.Event().wait(0.02)
        return time.monotonic() >= end_s

    return is_over


@pytest.mark.parametrize("produce", [confluent, kafka_python, aiokafka_client])
def test_a_client_goes_on_after_the_end_of_its_session(secure: SecureBroker, produce: ProduceFor) -> None:
    """librdkafka and kafka-python authenticate again on the same connection; others are disconnected and reconnect."""
    topic, before = secure.new_topic(), secure.authenticated
    acknowledged = produce(secure.login("SASL_PLAINTEXT", MECHANISM), topic, after(PRODUCE_S))
    assert secure.authenticated - before >= 3, secure.authenticated
    assert len(secure.broker.records(topic)) >= acknowledged > 3
    assert secure.failures == []


def test_a_user_who_is_deleted_is_refused_when_the_session_ends(secure: SecureBroker) -> None:
    salted = salted_password(MECHANISM, PASSWORD, SALT, 4096)
    change(secure, {MECHANISM: credential_of(MECHANISM, salted, SALT, 4096)})
    login = secure.login("SASL_PLAINTEXT", MECHANISM, user="bob")
    topic, is_deleted, is_over = secure.new_topic(), after(SESSION_MS / 1000), after(WITHIN_S)
    deleted: list[bool] = []

    def is_over_after_deletion() -> bool:
        if is_deleted() and not deleted:
            deleted.append(True)
            change(secure, {}, deletions=(MECHANISM,))
        return is_over()

    with pytest.raises(RefusedLoginError, match="Authentication failed"):
        confluent(login, topic, is_over_after_deletion)
    assert secure.broker.records(topic)
    assert {(mechanism, user) for mechanism, user, _ in secure.failures} == {(MECHANISM, "bob")}


def change(secure: SecureBroker, upserts: Credentials, deletions: tuple[SaslMechanism, ...] = ()) -> None:
    """Change the credentials of bob."""
    services = secure.broker._running.services
    users = services.security.users
    secure.broker._active.call(services.topics.change_security(lambda: users.change("bob", upserts, deletions)))
