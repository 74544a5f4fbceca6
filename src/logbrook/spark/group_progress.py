"""Progress of a stream as committed offsets of a consumer group, so that lag tools show it.

It is a report: a query resumes from Spark's checkpoint, never from these offsets. So a commit that fails is logged and
repeated later, and does not fail the query. It fails, for example, while the group has members of its own.
"""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Protocol

from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.spark.outages import LogInterval

# Triggers are not delayed by commits for this long after a failed one.
_PAUSE_S = 10.0

_logger = event_logger(__name__)


class OffsetCommitter(Protocol):
    """A `Planner`, or a substitute in tests."""

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None: ...


class GroupProgress:
    """The progress of one stream under `group_id`; on the driver."""

    def __init__(self, group_id: str, clock: Callable[[], float] = monotonic) -> None:
        self._group_id = group_id
        self._clock = clock
        self._log_interval = LogInterval(clock=clock)
        self._committed: Mapping[TopicPartition, int] = {}
        self._resume_at_s = float("-inf")

    def commit(self, committer: OffsetCommitter, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit `offsets` unless they are committed already. Errors are logged, once a minute, and not raised."""
        if offsets == self._committed or self._clock() < self._resume_at_s:
            return
        try:
            committer.commit(self._group_id, offsets)
        except LogbrookError as error:
            self._resume_at_s = self._clock() + _PAUSE_S
            if self._log_interval.is_due():
                _logger.warning("progress not committed", group=self._group_id, error=str(error))
        else:
            self._committed = offsets
