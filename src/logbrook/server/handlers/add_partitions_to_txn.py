"""AddPartitionsToTxn: a producer says which partitions its transaction is about to write to.

Versions from 4 on are for brokers among themselves. Producers of the second protocol version add partitions by writing
to them.
"""

from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from logbrook.protocol.schema import Versions
from logbrook.server.api import Api, Call
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services
from logbrook.server.transaction_answers import producer_fenced_code


def handle(services: Services, request: AddPartitionsToTxnRequest, call: Call) -> AddPartitionsToTxnResponse:
    results: dict[TopicPartition, AddPartitionsToTxnPartitionResult] = {}
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(request, results))
    missing = False
    for partition, result in results.items():
        try:
            if services.topics.is_internal(partition.topic):
                raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{partition.topic} is the broker's own")
            services.topics.log(partition)
        except LogbrookError as error:
            missing = True
            result.partition_error_code = refuse(services, request, error).code
        else:
            result.partition_error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
    if missing:
        # All or nothing.
        return response

    code = ErrorCode.NONE
    try:
        services.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            results.keys(),
        )
    except LogbrookError as error:
        code = producer_fenced_code(refuse(services, request, error).code, call.version, fenced_since=2)
    for result in results.values():
        result.partition_error_code = code
    return response


API = Api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, handle, Versions(0, 3))


def _results(
    request: AddPartitionsToTxnRequest, results: dict[TopicPartition, AddPartitionsToTxnPartitionResult]
) -> list[AddPartitionsToTxnTopicResult]:
    """A place for the answer of each partition; a partition that is named twice has one."""
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for topic in request.v3_and_below_topics:
        of_topic = topics.setdefault(topic.name, [])
        for number in topic.partitions:
            partition = TopicPartition(topic.name, number)
            if partition not in results:
                results[partition] = AddPartitionsToTxnPartitionResult(partition_index=number)
                of_topic.append(results[partition])
    return [AddPartitionsToTxnTopicResult(name=name, results_by_partition=found) for name, found in topics.items()]
