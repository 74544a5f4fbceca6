"""A client of a cluster: the leaders of partitions, and raw record batches to and from them.

Leaders are looked up once per topic and cached. An error that may mean that they have changed invalidates the cached
topic, so that the next call looks them up again. Nothing is retried here, because only the caller can decide whether
repeating a request is safe. A client belongs to one thread.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias, TypeVar

from logbrook.client.connection import Connection
from logbrook.client.errors import BrokerError, ClientError, ConnectFailedError, check_code
from logbrook.client.fetched import Fetched
from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from logbrook.protocol.schema import ZERO_UUID, ApiMessage

Address: TypeAlias = tuple[str, int]
A = TypeVar("A")
R = TypeVar("R", bound=ApiMessage)

# Timestamps with a special meaning in ListOffsets: the log end offset, the log start offset.
LATEST = -1
EARLIEST = -2
# The replica id of consumers in Fetch and ListOffsets.
CONSUMER_REPLICA_ID = -1
ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0

_BROKER_DEFAULT = -1
_PORT_MAX = 65_535


class _CachedTopic(NamedTuple):
    id: bytes
    leaders: dict[int, Address]


class Client:
    """Connections to the brokers of one cluster, with the leaders that it has looked up.

    Every call may raise ClientError (BrokerError when the broker answers with an error code), and ProtocolError for a
    malformed response or an API that the broker lacks.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "logbrook",
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        security: ClientSecurity = PLAINTEXT_SECURITY,
    ) -> None:
        """Does not connect yet. `bootstrap_servers` are HOST:PORT, several separated by commas; else ValueError.

        `timeout_s` limits each request, and connecting too unless `connect_timeout_s` is given. `security` is that of
        every connection, and comes from `parse_client_security`.
        """
        names = bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else bootstrap_servers
        self._bootstrap = [_address(name) for name in names]
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._security = security
        self._connections: dict[Address, Connection] = {}
        self._topics: dict[str, _CachedTopic] = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def request(self, message: ApiMessage, response: type[R], version: int | None = None) -> R:
        """Send `message` to the first bootstrap server that can be connected to."""
        connect_error: ConnectFailedError | None = None
        for address in self._bootstrap:
            try:
                connection = self.connection(address)
            except ConnectFailedError as error:
                connect_error = error
                continue
            return connection.request(message, response, version)
        raise connect_error or ClientError("no bootstrap servers are given")

    def request_controller(self, message: ApiMessage, response: type[R]) -> R:
        """Send a change to the controller, as ZooKeeper clusters require; KRaft brokers forward changes."""
        metadata = self.metadata([])
        for broker in metadata.brokers:
            if broker.node_id == metadata.controller_id:
                return self.connection((broker.host, broker.port)).request(message, response)
        return self.request(message, response)

    def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Return the metadata of these topics, or of all. Topics are not auto-created."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        return self.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of `topic` that have a leader, looked up anew."""
        self.invalidate(topic)
        return sorted(self._topic(topic).leaders)

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of `topic`, with or without a leader."""
        operation = f"looking up topic {topic}"
        response = self.metadata([topic])
        answer = _single(operation, response.topics)
        check_code(answer.error_code, operation)
        # The caller may write to a partition that was added since the leaders were cached.
        self.update_metadata(response)
        return len(answer.partitions)

    def topic_id(self, topic: str) -> bytes:
        """Return the topic's id, all zeros from brokers without topic ids."""
        return self._topic(topic).id

    def connect(self, host: str, port: int) -> Connection:
        """Return a new connection that the caller owns. Raises ConnectFailedError."""
        return Connection(
            host,
            port,
            client_id=self._client_id,
            timeout_s=self.timeout_s,
            connect_timeout_s=self._connect_timeout_s,
            security=self._security,
        )

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=_BROKER_DEFAULT, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self.timeout_ms)
        for result in self.request(request, CreateTopicsResponse).topics:
            check_code(result.error_code, f"creating topic {name}", result.error_message)

    def produce(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview, *, acks: int = ACKS_ALL
    ) -> int:
        """Append one record batch, and return its base offset; -1 with acks=0, to which a broker does not respond."""
        operation = f"producing to {topic}-{partition}"
        with self.invalidating(topic):
            data = TopicProduceData(
                name=topic,
                topic_id=self._topic(topic).id,
                partition_data=[PartitionProduceData(index=partition, records=batch)],
            )
            request = ProduceRequest(acks=acks, timeout_ms=self.timeout_ms, topic_data=[data])
            connection = self.connection(self.leader(topic, partition))
            if acks == ACKS_NONE:
                connection.send_unanswered(request)
                return -1
            response = connection.request(request, ProduceResponse)
            answer = _single(operation, [data for topics in response.responses for data in topics.partition_responses])
            check_code(answer.error_code, operation, answer.error_message)
        return answer.base_offset

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: Offset,
        *,
        bytes_max: int = 16 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        committed_only: bool = False,
        topic_id: bytes | None = None,
        memory: bytearray | None = None,
    ) -> Fetched:
        """Return the batches from `offset` on, once there are `min_bytes` of them or `max_wait_ms` have passed.

        About `bytes_max`, but at least one whole batch if there is one. With `committed_only`, none past the last
        stable offset. With `topic_id`, INCONSISTENT_TOPIC_ID if the topic has been recreated under the same name. For
        `memory` see `Connection.receive`.
        """
        operation = f"fetching from {topic}-{partition}"
        entry = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        with self.invalidating(topic):
            id_ = self._expected_id(topic, topic_id, operation)
            request = FetchRequest(
                replica_id=CONSUMER_REPLICA_ID,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=bytes_max,
                isolation_level=int(committed_only),
                topics=[FetchTopic(topic=topic, topic_id=id_, partitions=[entry])],
            )
            connection = self.connection(self.leader(topic, partition))
            timeout_s = self.timeout_s + max_wait_ms / 1000
            response = connection.request(request, FetchResponse, timeout_s=timeout_s, memory=memory)
            check_code(response.error_code, operation)
            answer = _single(operation, [data for topics in response.responses for data in topics.partitions])
            check_code(answer.error_code, operation)
        view = memoryview(b"") if answer.records is None else answer.records
        assert isinstance(view, memoryview)
        aborted = tuple((aborted.producer_id, aborted.first_offset) for aborted in answer.aborted_transactions or ())
        return Fetched(
            view,
            Offset(answer.high_watermark),
            Offset(answer.last_stable_offset),
            Offset(answer.log_start_offset),
            aborted,
        )

    def list_offset(self, topic: str, partition: int, timestamp_ms: int = LATEST) -> int:
        """Return the first offset at or after `timestamp_ms`, -1 if there is none; or LATEST or EARLIEST."""
        operation = f"listing offsets of {topic}-{partition}"
        entry = ListOffsetsPartition(partition_index=partition, timestamp=timestamp_ms)
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[ListOffsetsTopic(name=topic, partitions=[entry])],
            timeout_ms=self.timeout_ms,
        )
        with self.invalidating(topic):
            response = self.connection(self.leader(topic, partition)).request(request, ListOffsetsResponse)
            answer = _single(operation, [listed for topics in response.topics for listed in topics.partitions])
            check_code(answer.error_code, operation)
        return answer.offset

    def leader(self, topic: str, partition: int) -> Address:
        """Return the address of the partition's leader. LEADER_NOT_AVAILABLE if it has none."""
        leader = self._topic(topic).leaders.get(partition)
        if leader is None:
            self.invalidate(topic)
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"finding the leader of {topic}-{partition}")
        return leader

    def update_metadata(self, response: MetadataResponse) -> None:
        """Cache the leaders in `response`, which saves looking them up topic by topic."""
        brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            if topic.name is not None and not topic.error_code:
                leaders = {
                    partition.partition_index: brokers[partition.leader_id]
                    for partition in topic.partitions
                    if partition.leader_id in brokers
                }
                self._topics[topic.name] = _CachedTopic(topic.topic_id, leaders)

    def invalidate(self, topic: str) -> None:
        """Drop the cached leaders of `topic`; the next call that needs them looks them up."""
        self._topics.pop(topic, None)

    @contextmanager
    def invalidating(self, *topics: str) -> Iterator[None]:
        """Drop the cached leaders of `topics` if the block raises an error that may mean that they have changed."""
        try:
            yield
        except ClientError as error:
            if error.needs_metadata_refresh:
                for topic in topics:
                    self.invalidate(topic)
            raise

    def connection(self, address: Address) -> Connection:
        """Return the client's own connection to a broker, opened if there is none. Raises ConnectFailedError.

        One that the broker has closed meanwhile is replaced, as after a restart or a long time without requests.
        """
        connection = self._connections.get(address)
        if connection is not None and not connection.is_usable:
            connection.close()
            connection = None
        if connection is None:
            connection = self._connections[address] = self.connect(*address)
        return connection

    @property
    def timeout_ms(self) -> int:
        return round(self.timeout_s * 1000)

    def _expected_id(self, topic: str, expected: bytes | None, operation: str) -> bytes:
        """Return the topic's id. Raises BrokerError if it is not `expected` and the brokers have topic ids."""
        accepted = (expected, ZERO_UUID)
        if expected is not None and self._topic(topic).id not in accepted:
            self.invalidate(topic)
            if self._topic(topic).id not in accepted:
                raise BrokerError(ErrorCode.INCONSISTENT_TOPIC_ID, operation)
        return self._topic(topic).id

    def _topic(self, name: str) -> _CachedTopic:
        if name not in self._topics:
            operation = f"looking up topic {name}"
            response = self.metadata([name])
            check_code(_single(operation, response.topics).error_code, operation)
            self.update_metadata(response)
        return self._topics[name]


def group_by_topic(entries: Iterable[tuple[TopicPartition, A]]) -> dict[str, list[A]]:
    """Collect what belongs to partitions by the topic's name, as most requests hold it."""
    by_topic: dict[str, list[A]] = {}
    for partition, entry in entries:
        by_topic.setdefault(partition.topic, []).append(entry)
    return by_topic


def _address(name: str) -> Address:
    host, _, port = name.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise ValueError(f"{name!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _single(operation: str, answers: Sequence[A]) -> A:
    """Return the only element. Raises ClientError if there are none or several."""
    if len(answers) != 1:
        raise ClientError(f"{operation}: the response has {len(answers)} entries, not 1")
    return answers[0]
