"""AddPartitionsToTxn: add partitions to a transaction before the producer writes to them.

Versions from 4 on are sent by the leaders of partitions, for several transactions at once, and may only check that the
partitions are part of a transaction: with transaction version 2 producers add partitions by writing to them. On a
single node the response does not wait until the record is committed (ADR 11); in a cluster it does.
"""

from collections.abc import Collection

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.coordinator import ProducerIdentity
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from logbrook.server.api import Api, RequestContext, may_act_as_broker
from logbrook.server.coordinators.responses import producer_fenced_code
from logbrook.server.errors import RequestRefusedError, error_code
from logbrook.server.services import Services

_SENT_BY_BROKERS_SINCE = 4


async def handle(
    services: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    if context.version >= _SENT_BY_BROKERS_SINCE:
        may_act = may_act_as_broker(services, context)
        if not may_act or not services.authorizer.allows_cluster(context, AclOperation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        results = [await _add_for_broker(services, transaction) for transaction in request.transactions]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return await _add_for_producer(services, request, context)


API = Api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, handle)


async def _add_for_broker(services: Services, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    results: dict[TopicPartition, AddPartitionsToTxnPartitionResult] = {}
    topics = _results(transaction.topics, results)
    producer = ProducerIdentity(ProducerId(transaction.producer_id), ProducerEpoch(transaction.producer_epoch))
    transactional_id = transaction.transactional_id
    try:
        if transaction.verify_only:
            for partition in results:
                services.transactions.check_partition(transactional_id, *producer, partition)
        else:
            for partition in results:
                # A partition that this broker does not know yet would get no marker.
                services.topics.check_partition(partition)
            await services.transactions.add(transactional_id, producer, results.keys())
    except LogbrookError as error:
        for result in results.values():
            result.partition_error_code = error_code(error)
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)


async def _add_for_producer(
    services: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    results: dict[TopicPartition, AddPartitionsToTxnPartitionResult] = {}
    topics = _results(request.v3_and_below_topics, results)
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    authorizer, transactional_id = services.authorizer, request.v3_and_below_transactional_id
    refusal = authorizer.refusal(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    if refusal is not None:
        for result in results.values():
            result.partition_error_code = refusal.code
        return response
    is_any_missing = False
    for partition, result in results.items():
        try:
            if services.topics.is_internal(partition.topic):
                raise RequestRefusedError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {partition.topic!r} is internal"
                )
            authorizer.check(context, AclOperation.WRITE, ResourceType.TOPIC, partition.topic)
            services.topics.check_partition(partition)
        except LogbrookError as error:
            is_any_missing = True
            result.partition_error_code = error_code(error)
        else:
            result.partition_error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
    if is_any_missing:
        # All partitions are added, or none.
        return response

    code = ErrorCode.NONE
    producer = ProducerIdentity(
        ProducerId(request.v3_and_below_producer_id), ProducerEpoch(request.v3_and_below_producer_epoch)
    )
    try:
        await services.transactions.add(transactional_id, producer, results.keys())
    except LogbrookError as error:
        code = producer_fenced_code(error_code(error), context.version, fenced_since=2)
    for result in results.values():
        result.partition_error_code = code
    return response


def _results(
    wanted: Collection[AddPartitionsToTxnTopic], results: dict[TopicPartition, AddPartitionsToTxnPartitionResult]
) -> list[AddPartitionsToTxnTopicResult]:
    """Create the response, and fill `results` with its partitions. Repeated partitions have one result."""
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for topic in wanted:
        of_topic = topics.setdefault(topic.name, [])
        for number in topic.partitions:
            partition = TopicPartition(topic.name, number)
            if partition not in results:
                results[partition] = AddPartitionsToTxnPartitionResult(partition_index=number)
                of_topic.append(results[partition])
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=of_topic) for name, of_topic in topics.items()
    ]
