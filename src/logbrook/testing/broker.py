"""A real broker inside the calling process, for tests: `with Broker() as broker:`.

It runs on a thread of its own with its own event loop, listens on a free port, and keeps its data in a temporary
directory where nothing is ever synced, so it is there in milliseconds and gone without a trace. Given a directory, it
keeps its data as `logbrook serve` would.
"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from logbrook.config import BrokerConfig, Durability
from logbrook.ports import OsFiles
from logbrook.server.broker import BrokerServer
from logbrook.server.maintenance import Maintained

T = TypeVar("T")

_START_S_MAX = 60.0


class Broker:
    """`topics` are created at the start: names, or names with their numbers of partitions.

    `settings` are those of the settings file, by section: `{"topics": {"auto_create": True}}`.
    """

    def __init__(
        self,
        topics: Sequence[str] | Mapping[str, int] = (),
        *,
        data: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._topics = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
        self._data = data
        self._settings = settings or {}
        self._directory: str | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: BrokerServer | None = None

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, as Kafka clients want it."""
        host, port = self._running.address
        return f"{host}:{port}"

    @property
    def data(self) -> str:
        """The data directory."""
        return self._running.config.data

    def start(self) -> None:
        """Raises what keeps it from starting."""
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        config = self._config()
        is_temporary = self._directory is not None
        ready: threading.Event = threading.Event()
        failures: list[BaseException] = []

        def run() -> None:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                try:
                    files = OsFiles(config.data, synced=False) if is_temporary else None
                    self._server = runner.run(self._serve(config, files))
                except BaseException as error:
                    failures.append(error)
                    return
                finally:
                    ready.set()
                self._loop.run_forever()

        self._thread = threading.Thread(target=run, name="logbrook-broker", daemon=True)
        self._thread.start()
        ready.wait(_START_S_MAX)
        if failures:
            self._thread.join()
            self._thread = None
            self._remove_directory()
            raise failures[0]

    def stop(self) -> None:
        """Stop cleanly, and remove the data if it was temporary. A broker that does not run is left alone."""
        if self._thread is None or self._loop is None:
            return
        server, loop = self._running, self._loop
        try:
            self._call(server.stop())
        finally:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            self._thread = self._server = self._loop = None
            self._remove_directory()

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """`settings` have Kafka's names: `{"retention.ms": "60000"}`."""
        self._call(self._running.services.topics.create(name, partitions, settings or {}))

    def run_maintenance(self) -> Maintained:
        """A checkpoint, and one round of retention, compaction and the rest, now."""
        self._call(self._running.housekeeper.checkpoint())
        return self._call(self._running.housekeeper.run_once())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _running(self) -> BrokerServer:
        if self._server is None:
            raise RuntimeError("the broker is not running: use `with Broker() as broker:` or start()")
        return self._server

    async def _serve(self, config: BrokerConfig, files: OsFiles | None) -> BrokerServer:
        server = BrokerServer(config, files=files)
        await server.start()
        try:
            for name, partitions in self._topics.items():
                if name not in server.services.topics.metadata.topics:
                    await server.services.topics.create(name, partitions, {})
        except BaseException:
            await server.stop()
            raise
        return server

    def _config(self) -> BrokerConfig:
        """What suits a test: any free port, no metrics, groups that form at once."""
        sections: dict[str, Any] = {
            "network": {"listen": "127.0.0.1:0"},
            "metrics": {"listen": ""},
            "groups": {"initial_rebalance_delay_ms": 0, "session_timeout_ms_min": 100},
        }
        data = self._data
        if data is None:
            data = self._directory = tempfile.mkdtemp(prefix="logbrook-")
            sections["storage"] = {"durability": Durability.INTERVAL}
        for name, value in self._settings.items():
            sections[name] = {**sections.get(name, {}), **value} if isinstance(value, Mapping) else value
        return BrokerConfig(data=data, **sections)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _remove_directory(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
