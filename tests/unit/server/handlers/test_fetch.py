"""Fetch: its records, when it is answered, and that it does not poll."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from logbrook.config.network import DEFAULT_LISTENER
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.ports import OsFiles
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from logbrook.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.records.batch import iter_headers
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.session import ConnectionSession
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.log import Log
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import DispatchedRequest, HandlerClient, HandlerShell
from tests.unit.server.handlers.kit import distinct_versions, fresh
from tests.unit.server.shell_kit import FETCH_VERSION, KIB, MIB, batch_of, fetch_request, produce_request, request_frame

LONG_MS = 600_000
NOBODY = bytes([7]) * 16
BATCH_BYTES = len(batch_of(100))


@pytest.fixture(scope="module")
def shell() -> Iterator[HandlerShell]:
    with HandlerShell({"log": {"max_message_bytes": 40 * MIB}, "network": {"fetch_bytes_max": 4 * MIB}}) as shell:
        yield shell


@pytest.fixture
def client(shell: HandlerShell) -> Iterator[HandlerClient]:
    with closing(shell.client()) as client:
        yield client


@pytest.fixture
def topic(shell: HandlerShell) -> str:
    return shell.create(fresh(), 3)


def append(shell: HandlerShell, topic: str, *sizes: int, partition: int = 0) -> None:
    with closing(shell.client()) as producer:
        for size in sizes or (100,):
            request = produce_request(topic, batch_of(size), partition=partition)
            (answer,) = producer.request(request, ProduceResponse, 12).responses
            assert answer.partition_responses[0].error_code == ErrorCode.NONE


def send(
    client: HandlerClient, request: FetchRequest, version: int = FETCH_VERSION
) -> DispatchedRequest[FetchResponse]:
    return client.send(request, FetchResponse, version)


def ask(client: HandlerClient, request: FetchRequest, version: int = FETCH_VERSION) -> list[PartitionData]:
    return partitions_of(client.request(request, FetchResponse, version))


def partitions_of(response: FetchResponse) -> list[PartitionData]:
    assert response.error_code == ErrorCode.NONE
    return [partition for topic in response.responses for partition in topic.partitions]


def offsets_of(data: PartitionData) -> list[int]:
    return [header.base_offset for _, header in iter_headers(data.records or b"")]  # type: ignore[arg-type]


def sizes_of(answers: Sequence[PartitionData]) -> list[int]:
    return [len(partition.records or b"") for partition in answers]


def wait_begun(shell: HandlerShell, count: int = 1) -> None:
    shell.until(lambda: len(shell.services.fetch_purgatory) == count)


def count_reads(shell: HandlerShell, topic: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the reads of the partitions of a topic from now on."""
    reads = [0]

    def counted(read: Callable[..., Any]) -> Callable[..., Any]:
        def count_and_read(*arguments: Any, **options: Any) -> Any:
            reads[0] += 1
            return read(*arguments, **options)

        return count_and_read

    for number in range(3):
        log = shell.log(topic, number)
        monkeypatch.setattr(log, "read", counted(log.read))
    return lambda: reads[0]


# Time of the response


def test_a_waiting_fetch_is_woken_by_an_append_and_reads_once(
    shell: HandlerShell, client: HandlerClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = count_reads(shell, topic, monkeypatch)
    sent = send(client, fetch_request(topic, wait_ms=LONG_MS))
    wait_begun(shell)
    append(shell, topic)
    (data,) = partitions_of(client.receive(sent))
    assert (offsets_of(data), data.high_watermark) == ([0], 1)
    assert reads() == 2


def test_a_fetch_with_min_bytes_is_woken_when_all_partitions_together_have_them(
    shell: HandlerShell, client: HandlerClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = count_reads(shell, topic, monkeypatch)
    request = fetch_request(topic, partitions=(0, 1, 2), wait_ms=LONG_MS, min_bytes=10 * BATCH_BYTES)
    sent = send(client, request)
    wait_begun(shell)
    for number in range(9):
        append(shell, topic, 100, partition=number % 3)
    assert reads() == 3
    append(shell, topic, 100)
    answers = partitions_of(client.receive(sent))
    assert [len(offsets_of(data)) for data in answers] == [4, 3, 3]
    assert reads() == 6


def test_appends_to_other_partitions_wake_no_fetch(shell: HandlerShell, client: HandlerClient, topic: str) -> None:
    sent = send(client, fetch_request(topic, wait_ms=LONG_MS))
    wait_begun(shell)
    append(shell, topic, partition=1)
    append(shell, topic, partition=2)
    assert shell.call(lambda: len(shell.services.fetch_purgatory)) == 1
    append(shell, topic)
    assert offsets_of(partitions_of(client.receive(sent))[0]) == [0]


def test_a_fetch_returns_the_available_records_after_max_wait_ms(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    append(shell, topic)
    (data,) = ask(client, fetch_request(topic, wait_ms=30, min_bytes=100 * KIB))
    assert offsets_of(data) == [0]
    (data,) = ask(client, fetch_request(topic, 1, wait_ms=30))
    assert (offsets_of(data), data.high_watermark, data.error_code) == ([], 1, ErrorCode.NONE)
    assert len(shell.services.fetch_purgatory) == 0


def test_patience_ends_no_later_than_an_idle_connection_does(
    shell: HandlerShell, client: HandlerClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that disconnects while its socket is not read is detected when the response is sent."""
    until_s: list[float] = []
    add = shell.services.fetch_purgatory.add

    def noting(partitions: Any, missing_bytes: int, until: float, *further: Any) -> Any:
        until_s.append(until)
        return add(partitions, missing_bytes, until, *further)

    monkeypatch.setattr(shell.services.fetch_purgatory, "add", noting)
    send(client, fetch_request(topic, wait_ms=2**31 - 1))
    wait_begun(shell)
    idle_s = shell.config.network.connection_idle_ms / 1000
    assert 0 < until_s[0] - shell.call(shell.services.loop.time) <= idle_s


def test_a_fetch_with_min_bytes_0_does_not_wait(client: HandlerClient, topic: str) -> None:
    (data,) = ask(client, fetch_request(topic, wait_ms=LONG_MS, min_bytes=0))
    assert offsets_of(data) == []


@pytest.mark.parametrize("limits", [{"bytes_max": 1_000}, {"partition_bytes_max": 1_000}])
def test_a_fetch_does_not_wait_for_more_than_fits_its_limits(
    shell: HandlerShell, client: HandlerClient, topic: str, limits: dict[str, int]
) -> None:
    """Only whole batches are returned, so a full response may be smaller than the requested minimum."""
    append(shell, topic, *[100] * 10)
    (data,) = ask(client, fetch_request(topic, wait_ms=LONG_MS, min_bytes=1_000, **limits))  # type: ignore[arg-type]
    assert len(offsets_of(data)) == 1_000 // BATCH_BYTES


def test_a_fetch_whose_min_bytes_exceed_its_limits_is_answered_when_it_is_full(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    append(shell, topic)
    sent = send(client, fetch_request(topic, wait_ms=LONG_MS, min_bytes=900, bytes_max=1_000))
    wait_begun(shell)
    append(shell, topic, *[100] * 10)
    assert len(offsets_of(partitions_of(client.receive(sent))[0])) == 1_000 // BATCH_BYTES


def test_a_fetch_does_not_wait_for_more_than_the_brokers_limit(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    append(shell, topic, *[MIB] * 5)
    (data,) = ask(client, fetch_request(topic, wait_ms=LONG_MS, min_bytes=20 * MIB))
    assert offsets_of(data) == [0, 1, 2]


@pytest.mark.parametrize("by_id", [False, True])
def test_waiting_fetches_are_answered_when_the_topic_is_deleted(
    shell: HandlerShell, client: HandlerClient, topic: str, by_id: bool
) -> None:
    topic_id = shell.services.topics.metadata.topic(topic).id
    version = FetchRequest.VERSIONS.last if by_id else FETCH_VERSION
    request = fetch_request(topic, partitions=(0, 1, 2), wait_ms=LONG_MS)
    request.topics[0].topic_id = topic_id
    sent = send(client, request, version)
    wait_begun(shell)
    with closing(shell.client()) as deleting:
        states = [DeleteTopicState(name=topic)]
        deleting.request(DeleteTopicsRequest(topics=states, timeout_ms=1_000), DeleteTopicsResponse)
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [data.error_code for data in partitions_of(client.receive(sent))] == [code] * 3


def test_waiting_fetches_below_a_new_log_start_offset_get_an_error(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    append(shell, topic, 100, 100)
    sent = send(client, fetch_request(topic, wait_ms=LONG_MS, min_bytes=100 * KIB))
    wait_begun(shell)
    shell.call(lambda: shell.log(topic).delete_before(Offset(1)))
    shell.call(lambda: shell.services.fetch_purgatory.changed(TopicPartition(topic, 0)))
    assert partitions_of(client.receive(sent))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_partition_with_an_error_is_answered_at_once_with_the_others(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    append(shell, topic)
    request = fetch_request(topic, partitions=(0, 1, 9), wait_ms=LONG_MS, min_bytes=100 * KIB)
    answers = ask(client, request)
    assert [(data.partition_index, data.error_code) for data in answers] == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.NONE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [offsets_of(data) for data in answers[:2]] == [[0], []]


# Size of the response


@distinct_versions(FetchRequest)
def test_every_version_reads(shell: HandlerShell, client: HandlerClient, topic: str, version: int) -> None:
    append(shell, topic, 100, 100)
    request = fetch_request(topic, 1)
    request.topics[0].topic_id = shell.services.topics.metadata.topic(topic).id
    (answer,) = client.request(request, FetchResponse, version).responses
    assert (answer.topic, answer.topic_id) == (
        (topic, bytes(16)) if version <= FETCH_VERSION else ("", request.topics[0].topic_id)
    )
    (data,) = answer.partitions
    assert (offsets_of(data), data.high_watermark, data.last_stable_offset) == ([1], 2, 2)
    if version >= 5:
        assert data.log_start_offset == 0


def test_an_answer_has_no_more_than_the_client_takes_in_whole_batches(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    for number in range(3):
        append(shell, topic, *[100] * 10, partition=number)
    answers = ask(client, fetch_request(topic, partitions=(0, 1, 2), bytes_max=12 * BATCH_BYTES + 50))
    assert sizes_of(answers) == [10 * BATCH_BYTES, 2 * BATCH_BYTES, 0]
    answers = ask(client, fetch_request(topic, partitions=(0, 1, 2), partition_bytes_max=3 * BATCH_BYTES - 1))
    assert sizes_of(answers) == [2 * BATCH_BYTES] * 3


@pytest.mark.parametrize("limits", [{"bytes_max": 0}, {"bytes_max": 1}, {"partition_bytes_max": 0}, {"bytes_max": -5}])
def test_the_first_batch_is_given_however_large_and_it_alone(
    shell: HandlerShell, client: HandlerClient, topic: str, limits: dict[str, int]
) -> None:
    append(shell, topic, 5_000, 100, partition=1)
    append(shell, topic, 100, partition=2)
    answers = ask(client, fetch_request(topic, partitions=(0, 1, 2), **limits))
    assert [offsets_of(data) for data in answers] == [[], [0], []]
    # The other partitions come first in the next fetch.
    answers = ask(client, fetch_request(topic, partitions=(2, 1), **limits))
    assert [offsets_of(data) for data in answers] == [[0], []]


def test_a_batch_that_is_larger_than_every_limit_is_read(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    append(shell, topic, 9 * MIB)
    (data,) = ask(client, fetch_request(topic, bytes_max=1_000, partition_bytes_max=1_000))
    assert sizes_of([data]) == [len(batch_of(9 * MIB))]


def test_the_brokers_limit_bounds_the_bytes_of_a_fetch(shell: HandlerShell, client: HandlerClient, topic: str) -> None:
    for number in range(3):
        append(shell, topic, *[MIB - 200] * 3, partition=number)
    answers = ask(client, fetch_request(topic, partitions=(0, 1, 2), bytes_max=2**31 - 1))
    assert [len(offsets_of(data)) for data in answers] == [3, 1, 0]


def test_the_buffers_that_were_read_into_are_sent(tmp_path: Path) -> None:
    with HandlerShell(files=OsFiles(str(tmp_path))) as shell:
        topic = shell.create("t")
        append(shell, topic, 50_000)
        shell.call(lambda: shell.log(topic).roll())
        append(shell, topic, 50_000)

        def fetch() -> tuple[list[memoryview], list[Any]]:
            dispatcher = shell.broker.dispatchers[DEFAULT_LISTENER]
            received = dispatcher.receive(
                memoryview(request_frame(fetch_request(topic), FETCH_VERSION))[4:], ConnectionSession()
            )
            answer = dispatcher.handle(received)
            assert isinstance(answer, FetchResponse)
            (data,) = partitions_of(answer)
            assert isinstance(data.records, list)
            return data.records, dispatcher.encode_response(received, answer)[0]

        (closed, active), pieces = shell.call(fetch)
        views = [piece for piece in pieces if isinstance(piece, memoryview)]
        assert [views[0] is closed, views[1] is active, len(views)] == [True, True, 2]


# Readable offsets


@pytest.mark.parametrize("offset", [-1, -(2**63), 3, 2**62])
def test_an_offset_outside_the_log_is_out_of_range(
    shell: HandlerShell, client: HandlerClient, topic: str, offset: int
) -> None:
    append(shell, topic, 100, 100)
    (data,) = ask(client, fetch_request(topic, offset, wait_ms=LONG_MS))
    assert (data.error_code, data.high_watermark, sizes_of([data])) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, [0])


def test_an_offset_before_the_start_of_the_log_is_out_of_range(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    append(shell, topic, 100, 100)
    shell.call(lambda: shell.log(topic).delete_before(Offset(1)))
    assert ask(client, fetch_request(topic, 0))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert ask(client, fetch_request(topic, 1))[0].log_start_offset == 1


def test_unknown_topics_are_reported_by_name_or_id_as_requested(client: HandlerClient) -> None:
    request = fetch_request("nobody", wait_ms=LONG_MS)
    request.topics[0].topic_id = NOBODY
    assert ask(client, request)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (answer,) = client.request(request, FetchResponse, FetchRequest.VERSIONS.last).responses
    assert (answer.topic_id, answer.partitions[0].error_code) == (NOBODY, ErrorCode.UNKNOWN_TOPIC_ID)


def with_epoch(topic: str, epoch: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, current_leader_epoch=epoch, partition_max_bytes=MIB)
    return FetchRequest(max_wait_ms=LONG_MS, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])])


def test_another_current_leader_epoch_is_refused(shell: HandlerShell, client: HandlerClient, topic: str) -> None:
    epoch = shell.services.appender.leader_epoch
    codes = [ask(client, with_epoch(topic, result))[0].error_code for result in (-1, epoch, epoch + 1)]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH]
    with HandlerShell(files=MemoryFiles(shell.files)) as later, closing(later.client()) as another:  # type: ignore[arg-type]
        assert ask(another, with_epoch(topic, epoch))[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert ask(another, with_epoch(topic, epoch + 1))[0].error_code == ErrorCode.NONE


def test_records_of_open_transactions_are_not_read_with_read_committed(
    shell: HandlerShell, client: HandlerClient, topic: str
) -> None:
    append(shell, topic)
    undecided = build_batch(
        [Record(value=b"v")],
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        transactional=True,
    )
    shell.call(
        lambda: shell.services.appender.append(shell.log(topic), undecided, lambda _: None, AppendOrigin.COORDINATOR)
    )
    shell.until(lambda: shell.log(topic).high_watermark == 2)
    request = fetch_request(topic, wait_ms=1)
    (data,) = ask(client, request)
    assert (offsets_of(data), data.high_watermark, data.last_stable_offset) == ([0, 1], 2, 1)
    request.isolation_level = 1
    (data,) = ask(client, request)
    assert (offsets_of(data), data.high_watermark, data.last_stable_offset) == ([0], 2, 1)
    assert data.aborted_transactions == []
    (data,) = ask(client, fetch_request(topic, 2, wait_ms=1))
    assert (data.error_code, offsets_of(data)) == (ErrorCode.NONE, [])


@pytest.mark.parametrize("version", [7, 14, 15, 18])
def test_a_fetch_as_a_replica_is_refused(client: HandlerClient, topic: str, version: int) -> None:
    request = fetch_request(topic)
    request.replica_id = 2
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=2, replica_epoch=0)
    response = client.request(request, FetchResponse, version)
    assert (response.error_code, response.responses) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


def test_a_corrupt_partition_is_an_error_and_the_others_are_read(client: HandlerClient) -> None:
    files = MemoryFiles()
    with HandlerShell(files=files) as shell:
        topic = shell.create("t", 2)
        append(shell, topic, 100, 100)
        append(shell, topic, partition=1)
        shell.call(lambda: shell.log(topic).roll())
        path = shell.log(topic).closed[0].path
        # The magic byte of the second batch.
        files.open(path).pwrite(b"\x09", BATCH_BYTES + 16)
        with closing(shell.client()) as reader:
            answers = ask(reader, fetch_request(topic, 1, partitions=(0,)))
            assert answers[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert offsets_of(ask(reader, fetch_request(topic, partitions=(1,)))[0]) == [0]
            assert offsets_of(ask(reader, fetch_request(topic, 0))[0]) == [0]


def test_a_woken_fetch_reads_only_the_partitions_that_changed(
    shell: HandlerShell, client: HandlerClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(shell, topic, 100, partition=0)
    reads: list[int] = []
    read = Log.read

    def counted(log: Log, *args: Any, **kwargs: Any) -> Any:
        reads.append(log.partition.partition)
        return read(log, *args, **kwargs)

    monkeypatch.setattr(Log, "read", counted)
    sent = send(client, fetch_request(topic, partitions=(0, 1, 2), wait_ms=LONG_MS, min_bytes=300))
    wait_begun(shell)
    assert reads == [0, 1, 2]
    append(shell, topic, 300, partition=2)
    assert [len(offsets_of(data)) for data in partitions_of(client.receive(sent))] == [1, 0, 1]
    # Partition 0 had records, which are not kept in memory while the fetch waits.
    assert reads == [0, 1, 2, 0, 2]
