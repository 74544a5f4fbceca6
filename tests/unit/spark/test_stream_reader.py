"""The streaming reader as Spark drives it, without Spark: offsets of micro-batches, admission control, data loss."""

import json
import pickle
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import count
from typing import Any, NamedTuple

import pytest
from pyspark.sql.types import StructType

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.spark import fetching
from logbrook.spark.errors import DataLossError, SparkError
from logbrook.spark.planner import DataLossWarning
from logbrook.spark.source import LogbrookDataSource

TOPIC = "stream-options"
PARTITIONS = 3
OLD = 20
START_MS = 1_700_000_000_000
LATE_MS = 2**50
BATCHES_MAX = 20
ENDS = {0: OLD + 1, 1: OLD + 1, 2: OLD}
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def own_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the connections that a worker would keep for its next task."""
    clients: dict[Any, Any] = {}
    monkeypatch.setattr(fetching, "_clients", clients)
    yield
    for client in clients.values():
        client.close()


@pytest.fixture
def topic() -> str:
    return f"stream-reader-{next(_numbers)}"


def produce(broker: Broker, topic: str, values: int, partition: int = 0, size: int = 10, **times: int) -> None:
    """Write records in batches of one; `time_ms` is the first timestamp, `step_ms` their distance."""
    first_ms, step_ms = times.get("time_ms", 0), times.get("step_ms", 0)
    with Client(broker.bootstrap_servers) as client:
        for number in range(values):
            record = Record(None, b"%0*d" % (size, number), (), first_ms + number * step_ms)
            client.produce(topic, partition, build_batch([record]))


@pytest.fixture(scope="module")
def readings(broker: Broker) -> None:
    """Old records in all partitions, a second apart, and a record of the last minute in the first two."""
    broker.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1"})
    recent_ms = round(time.time() * 1000) - 60_000
    for partition in range(PARTITIONS):
        produce(broker, TOPIC, OLD, partition, time_ms=START_MS, step_ms=1000)
        if partition < PARTITIONS - 1:
            produce(broker, TOPIC, 1, partition, time_ms=recent_ms)


def recreate(broker: Broker, topic: str, partitions: int) -> None:
    with Client(broker.bootstrap_servers) as client:
        Admin(client).topics.delete([topic])
    broker.create_topic(topic, partitions)


def open_reader(broker: Broker, **options: Any) -> closing[Any]:
    """The reader on the driver. Spark passes option names in lower case."""
    texts = {"kafka.bootstrap.servers": broker.bootstrap_servers} | options
    source = LogbrookDataSource({name.replace("__", ".").lower(): str(text) for name, text in texts.items()})
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = source.streamReader(schema)
    reader.close = reader.stop
    return closing(reader)


def next_end(reader: Any, start: Mapping[str, Any]) -> dict[str, Any]:
    """The end of the next micro-batch, as written to and read from a checkpoint."""
    end: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
    return end


class StreamRun(NamedTuple):
    """Rows of each micro-batch, and the number of tasks that read something."""

    batches: list[list[dict[str, Any]]]
    tasks: int

    @property
    def offsets(self) -> dict[int, list[int]]:
        offsets: dict[int, list[int]] = {}
        for row in (row for batch in self.batches for row in batch):
            offsets.setdefault(row["partition"], []).append(row["offset"])
        return {partition: sorted(values) for partition, values in sorted(offsets.items())}


def read_available(reader: Any) -> StreamRun:
    """Do what Spark does for a new query with trigger(availableNow=True)."""
    batches, tasks = [], 0
    start = json.loads(json.dumps(reader.initialOffset()))
    reader.prepareForTriggerAvailableNow()
    for _ in range(BATCHES_MAX):
        end = next_end(reader, start)
        if end == start:
            break
        rows: list[dict[str, Any]] = []
        for partition in reader.partitions(start, end):
            # Executors get copies.
            task_reader, task = pickle.loads(pickle.dumps((reader, partition)))
            read = [row for batch in task_reader.read(task) for row in batch.to_pylist()]
            tasks += bool(read)
            rows += read
        batches.append(rows)
        start = end
    return StreamRun(batches, tasks)


class OptionsCase(NamedTuple):
    """Options of a query, and the first offset of each partition, number of batches and of tasks that follow."""

    options: Mapping[str, Any]
    starts: Mapping[int, int]
    batches: int | None = 1
    tasks: int | None = None


def by_partition(*values: int) -> str:
    return json.dumps({TOPIC: {str(number): value for number, value in enumerate(values)}})


OPTIONS = {
    "nothing": OptionsCase({}, {}, batches=0),
    "offsets": OptionsCase(
        {"startingOffsets": by_partition(5, -2, -1), "columns": "Offset, partition", "minPartitions": 7},
        {0: 5, 1: 0},
        tasks=7,
    ),
    "a time before times before offsets": OptionsCase(
        {
            "startingTimestamp": START_MS + 16_500,
            "startingOffsetsByTimestamp": by_partition(0, 0, 0),
            "startingOffsets": "latest",
            "maxRecordsPerPartition": 2,
        },
        {0: 17, 1: 17, 2: 17},
        tasks=6,
    ),
    "times before offsets": OptionsCase(
        {
            "startingOffsetsByTimestamp": by_partition(START_MS + 19_000, START_MS + 8_001, LATE_MS),
            "startingOffsetsByTimestampStrategy": "latest",
            "startingOffsets": "earliest",
        },
        {0: 19, 1: 9},
    ),
    "from now": OptionsCase(
        {"startingOffsets": "-10 minutes", "startingOffsetsByTimestampStrategy": "latest"}, {0: OLD, 1: OLD}
    ),
    "a time from now": OptionsCase(
        {"startingTimestamp": "-1h", "assign": json.dumps({TOPIC: [1, 0]}), "subscribe": ""}, {0: OLD, 1: OLD}
    ),
    "bytes per batch": OptionsCase(
        {"startingOffsets": "earliest", "maxBytesPerTrigger": 1000}, {0: 0, 1: 0, 2: 0}, None
    ),
}


@pytest.mark.usefixtures("readings")
@pytest.mark.parametrize("case", OPTIONS.values(), ids=OPTIONS.keys())
def test_every_stream_option_has_its_documented_effect(broker: Broker, case: OptionsCase) -> None:
    with open_reader(broker, **{"subscribe": TOPIC, **case.options}) as reader:
        run = read_available(reader)
    assert run.offsets == {first: list(range(start, ENDS[first])) for first, start in case.starts.items()}
    assert case.batches in (None, len(run.batches))
    assert case.tasks in (None, run.tasks)
    if "columns" in case.options:
        assert list(run.batches[0][0]) == ["offset", "partition"]
    if "maxBytesPerTrigger" in case.options:
        assert 2 <= len(run.batches) <= 10


@pytest.mark.usefixtures("readings")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "no-such-topic"}, "there is no topic 'no-such-topic' at 127.0.0.1:"),
        ({"subscribe": "", "subscribePattern": "no-such-.*"}, "there is no topic like 'no-such-.*' at 127.0.0.1:"),
        ({"endingOffsets": "latest"}, "option 'endingOffsets': it is for batch queries"),
        ({"startingOffset": "latest"}, "there is no such option; did you mean 'startingOffsets'?"),
        (
            {"startingTimestamp": LATE_MS},
            f"there is no record at or after that time in {TOPIC}-0, {TOPIC}-1, {TOPIC}-2",
        ),
        (
            {"startingOffsets": by_partition(1)},
            f"name every partition that is read and no other; see {TOPIC}-1, {TOPIC}-2",
        ),
        ({"minOffsetsPerTrigger": 9, "maxOffsetsPerTrigger": 8}, "9 is more than maxOffsetsPerTrigger, 8"),
        ({"minPartitions": "0"}, "option 'minPartitions': it must be at least 1, not 0"),
        ({"columns": "key,colour"}, "option 'columns': it must list distinct columns out of key, value, topic"),
        ({"value.format": "json"}, "option 'value.schema': it is required where 'value.format' is json"),
        ({"enable.auto.commit": "true"}, "option 'enable.auto.commit': it cannot be 'true' here; use group.id"),
    ],
)
def test_an_invalid_option_is_an_error_that_says_why(broker: Broker, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SparkError) as error, open_reader(broker, **{"subscribe": TOPIC, **options}) as reader:
        reader.initialOffset()
    assert sentence.lower() in str(error.value).lower()


def test_a_batch_takes_no_more_offsets_than_allowed_in_proportion_to_the_backlogs(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 2)
    produce(broker, topic, 12)
    produce(broker, topic, 4, partition=1)
    with open_reader(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=8) as reader:
        run = read_available(reader)
    assert [len(batch) for batch in run.batches] == [8, 8]
    assert [(row["partition"], row["offset"]) for row in run.batches[0]] == [
        *((0, offset) for offset in range(6)),
        *((1, offset) for offset in range(2)),
    ]
    assert run.offsets == {0: list(range(12)), 1: list(range(4))}


def test_a_batch_takes_about_as_many_bytes_as_allowed(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    produce(broker, topic, 12, size=10_000)
    with open_reader(broker, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger=50_000) as reader:
        run = read_available(reader)
    assert len(run.batches) in (3, 4)
    assert max(map(len, run.batches)) <= 5
    assert run.offsets == {0: list(range(12))}


def test_a_missing_topic_is_data_loss_and_its_offsets_are_kept(broker: Broker, topic: str) -> None:
    second_topic = f"{topic}-other"
    broker.create_topic(topic, 2)
    broker.create_topic(second_topic)
    options = {"subscribe": f"{topic},{second_topic}", "startingOffsets": "earliest"}
    with open_reader(broker, **options) as reader:
        start = reader.initialOffset()
    with Client(broker.bootstrap_servers) as client:
        Admin(client).topics.delete([topic])
    produce(broker, second_topic, 2)
    gone = f"partitions that were being read are gone: {topic}-0, {topic}-1"
    with open_reader(broker, **options) as strict, pytest.raises(DataLossError, match=gone):
        next_end(strict, start)
    with open_reader(broker, failOnDataLoss="false", **options) as lenient:
        lenient.prepareForTriggerAvailableNow()
        with pytest.warns(DataLossWarning, match=gone):
            end = next_end(lenient, start)
        with pytest.warns(DataLossWarning, match=gone):
            splits = lenient.partitions(start, end)
    assert [(split.range.partition.topic, split.range.end) for split in splits] == [(second_topic, 2)]
    assert end[topic] == start[topic]


def test_a_planned_batch_of_a_recreated_topic_is_not_read_from_the_new_topic(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    produce(broker, topic, 9)
    with open_reader(broker, subscribe=topic, startingOffsets="earliest") as before:
        start = before.initialOffset()
        end = next_end(before, start)
    recreate(broker, topic, 1)
    produce(broker, topic, 2)
    recreated = f"topic '{topic}' was deleted and created again"
    with open_reader(broker, subscribe=topic, failOnDataLoss="false") as after:
        with pytest.warns(DataLossWarning, match=recreated):
            assert [split.range.size for split in after.partitions(start, end)] == [0]
        with pytest.warns(DataLossWarning, match=recreated):
            later = next_end(after, end)
        assert later[topic]["offsets"] == {"0": 2}
        with pytest.warns(DataLossWarning, match=recreated):
            assert [split.range[1:3] for split in after.partitions(end, later)] == [(0, 2)]
    with open_reader(broker, subscribe=topic) as strict, pytest.raises(DataLossError, match=recreated):
        strict.partitions(start, end)


def test_a_truncated_log_is_data_loss_and_reading_continues_at_its_end(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    produce(broker, topic, 3)
    with open_reader(broker, subscribe=topic, startingOffsets="earliest") as strict:
        start = strict.initialOffset()
        start[topic]["offsets"]["0"] = 7
        with pytest.raises(DataLossError, match=f"{topic}-0 ends at offset 3, and was read up to 7; to continue"):
            next_end(strict, start)
    with open_reader(broker, subscribe=topic, failOnDataLoss="false") as lenient:
        with pytest.warns(DataLossWarning, match="ends at offset 3"):
            end = next_end(lenient, start)
        assert end[topic]["offsets"] == {"0": 3}
        assert [split.range.size for split in lenient.partitions(start, end)] == [0]


def test_a_checkpoint_of_another_source_is_an_error_with_the_reason(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    with open_reader(broker, subscribe=topic) as reader, pytest.raises(SparkError, match="this source did not write"):
        next_end(reader, {topic: {"0": 5}})
