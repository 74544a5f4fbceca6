"""DescribeQuorum: the voters of the metadata log (KIP-595). A single node is the only one, and leads it.

The brokers of a cluster are no voters: they keep their metadata in a store of its own, so they are its observers.
"""

from logbrook.core.acls import AclOperation
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services
from logbrook.server.topics import METADATA

_LISTENER_NAME = "PLAINTEXT"


def handle(services: Services, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    refusal = services.authorizer.cluster_refusal(context, AclOperation.DESCRIBE)
    if refusal is not None:
        return DescribeQuorumResponse(error_code=refusal.code, error_message=str(refusal))
    return DescribeQuorumResponse(
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    _describe(services, topic.topic_name, partition.partition_index) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        nodes=[
            Node(
                node_id=broker.broker_id,
                listeners=[Listener(name=_LISTENER_NAME, host=broker.host, port=broker.port)],
            )
            for broker in services.view.brokers(context.listener)
        ],
    )


API = Api(DescribeQuorumRequest, DescribeQuorumResponse, handle)


def _describe(services: Services, topic: str, number: int) -> ResponsePartitionData:
    if (topic, number) != METADATA:
        return ResponsePartitionData(partition_index=number, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if services.replicas is not None:
        return ResponsePartitionData(
            partition_index=number,
            leader_id=-1,
            leader_epoch=-1,
            current_voters=[],
            observers=[ReplicaState(replica_id=broker.broker_id) for broker in services.view.brokers()],
        )
    log, now_ms = services.topics.directory.get(METADATA), services.clock.now_ms()
    return ResponsePartitionData(
        partition_index=number,
        leader_id=services.config.node_id,
        leader_epoch=services.topics.metadata.epoch,
        high_watermark=log.high_watermark,
        current_voters=[
            ReplicaState(
                replica_id=services.config.node_id,
                log_end_offset=log.log_end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
        observers=[],
    )
