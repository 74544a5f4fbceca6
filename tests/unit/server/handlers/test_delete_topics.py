"""DeleteTopics."""

import gc
from collections.abc import Sequence

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from logbrook.protocol.messages.fetch import FetchResponse
from logbrook.protocol.schema import ZERO_UUID
from logbrook.server.topic_changes import ChangePendingError, RequestDeadline
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.group_kit import commit, committed
from tests.unit.server.handlers.kit import FETCH_VERSION, LATEST, Peer, distinct_versions, fetch_request, fresh
from tests.unit.server.shell_kit import HeldFiles

STATES_SINCE = 6
MESSAGES_SINCE = 5
NOBODY = bytes([7]) * 16


def delete_by_name(peer: Peer, names: Sequence[str], version: int) -> list[DeletableTopicResult]:
    if version >= STATES_SINCE:
        return delete(peer, *[DeleteTopicState(name=name) for name in names])
    request = DeleteTopicsRequest(topic_names=names)
    return list(peer.ask(request, DeleteTopicsResponse, version).responses)


def delete(peer: Peer, *states: DeleteTopicState) -> list[DeletableTopicResult]:
    return list(peer.ask(DeleteTopicsRequest(topics=states), DeleteTopicsResponse).responses)


def is_there(peer: Peer, name: str) -> bool:
    return peer.metadata(name).error_code == ErrorCode.NONE


@distinct_versions(DeleteTopicsRequest)
def test_a_topic_is_deleted_by_its_name(peer: Peer, version: int) -> None:
    name = peer.create()
    topic_id = peer.topic_id(name)
    (result,) = delete_by_name(peer, [name], version)
    assert (result.name, result.error_code, result.error_message) == (name, ErrorCode.NONE, None)
    assert not is_there(peer, name)
    if version >= STATES_SINCE:
        assert result.topic_id == topic_id


def test_a_topic_is_deleted_by_its_id(peer: Peer) -> None:
    name = peer.create()
    topic_id = peer.topic_id(name)
    (result,) = delete(peer, DeleteTopicState(topic_id=topic_id))
    assert (result.name, result.topic_id, result.error_code) == (name, topic_id, ErrorCode.NONE)
    assert not is_there(peer, name)


@distinct_versions(DeleteTopicsRequest)
def test_a_name_that_is_not_known_does_not_keep_the_others(peer: Peer, version: int) -> None:
    name = peer.create()
    results = delete_by_name(peer, ["nobody", name], version)
    assert [result.error_code for result in results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert results[0].name == "nobody"
    assert (results[0].error_message is not None) == (version >= MESSAGES_SINCE)


def test_an_unknown_id_is_an_unknown_topic_id(peer: Peer) -> None:
    (result,) = delete(peer, DeleteTopicState(topic_id=NOBODY))
    assert (result.name, result.topic_id, result.error_code) == (None, NOBODY, ErrorCode.UNKNOWN_TOPIC_ID)


def test_a_topic_is_named_by_either_name_or_id(peer: Peer) -> None:
    name = peer.create()
    results = delete(
        peer, DeleteTopicState(name=name, topic_id=peer.topic_id(name)), DeleteTopicState(topic_id=ZERO_UUID)
    )
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert is_there(peer, name)


@distinct_versions(DeleteTopicsRequest)
def test_a_topic_that_is_named_twice_stays(peer: Peer, version: int) -> None:
    name = peer.create()
    results = delete_by_name(peer, [name, name], version)
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert is_there(peer, name)


def test_a_topic_that_is_named_by_its_name_and_by_its_id_stays(peer: Peer) -> None:
    name = peer.create()
    results = delete(peer, DeleteTopicState(name=name), DeleteTopicState(topic_id=peer.topic_id(name)))
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert is_there(peer, name)


@distinct_versions(DeleteTopicsRequest)
def test_the_offsets_of_the_groups_cannot_be_deleted(peer: Peer, version: int) -> None:
    commit(peer, fresh("group"), peer.create(), 1)
    (result,) = delete_by_name(peer, ["__consumer_offsets"], version)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert is_there(peer, "__consumer_offsets")


def test_a_new_topic_of_the_same_name_has_another_id_and_no_records(peer: Peer) -> None:
    name = peer.create()
    topic_id = peer.topic_id(name)
    peer.produce(name, b"old")
    delete(peer, DeleteTopicState(name=name))
    peer.create(name)
    assert peer.topic_id(name) != topic_id
    assert peer.offset(name, LATEST) == 0


def test_committed_offsets_are_deleted_with_the_topic(peer: Peer) -> None:
    group, name, another = fresh("group"), peer.create(), peer.create()
    commit(peer, group, name, 7)
    commit(peer, group, another, 8)
    delete(peer, DeleteTopicState(name=name))
    peer.create(name)
    assert committed(peer, group, name) == -1
    assert committed(peer, group, another) == 8


def test_waiting_fetches_get_an_error_when_the_topic_is_deleted(peer: Peer, other: Peer) -> None:
    name = peer.create()
    waiting = other.send(fetch_request(name, 0, wait_ms=600_000), FetchResponse, FETCH_VERSION)
    delete(peer, DeleteTopicState(name=name))
    (topic,) = other.receive(waiting).responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deletion_that_takes_too_long_times_out_and_continues() -> None:
    files = HeldFiles(MemoryFiles())
    with HandlerShell(files=files) as shell, Peer(shell) as peer:
        name, group = peer.create("t", 3), fresh("group")
        commit(peer, group, name, 7)
        files.hold()
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=100)
        (result,) = peer.ask(request, DeleteTopicsResponse).responses
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        files.release()
        shell.until(lambda: not shell.files.list("").count("t-0") and name not in shell.services.topics.metadata.topics)
        peer.create(name)
        assert committed(peer, group, name) == -1


def test_a_deletion_that_times_out_before_its_start_leaves_no_coroutine(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def is_over(_deadline: RequestDeadline) -> None:
        raise ChangePendingError("not begun within 1 ms")

    name = peer.create()
    monkeypatch.setattr(RequestDeadline, "remaining_ms", is_over)
    (result,) = delete(peer, DeleteTopicState(name=name))
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []
