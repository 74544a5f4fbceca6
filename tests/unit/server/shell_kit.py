"""A broker for the tests of the server: on its own thread, over any files, with access to its internals."""

import asyncio
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from logbrook.client.connection import Connection as ClientConnection
from logbrook.config import BrokerConfig
from logbrook.model import TopicPartition
from logbrook.ports import Clock, File, Files, Random
from logbrook.protocol.encoding import encode
from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from logbrook.protocol.schema import ApiMessage
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.broker import BrokerServer
from logbrook.server.connection import ServerConnection
from logbrook.server.services import Services
from logbrook.storage.log import Log
from logbrook.testing import ForwardingFile, ForwardingFiles, MemoryFiles

T = TypeVar("T")
DEADLINE_S = 20.0
# The last versions that identify topics by name.
PRODUCE_VERSION = 12
FETCH_VERSION = 12
KIB = 1 << 10
MIB = 1 << 20


def broker_config(settings: Mapping[str, Any] | None = None, data: str = "unused") -> BrokerConfig:
    """Settings for these tests: a free port, no background maintenance, small files, durable appends."""
    sections: dict[str, Any] = {
        "network": {"listen": "127.0.0.1:0"},
        "metrics": {"listen": ""},
        "groups": {"initial_rebalance_delay_ms": 0, "session_timeout_ms_min": 100},
        "maintenance": {"mode": "on-demand"},
        "storage": {"wal_file_bytes": 256 * KIB},
    }
    for name, value in (settings or {}).items():
        sections[name] = {**sections.get(name, {}), **value} if isinstance(value, Mapping) else value
    return BrokerConfig(data=data, **sections)


class BrokerOnLoop(ABC):
    """A broker with durable appends, over files in memory unless others are given. Subclasses run its event loop."""

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.config = broker_config(settings)
        self.files: Files = MemoryFiles() if files is None else files
        self.broker = self._new_broker(clock, random)
        self._loop = self._new_loop()
        self._loop.set_exception_handler(self._failed)
        self.is_stopped = False
        # Reports of the event loop: exceptions that no caller has received.
        self.failures: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        try:
            self.run(self.broker.start())
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if not self.is_stopped:
                self.stop()
        finally:
            self._end_loop()
        assert self.failures == []
        if kind is None:
            assert self.services.fetch_sessions.missed_changes == 0

    def stop(self) -> None:
        self.is_stopped = True
        self.run(self.broker.stop())

    @property
    def services(self) -> Services:
        return self.broker.services

    @property
    def address(self) -> tuple[str, int]:
        return self.broker.address

    @abstractmethod
    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's event loop."""

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the broker's event loop."""

        async def call() -> T:
            return function()

        return self.run(call())

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition is true, evaluating it on the broker's event loop."""
        until(lambda: self.call(condition))

    def create(self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        self.run(self.services.topics.create(topic, partitions, settings or {}))
        return topic

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.broker.directory.get(TopicPartition(topic, partition))

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return uvloop.new_event_loop()

    def _new_broker(self, clock: Clock | None, random: Random | None) -> BrokerServer:
        return BrokerServer(self.config, files=self.files, clock=clock, random=random)

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def _end_loop(self) -> None:
        self._loop.close()


class Shell(BrokerOnLoop):
    """`with Shell() as shell:` is a broker on a thread of its own, which clients reach over sockets."""

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever, name="shell")
        self._thread.start()
        return super().__enter__()

    def begin_stop(self) -> "Future[None]":
        """Begin to stop the broker without waiting."""
        self.is_stopped = True
        return asyncio.run_coroutine_threadsafe(self.broker.stop(), self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def connections(self) -> list[ServerConnection]:
        """Return the broker's open connections."""
        return self.call(self.connections_now)

    def connections_now(self) -> list[ServerConnection]:
        """Return the open connections, for callers on the event loop."""
        return list(self.broker.listener.connections)

    def connect(self, timeout_s: float = DEADLINE_S, receive_buffer_bytes: int | None = None) -> socket.socket:
        """Connect a bare socket."""
        connected = socket.socket()
        connected.settimeout(timeout_s)
        if receive_buffer_bytes is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            connected.connect(self.address)
        except OSError:
            connected.close()
            raise
        return connected

    def client(self) -> ClientConnection:
        return ClientConnection(*self.address, timeout_s=DEADLINE_S)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        super()._end_loop()


class HeldFiles(ForwardingFiles):
    """Files whose syncs can be held back: by default those of the write-ahead log."""

    def __init__(self, inner: Files, matching: Callable[[str], bool] = lambda path: path.startswith("wal/")) -> None:
        super().__init__(inner)
        self._matching = matching
        self._changed = threading.Condition()
        self._is_held = False
        self._let_through = 0
        self.syncs = 0
        self.waiting = 0

    def hold(self) -> None:
        with self._changed:
            self._is_held = True

    def release(self) -> None:
        with self._changed:
            self._is_held = False
            self._changed.notify_all()

    def let_one_through(self) -> None:
        """Let one waiting sync through, and keep holding the others."""
        with self._changed:
            assert self._is_held
            self._let_through += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: not self._let_through, DEADLINE_S), "no sync waits"

    def sync(self, path: str) -> None:
        if self._matching(path):
            with self._changed:
                self.syncs += 1
                self.waiting += 1
                may_pass = self._changed.wait_for(lambda: not self._is_held or self._let_through, DEADLINE_S)
                assert may_pass, "held for longer than any test takes"
                self._let_through = max(0, self._let_through - 1)
                self.waiting -= 1
                self._changed.notify_all()

    def _wrap(self, file: File) -> File:
        return _HeldFile(self, file)


class _HeldFile(ForwardingFile):
    def __init__(self, files: HeldFiles, inner: File) -> None:
        super().__init__(inner)
        self._files = files

    def fsync(self) -> None:
        self._files.sync(self.path)
        super().fsync()


def until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Wait until a condition is true."""
    give_up_s = time.monotonic() + deadline_s
    a_moment = threading.Event()
    while not condition():
        assert time.monotonic() < give_up_s, "it did not come true"
        a_moment.wait(0.002)


def request_frame(message: ApiMessage, version: int, correlation_id: int = 1, client_id: str = "test") -> bytes:
    """Return the bytes of a request, with its length."""
    start = RequestStart(message.API_KEY, version, correlation_id)
    has_tags = version >= message.FLEXIBLE_SINCE
    return b"".join(frame_request(start, client_id, encode(message, version), has_tags=has_tags))


def receive_exactly(connected: socket.socket, size: int) -> bytes:
    """Read `size` bytes. Raises EOFError if the connection is closed before."""
    received = bytearray()
    while len(received) < size:
        data = connected.recv(min(1 << 20, size - len(received)))
        if not data:
            raise EOFError
        received += data
    return bytes(received)


def receive_frame(connected: socket.socket) -> bytes:
    """Return a response without its length. Raises EOFError."""
    return receive_exactly(connected, int.from_bytes(receive_exactly(connected, 4), "big"))


def correlation_id_of(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big")


def is_hung_up_on(connected: socket.socket) -> bool:
    """Wait until the broker closes the connection, ignoring its data. Raises TimeoutError."""
    try:
        while connected.recv(1 << 20):
            pass
    except ConnectionError:
        return True
    return True


def batch_of(size: int = 100, key: bytes = b"k") -> bytearray:
    """A batch of one record with a value of `size` bytes."""
    return build_batch([Record(key=key, value=bytes(size), timestamp=1_000)])


def produce_request(
    topic: str, batch: bytes | bytearray | None, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics)


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    partitions: tuple[int, ...] = (0,),
    wait_ms: int = 0,
    min_bytes: int = 1,
    bytes_max: int = 64 * MIB,
    partition_bytes_max: int = 64 * MIB,
) -> FetchRequest:
    """Return a fetch to be sent in `FETCH_VERSION` or an older one."""
    wanted = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=partition_bytes_max)
        for number in partitions
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=bytes_max,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )
