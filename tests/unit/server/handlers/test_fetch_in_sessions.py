"""Fetch in sessions (KIP-227), as a consumer uses them."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from logbrook.protocol.messages.produce import ProduceResponse
from tests.unit.server.handler_kit import HandlerClient, HandlerShell
from tests.unit.server.handlers.kit import fresh
from tests.unit.server.shell_kit import FETCH_VERSION, MIB, batch_of, produce_request

LONG_MS = 600_000
IDS_VERSION = FetchRequest.VERSIONS.last


@pytest.fixture(scope="module")
def shell() -> Iterator[HandlerShell]:
    with HandlerShell() as shell:
        yield shell


class Consumer:
    """A consumer in a fetch session: it counts epochs, and lists only changed partitions."""

    def __init__(self, shell: HandlerShell, client: HandlerClient, topic: str, version: int = FETCH_VERSION) -> None:
        self._client = client
        self._topic = topic
        self._topic_id = shell.services.topics.metadata.topic(topic).id
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def fetch(
        self, offsets: dict[int, int] | None = None, forgotten: Sequence[int] = (), *, wait_ms: int = 0
    ) -> dict[int, tuple[int, int]]:
        """Return the high watermark and the number of record bytes by partition."""
        response = self.ask(offsets, forgotten, wait_ms=wait_ms)
        assert response.error_code == ErrorCode.NONE
        for topic in response.responses:
            assert (topic.topic_id if self.version >= 13 else topic.topic) == (
                self._topic_id if self.version >= 13 else self._topic
            )
        result = [partition for topic in response.responses for partition in topic.partitions]
        return {
            partition.partition_index: (partition.high_watermark, len(partition.records or b"")) for partition in result
        }

    def ask(
        self, offsets: dict[int, int] | None = None, forgotten: Sequence[int] = (), *, wait_ms: int = 0
    ) -> FetchResponse:
        wanted = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=MIB)
            for number, offset in (offsets or {}).items()
        ]
        topics = [FetchTopic(topic=self._topic, topic_id=self._topic_id, partitions=wanted)] if wanted else []
        gone = ForgottenTopic(topic=self._topic, topic_id=self._topic_id, partitions=forgotten)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=[gone] if forgotten else [],
        )
        response = self._client.request(request, FetchResponse, self.version)
        if response.error_code == ErrorCode.NONE:
            self.session_id, self.epoch = response.session_id, self.epoch + 1
        return response


@pytest.fixture
def client(shell: HandlerShell) -> Iterator[HandlerClient]:
    with closing(shell.client()) as client:
        yield client


@pytest.fixture
def topic(shell: HandlerShell) -> str:
    return shell.create(fresh(), 3)


def append(shell: HandlerShell, topic: str, partition: int) -> int:
    batch = batch_of()
    with closing(shell.client()) as producer:
        producer.request(produce_request(topic, batch, partition=partition), ProduceResponse, 12)
    return len(batch)


@pytest.mark.parametrize("version", [7, 12, 13, IDS_VERSION])
def test_a_response_contains_only_partitions_that_changed(
    shell: HandlerShell, client: HandlerClient, topic: str, version: int
) -> None:
    size = append(shell, topic, 1)
    consumer = Consumer(shell, client, topic, version)
    assert consumer.fetch({0: 0, 1: 0, 2: 0}) == {0: (0, 0), 1: (1, size), 2: (0, 0)}
    assert consumer.session_id != 0
    assert consumer.fetch({1: 1}) == {}
    append(shell, topic, 0)
    assert consumer.fetch() == {0: (1, size)}
    # The consumer did not advance, so the partition is included again.
    assert consumer.fetch() == {0: (1, size)}
    append(shell, topic, 2)
    assert consumer.fetch({0: 1}, [2]) == {}
    assert consumer.fetch({2: 0}) == {2: (1, size)}


def test_a_fetch_in_a_session_is_woken_by_partitions_that_it_does_not_list_again(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    consumer = Consumer(shell, client, topic)
    consumer.fetch({0: 0, 1: 0, 2: 0})
    with closing(shell.client()) as producer:
        sent = producer.send(produce_request(topic, batch_of(), partition=2), ProduceResponse, 12)
        assert list(consumer.fetch(wait_ms=LONG_MS)) == [2]
        producer.receive(sent)


def test_all_partitions_get_their_share_though_each_could_fill_the_answer(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    for number in range(3):
        append(shell, topic, number)
    consumer = Consumer(shell, client, topic)
    consumer.fetch({0: 0, 1: 0, 2: 0})
    limited = FetchRequest(max_bytes=1, session_id=consumer.session_id, session_epoch=1)
    served = []
    for epoch in range(1, 7):
        limited.session_epoch = epoch
        (result,) = client.request(limited, FetchResponse, FETCH_VERSION).responses
        served.append([partition.partition_index for partition in result.partitions if partition.records])
    assert served == [[0], [1], [2], [0], [1], [2]]


def test_a_wrong_session_epoch_is_refused(shell: HandlerShell, client: HandlerClient, topic: str) -> None:
    consumer = Consumer(shell, client, topic)
    consumer.fetch({0: 0})
    consumer.epoch = 7
    assert consumer.ask().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    consumer.session_id, consumer.epoch = consumer.session_id ^ 1, 1
    assert consumer.ask().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    consumer.session_id, consumer.epoch = 0, 0
    assert consumer.fetch({0: 0}) == {0: (0, 0)}


def test_a_consumer_that_changes_from_names_to_ids_begins_again(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    consumer = Consumer(shell, client, topic)
    consumer.fetch({0: 0})
    consumer.version = IDS_VERSION
    assert consumer.ask().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_error_is_repeated_until_it_is_resolved(shell: HandlerShell, client: HandlerClient, topic: str) -> None:
    consumer = Consumer(shell, client, topic)
    assert consumer.fetch({0: 0, 5: 0}) == {0: (0, 0), 5: (-1, 0)}
    assert consumer.fetch() == {5: (-1, 0)}
    shell.run(shell.services.topics.add_partitions(topic, 6))
    assert consumer.fetch() == {5: (0, 0)}
    assert consumer.fetch() == {}


def test_consumers_are_served_without_a_session_when_the_cache_is_full(topic: str) -> None:
    with HandlerShell({"network": {"fetch_sessions_max": 1}}) as shell, closing(shell.client()) as client:
        name = shell.create("t")
        first, second = Consumer(shell, client, name), Consumer(shell, client, name)
        assert first.fetch({0: 0}) == {0: (0, 0)}
        assert second.fetch({0: 0}) == {0: (0, 0)}
        assert first.session_id != 0
        assert second.session_id == 0
