"""The broker: creates all components, connects them, and starts and stops them in order.

start   open and recover the data directory, replay the metadata, then accept connections; groups and transactions load
        while clients are served, and answer COORDINATOR_LOAD_IN_PROGRESS until then
stop    close the listeners, answer the requests that were accepted, then sync and close the data directory
"""

import asyncio
import resource
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from logbrook.config import BrokerConfig
from logbrook.config.network import DEFAULT_LISTENER, split_address
from logbrook.core.fetch_sessions import FetchSessions
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerId
from logbrook.ports import Clock, Files, OsFiles, Random, SystemClock, SystemRandom
from logbrook.server.advertised import (
    advertised_address,
    check_listeners,
    check_security,
    cluster_listener,
    listen_addresses,
)
from logbrook.server.api import Api
from logbrook.server.cluster.identity_file import check_directory
from logbrook.server.cluster.node import ClusterLink, ClusterNode
from logbrook.server.cluster_view import AdvertisedAddresses, ClusterView, SingleNodeView
from logbrook.server.cold_reads import ColdReads
from logbrook.server.connection import ServerConnection
from logbrook.server.coordinators.groups import GroupCoordinatorService
from logbrook.server.coordinators.leadership import CoordinatorLeadership
from logbrook.server.coordinators.transaction_peers import TransactionPeers
from logbrook.server.coordinators.transactions import TransactionCoordinatorService
from logbrook.server.dispatch import KafkaDispatcher
from logbrook.server.fetch_purgatory import FetchPurgatory
from logbrook.server.handlers import all_apis
from logbrook.server.http import HttpListener
from logbrook.server.listener import Listener
from logbrook.server.log_appender import LogAppender
from logbrook.server.maintenance import MaintenanceRunner
from logbrook.server.operations import Operations
from logbrook.server.probe import ServerProbe
from logbrook.server.record_inspection import RecordInspector
from logbrook.server.response_memory import ResponseMemory
from logbrook.server.security.audit import FILE, TOPIC, AuditLog
from logbrook.server.security.audit_file import AuditFile
from logbrook.server.security.audit_topic import CLUSTER_PARTITIONS, AuditTopic
from logbrook.server.security.authentication import Authentication
from logbrook.server.security.authorizer import Authorizer
from logbrook.server.security.tls import TlsContexts
from logbrook.server.services import Services
from logbrook.server.topics import Topics
from logbrook.storage.committer import Committer, WalCommitter
from logbrook.storage.data_directories import DataDirectories, open_directories
from logbrook.storage.errors import StorageError, StorageOfflineError, UnreadableLogError
from logbrook.storage.recovery import RecoveryReport
from logbrook.storage.wal import Wal

# File descriptors that are not available to connections: those of storage, the listeners and the interpreter.
_DESCRIPTORS_RESERVED = 512
# However few descriptors there are.
_CONNECTIONS_MIN = 16

# Maximum wait for aborted connections and their handlers.
_ABANDON_S_MAX = 1.0

_logger = event_logger(__name__)


class BrokerServer:
    """One broker on the running event loop. Call `start` and `stop` once each.

    `files` and `more_files` are those of the data directories, by default those of the settings.
    `on_many_logs_created` is called on the event loop each time that topics with some hundred partitions were created.
    `new_committer` makes what commits the write-ahead log, by default a thread. Without `cluster` it is a single node.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        files: Files | None = None,
        more_files: Sequence[Files] = (),
        clock: Clock | None = None,
        random: Random | None = None,
        on_many_logs_created: Callable[[], None] = lambda: None,
        new_committer: Callable[[Wal, asyncio.AbstractEventLoop], WalCommitter] = Committer,
        cluster: ClusterLink | None = None,
    ) -> None:
        self.config = config
        self._files = [] if files is None else [files, *more_files]
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._on_many_logs_created = on_many_logs_created
        self._new_committer = new_committer
        self._link = cluster
        self._node: ClusterNode | None = None
        # Stops the components in reverse order of their start.
        self._started = AsyncExitStack()
        self.is_ready = False
        # Of the listeners with TLS, if there are any.
        self.tls: TlsContexts | None = None
        self.http_address: tuple[str, int] | None = None
        self.json_address: tuple[str, int] | None = None

    async def start(self) -> None:
        """Raises StorageError if the data cannot be opened, OSError if an address cannot be bound."""
        config, clock = self.config, self._clock
        check_listeners(config)
        check_security(config)
        self._loop = loop = asyncio.get_running_loop()
        descriptors = raise_descriptor_limit()
        files = self._files or [OsFiles(path) for path in config.data_directories]
        self.directory = open_directories(files, config.storage, clock, self._random)
        for member in self.directory.members:
            _log_damage(member.report)
        try:
            await self._start(loop, descriptors)
        except BaseException:
            await self._started.aclose()
            self.directory.abandon()
            raise

    async def _start(self, loop: asyncio.AbstractEventLoop, descriptors: int) -> None:
        config, clock, directory = self.config, self._clock, self.directory
        fetch_sessions = FetchSessions(config.network.fetch_sessions_max, self._random)
        fetch_purgatory = FetchPurgatory(loop, fetch_sessions.watches)
        fetch_sessions.on_ended = fetch_purgatory.session_ended
        appender = LogAppender(loop, clock, fetch_purgatory.committed)
        self._start_storage(appender)
        tls = self._start_tls(loop)
        inspector = RecordInspector(loop, clock, config.storage.decompressed_bytes_max)
        self._started.callback(inspector.stop)
        cold_reads = ColdReads(loop, directory)
        self._started.callback(cold_reads.stop)
        topics, view = await self._open_topics(loop, appender, fetch_purgatory)
        apis = all_apis()
        audit = self._start_audit(loop, topics, appender)
        authentication = Authentication(config.security, topics.security, audit, loop, clock, self._random)
        self._started.callback(authentication.stop)
        groups = GroupCoordinatorService(config.groups, loop, topics, appender, clock, self._random)
        transactions = TransactionCoordinatorService(
            config.transactions, loop, topics, appender, fetch_purgatory, groups, clock, self._transaction_peers()
        )
        self.services = Services(
            config=config,
            loop=loop,
            clock=clock,
            view=view,
            topics=topics,
            appender=appender,
            inspector=inspector,
            cold_reads=cold_reads,
            fetch_purgatory=fetch_purgatory,
            fetch_sessions=fetch_sessions,
            groups=groups,
            transactions=transactions,
            response_memory=ResponseMemory(config.network),
            probe=ServerProbe(),
            served_versions={api.key: api.versions for api in apis if api.is_advertised},
            random=self._random,
            security=topics.security,
            authentication=authentication,
            audit=audit,
            authorizer=Authorizer(config.security, topics.security.acls, audit),
            replicas=None if self._node is None else self._node.replicas,
            cluster_admin=None if self._node is None else self._node.cluster_admin,
            cluster_features=None if self._node is None else self._node.features,
        )
        topics.metadata.on_topic_changed = fetch_purgatory.topic_changed
        for member in directory.members:
            member.environment.on_log_changed = fetch_purgatory.changed
        self.dispatchers = self._new_dispatchers(apis)
        connections_max, handshakes_max = _connection_limits(config, descriptors)
        # Frames are received and segments are read on the same thread, so they share the buffers.
        buffers = directory.environment.reader.buffers
        self.listener = Listener(self.services, buffers, connections_max, handshakes_max)
        self._started.push_async_callback(self.listener.stop, 0.0)
        self.endpoints = await self._listen(tls)
        if isinstance(view, SingleNodeView):
            view.endpoints = self.endpoints
        if config.network.json_listen:
            self.json_address = await self._listen_for_json()
        if config.metrics.listen:
            self.http_address = await self._listen_for_http()
        self.maintenance = MaintenanceRunner(config.maintenance, loop, topics, fetch_purgatory, cold_reads, clock)
        self._started.push_async_callback(self.maintenance.stop)
        self.maintenance.start()
        await self._begin_serving(loop)
        self.is_ready = True

    def _new_dispatchers(self, apis: Sequence[Api[Any]]) -> dict[str, KafkaDispatcher]:
        """Return a dispatcher for each listener."""
        config = self.config
        return {
            name: KafkaDispatcher(
                self.services,
                apis,
                config.network.request_bytes_max,
                self._clock.monotonic_s,
                listener=name,
                protocol=config.security.protocol_of(name),
            )
            for name in listen_addresses(config.network)
        }

    def _start_storage(self, appender: LogAppender) -> None:
        for environment in (member.environment for member in self.directory.members):
            environment.health.add_failure_callback(_log_offline)
            environment.health.add_failure_callback(self._record_failure)
            durability = environment.durability
            if isinstance(durability, Wal):
                durability.on_completed = appender.complete_from_thread
                committer = self._new_committer(durability, self._loop)
                committer.start()
                self._started.callback(committer.stop)

    def _record_failure(self, _: StorageOfflineError) -> None:
        """Called from any thread."""

        def record() -> None:
            try:
                if isinstance(self.directory, DataDirectories):
                    self.directory.record_failures()
            except (OSError, StorageError) as error:
                _logger.error("failure of a data directory not recorded", error=error)

        with suppress(RuntimeError):  # The event loop is closed.
            self._loop.call_soon_threadsafe(record)

    async def _open_topics(
        self, loop: asyncio.AbstractEventLoop, appender: LogAppender, fetch_purgatory: FetchPurgatory
    ) -> tuple[Topics, ClusterView]:
        config, clock, directory = self.config, self._clock, self.directory
        has_logs = next(iter(directory), None) is not None
        directories = [member.environment.files for member in directory.members]
        check_directory(directories, has_logs=has_logs, is_cluster=self._link is not None)
        if self._link is None:
            topics = Topics(config, directory, appender, clock, self._random, self._on_many_logs_created)
            self._started.push_async_callback(topics.stop)
            await topics.open()
            return topics, SingleNodeView(BrokerId(config.node_id), topics)
        self._node = node = ClusterNode(
            self._link,
            config,
            loop,
            clock,
            self._random,
            directory,
            appender,
            fetch_purgatory,
            self._on_many_logs_created,
        )
        self._started.push_async_callback(node.topics.stop)
        self._started.push_async_callback(node.stop)
        await node.open()
        return node.topics, node.view

    def _transaction_peers(self) -> TransactionPeers | None:
        if self._node is None:
            return None
        node, node_id = self._node, BrokerId(self.config.node_id)
        return TransactionPeers(node_id, node.view, node.peers, cluster_listener(self.config))

    async def _begin_serving(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._node is None:
            loading = loop.create_task(self._load())
            self._started.callback(loading.cancel)
            await self.listener.start()
            return
        leadership = CoordinatorLeadership(self.services)
        self._node.replicas.leading.on_leader = leadership.on_leader
        self._node.replicas.leading.on_resigned = leadership.on_resigned
        self._node.topics.on_deleted = self.services.groups.delete_topic_offsets
        # Other brokers connect as soon as this one is registered.
        await self.listener.start()
        await self._node.join(self.endpoints)

    async def _load(self) -> None:
        """Load the groups first: transactions that are completed at the start commit offsets in them."""
        await self.services.groups.runtime.load_all()
        await self.services.transactions.runtime.load_all()

    def _start_tls(self, loop: asyncio.AbstractEventLoop) -> TlsContexts | None:
        """Return the TLS contexts, None if no listener uses TLS. Raises InvalidSecurityError."""
        config = self.config
        uses_tls = any(config.security.protocol_of(name).uses_tls for name in listen_addresses(config.network))
        if not uses_tls and not (config.metrics.listen and config.metrics.tls):
            return None
        self.tls = TlsContexts(config.security, loop)
        self._started.callback(self.tls.stop)
        self.tls.start()
        return self.tls

    async def _listen(self, tls: TlsContexts | None) -> AdvertisedAddresses:
        network, security = self.config.network, self.config.security
        endpoints = {}
        for name, address in listen_addresses(network).items():
            new_connection = partial(ServerConnection, dispatcher=self.dispatchers[name])
            listener_tls = tls if security.protocol_of(name).uses_tls else None
            bound = await self.listener.listen(*address, new_connection, listener_tls)
            if name == DEFAULT_LISTENER:
                self.address = bound
            endpoints[name] = advertised_address(network, name, bound[1])
        return endpoints

    async def _listen_for_json(self) -> tuple[str, int]:
        # Imported only if it is used, to keep the start short.
        from logbrook.server.json.connection import JsonConnection  # noqa: PLC0415
        from logbrook.server.json.dispatch import JsonDispatcher  # noqa: PLC0415

        network = self.config.network
        dispatcher = JsonDispatcher(self, network.json_request_bytes_max, self._clock.monotonic_s)
        tls = self.tls if self.config.security.protocol.uses_tls else None
        return await self.listener.listen(
            *split_address(network.json_listen), partial(JsonConnection, dispatcher=dispatcher), tls
        )

    async def _listen_for_http(self) -> tuple[str, int]:
        metrics, tls = self.config.metrics, self.tls
        addresses = [metrics.listen, self.config.network.advertise]
        http = HttpListener(Operations(self), [split_address(address)[0] for address in addresses if address])
        self._started.push_async_callback(http.stop)
        acceptor = partial(self.listener.new_tls_acceptor, tls=tls) if metrics.tls and tls is not None else None
        return await http.start(*split_address(metrics.listen), acceptor)

    def _start_audit(self, loop: asyncio.AbstractEventLoop, topics: Topics, appender: LogAppender) -> AuditLog:
        """Raises OSError if the audit file cannot be opened."""
        security, node_id = self.config.security, self.config.node_id
        audit = AuditLog(self._clock)
        if security.audit_file:
            audit.sinks[FILE] = file = AuditFile(security.audit_file)
            file.start()
            self._started.callback(file.stop)
        if security.audit_topic:
            partition_count = 1 if self._node is None else CLUSTER_PARTITIONS
            audit.sinks[TOPIC] = topic = AuditTopic(topics, appender, loop, node_id, partition_count)
            topic.start()
            self._started.push_async_callback(topic.stop)
        # Its last events go to the sinks, which stop after it.
        self._started.callback(audit.finish)
        return audit

    def reload(self) -> None:
        """Read the files of certificates again, as they are also when they change, and open the audit file again."""
        if self.tls is not None:
            self.tls.reload_soon()
        self.services.audit.reopen()

    async def stop(self) -> None:
        """Raises StorageError if the data could not be synced; the directory is closed even then."""
        if self._node is not None:
            await self._node.leave()
        self._begin_stop()
        await self.listener.stop(self.config.network.stop_ms / 1000)
        try:
            await self._started.aclose()
        finally:
            self.directory.close()
        if self._node is not None:
            await self._node.finish()

    async def abandon(self) -> None:
        """Disconnect all clients and close all files, without answers and without a clean checkpoint.

        For tests that simulate a kill, which make every write fail first. Raises what the components raise then.
        """
        self.listener.suspend()
        self._begin_stop()
        await self.listener.stop(_ABANDON_S_MAX)
        try:
            await self._started.aclose()
        finally:
            self.directory.abandon()

    def _begin_stop(self) -> None:
        self.is_ready = False
        services = self.services
        services.fetch_purgatory.wake_all()
        services.topics.begin_stop()
        services.groups.stop()
        services.transactions.stop()


def raise_descriptor_limit(
    get: Callable[[int], tuple[int, int]] = resource.getrlimit,
    set_: Callable[[int, tuple[int, int]], None] = resource.setrlimit,
) -> int:
    """Raise the soft limit of open files to the hard limit. Return the resulting limit."""
    soft, hard = get(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            set_(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard


def _log_damage(report: RecoveryReport) -> None:
    for damage in report.wal_damage:
        _logger.warning("write-ahead log damaged", damage=damage)
    for error in report.quarantined:
        if isinstance(error, UnreadableLogError):
            _logger.error("partition offline", partition=error.partition, error=error)
        else:
            _logger.error("partition quarantined", partition=error.partition, error=error)


def _log_offline(failure: StorageOfflineError) -> None:
    _logger.critical("storage offline", error=failure, action="check the disk, then restart the broker")


def _connection_limits(config: BrokerConfig, descriptors: int) -> tuple[int, int]:
    """Return the maximum number of connections, and of TLS handshakes per listener, for which there are descriptors."""
    security = config.security
    available = max(_CONNECTIONS_MIN, descriptors - _DESCRIPTORS_RESERVED)
    tls_listeners = sum(security.protocol_of(name).uses_tls for name in listen_addresses(config.network))
    tls_listeners += bool(config.metrics.listen and config.metrics.tls)
    tls_listeners += bool(config.network.json_listen and security.protocol.uses_tls)
    if not tls_listeners:
        return min(config.network.connections_max, available), 0
    handshakes_max = min(security.handshakes_max, available // 4)
    connections_max = max(_CONNECTIONS_MIN, min(config.network.connections_max, available - handshakes_max))
    return connections_max, max(1, handshakes_max // tls_listeners)
