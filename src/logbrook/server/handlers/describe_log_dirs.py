"""DescribeLogDirs: how large the logs are. There is one data directory; null instead of topics asks for all of it."""

import os
from collections.abc import Iterator

from logbrook.core.metadata import TopicNotFoundError
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from logbrook.server.api import Api, Call
from logbrook.server.services import Services
from logbrook.storage.errors import PartitionNotFoundError
from logbrook.storage.log import Log


def handle(services: Services, request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in _logs(services, request):
        by_topic.setdefault(log.partition.topic, []).append(
            DescribeLogDirsPartition(partition_index=log.partition.partition, partition_size=log.size)
        )
    has_failed = services.topics.directory.environment.health.failure is not None
    result = DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR if has_failed else ErrorCode.NONE,
        log_dir=os.path.abspath(services.config.data),
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
    )
    return DescribeLogDirsResponse(results=[result])


API = Api(DescribeLogDirsRequest, DescribeLogDirsResponse, handle)


def _logs(services: Services, request: DescribeLogDirsRequest) -> Iterator[Log]:
    """As in Kafka, what is asked for and not there is left out."""
    if request.topics is None:
        yield from services.topics.logs()
        return
    wanted = dict.fromkeys(TopicPartition(one.topic, number) for one in request.topics for number in one.partitions)
    for partition in wanted:
        try:
            yield services.topics.log(partition)
        except (TopicNotFoundError, PartitionNotFoundError):
            continue
