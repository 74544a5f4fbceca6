"""Clients of simulated brokers: one request at a time, or several to one broker without waiting for the answers."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Protocol, Self, TypeAlias, TypeVar

from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from logbrook.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from logbrook.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from logbrook.protocol.messages.fetch import FetchRequest, FetchResponse
from logbrook.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from logbrook.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from logbrook.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from logbrook.protocol.messages.produce import ProduceRequest, ProduceResponse
from logbrook.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from logbrook.protocol.schema import ApiMessage
from logbrook.server.cluster.peer_connection import CONNECT_S_MAX, PeerConnection

R = TypeVar("R", bound=ApiMessage)

_METADATA, _FIND_COORDINATOR = 12, 4
_GROUP, _TRANSACTION = 0, 1
REQUEST_S_MAX = 5.0

GroupRequest: TypeAlias = (
    JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | OffsetCommitRequest | OffsetFetchRequest
)


class WorkloadClient(Protocol):
    """Sends requests to whichever broker serves them. Raises OSError, also when the answer is late."""

    async def request(self, message: ApiMessage, response: type[R], version: int, timeout_s: float = ...) -> R: ...

    async def request_all(
        self, messages: Sequence[ApiMessage], response: type[R], version: int, timeout_s: float = ...
    ) -> list[R]:
        """Send requests to the broker of the first one, in order, without waiting for answers."""
        ...

    def close(self) -> None: ...


class SimulatedClient(PeerConnection):
    """A client of one broker. Connect with `connect`."""

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        client_id: str = "client",
        local_host: str | None = None,
        timeout_s: float = CONNECT_S_MAX,
        security: ClientSecurity = PLAINTEXT_SECURITY,
    ) -> Self:
        """Connect from the host `local_host`, by default `client_id`. Raises OSError."""
        return await super().connect(host, port, client_id, local_host or client_id, timeout_s, security)

    async def request_all(
        self, messages: Sequence[ApiMessage], response: type[R], version: int, timeout_s: float = REQUEST_S_MAX
    ) -> list[R]:
        """Send requests without waiting for answers. Raises OSError."""
        return await asyncio.gather(*(self.request(message, response, version, timeout_s) for message in messages))


class ClusterClient:
    """A client of a cluster: it looks leaders and coordinators up, and again after any error."""

    def __init__(
        self, name: str, hosts: list[str], port: int, choices: Random, request_s_max: float = REQUEST_S_MAX
    ) -> None:
        self._request_s_max = request_s_max
        # The number of requests that were sent.
        self.requests = 0
        self._name = name
        self._hosts = hosts
        self._port = port
        self._choices = choices
        self._connections: dict[str, SimulatedClient] = {}
        self._leaders: dict[tuple[str, int], str] = {}
        self._coordinators: dict[tuple[int, str], str] = {}

    async def request(self, message: ApiMessage, response: type[R], version: int, timeout_s: float | None = None) -> R:
        """Send a request to the broker that serves it. Raises OSError."""
        (answer,) = await self.request_all([message], response, version, timeout_s)
        return answer

    async def request_from(
        self, host: str, message: ApiMessage, response: type[R], version: int, timeout_s: float | None = None
    ) -> R:
        """Send a request to one broker. Raises OSError."""
        (answer,) = await self._request_all_from(host, [message], response, version, timeout_s or self._request_s_max)
        return answer

    async def request_all(
        self, messages: Sequence[ApiMessage], response: type[R], version: int, timeout_s: float | None = None
    ) -> list[R]:
        """Send requests to the broker of the first one without waiting for answers. Raises OSError."""
        timeout_s = timeout_s or self._request_s_max
        async with asyncio.timeout(timeout_s):
            host = await self._host_of(messages[0])
            answers = await self._request_all_from(host, messages, response, version, timeout_s)
        if any(_has_error(answer) for answer in answers):
            self.forget()
        return answers

    async def _request_all_from(
        self, host: str, messages: Sequence[ApiMessage], response: type[R], version: int, timeout_s: float
    ) -> list[R]:
        self.requests += len(messages)
        connection = self._connections.get(host)
        try:
            if connection is None or connection.is_closed:
                connection = self._connections[host] = await SimulatedClient.connect(host, self._port, self._name)
            return await connection.request_all(messages, response, version, timeout_s)
        except OSError:
            self.forget()
            raise

    def forget(self) -> None:
        """Look leaders and coordinators up again."""
        self._leaders.clear()
        self._coordinators.clear()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    async def _host_of(self, message: ApiMessage) -> str:
        if (partition := _partition_of(message)) is not None:
            return await self._leader(*partition)
        if isinstance(message, EndTxnRequest) or (
            isinstance(message, InitProducerIdRequest) and message.transactional_id is not None
        ):
            assert message.transactional_id is not None
            return await self._coordinator(_TRANSACTION, message.transactional_id)
        if isinstance(message, AddPartitionsToTxnRequest):
            return await self._coordinator(_TRANSACTION, message.v3_and_below_transactional_id)
        if isinstance(message, GroupRequest):
            return await self._coordinator(_GROUP, message.group_id)
        return self._choices.choice(self._hosts)

    async def _leader(self, topic: str, partition: int) -> str:
        if (topic, partition) not in self._leaders:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            metadata = await self._request_from_any(request, MetadataResponse, _METADATA)
            hosts = {broker.node_id: broker.host for broker in metadata.brokers}
            for described in metadata.topics:
                for part in described.partitions:
                    if part.leader_id in hosts:
                        self._leaders[topic, part.partition_index] = hosts[part.leader_id]
        if (topic, partition) not in self._leaders:
            raise ConnectionRefusedError(f"{topic}-{partition} has no leader")
        return self._leaders[topic, partition]

    async def _request_from_any(self, message: ApiMessage, response: type[R], version: int) -> R:
        """Send a request to any broker that accepts connections. Raises OSError."""
        *others, last = self._choices.sample(self._hosts, len(self._hosts))
        for host in others:
            try:
                return await self.request_from(host, message, response, version)
            except ConnectionRefusedError:
                continue
        return await self.request_from(last, message, response, version)

    async def _coordinator(self, key_type: int, key: str) -> str:
        if (key_type, key) not in self._coordinators:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            answer = await self._request_from_any(request, FindCoordinatorResponse, _FIND_COORDINATOR)
            (coordinator,) = answer.coordinators
            if coordinator.error_code:
                raise ConnectionRefusedError(ErrorCode(coordinator.error_code).name)
            self._coordinators[key_type, key] = coordinator.host
        return self._coordinators[key_type, key]


def _partition_of(message: ApiMessage) -> tuple[str, int] | None:
    """Return the topic and number of the partition that a request to a leader is for."""
    if isinstance(message, ProduceRequest):
        topic = message.topic_data[0]
        return topic.name, topic.partition_data[0].index
    if isinstance(message, FetchRequest):
        wanted = message.topics[0]
        return wanted.topic, wanted.partitions[0].partition
    if isinstance(message, DeleteRecordsRequest):
        deleted = message.topics[0]
        return deleted.name, deleted.partitions[0].partition_index
    return None


def _has_error(answer: ApiMessage) -> bool:
    if isinstance(answer, ProduceResponse):
        return any(part.error_code for topic in answer.responses for part in topic.partition_responses)
    if isinstance(answer, FetchResponse):
        return any(part.error_code for topic in answer.responses for part in topic.partitions)
    if isinstance(answer, AddPartitionsToTxnResponse):
        added = answer.results_by_topic_v3_and_below
        return any(part.partition_error_code for topic in added for part in topic.results_by_partition)
    if isinstance(answer, OffsetCommitResponse | DeleteRecordsResponse):
        return any(part.error_code for topic in answer.topics for part in topic.partitions)
    if isinstance(
        answer,
        EndTxnResponse
        | InitProducerIdResponse
        | JoinGroupResponse
        | SyncGroupResponse
        | HeartbeatResponse
        | OffsetFetchResponse,
    ):
        return bool(answer.error_code)
    return False
