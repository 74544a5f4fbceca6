"""DescribeLogDirs: the sizes of logs and, from version 4 on, of the disk (KIP-827), for each data directory.

From version 5 on it says that the directories of a broker are cordoned (KIP-1066).

Null instead of a list of topics means all topics.
"""

import os
from collections.abc import Iterable, Iterator

from logbrook.core.acls import AclOperation
from logbrook.core.metadata import TopicNotFoundError
from logbrook.model import TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerId
from logbrook.ports import Space
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services
from logbrook.storage.environment import Environment
from logbrook.storage.errors import PartitionNotFoundError
from logbrook.storage.log import Log

_UNKNOWN = -1

_logger = event_logger(__name__)


def handle(services: Services, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    if not services.authorizer.allows_cluster(context, AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    logs = list(_logs(services, request))
    members = services.topics.directory.members
    is_in_cluster = services.cluster_admin is not None
    is_cordoned = is_in_cluster and services.topics.metadata.is_cordoned(BrokerId(services.config.node_id))
    return DescribeLogDirsResponse(
        results=[
            _describe(
                path,
                member.environment,
                [log for log in logs if log.environment is member.environment],
                is_cordoned=is_cordoned,
            )
            for path, member in zip(services.config.data_directories, members, strict=True)
        ]
    )


API = Api(DescribeLogDirsRequest, DescribeLogDirsResponse, handle)


def _describe(path: str, environment: Environment, logs: Iterable[Log], *, is_cordoned: bool) -> DescribeLogDirsResult:
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in logs:
        by_topic.setdefault(log.partition.topic, []).append(
            DescribeLogDirsPartition(partition_index=log.partition.partition, partition_size=log.size)
        )
    space = _space(environment)
    return DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR if space is None else ErrorCode.NONE,
        log_dir=os.path.abspath(path),
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
        total_bytes=_UNKNOWN if space is None else space.total_bytes,
        usable_bytes=_UNKNOWN if space is None else space.usable_bytes,
        is_cordoned=is_cordoned,
    )


def _space(environment: Environment) -> Space | None:
    """Return the size of the disk, None if the storage is offline or the size cannot be read."""
    if environment.health.failure is not None:
        return None
    try:
        return environment.files.space()
    except OSError as error:
        _logger.error("disk size query failed", error=error)
        return None


def _logs(services: Services, request: DescribeLogDirsRequest) -> Iterator[Log]:
    """Yield the requested logs. As in Kafka, partitions that do not exist are left out."""
    if request.topics is None:
        yield from services.topics.logs()
        return
    wanted = dict.fromkeys(
        TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions
    )
    for partition in wanted:
        try:
            services.topics.check_partition(partition)
            yield services.topics.directory.get(partition)
        except (TopicNotFoundError, PartitionNotFoundError):
            continue
