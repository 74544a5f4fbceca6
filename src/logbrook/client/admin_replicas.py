"""Administration of replicas: moving partitions, electing preferred leaders, and removing brokers that are gone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from logbrook.client.client import Client, group_by_topic
from logbrook.client.errors import BrokerError, check_code
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from logbrook.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from logbrook.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from logbrook.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

T = TypeVar("T")

# Partitions per request: a broker changes one after the other, and the request must not time out.
_PARTITIONS_PER_REQUEST = 50
_PREFERRED = 0


@dataclass(frozen=True, slots=True)
class OngoingMove:
    """A move under way. `replicas` has the old and the new ones."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


class ReplicaAdmin:
    """Every call may raise ClientError."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def ongoing(self) -> dict[TopicPartition, OngoingMove]:
        """Return the moves under way. Raises UnsupportedApiError if the brokers are older than Kafka 2.4."""
        response = self._client.request_controller(
            ListPartitionReassignmentsRequest(topics=None, timeout_ms=self._client.timeout_ms),
            ListPartitionReassignmentsResponse,
        )
        check_code(response.error_code, "listing the moves under way", response.error_message)
        return {
            TopicPartition(topic.name, move.partition_index): OngoingMove(
                tuple(map(BrokerId, move.replicas)),
                tuple(map(BrokerId, move.adding_replicas)),
                tuple(map(BrokerId, move.removing_replicas)),
            )
            for topic in response.topics
            for move in topic.partitions
        }

    def move(self, plan: Mapping[TopicPartition, Sequence[BrokerId]]) -> None:
        """Begin to move partitions to these brokers, the preferred leader first.

        A move under way gets the new target. Raises the first error; some of the other moves may have begun.
        """
        self._reassign(plan)

    def cancel(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Cancel moves, and return those that were under way. The partitions keep the replicas from before."""
        return self._reassign(dict.fromkeys(partitions))

    def elect_preferred(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Make the first replica of each partition its leader. Return the partitions where that was not possible."""
        failed: dict[TopicPartition, ErrorCode] = {}
        for part in _parts(partitions):
            by_topic = group_by_topic((partition, partition.partition) for partition in part)
            request = ElectLeadersRequest(
                election_type=_PREFERRED,
                topic_partitions=[
                    TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic.items()
                ],
                timeout_ms=self._client.timeout_ms,
            )
            response = self._client.request_controller(request, ElectLeadersResponse)
            check_code(response.error_code, "electing the preferred leaders")
            for topic in response.replica_election_results:
                for result in topic.partition_result:
                    if result.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                        partition = TopicPartition(topic.topic, result.partition_id)
                        failed[partition] = BrokerError(result.error_code, "").code
        return failed

    def unregister(self, broker_id: BrokerId) -> None:
        """Make the cluster forget a broker that does not run. BROKER_ID_NOT_REGISTERED if it does not know it."""
        response = self._client.request_controller(
            UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse
        )
        check_code(response.error_code, f"removing node {broker_id}", response.error_message)

    def _reassign(self, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]) -> list[TopicPartition]:
        """Send the new targets, None to cancel a move. Return the partitions, without those that are not moving."""
        changed: list[TopicPartition] = []
        for part in _parts(targets):
            by_topic = group_by_topic(
                (partition, ReassignablePartition(partition_index=partition.partition, replicas=targets[partition]))
                for partition in part
            )
            topics = [ReassignableTopic(name=name, partitions=entries) for name, entries in by_topic.items()]
            request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=self._client.timeout_ms)
            response = self._client.request_controller(request, AlterPartitionReassignmentsResponse)
            check_code(response.error_code, "moving partitions", response.error_message)
            for topic in response.responses:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    if targets[partition] is None and result.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                        continue
                    check_code(result.error_code, f"moving {partition}", result.error_message)
                    changed.append(partition)
        return changed


def _parts(entries: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(entries)
    while part := list(islice(remaining, _PARTITIONS_PER_REQUEST)):
        yield part
