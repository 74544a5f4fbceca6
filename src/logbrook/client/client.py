"""A client of a cluster: which broker leads a partition, and raw record batches to and from it.

Where partitions are led is looked up once per topic and remembered. An error that may mean that this has changed makes
the client forget it, so that the next call looks again; nothing is retried here, because only the caller knows whether
doing it twice would hurt. A client belongs to one thread.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, TypeAlias, TypeVar

from logbrook.client.connection import Connection
from logbrook.client.errors import BrokerError, ClientError, ConnectFailedError
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
from logbrook.records.batch import iter_headers

Address: TypeAlias = tuple[str, int]
A = TypeVar("A")
R = TypeVar("R", bound=ApiMessage)

# Timestamps that stand for offsets (ListOffsets).
LATEST = -1
EARLIEST = -2

_ACKS_ALL = -1
_CONSUMER = -1
_THE_BROKERS_DEFAULT = -1


class Fetched(NamedTuple):
    """Whole record batches as the broker keeps them; the first may begin before the offset that was asked for.

    `aborted` has, for one who reads committed records only, the transactions whose records do not count: the producer's
    id and the first offset of each.
    """

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] = ()

    @property
    def memory(self) -> bytearray:
        """What the answer stands in, to be given to another fetch once nobody looks at this one any more."""
        return self.records.obj if isinstance(self.records.obj, bytearray) else bytearray()

    @property
    def batches(self) -> list[memoryview]:
        """The batches one by one, without a last one that was cut off."""
        return [self.records[position : position + header.size] for position, header in iter_headers(self.records)]


class _Topic(NamedTuple):
    id: bytes
    # Partition to (host, port) of its leader.
    leaders: dict[int, Address]


class Client:
    """Every call may raise ClientError: a BrokerError when the broker says no, another when it cannot be asked.

    A broker whose answers make no sense, or that lacks an API, is a ProtocolError.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "logbrook",
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
    ) -> None:
        """`bootstrap_servers` are one or more HOST:PORT, separated by commas; they are connected to when needed.

        A person does not wait as long for a connection as for an answer: `connect_timeout_s`.
        """
        names = bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else bootstrap_servers
        self._bootstrap = [_address(name) for name in names]
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._connections: dict[Address, Connection] = {}
        self._topics: dict[str, _Topic] = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def request(self, message: ApiMessage, response: type[R], version: int | None = None) -> R:
        """Ask any of the bootstrap servers."""
        failed: ConnectFailedError | None = None
        for address in self._bootstrap:
            try:
                connection = self.connection(address)
            except ConnectFailedError as error:
                failed = error
                continue
            return connection.request(message, response, version)
        raise failed or ClientError("there are no bootstrap servers")

    def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """What the cluster says of these topics, or of all. Topics are not created by asking."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        return self.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of `topic` that have a leader."""
        self._topics.pop(topic, None)
        return sorted(self._topic(topic).leaders)

    def partition_count(self, topic: str) -> int:
        """How many partitions `topic` has, with a leader or without."""
        answer = _only(f"looking up topic {topic}", self.metadata([topic]).topics)
        self._check(topic, f"looking up topic {topic}", answer.error_code)
        return len(answer.partitions)

    def topic_id(self, topic: str) -> bytes:
        """Zeros where brokers do not have them yet."""
        return self._topic(topic).id

    def connect(self, host: str, port: int) -> Connection:
        """A new connection that is the caller's own. Raises ConnectFailedError."""
        return Connection(
            host,
            port,
            client_id=self._client_id,
            timeout_s=self._timeout_s,
            connect_timeout_s=self._connect_timeout_s,
        )

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=_THE_BROKERS_DEFAULT, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms)
        for result in self.request(request, CreateTopicsResponse).topics:
            if result.error_code:
                raise BrokerError(result.error_code, f"creating topic {name}", result.error_message)

    def produce(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> int:
        """Append one record batch, and return its base offset once it is as durable as the broker promises."""
        what = f"producing to {topic}-{partition}"
        data = TopicProduceData(
            name=topic,
            topic_id=self._topic(topic).id,
            partition_data=[PartitionProduceData(index=partition, records=batch)],
        )
        request = ProduceRequest(acks=_ACKS_ALL, timeout_ms=self._timeout_ms, topic_data=[data])
        response = self._request_leader(topic, partition, request, ProduceResponse)
        answer = _only(what, [one for topics in response.responses for one in topics.partition_responses])
        self._check(topic, what, answer.error_code, answer.error_message)
        return answer.base_offset

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int = 16 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        committed_only: bool = False,
        topic_id: bytes | None = None,
        memory: bytearray | None = None,
    ) -> Fetched:
        """The batches from `offset` on, once there are `min_bytes` of them or `max_wait_ms` have passed.

        About `bytes_max` of them, though never less than one batch, if there is one. With `committed_only` none past
        the first transaction that is still open. With `topic_id` from the topic of that id and from no other of the
        same name, which is a BrokerError with INCONSISTENT_TOPIC_ID. For `memory` see `Connection.receive`.
        """
        what = f"fetching from {topic}-{partition}"
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        request = FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=bytes_max,
            isolation_level=int(committed_only),
            topics=[FetchTopic(topic=topic, topic_id=self._id_of(topic, topic_id, what), partitions=[wanted])],
        )
        extra_s = max_wait_ms / 1000
        response = self._request_leader(topic, partition, request, FetchResponse, extra_s=extra_s, memory=memory)
        self._check(topic, what, response.error_code)
        answer = _only(what, [one for topics in response.responses for one in topics.partitions])
        self._check(topic, what, answer.error_code)
        view = memoryview(b"") if answer.records is None else answer.records
        assert isinstance(view, memoryview)
        aborted = tuple((one.producer_id, one.first_offset) for one in answer.aborted_transactions or ())
        return Fetched(view, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset, aborted)

    def list_offset(self, topic: str, partition: int, timestamp_ms: int = LATEST) -> int:
        """The first offset whose timestamp is not before `timestamp_ms`, -1 if there is none; or LATEST, EARLIEST."""
        what = f"listing offsets of {topic}-{partition}"
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp_ms)
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
            timeout_ms=self._timeout_ms,
        )
        response = self._request_leader(topic, partition, request, ListOffsetsResponse)
        answer = _only(what, [one for topics in response.topics for one in topics.partitions])
        self._check(topic, what, answer.error_code)
        return answer.offset

    def leader(self, topic: str, partition: int) -> Address:
        """Where the partition is led."""
        leader = self._topic(topic).leaders.get(partition)
        if leader is None:
            self.forget(topic)
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"finding the leader of {topic}-{partition}")
        return leader

    def learn(self, response: MetadataResponse) -> None:
        """Remember the leaders that `metadata` told, which spares looking them up topic by topic."""
        brokers = {one.node_id: (one.host, one.port) for one in response.brokers}
        for topic in response.topics:
            if topic.name is not None and not topic.error_code:
                led = [one for one in topic.partitions if one.leader_id in brokers]
                leaders = {one.partition_index: brokers[one.leader_id] for one in led}
                self._topics[topic.name] = _Topic(topic.topic_id, leaders)

    def forget(self, topic: str) -> None:
        """Look up the leaders of `topic` again when they are needed."""
        self._topics.pop(topic, None)

    def connection(self, address: Address) -> Connection:
        """The connection to one broker, opened if need be."""
        known = self._connections.get(address)
        if known is not None and not known.is_closed:
            return known
        connection = self.connect(*address)
        self._connections[address] = connection
        return connection

    @property
    def timeout_s(self) -> float:
        """How long an answer may take."""
        return self._timeout_s

    @property
    def _timeout_ms(self) -> int:
        return round(self._timeout_s * 1000)

    def _id_of(self, topic: str, wanted: bytes | None, what: str) -> bytes:
        """The topic's id; the one that is `wanted`, if any is and brokers have them. Raises BrokerError."""
        accepted = (wanted, ZERO_UUID)
        if wanted is not None and self._topic(topic).id not in accepted:
            self.forget(topic)
            if self._topic(topic).id not in accepted:
                raise BrokerError(ErrorCode.INCONSISTENT_TOPIC_ID, what)
        return self._topic(topic).id

    def _request_leader(
        self,
        topic: str,
        partition: int,
        message: ApiMessage,
        response: type[R],
        *,
        extra_s: float = 0.0,
        memory: bytearray | None = None,
    ) -> R:
        leader = self.leader(topic, partition)
        try:
            timeout_s = self._timeout_s + extra_s
            return self.connection(leader).request(message, response, timeout_s=timeout_s, memory=memory)
        except ClientError:
            self.forget(topic)
            raise

    def _topic(self, name: str) -> _Topic:
        known = self._topics.get(name)
        if known is not None:
            return known
        response = self.metadata([name])
        answer = _only(f"looking up topic {name}", response.topics)
        self._check(name, f"looking up topic {name}", answer.error_code)
        self.learn(response)
        return self._topics[name]

    def _check(self, topic: str, what: str, code: int, message: str | None = None) -> None:
        """Raises BrokerError."""
        if code:
            error = BrokerError(code, what, message)
            if error.is_retriable:
                self._topics.pop(topic, None)
            raise error


def _address(name: str) -> tuple[str, int]:
    host, separator, port = name.strip().rpartition(":")
    if not separator or not port.isdecimal():
        raise ValueError(f"{name!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _only(what: str, answers: Sequence[A]) -> A:
    """The one answer to the one thing that was asked. Raises ClientError."""
    if len(answers) != 1:
        raise ClientError(f"{what}: {len(answers)} answers to one question")
    return answers[0]
