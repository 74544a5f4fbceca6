"""Helpers of the group and transaction handlers: replies that come later, and per-partition results of commits."""

from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from logbrook.core.coordinator import CoordinatorError
from logbrook.core.groups.messages import OffsetToCommit
from logbrook.core.metadata import Topic
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.offset_commit import OffsetCommitRequestPartition
from logbrook.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition
from logbrook.protocol.schema import ApiMessage
from logbrook.server.api import HandlerResult
from logbrook.server.errors import HasErrorCode, report_error
from logbrook.server.topic_checks import check_partition_exists

T = TypeVar("T")


def respond_when_done(
    request: Callable[[], "Future[T]"], respond: Callable[[T | CoordinatorError], ApiMessage]
) -> HandlerResult:
    """Make a request of the coordinator, and return the response that `respond` makes of its result, now or later.

    The result is a CoordinatorError if `request` or its future raises one. Cancelling the returned future, when the
    client has disconnected, cancels the request.
    """
    try:
        reply = request()
    except CoordinatorError as error:
        return respond(error)
    if reply.done():
        return respond(_result(reply))
    response: Future[ApiMessage] = reply.get_loop().create_future()

    def finish(reply: "Future[T]") -> None:
        if response.done():
            return
        if reply.cancelled():
            response.cancel()
            return
        try:
            response.set_result(respond(_result(reply)))
        except Exception as error:
            response.set_exception(error)

    reply.add_done_callback(finish)
    response.add_done_callback(lambda response: reply.cancel() if response.cancelled() else None)
    return response


def _result(reply: "Future[Any]") -> Any:
    try:
        return reply.result()
    except CoordinatorError as error:
        # The error is kept with the response, and must not keep the frames that raised it.
        return error.with_traceback(None)


def producer_fenced_code(code: ErrorCode, version: int, *, fenced_since: int) -> ErrorCode:
    """Return INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED for versions without the latter (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


class OffsetCommitResults:
    """The offsets of one commit request, each with the partition of the response that gets its error code."""

    def __init__(self) -> None:
        self.offsets: list[OffsetToCommit] = []
        # Parallel to `offsets`.
        self._responses: list[HasErrorCode] = []

    def add(
        self,
        topic: Topic,
        requested: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        response: HasErrorCode,
    ) -> None:
        """Add an offset to commit, or set the error code if its partition does not exist."""
        partition = TopicPartition(topic.name, requested.partition_index)
        try:
            check_partition_exists(topic, partition)
        except LogbrookError as error:
            report_error(error, response)
            return
        metadata = requested.committed_metadata or ""
        offset = OffsetToCommit(
            partition, Offset(requested.committed_offset), LeaderEpoch(requested.committed_leader_epoch), metadata
        )
        self.offsets.append(offset)
        self._responses.append(response)

    def fail(self, responses: Sequence[HasErrorCode], error: LogbrookError) -> None:
        for response in responses:
            report_error(error, response)

    def finish(self, result: Mapping[TopicPartition, LogbrookError] | LogbrookError) -> None:
        """Set the error codes: one error for all offsets, or the errors of the rejected ones."""
        if isinstance(result, LogbrookError):
            self.fail(self._responses, result)
            return
        for offset, response in zip(self.offsets, self._responses, strict=True):
            error = result.get(offset.partition)
            if error is not None:
                report_error(error, response)
