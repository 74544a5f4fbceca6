"""Pages of messages: complete, in order, without holes or repeats, whatever the log looks like."""

from collections.abc import Iterator

import pytest

from logbrook.client import Client, TransactionalProducer
from logbrook.client.admin import Admin
from logbrook.client.offset_specs import AtOffset, AtTime, Earliest, Latest
from logbrook.console.filters import compile_filter
from logbrook.console.messages import (
    MessagePage,
    PageRequest,
    TopicMessage,
    first_page,
    newest_messages,
    next_page,
    write,
)
from logbrook.model.identifiers import Offset
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing import Broker

TOPIC = "paged"
PARTITIONS = 3
COUNT = 90


def record(number: int, size: int = 0) -> Record:
    return Record(b"k%d" % number, b"value %d " % number + bytes(size), (), 1_000 + number)


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    with Broker({TOPIC: PARTITIONS, "large": 1, "decided": 1}) as broker, Client(broker.bootstrap_servers) as client:
        for topic in (TOPIC, "large", "decided"):
            # The timestamps are of 1970.
            Admin(client).configs.alter_topic(topic, {"retention.ms": "-1"})
        # Each number goes to the next partition, in batches of five.
        for partition in range(PARTITIONS):
            numbers = list(range(partition, COUNT, PARTITIONS))
            for at in range(0, len(numbers), 5):
                client.produce(TOPIC, partition, build_batch([record(n) for n in numbers[at : at + 5]]))
        yield Admin(client)


def numbers_of(messages: tuple[TopicMessage, ...]) -> list[int]:
    return [message.timestamp_ms - 1_000 for message in messages]


def all_pages(admin: Admin, topic: str, first: MessagePage, backwards: bool, wanted: PageRequest) -> list[MessagePage]:
    pages = [first]
    while pages[-1].following:
        pages.append(next_page(admin, topic, pages[-1].following, backwards, wanted))
        assert len(pages) < 200, "it goes round in circles"
    return pages


@pytest.mark.parametrize("count", [1, 7, 50, 1000])
@pytest.mark.parametrize("backwards", [False, True])
def test_all_pages_together_hold_the_topic_in_order(admin: Admin, count: int, backwards: bool) -> None:
    wanted = PageRequest(count)
    first = first_page(admin, TOPIC, None, Latest() if backwards else Earliest(), wanted)
    pages = all_pages(admin, TOPIC, first, backwards, wanted)
    numbers = [number for page in pages for number in numbers_of(page.messages)]
    assert numbers == sorted(range(COUNT), reverse=backwards)
    assert all(len(page.messages) <= count for page in pages)


def test_a_page_begins_at_an_offset_or_a_time(admin: Admin) -> None:
    wanted = PageRequest(4)
    assert numbers_of(first_page(admin, TOPIC, 1, AtOffset(Offset(10)), wanted).messages) == [31, 34, 37, 40]
    assert numbers_of(first_page(admin, TOPIC, None, AtTime(1_050), wanted).messages) == [50, 51, 52, 53]
    assert first_page(admin, TOPIC, None, AtOffset(Offset(10_000)), wanted).messages == ()


def test_the_newest_messages_are_returned_and_the_skipped_ones_counted(admin: Admin) -> None:
    per_partition = COUNT // PARTITIONS
    ends = dict.fromkeys(range(PARTITIONS), per_partition)
    newest = newest_messages(admin, TOPIC, dict.fromkeys(range(PARTITIONS), 2), PageRequest(12))
    assert numbers_of(newest.messages) == list(range(COUNT - 1, COUNT - 13, -1))
    assert (newest.tail, newest.skipped) == (ends, COUNT - 2 * PARTITIONS - 12)
    newest = newest_messages(admin, TOPIC, {0: per_partition, 1: per_partition - 2, 2: per_partition}, PageRequest(12))
    assert [(message.partition, message.offset) for message in newest.messages] == [
        (1, per_partition - 1),
        (1, per_partition - 2),
    ]
    assert (newest.tail, newest.skipped) == (ends, 0)
    assert newest_messages(admin, TOPIC, {1: per_partition}, PageRequest(12)).messages == ()
    # A partition that was added since the last call is read from its start, unless the tail is of chosen partitions.
    newest = newest_messages(admin, TOPIC, {0: per_partition, 1: per_partition}, PageRequest(3), with_added=True)
    assert ([message.partition for message in newest.messages], newest.tail) == ([2, 2, 2], ends)
    assert newest.skipped == per_partition - 3
    assert newest_messages(admin, TOPIC, {1: per_partition}, PageRequest(3), with_added=True).messages == ()
    # A search counts the messages that it did not look at.
    newest = newest_messages(admin, TOPIC, dict.fromkeys(range(PARTITIONS), 0), PageRequest(2, text="value 8"))
    assert numbers_of(newest.messages) == [89, 88]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_search_finds_all_that_hold_the_text_and_no_others(admin: Admin, backwards: bool) -> None:
    wanted = PageRequest(4, "VALUE 1")
    first = first_page(admin, TOPIC, None, Latest() if backwards else Earliest(), wanted)
    numbers = [n for page in all_pages(admin, TOPIC, first, backwards, wanted) for n in numbers_of(page.messages)]
    assert numbers == sorted([1, *range(10, 20)], reverse=backwards)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_search_in_steps_advances_with_each_and_covers_the_topic(admin: Admin, backwards: bool) -> None:
    # Each page is returned at its first pause, whether it has matches or not.
    wanted = PageRequest(4, where=compile_filter('key contains "k8"'), pause_s=0.0)
    first = first_page(admin, TOPIC, None, Latest() if backwards else Earliest(), wanted)
    pages = all_pages(admin, TOPIC, first, backwards, wanted)
    numbers = [n for page in pages for n in numbers_of(page.messages)]
    assert numbers == sorted([8, *range(80, 90)], reverse=backwards)
    assert pages[-1].remaining == 0
    remaining = [page.remaining for page in pages]
    assert remaining == sorted(remaining, reverse=True)


def test_a_page_has_positions_of_all_partitions_also_at_their_end(admin: Admin) -> None:
    page = first_page(admin, TOPIC, None, Earliest(), PageRequest(1_000))
    per_partition = COUNT // PARTITIONS
    assert (page.following, page.positions) == ({}, dict.fromkeys(range(PARTITIONS), per_partition))
    assert next_page(admin, TOPIC, page.positions, False, PageRequest()).positions == page.positions


@pytest.mark.parametrize("backwards", [False, True])
def test_pages_of_large_messages_are_short_and_without_gaps(admin: Admin, backwards: bool) -> None:
    if admin.topics.describe("large").offsets == 0:
        for number in range(12):
            admin.client.produce("large", 0, build_batch([record(number, 1_000)]))
    wanted = PageRequest(12, bytes_max=2_500)
    first = first_page(admin, "large", None, Latest() if backwards else Earliest(), wanted)
    numbers = [n for page in all_pages(admin, "large", first, backwards, wanted) for n in numbers_of(page.messages)]
    assert numbers == sorted(range(12), reverse=backwards)


def test_aborted_messages_are_not_shown(admin: Admin) -> None:
    with TransactionalProducer(admin.client, "shown-or-not") as producer:
        for number, is_committed in enumerate((True, False, True)):
            producer.begin()
            batch = build_batch(
                [record(number)],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=producer.next_sequence("decided", 0),
                transactional=True,
            )
            producer.send("decided", 0, batch)
            if is_committed:
                producer.commit()
            else:
                producer.abort()
    assert numbers_of(first_page(admin, "decided", None, Earliest(), PageRequest()).messages) == [0, 2]
    assert numbers_of(first_page(admin, "decided", None, Latest(), PageRequest()).messages) == [2, 0]


def test_messages_are_written_to_partitions_that_were_added_by_others(admin: Admin) -> None:
    admin.topics.create("widened", 1)
    assert write(admin, "widened", [(record(0), None)])[0].partition == 0
    (broker,) = admin.describe_cluster().brokers
    with Client(f"{broker.host}:{broker.port}") as other:
        Admin(other).topics.set_partitions("widened", 6)
    assert write(admin, "widened", [(record(1), 5)])[0].partition == 5
    assert {written.partition for written in write(admin, "widened", [(record(n), None) for n in range(50)])} == set(
        range(6)
    )
