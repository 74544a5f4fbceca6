"""AddPartitionsToTxn: add partitions to a transaction before the producer writes to them.

Versions from 4 on are sent by brokers only. With transaction version 2 producers add partitions by writing to them.
The response does not wait until the record is committed (ADR 11).
"""

from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from logbrook.protocol.schema import Versions
from logbrook.server.api import Api, RequestContext
from logbrook.server.coordinators.responses import producer_fenced_code
from logbrook.server.errors import RequestRefusedError, error_code
from logbrook.server.services import Services


def handle(
    services: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    results: dict[TopicPartition, AddPartitionsToTxnPartitionResult] = {}
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(request, results))
    is_any_missing = False
    for partition, result in results.items():
        try:
            if services.topics.is_internal(partition.topic):
                raise RequestRefusedError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {partition.topic!r} is internal"
                )
            services.topics.log(partition)
        except LogbrookError as error:
            is_any_missing = True
            result.partition_error_code = error_code(error)
        else:
            result.partition_error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
    if is_any_missing:
        # All partitions are added, or none.
        return response

    code = ErrorCode.NONE
    try:
        services.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            ProducerId(request.v3_and_below_producer_id),
            ProducerEpoch(request.v3_and_below_producer_epoch),
            results.keys(),
        )
    except LogbrookError as error:
        code = producer_fenced_code(error_code(error), context.version, fenced_since=2)
    for result in results.values():
        result.partition_error_code = code
    return response


API = Api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, handle, Versions(0, 3))


def _results(
    request: AddPartitionsToTxnRequest, results: dict[TopicPartition, AddPartitionsToTxnPartitionResult]
) -> list[AddPartitionsToTxnTopicResult]:
    """Create the response, and fill `results` with its partitions. Repeated partitions have one result."""
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for topic in request.v3_and_below_topics:
        of_topic = topics.setdefault(topic.name, [])
        for number in topic.partitions:
            partition = TopicPartition(topic.name, number)
            if partition not in results:
                results[partition] = AddPartitionsToTxnPartitionResult(partition_index=number)
                of_topic.append(results[partition])
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=of_topic) for name, of_topic in topics.items()
    ]
