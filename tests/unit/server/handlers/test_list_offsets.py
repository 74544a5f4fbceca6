"""ListOffsets: log start and end, and offsets by timestamp, as a scan of the records would find them."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logbrook.model.identifiers import Offset, ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.storage.batch_set import AppendOrigin
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import HandlerClient, HandlerShell
from tests.unit.server.handlers.kit import distinct_versions, fresh
from tests.unit.server.shell_kit import HeldFiles, batch_of, produce_request, until

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
LAST = ListOffsetsRequest.VERSIONS.last


@pytest.fixture(scope="module")
def shell() -> Iterator[HandlerShell]:
    with HandlerShell() as shell:
        yield shell


@pytest.fixture(scope="module")
def client(shell: HandlerShell) -> Iterator[HandlerClient]:
    with closing(shell.client()) as client:
        yield client


def append(shell: HandlerShell, topic: str, *batches: Sequence[int]) -> None:
    """Append batches of records with these timestamps."""
    with closing(shell.client()) as producer:
        for timestamps in batches:
            batch = build_batch([Record(value=b"v", timestamp=timestamp) for timestamp in timestamps])
            (answer,) = producer.request(produce_request(topic, batch), ProduceResponse, 12).responses
            assert answer.partition_responses[0].error_code == ErrorCode.NONE


def ask(
    client: HandlerClient, topic: str, timestamp: int, *, version: int = LAST, isolation_level: int = 0, **how: Any
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(timestamp=timestamp, **how)
    topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
    (answer,) = client.request(request, ListOffsetsResponse, version).topics
    (result,) = answer.partitions
    return result


def found(client: HandlerClient, topic: str, timestamp: int, **how: Any) -> tuple[int, int]:
    """Return (offset, timestamp), both -1 if there is none."""
    result = ask(client, topic, timestamp, **how)
    assert result.error_code == ErrorCode.NONE
    return result.offset, result.timestamp


@distinct_versions(ListOffsetsRequest)
def test_every_version_returns_the_first_and_last_offset_and_a_time(
    shell: HandlerShell, client: HandlerClient, version: int
) -> None:
    topic = shell.create(fresh())
    append(shell, topic, [10, 20], [30])
    shell.call(lambda: shell.log(topic).delete_before(Offset(1)))
    assert found(client, topic, LATEST, version=version) == (3, -1)
    assert found(client, topic, EARLIEST, version=version) == (1, -1)
    assert found(client, topic, 25, version=version) == (2, 30)


def test_an_empty_log_starts_and_ends_at_zero_and_has_no_times(shell: HandlerShell, client: HandlerClient) -> None:
    topic = shell.create(fresh())
    assert [found(client, topic, stands_for)[0] for stands_for in (LATEST, EARLIEST, EARLIEST_LOCAL)] == [0, 0, 0]
    assert found(client, topic, 0) == (-1, -1)
    assert found(client, topic, MAX_TIMESTAMP) == (-1, -1)


def test_the_newest_time_is_found_wherever_it_is(shell: HandlerShell, client: HandlerClient) -> None:
    topic = shell.create(fresh(), 1, {"segment.bytes": "100"})
    append(shell, topic, [10, 50], [90, 20, 90], [30], [60, 40])
    assert len(shell.log(topic).closed) > 1
    assert found(client, topic, MAX_TIMESTAMP) == (2, 90)


def test_there_is_no_object_store(shell: HandlerShell, client: HandlerClient) -> None:
    topic = shell.create(fresh())
    append(shell, topic, [10])
    assert found(client, topic, LATEST_TIERED) == (-1, -1)
    assert found(client, topic, EARLIEST_PENDING_UPLOAD) == (-1, -1)
    assert found(client, topic, EARLIEST_LOCAL) == (0, -1)


@pytest.mark.parametrize("timestamp", [-7, -(2**63)])
def test_an_unsupported_special_timestamp_is_refused(
    shell: HandlerShell, client: HandlerClient, timestamp: int
) -> None:
    result = ask(client, shell.create(fresh()), timestamp)
    assert (result.error_code, result.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


def test_missing_partitions_have_an_error(shell: HandlerShell, client: HandlerClient) -> None:
    topic = shell.create(fresh())
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(client, "nobody", LATEST).error_code == unknown
    assert ask(client, topic, LATEST, partition_index=1).error_code == unknown
    assert ask(client, topic, LATEST, partition_index=-1).error_code == unknown
    assert ask(client, "__cluster_metadata", LATEST).error_code == unknown


def test_another_current_leader_epoch_is_refused(shell: HandlerShell, client: HandlerClient) -> None:
    topic = shell.create(fresh())
    append(shell, topic, [1])
    epoch = shell.services.appender.leader_epoch
    result = ask(client, topic, LATEST, current_leader_epoch=epoch)
    assert (result.error_code, result.leader_epoch) == (ErrorCode.NONE, epoch)
    assert ask(client, topic, LATEST, current_leader_epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    with HandlerShell(files=MemoryFiles(shell.files)) as later, closing(later.client()) as another:  # type: ignore[arg-type]
        result = ask(another, topic, LATEST, current_leader_epoch=epoch)
        assert result.error_code == ErrorCode.FENCED_LEADER_EPOCH
        # The last record was written in the previous leader epoch.
        assert ask(another, topic, LATEST).leader_epoch == epoch
        assert ask(another, topic, EARLIEST).leader_epoch == epoch


def test_uncommitted_offsets_are_not_returned() -> None:
    files = HeldFiles(MemoryFiles())
    with HandlerShell(files=files) as shell, closing(shell.client()) as client, closing(shell.client()) as producer:
        topic = shell.create("t")
        append(shell, topic, [10])
        files.hold()
        sent = producer.send(produce_request(topic, batch_of()), ProduceResponse, 12)
        until(lambda: files.waiting)
        assert shell.log(topic).log_end_offset == 2
        assert found(client, topic, LATEST) == (1, -1)
        assert found(client, topic, 500) == (-1, -1)
        files.release()
        producer.receive(sent)
        assert found(client, topic, LATEST) == (2, -1)
        assert found(client, topic, 500) == (1, 1_000)


def test_offsets_in_open_transactions_are_not_returned_with_read_committed(
    shell: HandlerShell, client: HandlerClient
) -> None:
    topic = shell.create(fresh())
    append(shell, topic, [10])
    undecided = build_batch(
        [Record(value=b"v", timestamp=20)],
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        transactional=True,
    )
    shell.call(
        lambda: shell.services.appender.append(shell.log(topic), undecided, lambda _: None, AppendOrigin.COORDINATOR)
    )
    shell.until(lambda: shell.log(topic).high_watermark == 2)
    assert [found(client, topic, LATEST, isolation_level=level)[0] for level in (0, 1)] == [2, 1]
    assert [found(client, topic, 15, isolation_level=level) for level in (0, 1)] == [(1, 20), (-1, -1)]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=12),
    segment_bytes=st.sampled_from([100, 200, 100_000]),
    start=st.integers(0, 8),
)
def test_a_time_is_found_where_a_scan_would_find_it(
    shell: HandlerShell, client: HandlerClient, batches: list[list[int]], segment_bytes: int, start: int
) -> None:
    topic = shell.create(fresh(), 1, {"segment.bytes": str(segment_bytes), "index.interval.bytes": "0"})
    append(shell, topic, *batches)
    records = list(enumerate(timestamp for batch in batches for timestamp in batch))
    start = min(start, len(records))
    shell.call(lambda: shell.log(topic).delete_before(Offset(start)))
    for wanted in range(-0, 42, 3):
        expected = next((record for record in records[start:] if record[1] >= wanted), (-1, -1))
        assert found(client, topic, wanted) == expected
