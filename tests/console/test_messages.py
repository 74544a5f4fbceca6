"""Pages of messages: complete, in order, without holes or repeats, whatever the log looks like."""

from collections.abc import Iterator

import pytest

from logbrook.client import Client, TransactionalProducer
from logbrook.client.admin import Admin
from logbrook.client.positions import AtOffset, AtTime, End, Start
from logbrook.console.messages import Message, Page, Wanted, first_page, next_page
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
        # Each number goes to the next partition, in batches of five.
        for partition in range(PARTITIONS):
            numbers = list(range(partition, COUNT, PARTITIONS))
            for at in range(0, len(numbers), 5):
                client.produce(TOPIC, partition, build_batch([record(n) for n in numbers[at : at + 5]]))
        yield Admin(client)


def numbers_of(messages: tuple[Message, ...]) -> list[int]:
    return [one.timestamp_ms - 1_000 for one in messages]


def all_pages(admin: Admin, topic: str, first: Page, backwards: bool, wanted: Wanted) -> list[Page]:
    pages = [first]
    while pages[-1].following:
        pages.append(next_page(admin, topic, pages[-1].following, backwards, wanted))
        assert len(pages) < 200, "it goes round in circles"
    return pages


@pytest.mark.parametrize("count", [1, 7, 50, 1000])
@pytest.mark.parametrize("backwards", [False, True])
def test_all_pages_together_are_the_topic_in_order(admin: Admin, count: int, backwards: bool) -> None:
    wanted = Wanted(count)
    first = first_page(admin, TOPIC, None, End() if backwards else Start(), wanted)
    pages = all_pages(admin, TOPIC, first, backwards, wanted)
    found = [number for page in pages for number in numbers_of(page.messages)]
    assert found == sorted(range(COUNT), reverse=backwards)
    assert all(len(page.messages) <= count for page in pages)


def test_a_page_begins_at_an_offset_or_a_time(admin: Admin) -> None:
    wanted = Wanted(4)
    assert numbers_of(first_page(admin, TOPIC, 1, AtOffset(10), wanted).messages) == [31, 34, 37, 40]
    assert numbers_of(first_page(admin, TOPIC, None, AtTime(1_050), wanted).messages) == [50, 51, 52, 53]
    assert first_page(admin, TOPIC, None, AtOffset(10_000), wanted).messages == ()


@pytest.mark.parametrize("backwards", [False, True])
def test_a_search_finds_all_that_hold_the_text_and_no_others(admin: Admin, backwards: bool) -> None:
    wanted = Wanted(4, "VALUE 1")
    first = first_page(admin, TOPIC, None, End() if backwards else Start(), wanted)
    found = [n for page in all_pages(admin, TOPIC, first, backwards, wanted) for n in numbers_of(page.messages)]
    assert found == sorted([1, *range(10, 20)], reverse=backwards)


@pytest.mark.parametrize("backwards", [False, True])
def test_large_messages_make_small_pages_without_holes(admin: Admin, backwards: bool) -> None:
    if admin.topics.describe("large").offsets == 0:
        for number in range(12):
            admin.client.produce("large", 0, build_batch([record(number, 1_000)]))
    wanted = Wanted(12, bytes_max=2_500)
    first = first_page(admin, "large", None, End() if backwards else Start(), wanted)
    found = [n for page in all_pages(admin, "large", first, backwards, wanted) for n in numbers_of(page.messages)]
    assert found == sorted(range(12), reverse=backwards)


def test_what_was_aborted_is_not_shown(admin: Admin) -> None:
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
    assert numbers_of(first_page(admin, "decided", None, Start(), Wanted()).messages) == [0, 2]
    assert numbers_of(first_page(admin, "decided", None, End(), Wanted()).messages) == [2, 0]
