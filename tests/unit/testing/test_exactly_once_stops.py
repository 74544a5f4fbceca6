"""Writers that stop at their commits as ordered, and what can be seen of them meanwhile. Runs without Spark."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructField, StructType

from logbrook import Broker
from logbrook.client import Client
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.spark.tables.format import TableOptions
from logbrook.spark.tables.source import plan_write
from logbrook.testing.exactly_once.campaign_broker import RestartableBroker, create_topics
from logbrook.testing.exactly_once.control_files import VARIABLE
from logbrook.testing.exactly_once.leftovers import open_topics, uncommitted_files
from logbrook.testing.exactly_once.scenarios import SCENARIOS
from logbrook.testing.exactly_once.stopping_tables import StoppingStreamTableWriter, table_target
from logbrook.testing.exactly_once.stopping_topics import StoppingProducer
from logbrook.testing.exactly_once.stops import StopOrders, StopPoint
from logbrook.testing.processes import working_directory
from tests.interop.waiting import wait_until

TOPIC = "join-sent"
SCHEMA = StructType([StructField("id", LongType())])
WITHIN_S = 60.0


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StopOrders:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "stops"))
    return StopOrders.of_process()


@contextmanager
def stopped_at(orders: StopOrders, target: str, point: StopPoint, work: Callable[[], None]) -> Iterator[Future[None]]:
    """Run `work` in a thread; the block runs while it is stopped, and afterwards it goes on."""
    orders.order({target: point})
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(work)
        try:
            wait_until(lambda: orders.has_stopped(target) or future.done(), f"a stop at {target}", WITHIN_S)
            yield future
        finally:
            orders.withdraw()
        future.result(WITHIN_S)


def send_in_transaction(servers: str) -> None:
    with Client(servers) as client, StoppingProducer(client, "transactional-id") as producer, producer.transaction():
        batch = build_batch(
            [Record(value=b"value")],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        producer.send(TOPIC, 0, batch)


def test_an_order_is_for_one_point_of_one_target(orders: StopOrders) -> None:
    assert not orders.has_orders
    orders.order({"a": StopPoint.AFTER_COMMIT})
    assert orders.has_orders
    for target, point in (("a", StopPoint.BEFORE_COMMIT), ("b", StopPoint.AFTER_COMMIT)):
        orders.wait_at(target, point)
        assert not orders.has_stopped(target)
    with stopped_at(orders, "a", StopPoint.AFTER_COMMIT, lambda: orders.wait_at("a", StopPoint.AFTER_COMMIT)) as work:
        assert not work.done()
    assert not orders.has_orders
    orders.wait_at("a", StopPoint.AFTER_COMMIT)


def test_the_transaction_of_a_stopped_producer_is_open_before_its_end_only(orders: StopOrders) -> None:
    with Broker([TOPIC]) as broker:
        servers = broker.bootstrap_servers
        with stopped_at(orders, TOPIC, StopPoint.BEFORE_COMMIT, lambda: send_in_transaction(servers)):
            assert open_topics(servers) == {TOPIC}
        with stopped_at(orders, TOPIC, StopPoint.AFTER_COMMIT, lambda: send_in_transaction(servers)) as work:
            assert not work.done()
            assert open_topics(servers) == set()


def test_the_files_of_a_stopped_table_are_uncommitted_before_its_commit_only(
    orders: StopOrders, tmp_path: Path
) -> None:
    scenario = SCENARIOS["windows"]("127.0.0.1:1", tmp_path)
    table = scenario.table("windows")
    assert table_target(str(table)) in scenario.targets
    options = TableOptions.parse({"path": str(table), "app.id": "app"})
    writer = StoppingStreamTableWriter(options, SCHEMA, overwrite=False)

    def write(batch_id: int) -> None:
        batch = pa.record_batch({"id": [batch_id]})
        writer.commit([plan_write(options, SCHEMA).run(iter([batch]))], batch_id)

    with stopped_at(orders, "windows-windows", StopPoint.BEFORE_COMMIT, lambda: write(0)):
        assert len(uncommitted_files(table)) == 1
        assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 0
    with stopped_at(orders, "windows-windows", StopPoint.AFTER_COMMIT, lambda: write(1)) as work:
        assert not work.done()
        assert uncommitted_files(table) == set()
        assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 2


@pytest.mark.slow
def test_a_restarted_broker_has_the_transactions_that_were_open(orders: StopOrders) -> None:
    with working_directory("restart") as (directory, reaper):
        broker = RestartableBroker(Path(directory), reaper)
        broker.start()
        servers = broker.bootstrap_servers
        create_topics(servers, {TOPIC: 1})
        with stopped_at(orders, TOPIC, StopPoint.BEFORE_COMMIT, lambda: send_in_transaction(servers)):
            broker.kill()
            broker.start()
            assert broker.bootstrap_servers == servers
            assert open_topics(servers) == {TOPIC}
        assert open_topics(servers) == set()
        broker.kill()
