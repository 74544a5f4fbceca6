"""Requests between the brokers of a cluster about transactions.

The leader of a partition asks the coordinator of a transaction before it appends the first records of that transaction
(AddPartitionsToTxn), and the coordinator has the leaders of the partitions write its markers (WriteTxnMarkers).
"""

from collections.abc import Sequence

from logbrook.core.coordinator import CoordinatorNotAvailableError, NotCoordinatorError, ProducerIdentity
from logbrook.core.transactions.messages import TransactionMarkers
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from logbrook.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from logbrook.server.cluster.errors import NotLeaderError
from logbrook.server.cluster.peers import Peers
from logbrook.server.cluster_view import BrokerAddress, ClusterView
from logbrook.server.errors import RequestRefusedError

_ADD_PARTITIONS_VERSION = 5
_WRITE_MARKERS_VERSION = 2
_TRANSACTION_VERSION_2 = 2


class TransactionPeers:
    """One per broker of a cluster, on the event loop."""

    def __init__(self, broker_id: BrokerId, view: ClusterView, peers: Peers, listener: str) -> None:
        """`listener` is that of the brokers."""
        self._broker_id = broker_id
        self._view = view
        self._peers = peers
        self._listener = listener

    def is_own(self, partition: TopicPartition) -> bool:
        """True if this broker leads the partition."""
        leader = self._view.leader_address(partition, self._listener)
        return leader is not None and leader.broker_id == self._broker_id

    async def add_partitions(
        self,
        coordinator: TopicPartition,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        *,
        only_check: bool,
    ) -> None:
        """Have the coordinator add partitions to a transaction, or only check that they are part of it.

        `coordinator` is the partition of the transactional id. Raises CoordinatorError or RequestRefusedError.
        """
        address = self._leader_of(coordinator)
        if address is None:
            raise CoordinatorNotAvailableError(transactional_id)
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    verify_only=only_check,
                    topics=[
                        AddPartitionsToTxnTopic(name=name, partitions=numbers)
                        for name, numbers in _by_topic(partitions).items()
                    ],
                )
            ]
        )
        try:
            response = await self._peers.request(address, request, AddPartitionsToTxnResponse, _ADD_PARTITIONS_VERSION)
        except (OSError, ProtocolError) as error:
            raise CoordinatorNotAvailableError(transactional_id) from error
        codes = {response.error_code} | {
            partition.partition_error_code
            for transaction in response.results_by_transaction
            for topic in transaction.topic_results
            for partition in topic.results_by_partition
        }
        for code in codes - {ErrorCode.NONE}:
            if code == ErrorCode.NOT_COORDINATOR:
                raise NotCoordinatorError(transactional_id)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # This broker leads the partition, and the coordinator does not know it yet.
                raise CoordinatorNotAvailableError(transactional_id)
            raise RequestRefusedError(
                ErrorCode(code), f"the coordinator of {transactional_id!r} refuses the transaction"
            )

    async def write_marker(
        self, markers: TransactionMarkers, partition: TopicPartition, coordinator_epoch: int
    ) -> None:
        """Have the leader of a partition write a marker. Raises NotLeaderError or RequestRefusedError.

        A leader that has a newer epoch of the producer, or of the coordinator, needs no marker.
        """
        address = self._leader_of(partition)
        if address is None:
            raise NotLeaderError(partition)
        marker = WritableTxnMarker(
            producer_id=markers.producer.producer_id,
            producer_epoch=markers.producer.producer_epoch,
            transaction_result=markers.is_commit,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=coordinator_epoch,
            transaction_version=_TRANSACTION_VERSION_2 if markers.have_own_epoch else 0,
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        try:
            response = await self._peers.request(address, request, WriteTxnMarkersResponse, _WRITE_MARKERS_VERSION)
        except (OSError, ProtocolError) as error:
            raise NotLeaderError(partition) from error
        codes = [
            result.error_code for written in response.markers for topic in written.topics for result in topic.partitions
        ]
        if codes not in ([ErrorCode.NONE], [ErrorCode.INVALID_PRODUCER_EPOCH]):
            code = ErrorCode(codes[0]) if codes else ErrorCode.UNKNOWN_SERVER_ERROR
            raise RequestRefusedError(
                code, f"the leader of {partition} did not write a transaction marker: {code.name}"
            )

    def _leader_of(self, partition: TopicPartition) -> BrokerAddress | None:
        return self._view.leader_address(partition, self._listener)


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    return numbers
