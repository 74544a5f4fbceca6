"""Outages of a broker: which operations wait, for how long, and which fail at once. Without Spark."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkFiles
from pyspark.sql.types import StructType

from logbrook import Broker
from logbrook.client import BrokerError, Client, ClientError, ConnectFailedError, Connection, Fetched
from logbrook.client.retry import FailedTry
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.spark import contacts, fetching
from logbrook.spark.contacts import check_sink, has_answered, record_answer
from logbrook.spark.errors import MissingTopicError, UnreachableError
from logbrook.spark.exactly_once import TaskBatch, close_clients, send_once
from logbrook.spark.fetching import read_range
from logbrook.spark.offset_ranges import OffsetRange
from logbrook.spark.outages import OutageLog
from logbrook.spark.planner import Planner
from logbrook.spark.read_options import read_options
from logbrook.spark.sending import close_idle, send_rows
from logbrook.spark.source import LogbrookDataSource
from logbrook.spark.write_options import WriteOptions
from logbrook.testing.copy.topics import read_topic
from logbrook.testing.processes import free_port
from tests.interop.waiting import wait_until

TOPIC = "t"
RECORDS = 9
# Connections that are refused before the broker comes back. Readers, whose interval is set, would give up after fewer.
REFUSED = 6
REFUSED_TO_SINKS = 3
WITHIN_S = 60.0


class Refusals:
    """Counts connections that are refused."""

    count = 0

    def wait_for(self, count: int) -> None:
        wait_until(lambda: self.count >= count, f"{count} refused connections", WITHIN_S)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    counted = Refusals()
    connect = Connection.__init__

    def connect_and_count(self: Connection, *address: Any, **how: Any) -> None:
        try:
            connect(self, *address, **how)
        except ConnectFailedError:
            counted.count += 1
            raise

    monkeypatch.setattr(Connection, "__init__", connect_and_count)
    return counted


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the clusters that have answered, and close the connections that are kept for the next task."""
    clients: dict[Any, Any] = {}
    monkeypatch.setattr(contacts, "_answered", set())
    monkeypatch.setattr(fetching, "_clients", clients)
    yield
    for client in clients.values():
        client.close()
    close_clients()
    close_idle()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that can be restarted at its address and with its data."""
    settings = {"network": {"listen": f"127.0.0.1:{free_port()}", "stop_ms": 200}}
    with Broker([TOPIC], data=str(tmp_path / "data"), settings=settings) as broker:
        yield broker


class Outage:
    """Stops a broker while something runs, and starts it again once that has been refused often enough."""

    def __init__(self, broker: Broker, refusals: Refusals) -> None:
        self._broker = broker
        self._refusals = refusals
        self._before = 0

    def begin(self) -> None:
        self._broker.stop()
        self._before = self._refusals.count

    def survive(self, work: Callable[[], Any], refused: int = REFUSED) -> Any:
        """Return the result of `work`, during which the broker comes back; `work` may begin the outage."""
        with ThreadPoolExecutor(1) as executor:
            result = executor.submit(work)
            try:
                self._refusals.wait_for(self._before + refused)
                assert not result.done(), "it has not waited"
            finally:
                self._broker.start()
            return result.result(WITHIN_S)


@pytest.fixture
def outage(broker: Broker, refusals: Refusals) -> Outage:
    return Outage(broker, refusals)


def produce(servers: str, count: int = RECORDS) -> None:
    with Client(servers) as client:
        for number in range(count):
            client.produce(TOPIC, 0, build_batch([Record(value=b"%d" % number)]))


def options_of(servers: str, **more: Any) -> dict[str, str]:
    given = {name.replace("__", "."): str(value) for name, value in more.items()}
    quick = {"startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "10"}
    return {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, **quick, **given}


def stream_reader(servers: str, **more: Any) -> closing[Any]:
    source = LogbrookDataSource({name.lower(): text for name, text in options_of(servers, **more).items()})
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = source.streamReader(schema)
    reader.close = reader.stop
    return closing(reader)


def planner(servers: str, **more: Any) -> Planner:
    return Planner(read_options(options_of(servers, **more), is_batch=True))


def test_a_stream_is_planned_once_the_broker_is_back(broker: Broker, outage: Outage) -> None:
    produce(broker.bootstrap_servers)
    with stream_reader(broker.bootstrap_servers, group__id="progress") as reader:
        start = reader.initialOffset()
        outage.begin()
        end = outage.survive(lambda: reader.latestOffset(start, reader.getDefaultReadLimit()))
        assert end[TOPIC]["offsets"] == {"0": RECORDS}
        outage.begin()
        (split,) = outage.survive(lambda: reader.partitions(start, end))
    assert (split.range.start, split.range.end) == (0, RECORDS)


def test_a_task_reads_on_once_the_broker_is_back(broker: Broker, outage: Outage) -> None:
    produce(broker.bootstrap_servers)
    options = read_options(options_of(broker.bootstrap_servers, fetch__max__bytes=1), is_batch=True)
    batches = read_range(options, ("offset",), OffsetRange(TopicPartition(TOPIC, 0), 0, RECORDS))
    offsets = next(batches).column(0).to_pylist()
    outage.begin()
    rest = outage.survive(lambda: list(batches))
    assert offsets + [offset for batch in rest for offset in batch.column(0).to_pylist()] == list(range(RECORDS))


def rows(first: int, end: int) -> Any:
    values = [b"%d" % number for number in range(first, end)]
    return pa.RecordBatch.from_pydict({"value": values})


def rows_with_an_outage(outage: Outage) -> Iterator[Any]:
    yield rows(0, 50)
    outage.begin()
    yield rows(50, 100)


def values_in(broker: Broker) -> list[int]:
    records = read_topic(broker.bootstrap_servers, TOPIC, 1, "read_committed", WITHIN_S).get(0, [])
    return [int(value) for _, value in records]


@pytest.mark.parametrize("is_exactly_once", [False, True], ids=["idempotent", "transaction"])
def test_a_sink_continues_after_the_broker_has_restarted(broker: Broker, outage: Outage, is_exactly_once: bool) -> None:
    # In small requests: some of the rows are written when the broker stops, some are in flight and some are queued.
    options = WriteOptions(broker.bootstrap_servers, TOPIC, batch_bytes_max=100, request_bytes_max=100)

    def write(batch_id: int, batches: Iterator[Any]) -> int:
        if is_exactly_once:
            return send_once(options, TaskBatch("app", "query", batch_id, 0), batches)
        return send_rows(options, batches)

    assert outage.survive(lambda: write(0, rows_with_an_outage(outage)), REFUSED_TO_SINKS) == 100
    assert values_in(broker) == list(range(100))
    # The next task finds the connections of this one closed.
    outage.begin()
    assert outage.survive(lambda: write(1, iter([rows(100, 110)])), REFUSED_TO_SINKS) == 10
    assert values_in(broker) == list(range(110))


def test_servers_that_have_never_answered_fail_at_once(refusals: Refusals) -> None:
    servers = f"127.0.0.1:{free_port()}"
    sentence = f"^the cluster at {servers} cannot be asked: cannot connect"
    with stream_reader(servers) as reader, pytest.raises(UnreachableError, match=sentence):
        reader.initialOffset()
    assert refusals.count == 2
    with pytest.raises(UnreachableError, match=servers):
        LogbrookDataSource({"kafka.bootstrap.servers": servers, "topic": TOPIC}).streamWriter(
            StructType().add("value", "string"), False
        )
    with pytest.raises(UnreachableError, match=servers):
        check_sink(WriteOptions(servers))
    assert refusals.count == 6


def test_an_advertised_address_without_a_broker_fails_at_once(refusals: Refusals) -> None:
    advertised = f"127.0.0.1:{free_port()}"
    with Broker([TOPIC], settings={"network": {"advertise": advertised}}) as broker:
        with (
            stream_reader(broker.bootstrap_servers) as reader,
            pytest.raises(UnreachableError, match=f"cannot connect to {advertised}"),
        ):
            reader.initialOffset()
        with pytest.raises(UnreachableError, match=f"cannot connect to {advertised}"):
            check_sink(WriteOptions(broker.bootstrap_servers, TOPIC))
    assert refusals.count == 4


def test_a_sink_without_its_topic_is_left_to_the_tasks(broker: Broker) -> None:
    check_sink(WriteOptions(broker.bootstrap_servers, "no-such-topic"))
    assert has_answered(broker.bootstrap_servers)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_given_number_of_retries_is_the_limit(broker: Broker, refusals: Refusals, is_first: bool) -> None:
    reader = planner(broker.bootstrap_servers, fetchOffset__numRetries=4)
    partitions = [TopicPartition(TOPIC, 0)]
    if not is_first:
        reader.latest(partitions)
    broker.stop()
    with pytest.raises(UnreachableError):
        reader.topics()
    # The connection from before the outage is found closed without a try.
    assert refusals.count == 5
    reader.close()


def test_a_given_time_is_the_limit(broker: Broker, refusals: Refusals) -> None:
    reader = planner(broker.bootstrap_servers, default__api__timeout__ms=300)
    reader.latest([TopicPartition(TOPIC, 0)])
    broker.stop()
    with pytest.raises(UnreachableError):
        reader.topics()
    # On an overloaded machine the timeout ends before the second refusal.
    assert 1 <= refusals.count <= 31
    reader.close()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, MissingTopicError),
        (ErrorCode.CORRUPT_MESSAGE, UnreachableError),
    ],
)
def test_an_error_that_no_outage_explains_is_not_waited_for(code: ErrorCode, expected: type[Exception]) -> None:
    class Refusing:
        tries = 0

        def fetch(self, *_: Any, **__: Any) -> Fetched:
            self.tries += 1
            raise BrokerError(code, "fetching from t-0")

        def close(self) -> None:
            pass

    options = read_options(options_of("here:1"), is_batch=True)
    client = Refusing()
    fetching._clients[options.cluster] = client  # type: ignore[assignment]
    with pytest.raises(expected):
        list(read_range(options, ("offset",), OffsetRange(TopicPartition(TOPIC, 0), 0, 1)))
    assert client.tries == 4


def test_another_process_of_the_application_knows_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    assert not has_answered("a:1")
    # A file that would be an artifact of a session, and does not exist.
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path / "streaming_job"))
    record_answer("a:1")
    contacts._answered.clear()
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    assert has_answered("a:1")
    assert not has_answered("b:1")


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(contacts, "_contact_file", lambda _: str(tmp_path / "no" / "such" / "directory"))
    record_answer("a:1")
    assert has_answered("a:1")


def test_an_outage_is_logged_once_a_minute_from_the_second_failure_on(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    log = OutageLog("a:1,b:1", clock=lambda: now_s)
    lines = []
    with caplog.at_level(logging.WARNING):
        for failures, now_s in enumerate([0.0, 1.0, 2.0, 60.9, 61.0, 61.1, 130.0], 1):
            caplog.clear()
            log(FailedTry(ClientError("refused"), failures, 1.0))
            lines += [(now_s, record.getMessage()) for record in caplog.records]
    assert lines == [
        (1.0, "cluster unreachable, retrying servers='a:1,b:1' failures=2 error='refused'"),
        (61.0, "cluster unreachable, retrying servers='a:1,b:1' failures=5 error='refused'"),
        (130.0, "cluster unreachable, retrying servers='a:1,b:1' failures=7 error='refused'"),
    ]
