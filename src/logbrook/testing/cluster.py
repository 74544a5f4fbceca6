"""Several real brokers inside the calling process, replicated: `with Cluster(nodes=3) as cluster:`.

Each broker is a `Broker` with its own thread, port and data. They share a metadata store in memory, on one more thread,
instead of etcd. Numbers of brokers start at 1.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

from logbrook.client import Client, parse_client_security
from logbrook.client.security import PLAINTEXT_SECURITY
from logbrook.config import BrokerConfig, LogConfig
from logbrook.core.cluster.features import SUPPORTED, FeatureRange
from logbrook.core.cluster.image import ClusterImage, ImagePartition, PartitionKey
from logbrook.core.cluster.placement import ReplicaPlacement
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.records.batch import iter_headers
from logbrook.records.reader import iter_records
from logbrook.server.broker import BrokerServer
from logbrook.server.cluster.node import ClusterLink
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.server.cluster.peer_security import peer_security
from logbrook.testing import broker_client
from logbrook.testing.broker import Broker
from logbrook.testing.broker_client import Field, TopicRecord
from logbrook.testing.broker_faults import FaultableFiles
from logbrook.testing.store_thread import StoreConnection, StoreThread

T = TypeVar("T")

_WAIT_S_MAX = 30.0
_POLL_S = 0.005
_BOOT_ID = "the run of this process"


class Cluster:
    """`topics` are created at the start: names, or names with their numbers of partitions, on all brokers up to 3.

    `racks` has the rack of each broker. `settings` are those of every broker, and `client` are the security options
    with which this class connects to them, as for `Broker`. A broker that is killed or cut off loses its registration
    after `lease_s`; one whose port refuses connections is replaced at once.
    """

    def __init__(
        self,
        nodes: int = 3,
        topics: Sequence[str] | Mapping[str, int] = (),
        *,
        racks: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        lease_s: float = 3.0,
        replica_lag_ms_max: int = 10_000,
        client: Mapping[str, str] | None = None,
    ) -> None:
        if racks is not None and len(racks) != nodes:
            raise ValueError(f"{nodes} brokers have {len(racks)} racks")
        self._topics = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
        self._store = StoreThread()
        self._settings = settings or {}
        self._client_options = client or {}
        self._lease_s = lease_s
        self._replica_lag_ms_max = replica_lag_ms_max
        self.brokers = {
            number: self.new_broker(number, racks[number - 1] if racks is not None else "")
            for number in range(1, nodes + 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for the setting `bootstrap.servers` of Kafka clients."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def new_broker(self, number: int, rack: str = "", *, data: str | os.PathLike[str] | None = None) -> "ClusterBroker":
        """Return a broker for this cluster that is not part of it yet. The caller starts and stops it."""
        return ClusterBroker(
            self._store,
            number,
            rack,
            self._settings,
            self._lease_s,
            self._replica_lag_ms_max,
            data=data,
            client=self._client_options,
        )

    def add(self, rack: str = "") -> int:
        """Start one more broker, and return its number. It gets replicas of new topics, and by moves."""
        number = max(self.brokers) + 1
        self.brokers[number] = self.new_broker(number, rack)
        self.brokers[number].start()
        self.wait_until_registered(number)
        return number

    def start(self) -> None:
        """Start all brokers and create the topics. Raises the error that prevented the start."""
        self._store.start()
        try:
            for broker in self.brokers.values():
                broker.start()
            self._wait(lambda image: len(image.brokers) == len(self.brokers) or None, "all brokers are registered")
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all brokers cleanly, and remove their data. All are stopped, also if one of them raises."""
        with ExitStack() as stopping:
            stopping.callback(self._store.stop)
            for broker in self.brokers.values():
                stopping.callback(broker.stop)

    def kill(self, number: int) -> None:
        """End a broker as SIGKILL ends a process; `restart` starts it again with what is on its disk."""
        self.brokers[number].kill()

    def restart(self, number: int) -> None:
        """Stop a broker cleanly, unless it was killed, and start it again."""
        self.brokers[number].restart()

    def pause(self, number: int) -> None:
        """Stop a broker from doing anything, as SIGSTOP does, until `resume`."""
        self.brokers[number].pause()

    def resume(self, number: int) -> None:
        self.brokers[number].resume()

    def cut_off(self, number: int) -> None:
        """Separate a broker from the other brokers and from the metadata store, but not from clients."""
        self._cut(number, is_cut_off=True)

    def reconnect(self, number: int) -> None:
        """End a `cut_off`."""
        self._cut(number, is_cut_off=False)

    def stop_store(self) -> None:
        """Make the metadata store unreachable for all brokers, until `start_store`."""
        self._store.set_down(True)

    def start_store(self) -> None:
        self._store.set_down(False)

    def expire_lease(self, number: int) -> None:
        """End the registration of a broker that is alive, as if its renewals had come too late."""
        self._store.expire_lease(BrokerId(number))

    def _cut(self, number: int, *, is_cut_off: bool) -> None:
        broker = self.brokers[number]
        for other in self.brokers.values():
            if other is not broker:
                (other.unreachable.add if is_cut_off else other.unreachable.discard)(broker.bootstrap_servers)
                (broker.unreachable.add if is_cut_off else broker.unreachable.discard)(other.bootstrap_servers)
        broker.set_store_cut_off(is_cut_off)
        if is_cut_off:
            for other in self.brokers.values():
                other.disconnect_unreachable()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Create a topic and wait until every partition has a leader. `assignments` has the brokers of each."""
        placement = ReplicaPlacement(replication_factor, assignments)
        self._live.create_replicated_topic(name, partitions, settings or {}, placement)
        count = partitions if assignments is None else len(assignments)
        for number in range(count):
            self.wait_for_leader(name, number)

    def produce(self, topic: str, *values: Field, key: Field = None, partition: int | None = None) -> None:
        """Write a record for each value with acks=all, and return when all are acknowledged. Raises ClientError."""
        with self._client() as client:
            broker_client.produce(client, topic, values, key=key, headers={}, partition=partition, timestamp_ms=None)

    def records(self, topic: str, partition: int | None = None, *, committed_only: bool = True) -> list[TopicRecord]:
        """Return all records of a topic or of one partition, by partition and offset. Raises ClientError."""
        numbers = None if partition is None else [partition]
        with self._client() as client:
            return broker_client.read_records(client, topic, numbers, committed_only=committed_only)

    def produce_to(self, number: int, topic: str, *values: Field, partition: int | None = None) -> None:
        """Write as `produce` does, with one broker as bootstrap server."""
        self.brokers[number].produce(topic, *values, partition=partition)

    def stored(self, topic: str, partition: int = 0, *, on: int) -> list[bytes | None]:
        """Return the values of all records that a broker has stored, acknowledged or not."""
        return self.brokers[on].stored(topic, partition)

    def has_log(self, topic: str, partition: int = 0, *, on: int) -> bool:
        """Return True if a broker has a log of the partition."""
        return self.brokers[on].has_log(topic, partition)

    def bytes_served(self, topic: str, *, by: int) -> int:
        """Return the bytes of the topic's records that a broker has sent to consumers and followers."""
        return self.brokers[by].bytes_served(topic)

    def replicas(self, topic: str, partition: int = 0) -> list[int]:
        """Return the replicas of a partition, the preferred leader first. Raises LookupError."""
        return list(self._registration(topic, partition)[1].registration.replicas)

    def wait_until_registered(self, number: int) -> None:
        """Wait until a broker is a member of the cluster. Raises TimeoutError."""
        self._wait(lambda image: BrokerId(number) in image.brokers or None, f"broker {number} is registered")

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the broker that leads a partition, None if it has no live leader."""
        with suppress(LookupError):
            image, registered = self._registration(topic, partition)
            if image.has_live_leader(registered.registration):
                return registered.registration.leader
        return None

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """Return the in-sync replicas of a partition. Raises LookupError."""
        return sorted(self._registration(topic, partition)[1].registration.isr)

    def wait_for_leader(self, topic: str, partition: int = 0, *, other_than: int | None = None) -> int:
        """Wait until a partition has a leader, which serves it. Raises TimeoutError."""

        def leads(_: ClusterImage) -> int | None:
            leader = self.leader(topic, partition)
            if leader is None or leader == other_than:
                return None
            return leader if self.brokers[leader].leads(topic, partition) else None

        return self._wait(leads, f"{topic}-{partition} has a leader")

    def wait_for_isr(self, topic: str, partition: int = 0, *, size: int | None = None) -> list[int]:
        """Wait until so many replicas, by default all, are in sync. Raises TimeoutError."""

        def in_sync(_: ClusterImage) -> list[int] | None:
            with suppress(LookupError):
                registration = self._registration(topic, partition)[1].registration
                if len(registration.isr) == (len(registration.replicas) if size is None else size):
                    return sorted(registration.isr)
            return None

        return self._wait(in_sync, f"{'all' if size is None else size} replicas of {topic}-{partition} are in sync")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def _live(self) -> "ClusterBroker":
        for broker in self.brokers.values():
            if broker.unreachable_because is None and not broker.is_cut_off:
                return broker
        raise RuntimeError("no broker of the cluster is running")

    def _client(self) -> Client:
        security = parse_client_security(self._client_options)
        return Client(self.bootstrap_servers, client_id="logbrook-testing", security=security)

    def _registration(self, topic: str, partition: int) -> tuple[ClusterImage, ImagePartition]:
        """Raises LookupError."""
        image, topic_ids = self._store.read_image()
        if topic not in topic_ids:
            raise LookupError(f"there is no topic {topic!r}")
        registered = image.partitions.get(PartitionKey(topic_ids[topic], partition))
        if registered is None:
            raise LookupError(f"{topic}-{partition} is not registered")
        return image, registered

    def _wait(self, condition: Callable[[ClusterImage], T | None], text: str) -> T:
        until_s = monotonic() + _WAIT_S_MAX
        while True:
            result = condition(self._store.read_image()[0])
            if result is not None:
                return result
            if monotonic() > until_s:
                raise TimeoutError(f"not within {_WAIT_S_MAX:g} s: {text}")
            threading.Event().wait(_POLL_S)


class ClusterBroker(Broker):
    """One broker of a `Cluster`."""

    def __init__(
        self,
        store: "StoreThread",
        number: int,
        rack: str,
        settings: Mapping[str, Any],
        lease_s: float,
        replica_lag_ms_max: int,
        *,
        data: str | os.PathLike[str] | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data=data, settings={**settings, "node_id": number}, client=client)
        self.number = BrokerId(number)
        # Addresses of brokers that this one cannot reach.
        self.unreachable: set[str] = set()
        self._store = store
        self._rack = rack
        self._lease_s = lease_s
        self._replica_lag_ms_max = replica_lag_ms_max
        # The levels of features that the broker supports from its next start on.
        self.features: Mapping[str, FeatureRange] = SUPPORTED
        self._connection: StoreConnection | None = None
        self._peers: list[tuple[str, PeerConnection]] = []
        self._peer_security = PLAINTEXT_SECURITY
        self.is_cut_off = False

    def leads(self, topic: str, partition: int) -> bool:
        """True if this broker leads the partition and knows all committed records."""
        if self.unreachable_because is not None:
            return False
        replicas = self._running.services.replicas
        return replicas is not None and replicas.leading.is_serving(topic, partition)

    @property
    def has_certain_lease(self) -> bool:
        """True if no other broker can have taken over what this one leads."""
        replicas = self._running.services.replicas
        return replicas is not None and replicas.membership.is_certain

    def create_replicated_topic(
        self, name: str, partitions: int, settings: Mapping[str, str], placement: ReplicaPlacement
    ) -> None:
        self._active.call(self._running.services.topics.create(name, partitions, settings, placement))

    def stored(self, topic: str, partition: int) -> list[bytes | None]:
        """Return the values of all records in the log of this broker."""
        return self._active.call(self._stored(TopicPartition(topic, partition)))

    def has_log(self, topic: str, partition: int) -> bool:
        return TopicPartition(topic, partition) in self._running.directory

    def log_config(self, topic: str, partition: int) -> LogConfig:
        """Return the settings in force for the log of a partition."""
        return self._running.directory.get(TopicPartition(topic, partition)).config

    def bytes_served(self, topic: str) -> int:
        return self._running.services.probe.topics[topic].bytes_out

    async def _stored(self, partition: TopicPartition) -> list[bytes | None]:
        log = self._running.directory.get(partition)
        slices = log.read(log.log_start_offset, 1 << 30, up_to=log.log_end_offset).slices
        return [
            record.value
            for part in slices
            for position, header in iter_headers(part.data)
            if not header.is_control
            for record in iter_records(part.data, position, bytes_max=1 << 30)
        ]

    def kill(self) -> None:
        """End the broker. Its metadata store gets nothing more of it: a paused one has changes to process."""
        if self._connection is not None:
            self._connection.set_cut_off(True)
        super().kill()

    def set_store_cut_off(self, is_cut_off: bool) -> None:
        self.is_cut_off = is_cut_off
        if self._connection is not None:
            self._connection.set_cut_off(is_cut_off)

    def disconnect_unreachable(self) -> None:
        """Break the connections to brokers that cannot be reached."""
        if self._thread is not None and not self._thread.is_paused:
            self._thread.call(self._disconnect_unreachable())

    async def _disconnect_unreachable(self) -> None:
        for address, peer in self._peers:
            if address in self.unreachable:
                peer.close()

    async def _serve(self, config: BrokerConfig, files: FaultableFiles) -> BrokerServer:
        self._peer_security = peer_security(config)
        server = self._new_server(config, files)
        await server.start()
        if self._is_refusing:
            server.listener.suspend()
        return server

    def _new_server(self, config: BrokerConfig, files: FaultableFiles) -> BrokerServer:
        return BrokerServer(config, files=files, cluster=self._link())

    def _link(self) -> ClusterLink:
        self._connection = connection = StoreConnection(self._store)
        connection.set_cut_off(self.is_cut_off)
        return ClusterLink(
            connection,
            self._connect,
            rack=self._rack,
            lease_s=self._lease_s,
            replica_lag_ms_max=self._replica_lag_ms_max,
            boot_id=_BOOT_ID,
            maintenance_interval_s=0.5,
            features=self.features,
        )

    async def _connect(self, host: str, port: int) -> PeerConnection:
        address = f"{host}:{port}"
        if address in self.unreachable:
            raise TimeoutError(f"{address} cannot be reached")
        peer = await PeerConnection.connect(host, port, f"broker-{self.number}", security=self._peer_security)
        self._peers = [(other, known) for other, known in self._peers if not known.is_closed]
        self._peers.append((address, peer))
        return peer
