"""DescribeProducers: the producers that a log remembers (KIP-664)."""

from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from logbrook.server.api import Api, Call
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services
from logbrook.storage.producers import Producer

_NONE = -1


def handle(services: Services, request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    described: set[TopicPartition] = set()
    topics = []
    for topic in request.topics:
        responses = []
        for number in topic.partition_indexes:
            partition = TopicPartition(topic.name, number)
            response = PartitionResponse(partition_index=number)
            responses.append(response)
            try:
                if partition in described:
                    # A partition that is named over and over would make a small request a huge answer.
                    raise RefusedError(ErrorCode.INVALID_REQUEST, "each partition may be named once in a request")
                described.add(partition)
                response.active_producers = _producers(services, partition)
            except LogbrookError as error:
                response.error_code, response.error_message = refuse(services, request, error)
        topics.append(TopicResponse(name=topic.name, partitions=responses))
    return DescribeProducersResponse(topics=topics)


API = Api(DescribeProducersRequest, DescribeProducersResponse, handle)


def _producers(services: Services, partition: TopicPartition) -> list[ProducerState]:
    """Raises TopicNotFoundError or PartitionNotFoundError."""
    producers = services.topics.log(partition).producers
    known = ((producer_id, producers.get(producer_id)) for producer_id in sorted(producers.ids()))
    return [_state(producer_id, producer) for producer_id, producer in known if producer is not None]


def _state(producer_id: int, producer: Producer) -> ProducerState:
    last = producer.batches[-1] if producer.batches else None
    start = producer.transaction_start_offset
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=_NONE if last is None else last.last_sequence,
        last_timestamp=producer.last_seen_ms if last is None else last.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=_NONE if start is None else start,
    )
