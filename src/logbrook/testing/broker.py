"""A real broker inside the calling process, for tests: `with Broker() as broker:`. docs/TESTING.md has examples.

It runs on a thread of its own with its own event loop, listens on a free port, and keeps its data in a temporary
directory that is never fsynced and is removed at the end, so it starts in milliseconds. With `data`, it stores its data
there as durably as `logbrook serve` does.

The port is bound by a socket that does not listen from the first start to `stop`. So no other process gets it while the
broker restarts.
"""

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self, get_args

from logbrook.client import Client, parse_client_security
from logbrook.client.admin_results import GroupInfo
from logbrook.config import BrokerConfig, Durability
from logbrook.config.loading import SettingsSource, merge_sources, read_mapping, read_toml
from logbrook.config.network import split_address
from logbrook.model.event_log import observe_events
from logbrook.ports import OsFiles
from logbrook.server.broker import BrokerServer
from logbrook.server.maintenance import MaintenanceResult
from logbrook.testing import broker_client, broker_report
from logbrook.testing.broker_client import Field, TopicRecord
from logbrook.testing.broker_faults import DiskFaults, FaultableFiles, FaultName, check_fault
from logbrook.testing.broker_thread import BrokerThread
from logbrook.testing.forwarding import MUTATING_CALLS

_NO_REPORT = (GeneratorExit, KeyboardInterrupt, SystemExit)


class Broker:
    """`topics` are created at the start: names, or names with their numbers of partitions.

    `data` is the data directory, which is kept. `settings` are those of the settings file: by section, as in
    `{"topics": {"auto_create": True}}`, with dotted keys, as in `{"storage.wal_bytes_max": "64MiB"}`, or TOML text.
    `client` are the options of a Kafka client (`security.protocol`, `sasl.*`, `ssl.*`) with which the methods of this
    class connect to a broker whose settings require them.

    Also an async context manager. The other methods block, and may be called from any thread but not concurrently.
    """

    def __init__(
        self,
        topics: Sequence[str] | Mapping[str, int] = (),
        *,
        data: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | str | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        """Raises SettingsRefusedError for settings that are unknown or have a value that is not allowed.

        Raises SecurityOptionError for such options of `client`.
        """
        self.client_security = parse_client_security(client or {})
        self._topics = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
        self._data = None if data is None else os.fspath(data)
        self._sources = self._settings_sources(settings or {})
        # Reports mistakes here, rather than at the start.
        self._config({})
        self._directory: str | None = None
        self._thread: BrokerThread | None = None
        self._address: tuple[str, int] | None = None
        self._port_holder: socket.socket | None = None
        self._disk_faults = DiskFaults()
        self._is_refusing = False
        self._log_tail = broker_report.LogTail()
        # Undoes what a run of the broker has registered.
        self._registered = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, for the setting `bootstrap.servers` of Kafka clients. A killed broker keeps it."""
        if self._address is None:
            raise RuntimeError("the broker is not running: use `with Broker() as broker:` or start()")
        host, port = self._address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def data(self) -> str:
        """The data directory."""
        return self._running.config.data

    def start(self) -> None:
        """Start the broker and create its topics. Raises the error that prevented the start.

        After `kill` it starts with the data that the kill has left.
        """
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        try:
            self._start()
        except BaseException:
            self._release()
            raise

    def stop(self) -> None:
        """Stop cleanly, and remove the data if it was temporary. Does nothing if it is not running."""
        self._disk_faults.end_slow_sync()
        try:
            self._stop()
        finally:
            self._release()

    def restart(self) -> None:
        """Stop cleanly, unless it was killed, and start again on the same port with the same data."""
        if self._address is None:
            raise RuntimeError("the broker is not running: there is nothing to restart")
        try:
            self._stop()
            self._start()
        except BaseException:
            self._release()
            raise

    def kill(self) -> None:
        """End the broker as SIGKILL ends a process: `start` or `restart` then recover its data, on the same port.

        From this moment no write reaches the disk and no response its client; all connections are closed, and nothing
        is flushed, committed or checkpointed. As after a real SIGKILL, bytes that were written are there, synced or
        not: the operating system keeps them. To lose those that were not synced too, as in a power loss, test on
        `RecordingFiles`. The process is that of the test, so its threads end in order, instead of at any instruction.
        """
        thread, self._thread = self._active, None
        self._registered.close()
        thread.kill()

    def pause(self) -> None:
        """Stop processing, as SIGSTOP does: connections and requests are accepted, and not answered until `resume`."""
        self._active.pause()

    def resume(self) -> None:
        """Process and answer the requests that have arrived. Does nothing unless paused."""
        self._active.resume()

    @contextmanager
    def fault(self, name: FaultName, *, delay_ms: int = 500) -> Iterator[None]:
        """Switch a fault on for the block: `with broker.fault("disk_full"):`. See `broker_faults` for their names.

        `delay_ms` is that of `slow_sync`. A fault outlasts a restart within the block.
        """
        check_fault(name)
        if name == "disk_full":
            self._disk_faults.is_full = True
        elif name == "disk_failure":
            self._disk_faults.failing_calls = MUTATING_CALLS
        elif name == "slow_sync":
            self._begin_slow_sync(delay_ms)
        else:
            self._is_refusing = True
            self._active.call(_suspend(self._running))
        try:
            yield
        finally:
            self._end_fault(name)

    def heal(self) -> None:
        """End all faults and a pause, and start if it is not running: for fixtures that share a broker."""
        if self._thread is None:
            self.start()
        self.resume()
        for name in get_args(FaultName):
            self._end_fault(name)
        if self._running.directory.environment.health.failure is not None:
            self.restart()

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """`settings` have Kafka's names: `{"retention.ms": "60000"}`."""
        self._active.call(self._running.services.topics.create(name, partitions, settings or {}))

    def produce(
        self,
        topic: str,
        *values: Field,
        key: Field = None,
        headers: Mapping[str, Field] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Write a record for each value, and return when all are acknowledged. Text is encoded as UTF-8.

        Without a partition, the key chooses it as with Kafka's Java client. Raises ClientError.
        """
        with self._client() as client:
            broker_client.produce(
                client,
                topic,
                values,
                key=key,
                headers=headers or {},
                partition=partition,
                timestamp_ms=timestamp_ms,
            )

    def records(self, topic: str, partition: int | None = None, *, committed_only: bool = True) -> list[TopicRecord]:
        """Return all records of a topic or of one partition, by partition and offset. Raises ClientError.

        With `committed_only`, as READ_COMMITTED consumers see them.
        """
        numbers = None if partition is None else [partition]
        with self._client() as client:
            return broker_client.read_records(client, topic, numbers, committed_only=committed_only)

    def wait_for_group(
        self,
        group_id: str,
        *,
        members: int = 1,
        state: str = "Stable",
        lag: int | None = None,
        timeout_s: float = 30.0,
    ) -> GroupInfo:
        """Return the group once it has this state and at least this many members, and `lag` or less in total.

        Raises TimeoutError with the state that it has. In asyncio's tests, run it in a thread: the consumers of the
        test need the event loop to join.
        """
        with self._client() as client:
            return broker_client.wait_for_group(
                client, group_id, members=members, state=state, lag=lag, timeout_s=timeout_s
            )

    def run_maintenance(self) -> MaintenanceResult:
        """Run a checkpoint and one round of retention, compaction and file removal now."""
        maintenance = self._running.maintenance
        self._active.call(maintenance.checkpoint())
        return self._active.call(maintenance.run_once())

    @property
    def log_tail(self) -> Sequence[str]:
        """The last lines of the broker's log, of this run and of earlier ones."""
        return self._log_tail.lines

    @property
    def unreachable_because(self) -> str | None:
        """The reason why clients get no answer: a fault, a pause or a kill; None if they get one."""
        if self._thread is None:
            return "the broker was killed" if self._address else "the broker is not running"
        if self._thread.is_paused:
            return "the broker is paused"
        return "the broker refuses connections" if self._is_refusing else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None and not isinstance(error, _NO_REPORT) and self._address is not None:
            # A test has failed, perhaps: afterwards there is nothing left to show.
            broker_report.of_stopped.append(broker_report.report_on(self))
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, at)

    @property
    def _running(self) -> BrokerServer:
        return self._active.server

    @property
    def _active(self) -> BrokerThread:
        if self._thread is None:
            raise RuntimeError(f"{self.unreachable_because}: use `with Broker() as broker:` or start()")
        return self._thread

    def _client(self) -> Client:
        """Raises RuntimeError if the broker would not answer."""
        if self.unreachable_because is not None:
            raise RuntimeError(f"{self.unreachable_because}, and cannot be read or written")
        return Client(self.bootstrap_servers, client_id="logbrook-testing", security=self.client_security)

    def _start(self) -> None:
        is_temporary = self._data is None
        if is_temporary and self._directory is None:
            self._directory = tempfile.mkdtemp(prefix="logbrook-")
        data = self._data if self._data is not None else self._directory
        assert data is not None
        config = self._config({"data": data, "network.listen": self._listen()})
        files = FaultableFiles(OsFiles(data, synced=not is_temporary), self._disk_faults)
        thread = BrokerThread(lambda: self._serve(config, files), files)
        self._registered.enter_context(observe_events(self._log_tail.add))
        try:
            thread.start()
        except BaseException:
            self._registered.close()
            raise
        self._thread, self._address = thread, thread.server.address
        self._log_tail.thread_id = thread.ident
        broker_report.running.append(self)
        self._registered.callback(broker_report.running.remove, self)

    def _stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        # A clean stop writes a checkpoint.
        was_full, self._disk_faults.is_full = self._disk_faults.is_full, False
        try:
            thread.stop()
        finally:
            self._disk_faults.is_full = was_full
            self._registered.close()

    def _release(self) -> None:
        """Give up the port and the temporary directory."""
        self._address = None
        if self._port_holder is not None:
            self._port_holder.close()
            self._port_holder = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _listen(self) -> str:
        """Return the address to listen on: that of the run before, or one whose free port is bound until `stop`."""
        if self._address is not None:
            return self.bootstrap_servers
        listen = self._config({}).network.listen
        host, port = split_address(listen)
        if port:
            return listen
        holder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((host, 0))
        except OSError:
            # The broker reports why.
            holder.close()
            return listen
        self._port_holder = holder
        port = holder.getsockname()[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _serve(self, config: BrokerConfig, files: FaultableFiles) -> BrokerServer:
        server = BrokerServer(config, files=files)
        await server.start()
        try:
            for name, partitions in self._topics.items():
                if name not in server.services.topics.metadata.topics:
                    await server.services.topics.create(name, partitions, {})
        except BaseException:
            await server.stop()
            raise
        if self._is_refusing:
            server.listener.suspend()
        return server

    def _settings_sources(self, settings: Mapping[str, Any] | str) -> list[SettingsSource]:
        """Return defaults for tests (a free port, no metrics, no initial rebalance delay), and `settings`."""
        defaults: dict[str, Any] = {
            "network.listen": "127.0.0.1:0",
            "metrics.listen": "",
            "groups.initial_rebalance_delay_ms": 0,
            "groups.session_timeout_ms_min": 100,
        }
        if self._data is None:
            defaults["storage.durability"] = Durability.INTERVAL
        if isinstance(settings, str):
            return [read_mapping(defaults), read_toml("settings", settings.encode())]
        return [read_mapping(defaults), read_mapping(settings)]

    def _config(self, settings: Mapping[str, Any]) -> BrokerConfig:
        """Return the configuration with these settings before all others. Raises SettingsRefusedError."""
        return merge_sources([*self._sources, read_mapping(settings)]).config

    def _begin_slow_sync(self, delay_ms: int) -> None:
        if self._running.config.storage.durability is Durability.INTERVAL:
            raise ValueError(
                "slow_sync would have no effect: acknowledgements do not wait for syncs with durability = interval, the"
                ' default of temporary data; set {"storage": {"durability": "fsync"}}'
            )
        self._disk_faults.begin_slow_sync(delay_ms / 1000)

    def _end_fault(self, name: str) -> None:
        if name == "disk_full":
            self._disk_faults.is_full = False
        elif name == "disk_failure":
            self._disk_faults.failing_calls = frozenset()
        elif name == "slow_sync":
            self._disk_faults.end_slow_sync()
        elif self._is_refusing:
            self._is_refusing = False
            if self._thread is not None:
                self._thread.resume()
                self._thread.call(self._thread.server.listener.resume())


async def _suspend(server: BrokerServer) -> None:
    server.listener.suspend()
