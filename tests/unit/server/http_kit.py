"""A real broker with its HTTP listener, on a thread of its own, for tests that talk to both over sockets."""

import asyncio
import http.client
import socket
import threading
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import uvloop
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from logbrook.config import BrokerConfig
from logbrook.model import TopicPartition
from logbrook.ports import OsFiles
from logbrook.server.broker import BrokerServer
from logbrook.server.http import HttpListener
from logbrook.server.operations import Operations
from logbrook.storage.log import Log

T = TypeVar("T")
TIMEOUT_S = 30.0


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str


class Served:
    """A running broker. `settings` are those of the settings file, by section. Nothing is synced."""

    def __init__(self, data: object, settings: Mapping[str, Any] | None = None, **http_settings: Any) -> None:
        sections: dict[str, Any] = {
            "network": {"listen": "127.0.0.1:0"},
            "metrics": {"listen": ""},
            "groups": {"initial_rebalance_delay_ms": 0, "session_timeout_ms_min": 100},
            "maintenance": {"mode": "on-demand"},
        }
        self.config = BrokerConfig(data=str(data), **{**sections, **(settings or {})})
        self._http_settings = http_settings
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker")

    def __enter__(self) -> Self:
        self._thread.start()
        self.call(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.call(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _start(self) -> None:
        self.broker = BrokerServer(self.config, files=OsFiles(self.config.data, synced=False))
        await self.broker.start()
        self.http = HttpListener(Operations(self.broker), **self._http_settings)
        self.address = await self.http.start("127.0.0.1", 0)

    async def _stop(self) -> None:
        await self.http.stop()
        await self.broker.stop()
        await self._loop.shutdown_default_executor()

    @property
    def bootstrap_servers(self) -> str:
        host, port = self.broker.address
        return f"{host}:{port}"

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Call a function on the broker's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def create_topic(self, name: str, partitions: int = 1, **settings: object) -> None:
        """Create a topic. `settings` have Kafka's names, with underscores."""
        kafka_settings = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.call(self.broker.services.topics.create(name, partitions, kafka_settings))

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.broker.directory.get(TopicPartition(topic, partition))

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection(*self.address, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read().decode())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=TIMEOUT_S)

    def connect_to_broker(self) -> socket.socket:
        return socket.create_connection(self.broker.address, timeout=TIMEOUT_S)

    def send(self, *parts: bytes) -> bytes:
        """Send bytes and return the whole response, until the connection is closed."""
        with self.connect() as client:
            for part in parts:
                client.sendall(part)
            return read_all(client)

    def scrape(self) -> "Scraped":
        answer = self.ask("/metrics")
        assert answer.status == 200
        return Scraped(answer.text)


class Scraped:
    """A page of metrics, as parsed by prometheus_client."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {metric.name: metric for metric in text_string_to_metric_families(text)}
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for metric in self.families.values()
            for sample in metric.samples
        }

    def value(self, name: str, **labels: object) -> float | None:
        """Return the value of a series; None if it does not exist."""
        return self._values.get((name, frozenset((label, str(value)) for label, value in labels.items())))

    def sum(self, name: str, **labels: object) -> float:
        """Return the sum over all series that have these labels, among others."""
        wanted = {(label, str(value)) for label, value in labels.items()}
        return sum(value for (sample, pairs), value in self._values.items() if sample == name and wanted <= pairs)


def read_all(client: socket.socket) -> bytes:
    received = b""
    while data := client.recv(1 << 16):
        received += data
    return received


def head(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1")


def status_of(answer: bytes) -> int:
    version, status, _ = answer.split(b" ", 2)
    assert version == b"HTTP/1.1"
    assert b"\r\nConnection: close\r\n" in answer
    return int(status)


async def connections(served: Served, count: int) -> None:
    """Wait until there are this many connections."""
    while len(served.http.connections) != count:
        await asyncio.sleep(0)
