"""DescribeTopicPartitions."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import NODE_ID, READ, Peer, fresh, operations


def describe(
    peer: Peer, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return peer.ask(request, DescribeTopicPartitionsResponse)


def partitions(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in response.topics]


def cursor_of(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_this_broker_leads_every_partition(peer: Peer) -> None:
    name = peer.create(partitions=2)
    response = describe(peer, name)
    (topic,) = response.topics
    known = peer.metadata(name)
    assert (topic.error_code, topic.topic_id, topic.is_internal) == (ErrorCode.NONE, known.topic_id, False)
    for partition in topic.partitions:
        assert (
            partition.error_code,
            partition.leader_id,
            list(partition.replica_nodes),
            list(partition.isr_nodes),
        ) == (
            ErrorCode.NONE,
            NODE_ID,
            [NODE_ID],
            [NODE_ID],
        )
        assert partition.leader_epoch == known.partitions[0].leader_epoch
    assert READ in operations(topic.topic_authorized_operations)
    assert response.next_cursor is None


def test_topics_come_by_name_and_each_once(peer: Peer) -> None:
    word = fresh("sorted")
    names = [peer.create(f"{word}-{letter}") for letter in "bca"]
    assert [name for name, _ in partitions(describe(peer, *names, *names))] == sorted(names)


def test_a_full_page_ends_with_a_cursor_at_which_the_next_begins(peer: Peer) -> None:
    word = fresh("paged")
    names = [peer.create(f"{word}-{letter}", partitions=3) for letter in "abc"]
    seen = []
    cursor: tuple[str, int] | None = None
    for _ in range(5):
        response = describe(peer, *names, limit=2, cursor=cursor)
        seen += [(name, number) for name, numbers in partitions(response) for number in numbers]
        cursor = cursor_of(response)
    assert cursor is None
    assert seen == [(name, number) for name in names for number in range(3)]


def test_a_page_that_ends_with_a_topic_continues_at_the_next_topic(peer: Peer) -> None:
    word = fresh("paged")
    names = [peer.create(f"{word}-{letter}", partitions=2) for letter in "ab"]
    response = describe(peer, *names, limit=2)
    assert partitions(response) == [(names[0], [0, 1])]
    assert cursor_of(response) == (names[1], 0)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_at_least_one_partition(peer: Peer, limit: int) -> None:
    name = peer.create(partitions=2)
    response = describe(peer, name, limit=limit)
    assert partitions(response) == [(name, [0])]
    assert cursor_of(response) == (name, 1)


def test_a_topic_that_does_not_exist_has_an_error_and_the_others_are_described(peer: Peer) -> None:
    name = peer.create()
    codes = {topic.name: topic.error_code for topic in describe(peer, name, "nobody", "no/slashes").topics}
    assert codes == {
        name: ErrorCode.NONE,
        "nobody": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no/slashes": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize("cursor", [("another", 0), ("", 0)])
def test_a_cursor_is_at_a_topic_that_is_asked_for(peer: Peer, cursor: tuple[str, int]) -> None:
    name = peer.create()
    assert [topic.error_code for topic in describe(peer, name, cursor=cursor).topics] == [ErrorCode.INVALID_REQUEST]


def test_a_cursor_is_at_a_partition(peer: Peer) -> None:
    name = peer.create()
    assert [topic.error_code for topic in describe(peer, name, cursor=(name, -1)).topics] == [ErrorCode.INVALID_REQUEST]


def test_a_cursor_past_the_last_partition_finds_no_more(peer: Peer) -> None:
    name = peer.create()
    response = describe(peer, name, cursor=(name, 7))
    assert partitions(response) == [(name, [])]
    assert response.next_cursor is None


def test_no_names_ask_for_all_topics() -> None:
    with HandlerShell() as broker, Peer(broker) as peer:
        broker.create("b", 2)
        broker.create("a", 1)
        assert partitions(describe(peer)) == [("a", [0]), ("b", [0, 1])]
        assert partitions(describe(peer, cursor=("b", 1))) == [("b", [1])]
        # The topic at which the cursor stood may be gone.
        assert partitions(describe(peer, cursor=("aa", 1))) == [("b", [0, 1])]
