"""The broker, put together: the one place where parts are made and handed to each other.

start   the data directory is opened and recovered, the metadata is read, then the door opens;
        groups and transactions are read back while it is open, and are "loading" until they are
stop    the door closes, what was accepted is answered, then everything is made durable and let go
"""

import asyncio
import logging
import resource
from collections.abc import Callable
from contextlib import AsyncExitStack

from logbrook.config import BrokerConfig, NetworkConfig
from logbrook.config.values import split_address
from logbrook.core.fetch_sessions import FetchSessions
from logbrook.model import LogbrookError
from logbrook.ports import Clock, Files, OsFiles, Random, SystemClock, SystemRandom
from logbrook.server.appends import Appends
from logbrook.server.dispatch import Dispatcher
from logbrook.server.fetch_waits import FetchWaits
from logbrook.server.groups import Groups
from logbrook.server.handlers import all_apis
from logbrook.server.http import HttpListener
from logbrook.server.listener import Listener
from logbrook.server.maintenance import Housekeeper
from logbrook.server.probe import ServerProbe
from logbrook.server.services import Endpoint, Services
from logbrook.server.topics import Topics
from logbrook.server.transactions import Transactions
from logbrook.storage.committer import Committer
from logbrook.storage.errors import StorageOfflineError
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.wal import Wal

# File descriptors that connections may not take: the engine's, the listeners', the interpreter's.
_DESCRIPTORS_KEPT = 512

_EVERY_ADDRESS = ("0.0.0.0", "::")

_logger = logging.getLogger(__name__)


class BrokerServer:
    """One broker on the running event loop. `start` it, then `stop` it, once each."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.config = config
        self._files = files
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        # What has to be stopped, the last one started first.
        self._started = AsyncExitStack()
        self.is_ready = False
        self.http_address: tuple[str, int] | None = None
        self.json_address: tuple[str, int] | None = None

    async def start(self) -> None:
        """Raises StorageError when the data cannot be opened, OSError when the address cannot be taken."""
        config, clock = self.config, self._clock
        check_advertised(config.network)
        loop = asyncio.get_running_loop()
        descriptors = raise_descriptor_limit()
        files = self._files if self._files is not None else OsFiles(config.data)
        self.directory = LogDirectory.open(
            files, config.storage, clock=clock, now_ms=clock.now_ms(), random=self._random
        )
        try:
            await self._start(loop, descriptors)
        except BaseException:
            await self._started.aclose()
            self.directory.abandon()
            raise

    async def _start(self, loop: asyncio.AbstractEventLoop, descriptors: int) -> None:
        config, clock, directory = self.config, self._clock, self.directory
        directory.environment.health.add_failure_callback(_say_offline)
        durability = directory.environment.durability
        if isinstance(durability, Wal):
            committer = Committer(durability)
            committer.start()
            self._started.callback(committer.stop)
        fetch_waits = FetchWaits(loop)
        appends = Appends(loop, clock, fetch_waits.committed)
        topics = Topics(config, directory, appends, clock, self._random)
        await topics.open()
        apis = all_apis()
        groups = Groups(config.groups, loop, topics, appends, clock, self._random)
        transactions = Transactions(config.transactions, loop, topics, appends, fetch_waits, groups, clock)
        self.services = Services(
            config=config,
            loop=loop,
            clock=clock,
            endpoint=Endpoint("", 0),
            topics=topics,
            appends=appends,
            fetch_waits=fetch_waits,
            fetch_sessions=FetchSessions(config.network.fetch_sessions_max, self._random),
            groups=groups,
            transactions=transactions,
            probe=ServerProbe(),
            served_versions={api.key: api.versions for api in apis},
        )
        dispatcher = Dispatcher(self.services, apis, config.network.request_bytes_max, clock.monotonic_s)
        connections_max = max(16, min(config.network.connections_max, descriptors - _DESCRIPTORS_KEPT))
        # Frames come in and segments are read on one thread, into the same memory.
        memory = directory.environment.open_files.memory
        self.listener = Listener(self.services, dispatcher, memory, connections_max)
        self._started.push_async_callback(self.listener.stop, 0.0)
        self.services.endpoint = await self._listen()
        if config.network.json_listen:
            self.json_address = await self._listen_for_json()
        if config.metrics.listen:
            http = HttpListener(self)
            self._started.push_async_callback(http.stop)
            self.http_address = await http.start(*split_address(config.metrics.listen))
        self.housekeeper = Housekeeper(config.maintenance, loop, topics, fetch_waits, clock)
        self._started.push_async_callback(self.housekeeper.stop)
        self.housekeeper.start()
        loading = loop.create_task(self._load())
        self._started.callback(loading.cancel)
        await self.listener.start()
        self.is_ready = True

    async def _load(self) -> None:
        """First the groups: transactions that are ended at the start decide what they commit."""
        await self.services.groups.load()
        await self.services.transactions.load()

    async def _listen(self) -> Endpoint:
        network = self.config.network
        self.address = await self.listener.listen(*split_address(network.listen))
        if network.advertise is not None:
            host, port = split_address(network.advertise)
            return Endpoint(host, port or self.address[1])
        host, _ = split_address(network.listen)
        return Endpoint(host, self.address[1])

    async def _listen_for_json(self) -> tuple[str, int]:
        # Most brokers do without, and start sooner for it.
        from logbrook.server.json.connection import JsonConnection  # noqa: PLC0415
        from logbrook.server.json.dispatch import JsonDispatcher  # noqa: PLC0415

        network = self.config.network
        dispatcher = JsonDispatcher(self, network.json_request_bytes_max, self._clock.monotonic_s)
        return await self.listener.listen(
            *split_address(network.json_listen), lambda listener, loop: JsonConnection(listener, loop, dispatcher)
        )

    async def stop(self) -> None:
        """Raises StorageError when the data could not be made durable; it is let go of all the same."""
        self.is_ready = False
        services = self.services
        services.fetch_waits.wake_all()
        services.groups.stop()
        services.transactions.stop()
        await self.listener.stop(self.config.network.stop_ms / 1000)
        try:
            await self._started.aclose()
        finally:
            self.directory.close()


class NotAdvertisedError(LogbrookError):
    def __init__(self, listen: str) -> None:
        super().__init__(
            f"with --listen {listen} clients can come from anywhere; say with --advertise HOST:PORT where they find "
            "the broker, since they connect to what it tells them"
        )


def check_advertised(network: NetworkConfig) -> None:
    """Raises NotAdvertisedError when clients would be told to connect to every address and none."""
    if network.advertise is None and split_address(network.listen)[0] in _EVERY_ADDRESS:
        raise NotAdvertisedError(network.listen)


def raise_descriptor_limit(
    get: Callable[[int], tuple[int, int]] = resource.getrlimit,
    set_: Callable[[int, tuple[int, int]], None] = resource.setrlimit,
) -> int:
    """Take as many file descriptors as the system gives without asking. Returns how many that are."""
    soft, hard = get(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            set_(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard


def _say_offline(failure: StorageOfflineError) -> None:
    _logger.critical("%s. Nothing is acknowledged any more; records can still be read", failure)
