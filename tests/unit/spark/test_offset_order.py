"""A range that starts after its end is an error: it would silently read nothing."""

import json
from collections.abc import Iterator

import pytest

from logbrook import Broker
from logbrook.client import Client
from logbrook.model import TopicPartition
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.spark.errors import OptionError
from logbrook.spark.offset_ranges import OffsetRange
from logbrook.spark.planner import Planner
from logbrook.spark.read_options import ReadOptions, read_options
from logbrook.spark.source import TopicReader

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
TIME_MS = 1_700_000_000_000


def parse(**options: str) -> ReadOptions:
    return read_options(LEAST | options, is_batch=True)


def at(number: int) -> str:
    return json.dumps({"t": {"0": number}})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"startingOffsets": at(50), "endingOffsets": at(20)},
            "option 'startingOffsets': 50 for t-0 is after endingOffsets, 20; it would read nothing",
        ),
        (
            {"startingTimestamp": "2000", "endingTimestamp": "1000"},
            "option 'startingTimestamp': 2000 is after endingTimestamp, 1000; it would read nothing",
        ),
        (
            {"startingOffsetsByTimestamp": at(2000), "endingOffsetsByTimestamp": at(1000)},
            "option 'startingOffsetsByTimestamp': 2000 for t-0 is after endingOffsetsByTimestamp, 1000; it would",
        ),
    ],
)
def test_a_start_after_the_end_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(**options)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": at(20), "endingOffsets": at(20)},
        {"startingOffsets": at(20), "endingOffsets": at(-1)},
        {"startingOffsets": at(-2), "endingOffsets": at(0)},
        {"startingOffsets": at(20), "endingTimestamp": "7"},
        {"startingTimestamp": "2000", "endingOffsets": at(0)},
        {"startingTimestamp": "1000", "endingTimestamp": "1000"},
        {"startingTimestamp": "1000"},
    ],
)
def test_other_ranges_are_accepted(options: dict[str, str]) -> None:
    parse(**options)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A topic whose record at offset n has the time TIME_MS + n, from 0 to 9."""
    with Broker(["t"]) as broker, Client(broker.bootstrap_servers) as client:
        client.produce("t", 0, build_batch([Record(value=b"", timestamp=TIME_MS + number) for number in range(10)]))
        yield broker


def test_an_offset_after_the_end_by_time_is_refused(broker: Broker) -> None:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    options = servers | {"startingOffsets": at(5), "endingTimestamp": str(TIME_MS + 3)}
    with pytest.raises(
        OptionError, match=r"^option 'startingOffsets': 5 for t-0 is after endingTimestamp, which is off"
    ):
        TopicReader(parse(**options), ("offset",)).partitions()
    planner = Planner(parse(**options | {"endingTimestamp": str(TIME_MS + 8)}))
    try:
        (range_,) = planner.ranges()
    finally:
        planner.close()
    assert (range_.partition, range_.start, range_.end) == (TopicPartition("t", 0), 5, 8)
    assert isinstance(range_, OffsetRange)
