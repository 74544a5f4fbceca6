"""The offsets of a commit, plain or part of a transaction, and the place where the answer of each goes.

Each partition has its own answer: one that is not there is refused here, and what is said of the request as a whole
holds for all the others.
"""

from typing import Protocol, TypeVar

from logbrook.core.groups import OffsetToCommit
from logbrook.core.metadata import Topic
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.messages.offset_commit import OffsetCommitRequestPartition
from logbrook.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition
from logbrook.protocol.schema import ApiMessage
from logbrook.server.refusals import refuse
from logbrook.server.services import Services
from logbrook.server.topic_lookup import check_partition_exists


class HasErrorCode(Protocol):
    """The answer for a partition."""

    error_code: int


R = TypeVar("R", bound=HasErrorCode)
E = TypeVar("E", bound=LogbrookError)


class OffsetCommits:
    """Those of one request."""

    def __init__(self, services: Services, request: ApiMessage) -> None:
        self._services = services
        self._request = request
        self.offsets: list[OffsetToCommit] = []
        # Beside each offset, the place where its answer goes.
        self._responses: list[HasErrorCode] = []

    def add(
        self, topic: Topic, one: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition, response: HasErrorCode
    ) -> None:
        """An offset that is to be committed if its partition is there."""
        partition = TopicPartition(topic.name, one.partition_index)
        try:
            check_partition_exists(topic, partition)
        except LogbrookError as error:
            self.refuse([response], error)
            return
        metadata = one.committed_metadata or ""
        self.offsets.append(OffsetToCommit(partition, one.committed_offset, one.committed_leader_epoch, metadata))
        self._responses.append(response)

    def refuse(self, responses: "list[R]", error: LogbrookError) -> None:
        for response in responses:
            response.error_code = refuse(self._services, self._request, error).code

    def settle(self, result: "dict[TopicPartition, E] | LogbrookError") -> None:
        """Tell how the commit ended: with one error for all, or with some that were refused."""
        if isinstance(result, LogbrookError):
            self.refuse(self._responses, result)
            return
        for offset, response in zip(self.offsets, self._responses, strict=True):
            refused = result.get(offset.partition)
            if refused is not None:
                self.refuse([response], refused)
