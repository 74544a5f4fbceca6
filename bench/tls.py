"""Throughput and CPU of a broker with TLS beside plain text, and beside Apache Kafka, with librdkafka as the load.

Each broker has a listener with TLS and one without, with the same certificate, and the four listeners take turns in
every round. Ratios are the median of those of the rounds. The load encrypts on the other core, so the throughput with
TLS depends on that core, too; the CPU time per GB is that of the broker alone. Each broker is loaded for a while before
it is measured, because Kafka's JVM compiles. Both acknowledge before the sync to disk, and both choose TLS 1.3 with
AES-256-GCM. Kafka has its defaults and comes from its Maven artifacts; where it cannot be started, its rows and the
ratios to it are missing.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench import librdkafka
from bench.clusters.nodes import BenchCluster, directory_of
from bench.peers.kafka import DEFAULTS, JAVA_OPTIONS, KafkaServer, classpath
from bench.peers.system import CommandServer, Server, UnavailableError
from bench.rows import Row, seconds
from logbrook.testing.processes import free_port
from tests.certificates import Certificates
from tests.interop.java.kafka_broker import KafkaBroker

LOGBROOK, KAFKA = "Logbrook", "Kafka"
PLAIN, TLS = "plain text", "TLS"
_MESSAGE = os.urandom(1000)
_MESSAGES = 250_000
# After 15 s, Kafka's CPU time per GB over plain text still fell from round to round; after 30 s only that of producing.
_WARM_UP_S = {LOGBROOK: 5.0, KAFKA: 30.0}
_ROUNDS = 3
_POOL = librdkafka.Pool([_MESSAGE] * 1_000, partitions=1)
_QUEUED_MAX = 500_000
_WAIT_S_MAX = 10.0
_GB = _MESSAGES * len(_MESSAGE) / 1e9
_HOST = "127.0.0.1"
_NODE = 1


class Cost(NamedTuple):
    """Of one listener in one round: CPU seconds of the broker per GB, and MB/s."""

    produce_cpu: float
    produce_rate: float
    fetch_cpu: float
    fetch_rate: float


_MEASURES = (
    ("produce: broker CPU", "s/GB"),
    ("produce: throughput", "MB/s"),
    ("fetch: broker CPU", "s/GB"),
    ("fetch: throughput", "MB/s"),
)
# The listeners of a round, by the names of their broker and protocol.
Round = Mapping[tuple[str, str], Cost]


@dataclass(frozen=True)
class Subject:
    """A broker and the client settings of its listeners, by protocol."""

    server: Server
    settings: Mapping[str, Mapping[str, str]]


def run() -> list[Row]:
    librdkafka.get_ready()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, ExitStack() as running:
        clusters = {}
        subjects = _subjects(Path(directory))
        for name, subject in subjects.items():
            cluster = BenchCluster({_NODE: subject.server}, {_NODE: subject.server.address})
            clusters[name] = running.enter_context(cluster)
        for name, subject in subjects.items():
            until_s = time.monotonic() + _WARM_UP_S[name]
            while time.monotonic() < until_s:
                for settings in subject.settings.values():
                    _measure(clusters[name], settings)
        rounds = [
            {
                (name, protocol): _measure(clusters[name], settings)
                for name, subject in subjects.items()
                for protocol, settings in subject.settings.items()
            }
            for _ in range(_ROUNDS)
        ]
    return rows_of(rounds)


def rows_of(rounds: Sequence[Round]) -> list[Row]:
    """Return the medians, the ratios of TLS to plain text, and, if Kafka is measured, the ratios to Kafka."""
    brokers = [name for name in (LOGBROOK, KAFKA) if (name, TLS) in rounds[0]]
    rows = []
    for index, (measure, unit) in enumerate(_MEASURES):
        for name in brokers:
            prefix = "" if name == LOGBROOK else f"{name}, "
            for protocol in (PLAIN, TLS):
                value = statistics.median(costs[name, protocol][index] for costs in rounds)
                rows.append(Row(f"{prefix}1 KB messages over {protocol}, {measure}", value, unit))
            ratio = _ratio(rounds, index, (name, TLS), (name, PLAIN))
            rows.append(Row(f"{prefix}1 KB messages, {measure}, TLS to plain text", ratio, "times"))
        if KAFKA in brokers:
            for protocol in (PLAIN, TLS):
                ratio = _ratio(rounds, index, (LOGBROOK, protocol), (KAFKA, protocol))
                rows.append(Row(f"1 KB messages over {protocol}, {measure}, to Kafka", ratio, "times"))
    return rows


def _ratio(rounds: Sequence[Round], index: int, subject: tuple[str, str], reference: tuple[str, str]) -> float:
    return statistics.median(costs[subject][index] / costs[reference][index] for costs in rounds)


def _subjects(directory: Path) -> dict[str, Subject]:
    """Return the brokers, which are not launched yet. Print why Kafka is missing if it cannot be started."""
    certificates = Certificates(directory_of(directory, "certificates"))
    subjects = {LOGBROOK: _logbrook(directory_of(directory, "logbrook"), certificates)}
    try:
        subjects[KAFKA] = _kafka(directory_of(directory, "kafka"), certificates)
    except UnavailableError as error:
        print(f"SKIPPED: Kafka over plain text and TLS is not measured, nor the ratios to it: {error}", flush=True)
    return subjects


def _logbrook(directory: Path, certificates: Certificates) -> Subject:
    issued = certificates.issue()
    address, tls_address = f"{_HOST}:{free_port()}", f"{_HOST}:{free_port()}"
    command = [sys.executable, "-m", "logbrook", "serve", "--data", str(directory / "data"), "--listen", address]
    command += ["--listener", f"TLS={tls_address}", "--listener-protocol", "TLS=SSL"]
    command += ["--security-certificate", str(issued.certificate), "--security-key", str(issued.key)]
    command += ["--metrics", "", "--durability", "interval"]
    return Subject(CommandServer(command, directory, address), _settings(address, tls_address, certificates))


def _kafka(directory: Path, certificates: Certificates) -> Subject:
    """Raises UnavailableError."""
    broker = _TlsKafka(classpath(), directory, certificates)
    server = KafkaServer(broker)
    return Subject(server, _settings(server.address, broker.tls_address, certificates))


def _settings(address: str, tls_address: str, certificates: Certificates) -> dict[str, dict[str, str]]:
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(certificates.ca)}
    return {PLAIN: {"bootstrap.servers": address}, TLS: {"bootstrap.servers": tls_address, **tls}}


class _TlsKafka(KafkaBroker):
    """Kafka with Kafka's own defaults and a listener with TLS besides the plain one."""

    def __init__(self, jars: str, directory: Path, certificates: Certificates) -> None:
        issued = certificates.issue()
        store = directory / "keystore.pem"
        store.write_text(issued.key.read_text() + issued.certificate.read_text())
        keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
        super().__init__(jars, directory, {**DEFAULTS, **keys}, JAVA_OPTIONS)
        self.tls_address = f"{_HOST}:{free_port()}"

    def _required(self, port: int, controller_port: int) -> dict[str, str]:
        required = super()._required(port, controller_port)
        return required | {
            "listeners": f"{required['listeners']},TLS://{self.tls_address}",
            "advertised.listeners": f"{required['advertised.listeners']},TLS://{self.tls_address}",
            "listener.security.protocol.map": f"{required['listener.security.protocol.map']},TLS:SSL",
        }


def _measure(cluster: BenchCluster, settings: Mapping[str, str]) -> Cost:
    server = cluster.nodes[_NODE]
    with _topic(cluster) as topic:
        with librdkafka.producing({**settings, "queue.buffering.max.messages": _QUEUED_MAX}, topic) as load:
            before_s = server.cpu_s()
            produce_s = seconds(lambda: _produce(load))
            produce_cpu_s = server.cpu_s() - before_s
        with librdkafka.consuming(settings["bootstrap.servers"], topic, partitions=1, settings=settings) as consumer:
            before_s = server.cpu_s()
            fetch_s = seconds(lambda: consumer.consume(_MESSAGES, _WAIT_S_MAX))
            fetch_cpu_s = server.cpu_s() - before_s
    return Cost(produce_cpu_s / _GB, 1000 * _GB / produce_s, fetch_cpu_s / _GB, 1000 * _GB / fetch_s)


@contextmanager
def _topic(cluster: BenchCluster) -> Iterator[str]:
    """Create a topic and delete it afterwards, so that the brokers' files do not fill the page cache."""
    topic = f"tls-{time.monotonic_ns()}"
    cluster.create_topic(topic, 1, {})
    yield topic
    cluster.delete_topic(topic)


def _produce(load: librdkafka.Producer) -> None:
    for _ in range(_MESSAGES // len(_POOL)):
        load.produce(_POOL, len(_POOL))
    load.flush()
