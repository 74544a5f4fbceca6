"""WriteTxnMarkers: end a producer's open transaction in single partitions.

In a cluster, a coordinator has the leaders of other brokers write its markers with it. A single node appends its
markers itself, and the request comes only from operators, who abort a hanging transaction with it
(`kafka-transactions abort`, KIP-664): a commit is refused then, since the coordinator alone decides it.
"""

from asyncio import Future

from logbrook.core.acls import AclOperation
from logbrook.core.coordinator import ProducerIdentity
from logbrook.model import TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from logbrook.server.api import Api, HandlerResult, RequestContext, may_act_as_broker
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.services import Services
from logbrook.server.topics import TRANSACTION_STATE

# Of a transaction: its markers have an epoch above that of its records (KIP-890).
_OWN_EPOCH_SINCE = 2

_logger = event_logger(__name__)


def handle(services: Services, request: WriteTxnMarkersRequest, context: RequestContext) -> HandlerResult:
    # The markers are written even if the client disconnects.
    return services.transactions.own(_write(services, request, context))


API = Api(WriteTxnMarkersRequest, WriteTxnMarkersResponse, handle)


async def _write(
    services: Services, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    writes = [
        _MarkerWrite(services, marker, TopicPartition(topic.name, number), context)
        for marker in request.markers
        for topic in marker.topics
        for number in topic.partition_indexes
    ]
    results = iter([await write.finish() for write in writes])
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name, partitions=[next(results) for _ in topic.partition_indexes]
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


class _MarkerWrite:
    """One marker of the request: refused, or being written."""

    def __init__(
        self, services: Services, marker: WritableTxnMarker, partition: TopicPartition, context: RequestContext
    ) -> None:
        self._result = WritableTxnMarkerPartitionResult(partition_index=partition.partition)
        self._write: Future[None] | None = None
        with errors_in(self._result):
            if not may_act_as_broker(services, context):
                raise RequestRefusedError(
                    ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "markers are written over the listener of the brokers"
                )
            # Operators who may alter the cluster abort hanging transactions (KIP-664).
            if not services.authorizer.allows_cluster(context, AclOperation.ALTER, is_audited=False):
                services.authorizer.check_cluster(context, AclOperation.CLUSTER_ACTION)
            _check(services, marker, partition)
            producer = ProducerIdentity(ProducerId(marker.producer_id), ProducerEpoch(marker.producer_epoch))
            self._write = services.transactions.marker_writer.append(
                partition,
                producer,
                is_commit=marker.transaction_result,
                coordinator_epoch=marker.coordinator_epoch,
                has_own_epoch=marker.transaction_version >= _OWN_EPOCH_SINCE,
            )
            if services.replicas is None:
                _logger.warning(
                    "transaction aborted by operator",
                    partition=partition,
                    producer_id=marker.producer_id,
                    host=context.host,
                )

    async def finish(self) -> WritableTxnMarkerPartitionResult:
        with errors_in(self._result):
            if self._write is not None:
                await self._write
        return self._result


def _check(services: Services, marker: WritableTxnMarker, partition: TopicPartition) -> None:
    """Raises RequestRefusedError, TopicNotFoundError or PartitionNotFoundError."""
    log = services.topics.log(partition)
    if marker.producer_id < 0 or marker.producer_epoch < 0 or partition.topic == TRANSACTION_STATE:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "this partition has no transactions of that producer")
    if marker.transaction_result and services.replicas is None:
        raise RequestRefusedError(ErrorCode.INVALID_TXN_STATE, "only the coordinator commits transactions")
    producer = log.producers.get(ProducerId(marker.producer_id))
    if producer is None:
        return
    if producer.epoch > marker.producer_epoch:
        raise RequestRefusedError(ErrorCode.INVALID_PRODUCER_EPOCH, "the producer has a newer epoch")
    if producer.coordinator_epoch > marker.coordinator_epoch:
        raise RequestRefusedError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "the coordinator has a newer epoch")
