"""Parsing of the start and end positions of a query."""

import json
from typing import Any

import pytest

from logbrook.client import EARLIEST, LATEST
from logbrook.model import TopicPartition
from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader
from logbrook.spark.read_options import OffsetSpec, RangeBound, read_duration_ms, read_offset_spec

NOW_MS = 1_700_000_000_000
START, END = RangeBound.STARTING, RangeBound.ENDING
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def read(edge: RangeBound = START, *, is_batch: bool = True, **options: Any) -> OffsetSpec:
    return read_offset_spec(OptionReader(options), edge, NOW_MS, is_batch=is_batch)


def by_partition(**values: Any) -> str:
    return json.dumps({"t": {name.removeprefix("p"): value for name, value in values.items()}})


def test_a_batch_query_reads_everything_and_a_stream_reads_new_records() -> None:
    assert read(START).timestamp_ms == EARLIEST
    assert read(END).timestamp_ms == LATEST
    assert read(START, is_batch=False).timestamp_ms == LATEST


@pytest.mark.parametrize("text", ["earliest", "Earliest", " EARLIEST "])
def test_an_end_of_the_log_is_a_word_in_any_letter_case(text: str) -> None:
    assert read(startingOffsets=text) == OffsetSpec("startingOffsets", timestamp_ms=EARLIEST)


def test_a_stream_may_start_at_either_end() -> None:
    assert read(is_batch=False, startingOffsets="latest").timestamp_ms == LATEST
    assert read(is_batch=False, startingOffsets="earliest").timestamp_ms == EARLIEST
    assert read(is_batch=False, startingOffsets=by_partition(p0=-1)).offsets == {T0: LATEST}


def test_a_batch_cannot_start_at_the_end_or_end_at_the_start() -> None:
    with pytest.raises(OptionError, match=r"^option 'startingOffsets': a batch query cannot have 'latest' here"):
        read(startingOffsets="Latest")
    with pytest.raises(OptionError, match=r"^option 'endingOffsets': a batch query cannot have 'earliest' here"):
        read(END, endingOffsets="earliest")
    with pytest.raises(OptionError, match=r"^option 'startingOffsets': -1 is not allowed for t-0$"):
        read(startingOffsets=by_partition(p0=-1))
    with pytest.raises(OptionError, match=r"^option 'endingOffsets': -2 is not allowed for t-1$"):
        read(END, endingOffsets=by_partition(p0=-1, p1=-2))


def test_offsets_are_given_by_partition() -> None:
    assert read(startingOffsets=by_partition(p0=23, p1=-2)) == OffsetSpec("startingOffsets", offsets={T0: 23, T1: -2})
    assert read(END, endingOffsets=by_partition(p0=23, p1=-1)).by_partition == {T0: 23, T1: -1}


def test_times_are_given_by_partition() -> None:
    spec = read(startingOffsetsByTimestamp=by_partition(p0=0, p1=NOW_MS))
    assert spec == OffsetSpec("startingOffsetsByTimestamp", timestamps_ms={T0: 0, T1: NOW_MS})
    assert spec.by_partition == {T0: 0, T1: NOW_MS}


def test_one_time_is_for_all_partitions() -> None:
    assert read(startingTimestamp="123") == OffsetSpec("startingTimestamp", timestamp_ms=123)
    assert read(END, endingTimestamp="0") == OffsetSpec("endingTimestamp", timestamp_ms=0)


def test_starting_timestamp_wins_over_times_and_times_over_offsets() -> None:
    offsets, times = by_partition(p0=5), by_partition(p0=6)
    every: dict[str, Any] = {"startingOffsets": offsets, "startingOffsetsByTimestamp": times, "startingTimestamp": "7"}
    assert read(**every).option == "startingTimestamp"
    del every["startingTimestamp"]
    assert read(**every).timestamps_ms == {T0: 6}
    del every["startingOffsetsByTimestamp"]
    assert read(**every).offsets == {T0: 5}


def test_an_invalid_option_is_reported_even_if_another_takes_precedence() -> None:
    with pytest.raises(OptionError, match="'startingOffsets'"):
        read(startingOffsets="soon", startingTimestamp="7")


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [
        ("-10 minutes", 600_000),
        ("-1h", 3_600_000),
        ("- 2 Days", 172_800_000),
        ("-500ms", 500),
        ("-1 second", 1000),
        ("-3 SECS", 3000),
        ("-0s", 0),
    ],
)
@pytest.mark.parametrize("name", ["startingTimestamp", "startingOffsets"])
def test_a_time_may_be_relative_to_now(name: str, text: str, ago_ms: int) -> None:
    assert read(START, is_batch=True, **{name: text}) == OffsetSpec(name, timestamp_ms=NOW_MS - ago_ms)


def test_a_time_before_1970_is_the_beginning_and_no_code_of_the_protocol() -> None:
    assert read(startingTimestamp=f"-{NOW_MS + 1}ms").timestamp_ms == 0
    assert read(startingOffsets="-100000 days").timestamp_ms == 0


@pytest.mark.parametrize("text", ["yesterday", "-5", "-5 fortnights", "5 minutes", "1.5", "-1.5h", "--1h"])
@pytest.mark.parametrize("name", ["startingTimestamp", "startingOffsets"])
def test_an_invalid_timestamp_is_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=rf"^option '{name}': .*'{text}'"):
        read(START, is_batch=True, **{name: text})


@pytest.mark.parametrize("name", ["startingOffsets", "startingOffsetsByTimestamp"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON"),
        ("{}", "it names no partition"),
        ('{"t": {}}', "it names no partition"),
        ('{"t": [1]}', "'t' needs a number for each partition"),
        ('{"t": {"0": "1"}}', "'t' has '0': '1', which is not"),
        ('{"t": {"0": 1.5}}', "'t' has '0': 1.5, which is not"),
        ('{"t": {"0": true}}', "'t' has '0': True, which is not"),
        ('{"t": {"x": 1}}', "'t' has 'x': 1, which is not"),
        ('{"t": {"0": -3}}', "-3 is not"),
    ],
)
def test_json_of_another_form_is_refused(name: str, text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^option '{name}': {reason}"):
        read(START, is_batch=True, **{name: text})


@pytest.mark.parametrize("code", [-1, -2])
def test_a_time_is_no_code_of_the_protocol(code: int) -> None:
    with pytest.raises(OptionError, match=rf"^option 'startingOffsetsByTimestamp': {code} is not a time for t-0$"):
        read(startingOffsetsByTimestamp=by_partition(p0=code))


def test_a_duration_has_a_unit() -> None:
    assert read_duration_ms("maxTriggerDelay", " 15m ") == 900_000
    assert read_duration_ms("maxTriggerDelay", "10 minutes") == 600_000
    for text in ("15", "-15m", "soon", ""):
        with pytest.raises(OptionError, match=r"^option 'maxTriggerDelay': "):
            read_duration_ms("maxTriggerDelay", text)
