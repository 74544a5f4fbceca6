"""DescribeProducers: the producer state of partitions (KIP-664)."""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.services import Services
from logbrook.storage.producer_state import ProducerStateEntry

_NONE = -1


def handle(services: Services, request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    described: set[TopicPartition] = set()
    topics = []
    for topic in request.topics:
        responses = []
        for number in topic.partition_indexes:
            partition = TopicPartition(topic.name, number)
            response = PartitionResponse(partition_index=number)
            responses.append(response)
            with errors_in(response):
                if partition in described:
                    # Repeated partitions would let a small request produce a huge response.
                    raise RequestRefusedError(
                        ErrorCode.INVALID_REQUEST, "a partition may be named only once in a request"
                    )
                described.add(partition)
                services.authorizer.check(context, AclOperation.READ, ResourceType.TOPIC, topic.name)
                response.active_producers = _producers(services, partition)
        topics.append(TopicResponse(name=topic.name, partitions=responses))
    return DescribeProducersResponse(topics=topics)


API = Api(DescribeProducersRequest, DescribeProducersResponse, handle)


def _producers(services: Services, partition: TopicPartition) -> list[ProducerState]:
    """Raises TopicNotFoundError or PartitionNotFoundError."""
    producers = services.topics.log(partition).producers
    known = ((producer_id, producers.get(producer_id)) for producer_id in sorted(producers.ids()))
    return [_state(producer_id, producer) for producer_id, producer in known if producer is not None]


def _state(producer_id: ProducerId, producer: ProducerStateEntry) -> ProducerState:
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
