"""A cluster as it is run: three `logbrook serve` processes and an etcd."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from logbrook.client import Client, ClientError
from logbrook.client.admin import Admin
from logbrook.testing import Broker, broker_client
from logbrook.testing.etcd import EtcdProcess
from logbrook.testing.processes import free_port, wait_until
from tests.etcd_command import etcd_or_skip
from tests.processes import running

SERVE = [str(Path(sys.executable).parent / "logbrook"), "serve", "--metrics", ""]
NODES = (1, 2, 3)
WAIT_S = 60


class BrokerProcess:
    """One `logbrook serve --cluster`."""

    def __init__(self, number: int, store: str, directory: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.log = directory / f"log-{number}"
        data = str(directory / f"data-{number}")
        self._command = [*SERVE, "--node", str(number), "--cluster", store, "--data", data, "--listen", self.address]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> int:
        """Send a signal, and return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(WAIT_S)
        self.process = None
        return code

    def stop(self) -> None:
        if self.process is not None:
            self.signal(signal.SIGKILL)


@pytest.fixture
def etcd() -> Iterator[EtcdProcess]:
    with EtcdProcess(etcd_or_skip()) as etcd:
        yield etcd


@pytest.fixture
def brokers(etcd: EtcdProcess, tmp_path: Path) -> Iterator[dict[int, BrokerProcess]]:
    processes = {number: BrokerProcess(number, f"{etcd.address}/orders", tmp_path) for number in NODES}
    with ExitStack() as stack:
        for process in processes.values():
            process.start()
            stack.callback(process.stop)
        yield processes


def is_served(port: int) -> bool:
    with socket.socket() as connected:
        return connected.connect_ex(("127.0.0.1", port)) == 0


def servers_of(brokers: dict[int, BrokerProcess]) -> str:
    return ",".join(broker.address for broker in brokers.values())


def live_brokers(brokers: dict[int, BrokerProcess]) -> int:
    """Return how many brokers all of them know. A broker that has not registered yet knows itself."""
    try:
        return min(live_brokers_of(broker.address) for broker in brokers.values())
    except ClientError:
        return 0


def live_brokers_of(address: str) -> int:
    with Client(address) as client:
        return len(Admin(client).describe_cluster().brokers)


def in_sync(brokers: dict[int, BrokerProcess], topic: str) -> int:
    with Client(servers_of(brokers)) as client:
        return len(Admin(client).topics.describe(topic).partitions[0].in_sync_replicas)


def leader(brokers: dict[int, BrokerProcess], topic: str) -> int:
    with Client(servers_of(brokers)) as client:
        number = Admin(client).topics.describe(topic).partitions[0].leader
    assert number is not None
    return number


def write(producer: Producer, topic: str, count: int, written: list[bytes]) -> None:
    for _ in range(count):
        written.append(b"%d" % len(written))
        producer.produce(topic, written[-1], partition=0)
    assert producer.flush(WAIT_S) == 0, "the records were not acknowledged"


def test_nothing_is_lost_when_brokers_are_killed_and_restarted(
    brokers: dict[int, BrokerProcess], etcd: EtcdProcess, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    wait_until(lambda: live_brokers(brokers) == len(NODES))
    with Client(servers_of(brokers)) as client:
        Admin(client).topics.create("orders", 1)
    producer = Producer({"bootstrap.servers": servers_of(brokers), "acks": "all", "enable.idempotence": True})
    written: list[bytes] = []
    write(producer, "orders", 100, written)

    killed = leader(brokers, "orders")
    brokers[killed].signal(signal.SIGKILL)
    write(producer, "orders", 100, written)
    assert leader(brokers, "orders") != killed
    brokers[killed].start()
    wait_until(lambda: in_sync(brokers, "orders") == len(NODES))

    stopped = leader(brokers, "orders")
    assert brokers[stopped].signal(signal.SIGTERM) == 0
    write(producer, "orders", 100, written)
    brokers[stopped].start()

    etcd.kill()
    write(producer, "orders", 100, written)
    etcd.start()
    wait_until(lambda: live_brokers(brokers) == len(NODES))
    write(producer, "orders", 100, written)

    consumer = Consumer({"bootstrap.servers": servers_of(brokers), "group.id": "readers"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    read = [message.value() for message in consumer.consume(len(written), timeout=WAIT_S)]
    consumer.close()
    assert read == written


def test_a_broker_waits_for_etcd_and_reports_it(
    etcd: EtcdProcess, tmp_path: Path, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    etcd.kill()
    broker = BrokerProcess(1, f"{etcd.address}/orders", tmp_path)
    broker.start()
    try:
        wait_until(lambda: "waiting for the metadata store" in broker.log.read_text())
        etcd.start()
        wait_until(lambda: "broker started" in broker.log.read_text())
        assert broker.signal(signal.SIGTERM) == 0
    finally:
        broker.stop()


def test_an_id_in_use_is_refused(
    brokers: dict[int, BrokerProcess],
    etcd: EtcdProcess,
    tmp_path: Path,
    wait_until: Callable[[Callable[[], bool]], None],
) -> None:
    wait_until(lambda: live_brokers(brokers) == len(NODES))
    other = tmp_path / "other"
    other.mkdir()
    second = BrokerProcess(1, f"{etcd.address}/orders", other)
    second.start()
    assert second.process is not None
    try:
        assert second.process.wait(WAIT_S) == 1
    finally:
        second.process.kill()
    assert "node id 1 is in use" in second.log.read_text()


@pytest.mark.parametrize("store", ["127.0.0.1:2379", "/name", "127.0.0.1/name", "127.0.0.1:2379/"])
def test_an_invalid_cluster_address_is_refused(store: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*SERVE, "--cluster", store, "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert f"--cluster {store}" in done.stderr


def test_a_single_node_becomes_a_cluster(
    etcd: EtcdProcess, tmp_path: Path, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    node = BrokerProcess(1, f"{etcd.address}/grown", tmp_path)
    data = tmp_path / "data-1"
    with Broker(["orders"], data=data) as single:
        single.produce("orders", "kept")
        refused = run_adopt("--data", data, "--cluster", f"{etcd.address}/grown")
        assert (refused.returncode, "in use by a broker" in refused.stderr) == (1, True), refused.stderr
    assert run_adopt("--data", data).returncode == 2
    adopted = run_adopt("--data", data, "--node", "1", "--cluster", f"{etcd.address}/grown")
    assert adopted.returncode == 0, adopted.stderr
    assert adopted.stdout.startswith("adopted 1 topics with 1 partitions as node 1 of the cluster ")
    node.start()
    try:
        wait_until(lambda: live_brokers({1: node}) == 1)
        with Client(node.address) as client:
            # The node is registered first, and then elected.
            wait_until(lambda: client.partitions("orders") == [0])
            records = broker_client.read_records(client, "orders", [0], committed_only=True)
        assert [record.value for record in records] == [b"kept"]
    finally:
        node.stop()


def run_adopt(*options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [SERVE[0], "cluster", "adopt", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_cluster_up_runs_brokers_until_ctrl_c_or_until_it_is_killed(tmp_path: Path) -> None:
    etcd_or_skip()
    first = free_port()
    command = [SERVE[0], "cluster", "up", "--nodes", "2", "--port", str(first), "--data", str(tmp_path)]
    for expected, number in (([b"kept"], signal.SIGINT), ([b"kept", b"kept"], signal.SIGKILL)):
        with running(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path) as process:
            assert process.stdout is not None
            lines: list[str] = []
            while not lines or "Ctrl-C" not in lines[-1]:
                lines.append(process.stdout.readline())
                assert lines[-1], "".join(lines)
            servers = f"127.0.0.1:{first},127.0.0.1:{first + 1}"
            assert f"bootstrap servers: {servers}\n" in lines
            with Client(servers) as client:
                if len(expected) == 1:
                    Admin(client).topics.create("orders", 1)
                broker_client.produce(client, "orders", ["kept"], key=None, headers={}, partition=0, timestamp_ms=None)
                records = broker_client.read_records(client, "orders", [0], committed_only=True)
            assert [record.value for record in records] == expected
            process.send_signal(number)
            assert process.wait(WAIT_S) == (0 if number == signal.SIGINT else -number)
        # Two brokers, and etcd.
        ports = [first, first + 1, first + 1_000]
        assert wait_until(lambda ports=ports: not any(map(is_served, ports)), WAIT_S)  # type: ignore[misc]
    assert "broker stopped" in (tmp_path / "node-2.log").read_text()
