"""Parts of micro-batches without Spark: commits after attempts that fail, crash, come late or do not fit."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from logbrook import Broker
from logbrook.client import Client, Connection, ProducerFencedError, TransactionalProducer, TransactionTimedOutError
from logbrook.client.partition_requests import PartitionRequests
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.messages.api_versions import ApiVersionsRequest
from logbrook.protocol.schema import Versions
from logbrook.spark.errors import OptionError, RecordError, UnreachableError
from logbrook.spark.exactly_once import (
    ReplayError,
    TaskBatch,
    close_clients,
    current_batch_write,
    current_task_batch,
    send_once,
)
from logbrook.spark.write_options import WriteOptions, write_options
from logbrook.spark.writer import batch_writer, stream_writer
from logbrook.testing.processes import free_port

_numbers = count(1)
SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def close_after() -> Iterator[None]:
    yield
    close_clients()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with three partitions. Its name is the app id too."""
    name = f"topic-{next(_numbers)}"
    broker.create_topic(name, 3)
    return name


@pytest.fixture
def options(broker: Broker, topic: str) -> WriteOptions:
    return WriteOptions(broker.bootstrap_servers, topic=topic, is_exactly_once=True)


@pytest.fixture
def part(topic: str) -> TaskBatch:
    return TaskBatch(topic, "query", 0, 0)


@pytest.fixture(params=["first-version", "second-version"])
def _protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with both versions of the transaction protocol; without features the first is used."""
    if request.param == "first-version":
        monkeypatch.setattr(ApiVersionsRequest, "VERSIONS", Versions(0, 2))


def rows(first: int, end: int) -> Any:
    numbers = [b"%d" % number for number in range(first, end)]
    return pa.RecordBatch.from_pydict({"key": numbers, "value": numbers})


def write(options: WriteOptions, part: TaskBatch, *batches: Any) -> int:
    return send_once(options, part, iter(batches))


def committed(broker: Broker, *topics: str) -> list[int]:
    """Return the values that librdkafka reads with read_committed, in order."""
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "nobody",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 10,
    }
    consumer = confluent_kafka.Consumer(settings)
    assigned = [confluent_kafka.TopicPartition(topic, partition, 0) for topic in topics for partition in range(3)]
    consumer.assign(assigned)
    values: list[int] = []
    ended = 0
    while ended < len(assigned):
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ended += 1
        else:
            values.append(int(message.value() or b""))
    consumer.close()
    return sorted(values)


@pytest.mark.usefixtures("_protocol")
def test_a_repeated_part_is_written_once(broker: Broker, options: WriteOptions, part: TaskBatch, topic: str) -> None:
    for batch_id in range(3):
        batches = [rows(batch_id * 100, batch_id * 100 + 60), rows(batch_id * 100 + 60, batch_id * 100 + 100)]
        for _ in range(3):
            given = iter(batches)
            assert send_once(options, part._replace(batch_id=batch_id), given) == 100
            assert next(given, None) is None, "Spark expects that all rows are taken"
    assert committed(broker, topic) == list(range(300))


def test_tasks_are_independent(broker: Broker, options: WriteOptions, part: TaskBatch, topic: str) -> None:
    def between() -> Iterator[Any]:
        yield rows(0, 10)
        write(options, part._replace(task=1), rows(20, 30))
        yield rows(10, 20)

    assert send_once(options, part, between()) == 20
    assert committed(broker, topic) == list(range(30))


def test_every_row_may_have_its_own_topic(broker: Broker, options: WriteOptions, part: TaskBatch, topic: str) -> None:
    broker.create_topic(f"{topic}-b", 3)
    for batch_id, names in enumerate([(topic, f"{topic}-b"), (f"{topic}-b",), (topic,)]):
        batch = rows(batch_id * 10, batch_id * 10 + 10)
        batch = batch.append_column("topic", pa.array([names[number % len(names)] for number in range(10)]))
        for _ in range(2):
            write(options._replace(topic=None), part._replace(batch_id=batch_id), batch)
    assert committed(broker, topic, f"{topic}-b") == list(range(30))


def test_a_part_without_rows_leaves_no_trace(
    broker: Broker, options: WriteOptions, part: TaskBatch, topic: str
) -> None:
    assert write(options, part) == 0
    assert write(options, part, rows(0, 0)) == 0
    assert write(options, part, rows(0, 0), rows(0, 5)) == 5
    assert committed(broker, topic) == list(range(5))


class Died(BaseException):
    """A simulated crash: nothing runs after it, not even an abort."""


@pytest.mark.usefixtures("_protocol")
@pytest.mark.parametrize("moment", ["before a request", "after an answer"])
def test_an_attempt_may_die_at_every_step(
    broker: Broker, options: WriteOptions, part: TaskBatch, topic: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "_send" if moment == "before a request" else "_receive"
    call: Callable[..., Any] = getattr(Connection, name)
    calls_left = 0

    def die(*arguments: Any, **named: Any) -> Any:
        nonlocal calls_left
        calls_left -= 1
        if calls_left < 0:
            raise Died
        result = call(*arguments, **named)
        if calls_left == 0 and name == "_receive":
            raise Died
        return result

    batch_id = 0
    while True:
        attempt = part._replace(batch_id=batch_id)
        batch = rows(batch_id * 10, batch_id * 10 + 10)
        calls_left = batch_id + 1
        close_clients()
        with monkeypatch.context() as patch:
            patch.setattr(Connection, name, die)
            try:
                write(options, attempt, batch)
            except Died:
                is_dead = True
            else:
                is_dead = False
        assert write(options, attempt, batch) == 10
        assert write(options, attempt, batch) == 10
        batch_id += 1
        if not is_dead:
            break
    assert batch_id > 8, "there are that many steps at least"
    assert committed(broker, topic) == list(range(batch_id * 10))


@pytest.mark.usefixtures("_protocol")
def test_the_later_of_two_attempts_wins(broker: Broker, options: WriteOptions, part: TaskBatch, topic: str) -> None:
    def late() -> Iterator[Any]:
        yield rows(0, 10)
        close_clients()
        write(options, part, rows(0, 10), rows(10, 20))
        yield rows(10, 20)

    with pytest.raises(ProducerFencedError, match="another producer has taken over"):
        send_once(options, part, late())
    assert committed(broker, topic) == list(range(20))


def test_a_row_that_cannot_be_written_aborts_the_rows_before_it(
    broker: Broker, options: WriteOptions, part: TaskBatch, topic: str
) -> None:
    partitions = pa.array([7] * 10, pa.int32())
    with pytest.raises(RecordError, match="has 3 partitions"):
        write(options, part, rows(0, 10), rows(10, 20).append_column("partition", partitions))
    assert committed(broker, topic) == []
    assert write(options, part, rows(0, 10)) == 10
    assert committed(broker, topic) == list(range(10))


@pytest.mark.parametrize("now", [9, 11, 0])
def test_another_number_of_rows_than_before_is_refused(
    broker: Broker, options: WriteOptions, part: TaskBatch, topic: str, now: int
) -> None:
    write(options, part, rows(0, 10))
    with pytest.raises(ReplayError, match=f"part 0 of batch 0 was written with 10 rows and has {now} now"):
        write(options, part, rows(0, now))
    assert committed(broker, topic) == list(range(10))


def test_a_batch_before_the_last_one_is_refused(
    broker: Broker, options: WriteOptions, part: TaskBatch, topic: str
) -> None:
    write(options, part._replace(batch_id=3), rows(0, 10))
    for given in ([rows(0, 10)], []):
        with pytest.raises(ReplayError, match="part 0 of batch 2 cannot be written after batch 3"):
            write(options, part._replace(batch_id=2), *given)
    assert committed(broker, topic) == list(range(10))


@pytest.mark.parametrize("batch_id", [0, 3, 4])
def test_the_app_id_of_another_query_is_refused(
    broker: Broker, options: WriteOptions, part: TaskBatch, topic: str, batch_id: int
) -> None:
    write(options, part._replace(batch_id=3), rows(0, 10))
    with pytest.raises(ReplayError, match=f"app.id '{topic}' is in use by query query, .* batch 3"):
        write(options, part._replace(batch_id=batch_id, query_id="other"), rows(0, 10))
    assert committed(broker, topic) == list(range(10))


def test_offsets_not_committed_by_the_sink_are_rejected(
    broker: Broker, options: WriteOptions, part: TaskBatch, topic: str
) -> None:
    with Client(broker.bootstrap_servers) as client:
        PartitionRequests(client).coordinators.commit(part.name, {TopicPartition(topic, 0): 5})
    with pytest.raises(ReplayError, match=f"group '{topic}-0' has offsets that this sink did not commit"):
        write(options, part, rows(0, 10))


def test_a_transaction_timeout_above_the_limit_is_refused_with_the_option_name(
    broker: Broker, options: WriteOptions, part: TaskBatch, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        OptionError, match=r"'transaction\.timeout\.ms': 2000000000 exceeds the cluster's transaction\.max"
    ):
        write(options._replace(transaction_timeout_ms=2_000_000_000), part, rows(0, 10))
    flush = TransactionalProducer.flush

    def flush_late(self: TransactionalProducer) -> None:
        flush(self)
        with Client(broker.bootstrap_servers) as client:
            while client.fetch(topic, 0, Offset(0), committed_only=True).last_stable_offset < 2:
                pass

    monkeypatch.setattr(TransactionalProducer, "flush", flush_late)
    frame = rows(0, 1).append_column("partition", pa.array([0], pa.int32()))
    with pytest.raises(TransactionTimedOutError, match=r"longer than its timeout of 0\.05 s"):
        write(options._replace(transaction_timeout_ms=50), part, frame)
    assert committed(broker, topic) == []


def test_connections_are_kept_and_lost_ones_replaced(options: WriteOptions, part: TaskBatch, tmp_path: Any) -> None:
    servers = f"127.0.0.1:{free_port()}"
    options = options._replace(bootstrap_servers=servers)
    with pytest.raises(UnreachableError, match=servers):
        write(options._replace(delivery_timeout_s=0.2), part, rows(0, 10))
    settings = {"network": {"listen": servers, "stop_ms": 500}}
    with Broker({str(options.topic): 3}, data=str(tmp_path), settings=settings) as broker:
        for batch_id in range(3):
            first = batch_id * 10
            assert write(options, part._replace(batch_id=batch_id), rows(first, first + 10)) == 10
            broker.stop()
            broker.start()
        assert write(options, part._replace(task=1)) == 0
        assert committed(broker, str(options.topic)) == list(range(30))


def test_the_option_is_read() -> None:
    assert not write_options(SERVERS).is_exactly_once
    assert not write_options(SERVERS | {"delivery": "at-least-once"}).is_exactly_once
    written = write_options(SERVERS | {"delivery": "exactly-once"}, is_stream=True)
    assert (written.is_exactly_once, written.app_id, written.transaction_timeout_ms) == (True, None, 900_000)
    more = {"delivery": "Exactly-Once", "app.id": "orders", "kafka.transaction.timeout.ms": "60000"}
    written = write_options(SERVERS | more, is_stream=True)
    assert (written.is_exactly_once, written.app_id, written.transaction_timeout_ms) == (True, "orders", 60_000)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"delivery": "at-most-once"}, "option 'delivery': it must be at-least-once or exactly-once"),
        ({"app.id": "a"}, "option 'app.id': it is only for delivery=exactly-once"),
        ({"transaction.timeout.ms": "1"}, r"option 'transaction\.timeout\.ms': it is only for"),
        ({"batch.id": "1"}, r"option 'batch\.id': it is only for batch writes"),
        ({"delivery": "exactly-once", "transaction.timeout.ms": "0"}, "at least 1"),
        ({"transactional.id": "a"}, r"option 'transactional\.id': it cannot be set here; .* app\.id"),
    ],
)
def test_invalid_delivery_options_are_refused_with_the_option_name(given: dict[str, str], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        write_options(SERVERS | given, is_stream=True)


def test_a_stream_without_a_query_is_refused() -> None:
    schema = StructType().add("value", "string")
    given = SERVERS | {"delivery": "exactly-once", "topic": "t"}
    writer = stream_writer(given, schema, False)
    with pytest.raises(OptionError, match="exactly-once needs a streaming query"):
        writer.write(iter([rows(0, 1)]))
    with pytest.raises(OptionError, match="exactly-once needs a streaming query"):
        current_task_batch(write_options(given, is_stream=True))


StartTask = Callable[..., None]
RUNS = [f"{number}1111111-1111-1111-1111-111111111111" for number in range(3)]


def test_the_batch_id_of_a_batch_write_is_given_or_taken_from_the_query(start_task: StartTask) -> None:
    given = SERVERS | {"delivery": "exactly-once"}
    start_task(task=2)
    with pytest.raises(OptionError, match=r"'delivery': exactly-once needs app\.id and batch\.id"):
        current_batch_write(write_options(given))
    with pytest.raises(OptionError, match=r"'batch\.id': it is required with app\.id"):
        current_batch_write(write_options(given | {"app.id": "app"}))
    with pytest.raises(OptionError, match=r"'batch\.id': it is only for delivery=exactly-once"):
        write_options(SERVERS | {"batch.id": "7"})
    identified = write_options(given | {"app.id": "app", "batch.id": "7"})
    assert current_batch_write(identified) == TaskBatch("app", None, 7, 2)
    start_task(5, run_id=RUNS[0], stage_id=3, task=2)
    assert current_batch_write(identified) == TaskBatch("app", "query", 7, 2)
    assert current_batch_write(write_options(given)) == TaskBatch("query", "query", 5, 2, RUNS[0], 3)


def write_batch(broker: Broker, topic: str, first: int, **options: str) -> None:
    """Write ten rows with the writer of a batch query."""
    named = {name.replace("_", "."): text for name, text in options.items()}
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "delivery": "exactly-once", **named}
    writer = batch_writer(given, StructType().add("value", "binary"), False)
    assert writer.write(iter([rows(first, first + 10)])).records == 10


def test_a_batch_write_with_the_same_options_is_a_repetition(broker: Broker, topic: str, start_task: StartTask) -> None:
    start_task()
    for batch_id in (0, 0, 1, 1):
        write_batch(broker, topic, batch_id * 10, app_id=topic, batch_id=str(batch_id))
    assert committed(broker, topic) == list(range(20))
    start_task(2)
    with pytest.raises(ReplayError, match=r"is in use by a batch query, .* batch 1 with it; this is query query"):
        write_batch(broker, topic, 20, app_id=topic)


def test_a_micro_batch_repeated_by_a_task_or_a_run_is_written_once(
    broker: Broker, topic: str, start_task: StartTask
) -> None:
    stage_id = 0
    for run_id, batches in zip(RUNS, ([0, 1], [1, 2], [2]), strict=True):
        for batch_id in batches:
            stage_id += 1
            for _ in range(2):
                start_task(batch_id, run_id=run_id, stage_id=stage_id)
                write_batch(broker, topic, batch_id * 10, app_id=topic)
    assert committed(broker, topic) == list(range(30))


def test_a_second_write_of_a_micro_batch_is_refused_in_every_run(
    broker: Broker, topic: str, start_task: StartTask
) -> None:
    """If the later run took it for a repetition of the first write, its rows would be lost."""
    for run_id in RUNS:
        start_task(0, run_id=run_id, stage_id=1)
        write_batch(broker, topic, 0, app_id=topic)
        start_task(0, run_id=run_id, stage_id=2)
        with pytest.raises(ReplayError, match=f"batch 0 was already written with app.id '{topic}' in this run"):
            write_batch(broker, topic, 10, app_id=topic)
    write_batch(broker, topic, 10, app_id=f"{topic}-second")
    assert committed(broker, topic) == list(range(20))
