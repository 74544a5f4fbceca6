"""CreatePartitions."""

from collections.abc import Sequence

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.group_kit import commit
from tests.unit.server.handlers.kit import NODE_ID, Peer, distinct_versions, fresh
from tests.unit.server.shell_kit import HeldFiles


def wanted(name: str, count: int, assignments: Sequence[list[int]] | None = None) -> CreatePartitionsTopic:
    given = None
    if assignments is not None:
        given = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


def extend(
    peer: Peer, *topics: CreatePartitionsTopic, version: int | None = None, validate_only: bool = False
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    return list(peer.ask(request, CreatePartitionsResponse, version).results)


def refused(peer: Peer, topic: CreatePartitionsTopic) -> ErrorCode:
    (result,) = extend(peer, topic)
    assert result.error_message
    return ErrorCode(result.error_code)


@distinct_versions(CreatePartitionsRequest)
def test_a_topic_gets_more_partitions_and_keeps_its_records(peer: Peer, version: int) -> None:
    name = peer.create(partitions=1)
    peer.produce(name, b"kept")
    (result,) = extend(peer, wanted(name, 3), version=version)
    assert (result.name, result.error_code, result.error_message) == (name, ErrorCode.NONE, None)
    assert peer.partition_count(name) == 3
    assert peer.offset(name) == 1
    assert peer.produce(name, partition=2).error_code == ErrorCode.NONE


@distinct_versions(CreatePartitionsRequest)
def test_a_request_that_only_validates_creates_nothing(peer: Peer, version: int) -> None:
    name = peer.create(partitions=1)
    (result,) = extend(peer, wanted(name, 3), version=version, validate_only=True)
    assert result.error_code == ErrorCode.NONE
    assert peer.partition_count(name) == 1
    (result,) = extend(peer, wanted(name, 1), version=version, validate_only=True)
    assert result.error_code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("count", [1, 2, 0, -1, 2**31 - 1])
def test_partitions_can_only_become_more_and_not_too_many(peer: Peer, count: int) -> None:
    name = peer.create(partitions=2)
    assert refused(peer, wanted(name, count)) is ErrorCode.INVALID_PARTITIONS
    assert peer.partition_count(name) == 2


def test_a_topic_that_does_not_exist_does_not_keep_the_others(peer: Peer) -> None:
    name = peer.create(partitions=1)
    results = extend(peer, wanted("nobody", 2), wanted(name, 2))
    assert [result.error_code for result in results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_a_topic_that_is_named_twice_stays_as_it_is(peer: Peer) -> None:
    name = peer.create(partitions=1)
    results = extend(peer, wanted(name, 2), wanted(name, 3))
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert peer.partition_count(name) == 1


def test_replicas_of_the_new_partitions_may_be_assigned_to_this_broker(peer: Peer) -> None:
    name = peer.create(partitions=1)
    (result,) = extend(peer, wanted(name, 3, [[NODE_ID], [NODE_ID]]))
    assert result.error_code == ErrorCode.NONE
    assert peer.partition_count(name) == 3


@pytest.mark.parametrize(
    "assignments", [[], [[NODE_ID]], [[NODE_ID]] * 3, [[NODE_ID], [2]], [[NODE_ID], []], [[NODE_ID], [NODE_ID, 2]]]
)
def test_other_assignments_are_refused(peer: Peer, assignments: list[list[int]]) -> None:
    name = peer.create(partitions=1)
    assert refused(peer, wanted(name, 3, assignments)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_offsets_of_the_groups_stay_where_they_are_looked_for(peer: Peer) -> None:
    commit(peer, fresh("group"), peer.create(), 1)
    assert refused(peer, wanted("__consumer_offsets", 60)) is ErrorCode.INVALID_REQUEST


def test_a_growth_that_takes_too_long_times_out_and_continues() -> None:
    files = HeldFiles(MemoryFiles(), lambda path: path.startswith("t-"))
    with HandlerShell(files=files) as shell, Peer(shell) as peer:
        peer.create("t", 1)
        files.hold()
        topics = [wanted("t", 3)]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=100)
        (result,) = peer.ask(request, CreatePartitionsResponse).results
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        files.release()
        shell.until(lambda: len(shell.services.topics.logs()) == 3)
        assert peer.partition_count("t") == 3
