"""AlterReplicaLogDirs: move replicas to another data directory, which is refused unless they are there already."""

import os

from logbrook.core.acls import AclOperation
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
                    _move(services, TopicPartition(topic.name, number), directory.path, context)
                    for number in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


API = Api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, handle)


def _move(
    services: Services, partition: TopicPartition, path: str, context: RequestContext
) -> AlterReplicaLogDirPartitionResult:
    result = AlterReplicaLogDirPartitionResult(partition_index=partition.partition)
    with errors_in(result):
        services.authorizer.check_cluster(context, AclOperation.ALTER)
        paths = [os.path.abspath(known) for known in services.config.data_directories]
        if path not in paths:
            raise RequestRefusedError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path!r} is not a data directory")
        services.topics.check_partition(partition)
        directory = services.topics.directory
        if partition in directory and partition not in directory.members[paths.index(path)]:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "moves between data directories are not supported")
    return result
