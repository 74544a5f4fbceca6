"""AlterReplicaLogDirs: move replicas to another data directory. There is one, so a move to it changes nothing."""

import os

from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.services import Services


def handle(
    services: Services, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    _move(services, TopicPartition(topic.name, number), directory.path) for number in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


API = Api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, handle)


def _move(services: Services, partition: TopicPartition, path: str) -> AlterReplicaLogDirPartitionResult:
    result = AlterReplicaLogDirPartitionResult(partition_index=partition.partition)
    with errors_in(result):
        if path != os.path.abspath(services.config.data):
            raise RequestRefusedError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path!r} is not the data directory")
        services.topics.check_partition(partition)
    return result
