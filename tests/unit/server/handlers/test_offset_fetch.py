"""OffsetFetch."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from logbrook.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.unit.server.handlers.group_kit import commit
from tests.unit.server.handlers.kit import Peer, distinct_versions, fresh

EPOCHS_SINCE = 5
ALL_SINCE = 2
SEVERAL_SINCE = 8
IDS_SINCE = 10
NOBODY = bytes([7]) * 16
# Of each requested partition: offset, leader epoch, metadata and error code.
Offsets = dict[str, dict[int, tuple[int, int, str | None, int]]]
NO_OFFSET = (-1, -1, "", 0)


def fetch(
    peer: Peer, group: str, topics: dict[str, list[int]] | None, version: int, *, require_stable: bool = False
) -> tuple[ErrorCode, Offsets]:
    """Return the error code of the group, and the partitions of each topic."""
    if version >= SEVERAL_SINCE:
        code, by_topic = fetch_groups(peer, {group: topics}, version, require_stable=require_stable)[group]
        return code, by_topic
    request = OffsetFetchRequest(
        group_id=group,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        require_stable=require_stable,
    )
    answer = peer.ask(request, OffsetFetchResponse, version)
    assert answer.groups == ()
    offsets: Offsets = {
        topic.name: {
            partition.partition_index: (
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.metadata,
                partition.error_code,
            )
            for partition in topic.partitions
        }
        for topic in answer.topics
    }
    return ErrorCode(answer.error_code), offsets


def fetch_groups(
    peer: Peer, groups: dict[str, dict[str, list[int]] | None], version: int, *, require_stable: bool = False
) -> dict[str, tuple[ErrorCode, Offsets]]:
    names = [name for topics in groups.values() for name in topics or ()]
    ids = {name: topic_id_of(peer, name) for name in names}
    wanted = [
        OffsetFetchRequestGroup(
            group_id=group,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=name, topic_id=ids[name], partition_indexes=numbers)
                for name, numbers in topics.items()
            ],
        )
        for group, topics in groups.items()
    ]
    request = OffsetFetchRequest(groups=wanted, require_stable=require_stable)
    by_group: dict[str, tuple[ErrorCode, Offsets]] = {}
    for answer in peer.ask(request, OffsetFetchResponse, version).groups:
        offsets: Offsets = {
            topic.topic_id.hex() if version >= IDS_SINCE else topic.name: {
                partition.partition_index: (
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.metadata,
                    partition.error_code,
                )
                for partition in topic.partitions
            }
            for topic in answer.topics
        }
        by_group[answer.group_id] = ErrorCode(answer.error_code), offsets
    return by_group


def topic_id_of(peer: Peer, name: str) -> bytes:
    topic = peer.metadata(name)
    return topic.topic_id if topic.error_code == ErrorCode.NONE else NOBODY


def label(peer: Peer, name: str, version: int) -> str:
    """Return the topic's name or id, whichever the response has."""
    return topic_id_of(peer, name).hex() if version >= IDS_SINCE else name


@distinct_versions(OffsetFetchRequest)
@pytest.mark.parametrize("require_stable", [False, True])
def test_committed_offsets_are_returned(peer: Peer, version: int, require_stable: bool) -> None:
    group, name = fresh("group"), peer.create(partitions=2)
    commit(peer, group, name, 5, metadata="a note")
    epoch = 0 if version >= EPOCHS_SINCE else -1
    assert fetch(peer, group, {name: [0, 1]}, version, require_stable=require_stable) == (
        ErrorCode.NONE,
        {label(peer, name, version): {0: (5, epoch, "a note", 0), 1: NO_OFFSET}},
    )


@distinct_versions(OffsetFetchRequest)
def test_a_group_that_does_not_exist_has_committed_nothing(peer: Peer, version: int) -> None:
    name = peer.create()
    assert fetch(peer, fresh("group"), {name: [0]}, version) == (
        ErrorCode.NONE,
        {label(peer, name, version): {0: NO_OFFSET}},
    )


@distinct_versions(OffsetFetchRequest)
def test_a_missing_topic_has_no_committed_offset_and_a_missing_id_is_unknown(peer: Peer, version: int) -> None:
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= IDS_SINCE else ErrorCode.NONE
    name = fresh()
    assert fetch(peer, fresh("group"), {name: [0, 7]}, version) == (
        ErrorCode.NONE,
        {label(peer, name, version): {0: (-1, -1, "", code), 7: (-1, -1, "", code)}},
    )


@distinct_versions(OffsetFetchRequest, first=ALL_SINCE)
def test_null_topics_return_all_committed_offsets(peer: Peer, version: int) -> None:
    group, first, second = fresh("group"), peer.create(), peer.create(partitions=3)
    commit(peer, group, first, 5)
    commit(peer, group, second, 6, partition=2)
    epoch = 0 if version >= EPOCHS_SINCE else -1
    assert fetch(peer, group, None, version) == (
        ErrorCode.NONE,
        {
            label(peer, first, version): {0: (5, epoch, "", 0)},
            label(peer, second, version): {2: (6, epoch, "", 0)},
        },
    )
    assert fetch(peer, fresh("group"), None, version) == (ErrorCode.NONE, {})


@distinct_versions(OffsetFetchRequest)
def test_no_topics_are_not_all_topics(peer: Peer, version: int) -> None:
    group = fresh("group")
    commit(peer, group, peer.create(), 5)
    assert fetch(peer, group, {}, version) == (ErrorCode.NONE, {})


@distinct_versions(OffsetFetchRequest, first=SEVERAL_SINCE)
def test_several_groups_are_asked_about_at_once(peer: Peer, version: int) -> None:
    first, second, name = fresh("group"), fresh("group"), peer.create()
    commit(peer, first, name, 5)
    commit(peer, second, name, 6)
    known = label(peer, name, version)
    assert fetch_groups(peer, {first: {name: [0]}, second: None}, version) == {
        first: (ErrorCode.NONE, {known: {0: (5, 0, "", 0)}}),
        second: (ErrorCode.NONE, {known: {0: (6, 0, "", 0)}}),
    }


@distinct_versions(OffsetFetchRequest, first=SEVERAL_SINCE)
def test_a_group_is_asked_about_once(peer: Peer, version: int) -> None:
    group = fresh("group")
    commit(peer, group, peer.create(), 5)
    wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
    answers = peer.ask(OffsetFetchRequest(groups=[wanted] * 3), OffsetFetchResponse, version).groups
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [len(answer.topics) for answer in answers] == [1, 0, 0]


@distinct_versions(OffsetFetchRequest)
def test_a_partition_is_answered_once(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create()
    commit(peer, group, name, 5)
    if version >= SEVERAL_SINCE:
        topic = OffsetFetchRequestTopics(name=name, topic_id=peer.topic_id(name), partition_indexes=[0, 0])
        wanted = OffsetFetchRequestGroup(group_id=group, topics=[topic, topic])
        answer = peer.ask(OffsetFetchRequest(groups=[wanted]), OffsetFetchResponse, version)
        counts = [len(topic.partitions) for topic in answer.groups[0].topics]
    else:
        single = OffsetFetchRequestTopic(name=name, partition_indexes=[0, 0])
        request = OffsetFetchRequest(group_id=group, topics=[single, single])
        counts = [len(topic.partitions) for topic in peer.ask(request, OffsetFetchResponse, version).topics]
    assert counts == [1, 0]


@distinct_versions(OffsetFetchRequest, first=IDS_SINCE)
def test_deleted_topics_are_left_out_of_responses_with_ids(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create()
    commit(peer, group, name, 5)
    peer.ask(DeleteTopicsRequest(topic_names=[name]), DeleteTopicsResponse, 5)
    assert fetch(peer, group, None, version) == (ErrorCode.NONE, {})
